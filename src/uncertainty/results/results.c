/* From the score folders of all methods to results and differences. */
#include "uncertainty/results/results.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define FEW_DOCUMENTS 30

void comparison_results_init(comparison_results *results)
{
    int64_t methods = results->methods.count;

    results->metadata = bp_alloc("comparison.results", methods, sizeof *results->metadata);
    results->members = bp_alloc("comparison.results", methods, sizeof *results->members);
    results->results = bp_alloc("comparison.results", methods, sizeof *results->results);
    results->costs = bp_alloc("comparison.results", methods, sizeof *results->costs);
    results->temperatures = bp_alloc("comparison.results", methods, sizeof *results->temperatures);
    results->sets = bp_alloc("comparison.results", methods, sizeof *results->sets);
    for (int64_t m = 0; m < methods; m++) {
        results->costs[m] = (comparison_cost){NAN, NAN, NAN, NAN};
        results->temperatures[m] = (comparison_temperature){NAN, NAN, NAN, false, 0, NAN};
    }
}

void comparison_results_clear(comparison_results *results)
{
    for (int64_t m = 0; results->results && m < results->methods.count; m++)
        comparison_result_clear(&results->results[m], results->shifted.count);
    for (int64_t m = 0; results->sets && m < results->methods.count; m++)
        comparison_sets_clear(&results->sets[m]);
    bp_free(results->sets);
    bp_free(results->cluster);
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
    bp_free(results->folder);
    *results = (comparison_results){0};
}

const char *comparison_score_name(const comparison_results *results, int score)
{
    static const char *const names[COMPARISON_SCORES] = {
        "mutual_information",  "entropy", "nll", "energy", "logit_variance", "mahalanobis",
        "differential_entropy"};

    return results->classes && score == COMPARISON_NLL ? "confidence" : names[score];
}

const char *comparison_score_title(const comparison_results *results, int score)
{
    static const char *const TITLES[COMPARISON_SCORES] = {"mutual information",
                                                          "entropy",
                                                          "NLL",
                                                          "energy",
                                                          "variance of logits",
                                                          "Mahalanobis distance",
                                                          "differential entropy"};

    return results->classes && score == COMPARISON_NLL ? "confidence" : TITLES[score];
}

bool comparison_has_score(const comparison_results *results, int score)
{
    bool has = score <= COMPARISON_NLL;

    for (int64_t m = 0; m < results->methods.count; m++)
        has = has || results->results[m].has[score];
    return has;
}

int comparison_figures(const comparison_results *results)
{
    return COMPARISON_FIGURES + results->coverages.count;
}

static char *folder_of(const comparison_results *results, int64_t method)
{
    return bp_sprintf("%s/scores/%s/score", results->folder, results->methods.items[method].name);
}

/* ---- the same documents for all ---- */

static bp_err check_same(const comparison_results *results, int64_t method, const int64_t *tokens,
                         int64_t documents)
{
    int64_t *others = NULL;
    char *folder = folder_of(results, method);
    bp_err err = comparison_scores_count(&others, folder, documents, results->classes);

    for (int64_t d = 0; err == BP_OK && d < documents; d++)
        if (others[d] != tokens[d])
            err = BP_FAIL(BP_ERR_FORMAT, "comparison.unlike_scores",
                          "methods scored other numbers of tokens of document %" PRId64
                          ", %s %" PRId64 " and %s %" PRId64
                          ": at %s/scores; remove that folder, to score again",
                          d, results->methods.items[0].name, tokens[d],
                          results->methods.items[method].name, others[d], results->folder);
    bp_free(folder);
    bp_free(others);
    return err;
}

static bp_err filter_group(comparison_group *group, const int64_t *tokens, const int64_t *cluster,
                           int64_t *dropped)
{
    int64_t draws;

    *dropped = comparison_group_filter(group, tokens);
    if (*dropped > 0)
        bp_log("%s: %" PRId64 " document%s without scored tokens left out", group->name, *dropped,
               *dropped == 1 ? "" : "s");
    if (group->document_count < 2)
        return BP_FAIL(BP_ERR_FORMAT, "comparison.group_too_small",
                       "the group '%s' has %" PRId64 " document%s with scored tokens: at %s; 2 or "
                       "more are needed",
                       group->name, group->document_count, group->document_count == 1 ? "" : "s",
                       group->parts[0].corpus);
    draws = comparison_clusters_of(NULL, cluster, group);
    if (draws < FEW_DOCUMENTS)
        BP_WARN("comparison.few_documents",
                "the group '%s' has %" PRId64 " %s: intervals over so few say little", group->name,
                draws, cluster ? "clusters of documents" : "documents");
    return BP_OK;
}

