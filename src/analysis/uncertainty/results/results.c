/* From the score folders of all methods to results and differences. */
#include "analysis/uncertainty/results/results_priv.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define FEW_DOCUMENTS 30

static bp_err out_of_memory(void)
{
    return BP_FAIL(BP_ERR_SYSTEM, "no memory for the results of a study");
}

int64_t comparison_pair(int64_t i, int64_t k, int64_t methods)
{
    return i * methods - i * (i + 1) / 2 + (k - i - 1);
}

void comparison_results_init(comparison_results *results)
{
    int64_t methods = results->methods.count;

    results->metadata = bp_alloc("comparison.results", methods, sizeof(*results->metadata));
    results->members = bp_alloc("comparison.results", methods, sizeof(*results->members));
    results->results = bp_alloc("comparison.results", methods, sizeof(*results->results));
    results->costs = bp_alloc("comparison.results", methods, sizeof(*results->costs));
    results->temperatures = bp_alloc("comparison.results", methods, sizeof(*results->temperatures));
    for (int64_t m = 0; m < methods; m++) {
        results->costs[m] = (comparison_cost){NAN, NAN, NAN, NAN};
        results->temperatures[m] = (comparison_temperature){NAN, NAN, NAN, false, 0};
    }
}

void comparison_results_clear(comparison_results *results)
{
    for (int64_t m = 0; results->results && m < results->methods.count; m++)
        comparison_result_clear(&results->results[m], results->shifted.count);
    bp_free(results->results);
    bp_free(results->differences);
    bp_free(results->dropped);
    bp_free(results->temperatures);
    bp_free(results->costs);
    bp_free(results->members);
    bp_free(results->metadata);
    comparison_groups_clear(&results->shifted);
    comparison_groups_clear(&results->in_domain);
    comparison_methods_clear(&results->methods);
    bp_free(results->command);
    bp_free(results->folder);
    *results = (comparison_results){0};
}

static char *folder_of(const comparison_results *results, int64_t method)
{
    return bp_sprintf("%s/scores/%s/score", results->folder, results->methods.items[method].name);
}

/* ---- the same documents for all ---- */

static bp_err count_tokens(const comparison_results *results, int64_t method, int64_t documents,
                           int64_t **tokens)
{
    char *folder = folder_of(results, method);
    bp_err err = folder ? comparison_scores_count(tokens, folder, documents) : out_of_memory();

    bp_free(folder);
    return err;
}

static bp_err check_same(const comparison_results *results, int64_t method, const int64_t *tokens,
                         int64_t documents)
{
    int64_t *others = NULL;
    bp_err err = count_tokens(results, method, documents, &others);

    for (int64_t d = 0; err == BP_OK && d < documents; d++)
        if (others[d] != tokens[d])
            err = BP_FAIL(BP_ERR_FORMAT,
                          "methods scored other numbers of tokens of document %" PRId64
                          ", %s %" PRId64 " and %s %" PRId64
                          ": at %s/scores; remove that folder, to score again",
                          d, results->methods.items[0].name, tokens[d],
                          results->methods.items[method].name, others[d], results->folder);
    bp_free(others);
    return err;
}

static bp_err filter_group(comparison_group *group, const int64_t *tokens, int64_t *dropped)
{
    *dropped = comparison_group_filter(group, tokens);
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

static bp_err filter_groups(comparison_results *results, const int64_t *tokens)
{
    bp_err err = filter_group(&results->in_domain.items[0], tokens, &results->dropped[0]);

    for (int64_t s = 0; err == BP_OK && s < results->shifted.count; s++)
        err = filter_group(&results->shifted.items[s], tokens, &results->dropped[1 + s]);
    return err;
}

/* ---- one after the other: the tokens of one method are in memory at a time ---- */

static bp_err analyse_method(comparison_results *results, int64_t method, const int64_t *tokens,
                             int64_t documents)
{
    comparison_analysis_spec spec = {.seed = results->seed,
                                     .resamples = results->resamples,
                                     .one = results->members[method] == 1,
                                     .in_domain = &results->in_domain.items[0],
                                     .shifted = &results->shifted};
    char *folder = folder_of(results, method);
    comparison_scores scores = {0};
    bp_err err = folder ? comparison_scores_read(&scores, folder, tokens, documents, spec.in_domain)
                        : out_of_memory();

    if (err == BP_OK)
        err = comparison_analyse(&results->results[method], &scores, &spec);
    comparison_scores_clear(&scores);
    bp_free(folder);
    return err;
}

static bp_err compare_methods(comparison_results *results)
{
    int64_t methods = results->methods.count, columns = comparison_columns(results->shifted.count);
    bp_err err = BP_OK;

    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; err == BP_OK && k < methods; k++)
            err = comparison_difference(
                results->differences + comparison_pair(i, k, methods) * columns,
                &results->results[i], &results->results[k], columns, results->resamples);
    return err;
}

/* The shifts are known by now. */
static bp_err make_room(comparison_results *results)
{
    int64_t methods = results->methods.count, shifts = results->shifted.count;
    int64_t pairs = methods * (methods - 1) / 2;

    results->dropped = bp_alloc("comparison.results", 1 + shifts, sizeof(*results->dropped));
    results->differences = bp_alloc("comparison.results", pairs * comparison_columns(shifts),
                                    sizeof(*results->differences));
    return results->dropped && results->differences ? BP_OK : out_of_memory();
}

bp_err comparison_results_analyse(comparison_results *results, int64_t documents)
{
    int64_t *tokens = NULL;
    bp_err err = make_room(results);

    if (err == BP_OK)
        err = count_tokens(results, 0, documents, &tokens);
    for (int64_t m = 1; err == BP_OK && m < results->methods.count; m++)
        err = check_same(results, m, tokens, documents);
    if (err == BP_OK)
        err = filter_groups(results, tokens);
    for (int64_t m = 0; err == BP_OK && m < results->methods.count; m++)
        err = analyse_method(results, m, tokens, documents);
    if (err == BP_OK)
        err = compare_methods(results);
    bp_free(tokens);
    return err;
}
