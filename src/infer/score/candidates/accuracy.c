/* Which choice is best, and how often it is the right one. Called by choices_merge.c. */
#include "infer/score/candidates/candidates.h"

#include "base/config/json.h"
#include "base/mem.h"
#include "statistics/resample.h"

#include <math.h>

enum { SUMMED, PER_TOKEN, PER_BYTE, WAYS };

int64_t bp_candidates_best(const bp_candidates *candidates, const double *values, int64_t document)
{
    int64_t first = candidates->first[document], best = -1;

    for (int64_t k = 0; first + k < candidates->first[document + 1]; k++)
        if (!isnan(values[first + k]) && (best < 0 || values[first + k] > values[first + best]))
            best = k;
    return best;
}

/* For the documents with an answer: is it the best choice, in each of the ways? */
typedef struct verdicts {
    int64_t documents;
    bool *right; /* [documents][WAYS] */
} verdicts;

static void add_accuracies(double *values, const int32_t *counts, const verdicts *all)
{
    double drawn = 0, right[WAYS] = {0};

    for (int64_t d = 0; d < all->documents; d++) {
        double times = counts ? counts[d] : 1;

        drawn += times;
        for (int w = 0; w < WAYS; w++)
            right[w] += all->right[d * WAYS + w] ? times : 0;
    }
    for (int w = 0; w < WAYS; w++)
        values[w] = drawn > 0 ? right[w] / drawn : NAN;
}

static void resampled(double *values, const int32_t *const *counts, const void *data)
{
    add_accuracies(values, counts[0], data);
}

static json_t *figures(const verdicts *all, uint64_t seed)
{
    static const char *const NAMES[] = {"accuracy", "accuracy_per_token", "accuracy_per_byte"};
    const bp_bootstrap spec = {.seed = seed,
                               .resamples = BP_RESAMPLES,
                               .groups = 1,
                               .documents = &all->documents,
                               .width = WAYS};
    double *values = bp_alloc("score.candidates", BP_RESAMPLES * WAYS, sizeof *values);
    double whole[WAYS];
    json_t *out = json_pack("{s:I}", "answered", (json_int_t)all->documents);

    add_accuracies(whole, NULL, all);
    if (all->documents < 2 || bp_bootstrap_run(values, &spec, resampled, all) != BP_OK)
        for (int i = 0; i < BP_RESAMPLES * WAYS; i++)
            values[i] = NAN;
    for (int w = 0; w < WAYS; w++) {
        bp_interval interval = {NAN, NAN};

        (void)bp_interval_of(&interval, values + w, BP_RESAMPLES, WAYS);
        (void)json_object_set_new(out, NAMES[w],
                                  json_pack("{s:o, s:o, s:o}", "value", bp_json_real(whole[w]),
                                            "low", bp_json_real(interval.low), "high",
                                            bp_json_real(interval.high)));
    }
    bp_free(values);
    return out;
}

json_t *bp_candidates_summary(const bp_candidates *candidates, const double *logprobs,
                              uint64_t seed)
{
    int64_t rows = candidates->first[candidates->documents];
    double *values[WAYS];
    verdicts all = {
        .right = bp_alloc("score.candidates", candidates->documents * WAYS, sizeof *all.right)};
    json_t *out;

    for (int w = 0; w < WAYS; w++) {
        values[w] = bp_alloc("score.candidates", rows, sizeof *values[w]);
        for (int64_t r = 0; r < rows; r++) {
            const bp_candidate_row *row = &candidates->rows[r];

            values[w][r] = logprobs[r] / (double)(w == SUMMED      ? 1
                                                  : w == PER_TOKEN ? row->scored
                                                                   : row->bytes);
            if (row->scored == 0)
                values[w][r] = NAN;
        }
    }
    for (int64_t d = 0; d < candidates->documents; d++) {
        if (candidates->answer[d] < 0 || bp_candidates_best(candidates, logprobs, d) < 0)
            continue;
        for (int w = 0; w < WAYS; w++)
            all.right[all.documents * WAYS + w] =
                bp_candidates_best(candidates, values[w], d) == candidates->answer[d];
        all.documents++;
    }
    out = figures(&all, seed);
    for (int w = 0; w < WAYS; w++)
        bp_free(values[w]);
    bp_free(all.right);
    return out;
}
