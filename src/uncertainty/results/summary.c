/* summary.json: all figures, with their definitions. Called by uncertainty/comparison/job.c,
 * definitions.c and page.c. */
#include "uncertainty/results/results.h"

#include "base/config/json.h"

#include <stdio.h>

const char *comparison_definition_text(const comparison_results *results,
                                       const comparison_definition *one)
{
    const char *text = !results->task->objective                 ? NULL
                       : bp_task_kind_has_classes(results->task) ? one->of_classes
                                                                 : one->of_parts;

    return text ? text : one->text;
}

const char *comparison_prediction_name(const comparison_results *results)
{
    return results->task->prediction;
}

static void put_real(json_t *object, const char *key, double value)
{
    (void)json_object_set_new(object, key, bp_json_real(value));
}

/* Takes the reference. */
static void put_all(json_t *object, json_t *more)
{
    (void)json_object_update(object, more);
    json_decref(more);
}

static void put_value(json_t *object, const char *name, const comparison_value *value)
{
    char key[64];

    put_real(object, name, value->value);
    snprintf(key, sizeof key, "%s_low", name);
    put_real(object, key, value->low);
    snprintf(key, sizeof key, "%s_high", name);
    put_real(object, key, value->high);
}

/* {"auroc": {"mutual_information": ...}, "auroc_low": ...} of one shift. */
static json_t *detection_json(const comparison_results *results, const comparison_value *values,
                              int64_t shift, int last)
{
    static const char *const ENDS[] = {"", "_low", "_high"};
    json_t *object = json_object();

    for (int d = 0; d <= last; d++)
        for (int e = 0; e < 3; e++) {
            json_t *scores = json_object();
            char key[32];

            for (int c = 0; c < COMPARISON_SCORES; c++) {
                if (!comparison_has_score(results, c))
                    continue;
                const comparison_value *v = &values[comparison_column(shift, c, d)];

                put_real(scores, comparison_score_name(results, c),
                         e == 0 ? v->value : (e == 1 ? v->low : v->high));
            }
            snprintf(key, sizeof key, "%s%s", comparison_detection_names[d], ENDS[e]);
            (void)json_object_set_new(object, key, scores);
        }
    return object;
}

static json_t *all_detection_json(const comparison_results *results, const comparison_value *values,
                                  int last)
{
    json_t *object = json_object();

    for (int64_t s = 0; s < results->shifted.count; s++)
        (void)json_object_set_new(object, results->shifted.items[s].name,
                                  detection_json(results, values, s, last));
    return object;
}

/* Of each group: {"mean": {"mutual_information": ...}, "mean_low": ..., "mean_high": ...}. */
static json_t *means_json(const comparison_results *results, const comparison_result *result)
{
    static const char *const ENDS[] = {"mean", "mean_low", "mean_high"};
    json_t *object = json_object();

    for (int64_t g = 0; g <= results->shifted.count; g++) {
        json_t *group = json_object();

        for (int e = 0; e < 3; e++) {
            json_t *scores = json_object();

            for (int c = 0; c < COMPARISON_SCORES; c++) {
                const comparison_value *v = &result->means[g * COMPARISON_SCORES + c];

                if (comparison_has_score(results, c) && result->has[c])
                    put_real(scores, comparison_score_name(results, c),
                             e == 0 ? v->value : (e == 1 ? v->low : v->high));
            }
            (void)json_object_set_new(group, ENDS[e], scores);
        }
        (void)json_object_set_new(object, g == 0 ? "in_domain" : results->shifted.items[g - 1].name,
                                  group);
    }
    return object;
}

