/* The names of a model's statistics of each token, and of the members among them. Called by
 * infer/score/setup.c, summary.c and tables.c. */
#include "infer/score/tables/token_statistics.h"

#include "base/mem.h"
#include "mesh/collective.h"

#include <math.h>

void bp_token_statistics_init(bp_token_statistics *statistics, const bp_model_info *info)
{
    int64_t members = info->members;

    int64_t extras = bp_model_extras_before(info->extras, BP_MODEL_EXTRAS);

    BP_ASSERT(members > 0 ? info->statistics == bp_model_first_member(info) + members + extras
                          : info->statistics <= BP_MODEL_ALONE + 2);
    *statistics = (bp_token_statistics){.count = info->statistics - extras,
                                        .members = members,
                                        .boundaries = info->boundaries,
                                        .entropy = info->entropy};
    statistics->names = bp_alloc("score.statistics", members, sizeof(*statistics->names));
    statistics->oob = bp_alloc("score.statistics", members, sizeof(*statistics->oob));
    for (int64_t m = 0; m < members; m++)
        statistics->oob[m] = NAN;
}

void bp_token_statistics_name(bp_token_statistics *statistics, int64_t member, const char *name,
                              double oob)
{
    bp_free(statistics->names[member]);
    statistics->names[member] = bp_strdup(name);
    statistics->oob[member] = oob;
}

void bp_token_statistics_share(bp_token_statistics *statistics, int from, MPI_Comm comm)
{
    for (int64_t m = 0; from != 0 && m < statistics->members; m++) {
        char *name = bp_comm_rank(comm) == from ? statistics->names[m] : NULL;
        double oob = statistics->oob[m];

        bp_bcast_text(&name, from, comm);
        bp_bcast_bytes(&oob, sizeof(oob), from, comm);
        if (bp_comm_rank(comm) == from)
            continue;
        if (bp_comm_is_root(comm))
            bp_token_statistics_name(statistics, m, name, oob);
        bp_free(name);
    }
}

void bp_token_statistics_clear(bp_token_statistics *statistics)
{
    for (int64_t m = 0; statistics->names && m < statistics->members; m++)
        bp_free(statistics->names[m]);
    bp_free(statistics->names);
    bp_free(statistics->oob);
    *statistics = (bp_token_statistics){0};
}

/* Without sets, statistics at another temperature are in their place. */
static int64_t missing_sets(const bp_token_statistics *statistics)
{
    return statistics->count - statistics->members < BP_MODEL_SET_END
               ? BP_MODEL_SET_END - BP_MODEL_SET_RANK
               : 0;
}

const char *bp_token_statistics_column(const bp_token_statistics *statistics, int64_t c)
{
    return statistics->members > 0 && c >= BP_MODEL_MEMBER
               ? bp_model_statistic_name(c + missing_sets(statistics))
           : statistics->members > 0 || c == BP_MODEL_LOGPROB  ? bp_model_statistic_name(c)
           : statistics->boundaries && c == BP_MODEL_BOUNDARY  ? "boundary_logprob"
           : statistics->entropy && c == statistics->count - 1 ? "entropy"
                                                               : "logprob_alone";
}

/* ---- figures ---- */

static json_t *without_neighbours(bp_fixed sum, int64_t tokens)
{
    double nll = bp_fixed_real(-sum);

    return json_pack("{so so}", "nll_nats", bp_json_real(nll), "perplexity",
                     bp_json_real(exp(nll / (double)tokens)));
}

/* {name, nll_nats, perplexity, oob_perplexity} of each. */
static bp_err list_members(json_t *out, const bp_token_statistics *statistics, const bp_fixed *sums,
                           int64_t tokens, bool oob)
{
    for (int64_t m = 0; m < statistics->members; m++) {
        double nll = bp_fixed_real(-sums[statistics->count - statistics->members + m - 1]);
        json_t *one =
            json_pack("{so so so}", "name", bp_json_string(statistics->names[m]), "nll_nats",
                      bp_json_real(nll), "perplexity", bp_json_real(exp(nll / (double)tokens)));

        (void)json_array_append_new(out, one);
        if (oob && isfinite(statistics->oob[m]))
            (void)json_object_set_new(one, "oob_perplexity", bp_json_real(statistics->oob[m]));
    }
    return BP_OK;
}

double bp_score_unbiased_factor(int64_t members)
{
    return members > 1 ? (double)members / (double)(members - 1) : NAN;
}

bp_err bp_token_statistics_figure(json_t *figures, const bp_token_statistics *statistics,
                                  const bp_fixed *sums, int64_t tokens, bool oob)
{
    static const struct {
        const char *key;
        bp_model_statistic statistic;
    } means[] = {{"total_entropy", BP_MODEL_TOTAL_ENTROPY},
                 {"expected_entropy", BP_MODEL_EXPECTED_ENTROPY},
                 {"mutual_information", BP_MODEL_MUTUAL_INFORMATION},
                 {"logprob_variance", BP_MODEL_LOGPROB_VARIANCE},
                 {"agreement", BP_MODEL_AGREEMENT},
                 {"accuracy", BP_MODEL_CORRECT},
                 {"brier", BP_MODEL_BRIER}};
    double variance;
    json_t *members;

    if (statistics->members == 0) {
        if (statistics->entropy)
            (void)json_object_set_new(
                figures, "entropy",
                bp_json_real(bp_fixed_real(sums[statistics->count - 2]) / (double)tokens));
        else if (statistics->count > BP_MODEL_ALONE && !statistics->boundaries)
            (void)json_object_set_new(figures, "without_neighbours",
                                      without_neighbours(sums[BP_MODEL_ALONE - 1], tokens));
        return BP_OK;
    }
    for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
        double mean = bp_fixed_real(sums[means[i].statistic - 1]) / (double)tokens;

        (void)json_object_set_new(figures, means[i].key, bp_json_real(mean));
    }
    variance = bp_fixed_real(sums[BP_MODEL_LOGPROB_VARIANCE - 1]) / (double)tokens *
               bp_score_unbiased_factor(statistics->members);
    (void)json_object_set_new(figures, BP_SCORE_UNBIASED, bp_json_real(variance));
    members = json_array();
    (void)json_object_set_new(figures, "members", members);
    return list_members(members, statistics, sums, tokens, oob);
}