/* ---- one after the other: the tokens of one method are in memory at a time ---- */

static bp_err analyse_method(comparison_results *results, int64_t method, const int64_t *tokens,
                             int64_t documents)
{
    comparison_analysis_spec spec = {.seed = results->seed,
                                     .resamples = results->resamples,
                                     .one = results->members[method] == 1 &&
                                            !(results->metadata[method].task.precision > 0),
                                     .cluster = results->cluster,
                                     .limits = comparison_has_limits(results),
                                     .coverages = &results->coverages,
                                     .in_domain = &results->in_domain.items[0],
                                     .shifted = &results->shifted};
    char *folder = folder_of(results, method);
    comparison_scores scores = {0};
    bp_err err = results->task->is_value
                     ? comparison_values_read(&scores, folder, documents, spec.in_domain,
                                              results->temperatures[method].noise)
                     : comparison_scores_read(&scores, folder, tokens, documents, spec.in_domain,
                                              results->classes);

    if (!results->scaled) { /* any more */
        bp_free(scores.tempered);
        scores.tempered = NULL;
    }
    if (err == BP_OK)
        err = comparison_analyse(&results->results[method], &scores, &spec);
    comparison_scores_clear(&scores);
    if (err == BP_OK && results->sets[method].fit.predictions > 0)
        err = comparison_sets_read(&results->sets[method], results, folder, tokens, documents);
    bp_free(folder);
    return err;
}

/* Not for spans, whose windows read all of a document. */
static bp_err find_cut(comparison_results *results, int64_t documents)
{
    char *folder = folder_of(results, comparison_first_model(&results->methods));
    bp_err err = comparison_scores_find_cut(&results->cut, &results->positions, folder);

    results->texts = documents;
    if (err == BP_OK && results->cut > 0)
        BP_WARN("comparison.cut_documents",
                "the models read %" PRId64 " tokens of a document, and %" PRId64 " of %" PRId64
                " documents are longer: at %s; the figures are of what is left of them; cut texts "
                "into passages first to have all of them read, and do not compare with predictions "
                "of others that read more",
                results->positions, results->cut, documents, results->folder);
    bp_free(folder);
    return err;
}

bp_err comparison_results_analyse(comparison_results *results, int64_t documents)
{
    int64_t methods = results->methods.count, shifts = results->shifted.count;
    int64_t columns = comparison_columns(shifts), *tokens = NULL;
    comparison_value *difference;
    char *folder = folder_of(results, 0);
    bp_err err = comparison_scores_count(&tokens, folder, documents, results->classes);

    for (int k = 0; k < results->coverages.count; k++)
        (void)snprintf(results->coverage_names[k], sizeof results->coverage_names[k], "%s_at_%d",
                       results->task->is_value ? "mse" : "accuracy", results->coverages.percent[k]);
    bp_free(folder);
    results->dropped = bp_alloc("comparison.results", 1 + shifts, sizeof *results->dropped);
    results->differences = difference =
        bp_alloc("comparison.results", methods * (methods - 1) / 2 * columns, sizeof *difference);
    if (err == BP_OK && results->classes && !results->task->over_positions)
        err = find_cut(results, documents);
    for (int64_t m = 1; err == BP_OK && m < methods; m++)
        err = check_same(results, m, tokens, documents);
    for (int64_t g = 0; err == BP_OK && g <= shifts; g++)
        err = filter_group(g == 0 ? &results->in_domain.items[0] : &results->shifted.items[g - 1],
                           tokens, results->cluster, &results->dropped[g]);
    for (int64_t m = 0; err == BP_OK && m < methods; m++)
        err = analyse_method(results, m, tokens, documents);
    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; err == BP_OK && k < methods; k++, difference += columns)
            err = comparison_difference(difference, &results->results[i], &results->results[k],
                                        columns, results->resamples);
    bp_free(tokens);
    return err;
}