static json_t *method_json(const comparison_results *results, int64_t m)
{
    const comparison_method *method = &results->methods.items[m];
    const comparison_result *result = &results->results[m];
    const comparison_temperature *temperature = &results->temperatures[m];
    const comparison_cost *cost = &results->costs[m];
    const comparison_value perplexity = comparison_perplexity(results, result);
    json_t *risk = json_object(), *bars = json_array();
    json_t *object =
        json_pack("{s:s, s:b, s:I}", "way", method->way->word, "ensemble",
                  (int)results->metadata[m].ensemble, "members", (json_int_t)results->members[m]);

    for (int o = 0; o < COMPARISON_ORDERS; o++)
        (void)json_object_set_new(risk, comparison_order_names[o],
                                  json_pack("{s:o, s:o}", "area_error",
                                            bp_json_real(result->risk[o].area_error), "area_nll",
                                            bp_json_real(result->risk[o].area_nll)));
    for (const bp_reliability *bar = result->bars; bar < result->bars + BP_CALIBRATION_BINS; bar++)
        (void)json_array_append_new(
            bars,
            json_pack("{s:o, s:o, s:I, s:o, s:o}", "low", bp_json_real(bar->low), "high",
                      bp_json_real(bar->high), "tokens", (json_int_t)bar->tokens, "confidence",
                      bp_json_real(bar->confidence), "accuracy", bp_json_real(bar->accuracy)));
    put_value(object, "nll", &result->values[COMPARISON_FIGURE_NLL]);
    if (results->task->is_value)
        put_real(object, "noise_variance", temperature->noise);
    else
        put_value(object, "perplexity", &perplexity);
    for (int f = COMPARISON_FIGURE_ACCURACY; f < comparison_figures(results); f++) {
        const comparison_value root = comparison_rms(result, f);

        if (!comparison_figure_name(results, f))
            continue;
        put_value(object, comparison_figure_name(results, f), &result->values[f]);
        if (comparison_has_root(f))
            put_value(object, comparison_root_name(results, f), &root);
    }
    put_all(object,
            json_pack("{s:o, s:o, s:o, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "temperature",
                      bp_json_real(temperature->temperature), "temperature_nll_before",
                      bp_json_real(temperature->before), "temperature_nll",
                      bp_json_real(temperature->after), "temperature_tokens",
                      (json_int_t)temperature->tokens, "temperature_at_edge",
                      (int)temperature->at_edge, "train_seconds", bp_json_real(cost->train_seconds),
                      "fit_seconds", bp_json_real(cost->fit_seconds), "score_seconds",
                      bp_json_real(cost->score_seconds), "memory_mib",
                      bp_json_real(cost->memory_mib), "ood",
                      all_detection_json(results, result->values, COMPARISON_FPR95),
                      "risk_coverage", risk, "reliability", bars));
    (void)json_object_set_new(object, "scores", means_json(results, result));
    if (results->sets[m].count > 0)
        (void)json_object_set_new(object, "sets", comparison_sets_summary(&results->sets[m]));
    return object;
}

static json_t *differences_json(const comparison_results *results)
{
    int64_t methods = results->methods.count, columns = comparison_columns(results->shifted.count);
    const comparison_value *values = results->differences;
    json_t *object = json_object();

    for (int64_t i = 0; i + 1 < methods; i++) {
        json_t *row = json_object();

        for (int64_t k = i + 1; k < methods; k++, values += columns) {
            json_t *one = json_object();

            for (int f = 0; f < comparison_figures(results); f++)
                if (comparison_figure_name(results, f))
                    put_value(one, comparison_figure_name(results, f), &values[f]);
            (void)json_object_set_new(one, "ood",
                                      all_detection_json(results, values, COMPARISON_AUROC));
            (void)json_object_set_new(row, results->methods.items[k].name, one);
        }
        (void)json_object_set_new(object, results->methods.items[i].name, row);
    }
    return object;
}

static json_t *group_json(const comparison_results *results, const comparison_group *group,
                          int64_t dropped)
{
    json_t *object = json_pack("{s:I, s:I}", "documents", (json_int_t)group->document_count,
                               "documents_without_tokens", (json_int_t)dropped);

    if (results->cluster)
        (void)json_object_set_new(
            object, "clusters",
            json_integer((json_int_t)comparison_clusters_of(NULL, results->cluster, group)));
    return object;
}

static json_t *groups_json(const comparison_results *results)
{
    json_t *shifted = json_object(),
           *domain = group_json(results, &results->in_domain.items[0], results->dropped[0]),
           *object;

    (void)json_object_set_new(domain, "tokens",
                              json_integer((json_int_t)results->results[0].tokens));
    for (int64_t s = 0; s < results->shifted.count; s++)
        (void)json_object_set_new(
            shifted, results->shifted.items[s].name,
            group_json(results, &results->shifted.items[s], results->dropped[1 + s]));
    object = json_pack("{s:o, s:o}", "in_domain", domain, "shifted", shifted);
    if (results->cluster)
        (void)json_object_set_new(object, "cluster", bp_json_string(results->cluster_label));
    if (results->cut > 0) /* else read whole, or not known */
        put_all(object, json_pack("{s:I, s:I}", "documents_cut", (json_int_t)results->cut, "places",
                                  (json_int_t)results->positions));
    return object;
}

static json_t *definitions_json(const comparison_results *results)
{
    json_t *object = json_object();

    for (const comparison_definition *one = comparison_definitions_of(results); one->key; one++)
        (void)json_object_set_new(object, one->key,
                                  bp_json_string(comparison_definition_text(results, one)));
    put_all(object,
            json_pack("{s:i, s:s, s:s, s:s, s:I, s:f}", "bins", BP_CALIBRATION_BINS, "norm", "L1",
                      "positive_class", "shifted", "logarithm", "natural (nats)", "resamples",
                      (json_int_t)results->resamples, "confidence_level", 0.95));
    return object;
}

json_t *comparison_summary(const comparison_results *results)
{
    json_t *methods = json_object();
    char predictions[32];

    snprintf(predictions, sizeof predictions, "%ss", comparison_prediction_name(results));
    for (int64_t m = 0; m < results->methods.count; m++)
        (void)json_object_set_new(methods, results->methods.items[m].name, method_json(results, m));
    return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o}", "format_version", 1, "predictions",
                     predictions, "methods", methods, "differences", differences_json(results),
                     "groups", groups_json(results), "definitions", definitions_json(results));
}
