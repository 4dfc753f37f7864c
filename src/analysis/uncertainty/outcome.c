/* From the score folders of all methods to results and differences. */
#include "analysis/uncertainty/outcome_priv.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define FEW_DOCUMENTS 30

static bp_err out_of_memory(void)
{
    return BP_FAIL(BP_ERR_SYSTEM, "no memory for the outcome of a study");
}

int64_t study_pair(int64_t i, int64_t k, int64_t methods)
{
    return i * methods - i * (i + 1) / 2 + (k - i - 1);
}

bp_err study_outcome_init(study_outcome *outcome)
{
    int64_t methods = outcome->methods.count;

    outcome->peeks = bp_alloc("study.outcome", methods, sizeof(*outcome->peeks));
    outcome->members = bp_alloc("study.outcome", methods, sizeof(*outcome->members));
    outcome->results = bp_alloc("study.outcome", methods, sizeof(*outcome->results));
    outcome->costs = bp_alloc("study.outcome", methods, sizeof(*outcome->costs));
    outcome->tempers = bp_alloc("study.outcome", methods, sizeof(*outcome->tempers));
    if (!outcome->peeks || !outcome->members || !outcome->results || !outcome->costs ||
        !outcome->tempers)
        return out_of_memory();
    for (int64_t m = 0; m < methods; m++) {
        outcome->costs[m] = (study_cost){NAN, NAN, NAN, NAN};
        outcome->tempers[m] = (study_temper){NAN, NAN, NAN, false, 0};
    }
    return BP_OK;
}

void study_outcome_clear(study_outcome *outcome)
{
    for (int64_t m = 0; outcome->results && m < outcome->methods.count; m++)
        study_result_clear(&outcome->results[m], outcome->shifted.count);
    bp_free(outcome->results);
    bp_free(outcome->differences);
    bp_free(outcome->dropped);
    bp_free(outcome->tempers);
    bp_free(outcome->costs);
    bp_free(outcome->members);
    bp_free(outcome->peeks);
    study_groups_clear(&outcome->shifted);
    study_groups_clear(&outcome->in_domain);
    study_methods_clear(&outcome->methods);
    bp_free(outcome->command);
    bp_free(outcome->folder);
    *outcome = (study_outcome){0};
}

static char *folder_of(const study_outcome *outcome, int64_t method)
{
    return bp_sprintf("%s/scores/%s/score", outcome->folder, outcome->methods.items[method].name);
}

/* ---- the same documents for all ---- */

static bp_err count_tokens(const study_outcome *outcome, int64_t method, int64_t documents,
                           int64_t **tokens)
{
    char *folder = folder_of(outcome, method);
    bp_err err = folder ? study_scores_count(tokens, folder, documents) : out_of_memory();

    bp_free(folder);
    return err;
}

static bp_err check_same(const study_outcome *outcome, int64_t method, const int64_t *tokens,
                         int64_t documents)
{
    int64_t *others = NULL;
    bp_err err = count_tokens(outcome, method, documents, &others);

    for (int64_t d = 0; err == BP_OK && d < documents; d++)
        if (others[d] != tokens[d])
            err = BP_FAIL(BP_ERR_FORMAT,
                          "methods scored other numbers of tokens of document %" PRId64
                          ", %s %" PRId64 " and %s %" PRId64
                          ": at %s/scores; remove that folder, to score again",
                          d, outcome->methods.items[0].name, tokens[d],
                          outcome->methods.items[method].name, others[d], outcome->folder);
    bp_free(others);
    return err;
}

static bp_err filter_group(study_group *group, const int64_t *tokens, int64_t *dropped)
{
    *dropped = study_group_filter(group, tokens);
    if (*dropped > 0)
        bp_log("%s: %" PRId64 " document%s without scored tokens left out", group->name, *dropped,
               *dropped == 1 ? "" : "s");
    if (group->document_count < 2)
        return BP_FAIL(BP_ERR_FORMAT,
                       "the group '%s' has %" PRId64 " document%s with scored tokens: at %s; 2 or "
                       "more are needed",
                       group->name, group->document_count, group->document_count == 1 ? "" : "s",
                       group->parts[0].corpus);
    if (group->document_count < FEW_DOCUMENTS)
        bp_warn("the group '%s' has %" PRId64 " documents: intervals over so few say little",
                group->name, group->document_count);
    return BP_OK;
}

static bp_err filter_groups(study_outcome *outcome, const int64_t *tokens)
{
    bp_err err = filter_group(&outcome->in_domain.items[0], tokens, &outcome->dropped[0]);

    for (int64_t s = 0; err == BP_OK && s < outcome->shifted.count; s++)
        err = filter_group(&outcome->shifted.items[s], tokens, &outcome->dropped[1 + s]);
    return err;
}

/* ---- one after the other: the tokens of one method are in memory at a time ---- */

static bp_err analyse_method(study_outcome *outcome, int64_t method, const int64_t *tokens,
                             int64_t documents)
{
    study_analysis_spec spec = {.seed = outcome->seed,
                                .resamples = outcome->resamples,
                                .one = outcome->members[method] == 1,
                                .in_domain = &outcome->in_domain.items[0],
                                .shifted = &outcome->shifted};
    char *folder = folder_of(outcome, method);
    study_scores scores = {0};
    bp_err err = folder ? study_scores_read(&scores, folder, tokens, documents, spec.in_domain)
                        : out_of_memory();

    if (err == BP_OK)
        err = study_analyse(&outcome->results[method], &scores, &spec);
    study_scores_clear(&scores);
    bp_free(folder);
    return err;
}

static bp_err compare_methods(study_outcome *outcome)
{
    int64_t methods = outcome->methods.count, columns = study_columns(outcome->shifted.count);
    bp_err err = BP_OK;

    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; err == BP_OK && k < methods; k++)
            err = study_difference(outcome->differences + study_pair(i, k, methods) * columns,
                                   &outcome->results[i], &outcome->results[k], columns,
                                   outcome->resamples);
    return err;
}

/* The shifts are known by now. */
static bp_err make_room(study_outcome *outcome)
{
    int64_t methods = outcome->methods.count, shifts = outcome->shifted.count;
    int64_t pairs = methods * (methods - 1) / 2;

    outcome->dropped = bp_alloc("study.outcome", 1 + shifts, sizeof(*outcome->dropped));
    outcome->differences =
        bp_alloc("study.outcome", pairs * study_columns(shifts), sizeof(*outcome->differences));
    return outcome->dropped && outcome->differences ? BP_OK : out_of_memory();
}

bp_err study_outcome_analyse(study_outcome *outcome, int64_t documents)
{
    int64_t *tokens = NULL;
    bp_err err = make_room(outcome);

    if (err == BP_OK)
        err = count_tokens(outcome, 0, documents, &tokens);
    for (int64_t m = 1; err == BP_OK && m < outcome->methods.count; m++)
        err = check_same(outcome, m, tokens, documents);
    if (err == BP_OK)
        err = filter_groups(outcome, tokens);
    for (int64_t m = 0; err == BP_OK && m < outcome->methods.count; m++)
        err = analyse_method(outcome, m, tokens, documents);
    if (err == BP_OK)
        err = compare_methods(outcome);
    bp_free(tokens);
    return err;
}
