/* summary.json: all figures, with what they mean. */
#include "analysis/uncertainty/results/results_priv.h"

#include <stdio.h>
#include <string.h>

const comparison_definition comparison_definitions[] = {
    {"nll", "NLL",
     "mean negative log-likelihood of a token, in nats; of a method with several members the "
     "probability is the mean of theirs (the mixture)"},
    {"perplexity", "Perplexity",
     "exp(nll); perplexity_low and perplexity_high are exp of nll_low and nll_high"},
    {"accuracy", "Accuracy", "share of tokens whose most probable prediction is right"},
    {"brier", "Brier",
     "mean over tokens of sum_v (p_v - [v = target])^2 over the whole vocabulary: 0 to 2 (Brier "
     "1950), lower is better"},
    {"ece", "ECE",
     "expected calibration error of the top prediction, sum_b n_b / N |accuracy_b - confidence_b| "
     "over 15 equal-width bins (k/15, (k+1)/15], confidence_b the mean in the bin (L1; Guo et al. "
     "2017). Noise alone makes it larger than 0, so it has no interval: see "
     "rms_calibration_error"},
    {"ece_adaptive", "Adaptive ECE",
     "the same over 15 bins of equal token count (Nguyen and O'Connor 2015)"},
    {"squared_calibration_error", "Squared calibration error",
     "sum_b n_b / N (accuracy_b - confidence_b)^2 over the bins of the ECE, less what noise adds "
     "to "
     "it, as told by differences between documents (debiased; Kumar, Liang and Ma 2019): a little "
     "below 0 where the truth is near 0"},
    {"rms_calibration_error", "RMS calibration error",
     "the root of squared_calibration_error and of its interval, 0 of what is below 0; the true "
     "one "
     "is never below the true ECE"},
    {"aurc", "AURC",
     "area under the risk-coverage curve: mean error rate of the k most confident tokens over all "
     "k (Geifman et al. 2019), lower is better"},
    {"temperature", "Temperature",
     "T that minimises the NLL of softmax(log p / T) on corpus.valid, p the mixture: above 1 the "
     "method is too sure of itself (Guo et al. 2017); null without corpus.valid"},
    {"ood", "Shift detection",
     "is a document of the shift told from one in the domain by its mean score a token? Positive "
     "class: shifted; a higher score speaks for it. Scores: mutual_information (between the "
     "prediction and the member: what the model does not know), entropy (of the mixture: all that "
     "is uncertain), nll. A method of one distribution has no mutual information (it is 0 for all "
     "text), so no figure and no difference by it: null"},
    {"members", "Members",
     "M, the distributions that are mixed: members, passes or samples. Mutual information is a "
     "plug-in estimate: it grows with M on average, and never exceeds log M. Compare its values "
     "only between methods of one M"},
    {"auroc", "AUROC",
     "chance that a shifted document scores higher than one in the domain, ties counting half"},
    {"aupr", "AUPR",
     "average precision over thresholds, without interpolation; its value without "
     "skill is the share of shifted documents"},
    {"fpr95", "FPR95",
     "share of in-domain documents that are called shifted at the highest threshold that finds 95 "
     "% of the shifted ones, lower is better"},
    {"intervals", "Intervals",
     "_low and _high: 95 % percentile bootstrap over documents; all methods see the same resamples "
     "(paired), so a difference has an interval of its own, often narrower than those of its "
     "sides. That of squared_calibration_error is corrected for bias: simulated, it covers 95 % of "
     "the time, more where the error is near 0. ece and ece_adaptive have none"},
    {"differences", "Differences", "differences.A.B is A minus B"},
    {"train_seconds", "Training",
     "wall-clock seconds of the training steps of all models of the method, one after another; "
     "null "
     "for models that were imported"},
    {"fit_seconds", "Fit", "seconds to fit the Laplace approximation; null for other methods"},
    {"score_seconds", "Scoring",
     "wall-clock seconds to score all corpora, over all starts but those that were killed"},
    {"memory_mib", "Memory", "peak resident memory of the largest rank while scoring, in MiB"},
    {NULL, NULL, NULL}};

static void put_real(json_t *object, const char *key, double value)
{
    (void)json_object_set_new(object, key, bp_json_real(value));
}

static void put_value(json_t *object, const char *name, const comparison_value *value)
{
    char key[64];

    put_real(object, name, value->value);
    snprintf(key, sizeof(key), "%s_low", name);
    put_real(object, key, value->low);
    snprintf(key, sizeof(key), "%s_high", name);
    put_real(object, key, value->high);
}

/* {"auroc": {"mutual_information": ...}, "auroc_low": ...} of one shift. */
static json_t *detection_json(const comparison_value *values, int64_t shift, int last)
{
    static const char *const ENDS[] = {"", "_low", "_high"};
    json_t *object = json_object();

    for (int d = 0; d <= last; d++)
        for (int e = 0; e < 3; e++) {
            json_t *scores = json_object();
            char key[32];

            for (int c = 0; c < COMPARISON_SCORES; c++) {
                const comparison_value *v =
                    &values[comparison_column(shift, (comparison_score)c, d)];

                put_real(scores, comparison_score_name((comparison_score)c),
                         e == 0 ? v->value : (e == 1 ? v->low : v->high));
            }
            snprintf(key, sizeof(key), "%s%s", comparison_detection_name(d), ENDS[e]);
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
                                  detection_json(values, s, last));
    return object;
}

static void put_temper(json_t *object, const comparison_temperature *temperature)
{
    put_real(object, "temperature", temperature->temperature);
    put_real(object, "temperature_nll_before", temperature->before);
    put_real(object, "temperature_nll", temperature->after);
    (void)json_object_set_new(object, "temperature_tokens", json_integer(temperature->tokens));
    (void)json_object_set_new(object, "temperature_at_edge", json_boolean(temperature->at_edge));
}

static json_t *risk_json(const comparison_result *result)
{
    json_t *object = json_object();

    for (int o = 0; o < COMPARISON_ORDERS; o++) {
        json_t *risk = json_object();

        put_real(risk, "area_error", result->risk[o].area_error);
        put_real(risk, "area_nll", result->risk[o].area_nll);
        (void)json_object_set_new(object, comparison_order_name((comparison_order)o), risk);
    }
    return object;
}

static json_t *reliability_json(const comparison_result *result)
{
    json_t *bars = json_array();

    for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
        const bp_reliability *bar = &result->bars[b];
        json_t *object = json_object();

        put_real(object, "low", bar->low);
        put_real(object, "high", bar->high);
        (void)json_object_set_new(object, "tokens", json_integer(bar->tokens));
        put_real(object, "confidence", bar->confidence);
        put_real(object, "accuracy", bar->accuracy);
        (void)json_array_append_new(bars, object);
    }
    return bars;
}

static json_t *method_json(const comparison_results *results, int64_t m)
{
    const comparison_method *method = &results->methods.items[m];
    const comparison_result *result = &results->results[m];
    const comparison_value perplexity = comparison_perplexity(result), rms = comparison_rms(result);
    json_t *object = json_object();

    (void)json_object_set_new(object, "way", json_string(comparison_way_name(method->way)));
    (void)json_object_set_new(object, "ensemble", json_boolean(results->metadata[m].ensemble));
    (void)json_object_set_new(object, "members", json_integer(results->members[m]));
    put_value(object, "nll", &result->values[COMPARISON_FIGURE_NLL]);
    put_value(object, "perplexity", &perplexity);
    for (int f = COMPARISON_FIGURE_ACCURACY; f < COMPARISON_FIGURES; f++)
        put_value(object, comparison_figure_name(f), &result->values[f]);
    put_value(object, "rms_calibration_error", &rms);
    put_temper(object, &results->temperatures[m]);
    put_real(object, "train_seconds", results->costs[m].train_seconds);
    put_real(object, "fit_seconds", results->costs[m].fit_seconds);
    put_real(object, "score_seconds", results->costs[m].score_seconds);
    put_real(object, "memory_mib", results->costs[m].memory_mib);
    (void)json_object_set_new(object, "ood",
                              all_detection_json(results, result->values, COMPARISON_FPR95));
    (void)json_object_set_new(object, "risk_coverage", risk_json(result));
    (void)json_object_set_new(object, "reliability", reliability_json(result));
    return object;
}

static json_t *difference_json(const comparison_results *results, const comparison_value *values)
{
    json_t *object = json_object();

    for (int f = 0; f < COMPARISON_FIGURES; f++)
        put_value(object, comparison_figure_name(f), &values[f]);
    (void)json_object_set_new(object, "ood", all_detection_json(results, values, COMPARISON_AUROC));
    return object;
}

static json_t *differences_json(const comparison_results *results)
{
    int64_t methods = results->methods.count, columns = comparison_columns(results->shifted.count);
    json_t *object = json_object();

    for (int64_t i = 0; i + 1 < methods; i++) {
        json_t *row = json_object();

        for (int64_t k = i + 1; k < methods; k++)
            (void)json_object_set_new(
                row, results->methods.items[k].name,
                difference_json(results,
                                results->differences + comparison_pair(i, k, methods) * columns));
        (void)json_object_set_new(object, results->methods.items[i].name, row);
    }
    return object;
}

static json_t *group_json(const comparison_group *group, int64_t dropped)
{
    json_t *object = json_object();

    (void)json_object_set_new(object, "documents", json_integer(group->document_count));
    (void)json_object_set_new(object, "documents_without_tokens", json_integer(dropped));
    return object;
}

static json_t *groups_json(const comparison_results *results)
{
    json_t *object = json_object(), *shifted = json_object();
    json_t *in_domain = group_json(&results->in_domain.items[0], results->dropped[0]);

    (void)json_object_set_new(in_domain, "tokens", json_integer(results->results[0].tokens));
    (void)json_object_set_new(object, "in_domain", in_domain);
    for (int64_t s = 0; s < results->shifted.count; s++)
        (void)json_object_set_new(shifted, results->shifted.items[s].name,
                                  group_json(&results->shifted.items[s], results->dropped[1 + s]));
    (void)json_object_set_new(object, "shifted", shifted);
    return object;
}

static json_t *definitions_json(const comparison_results *results)
{
    json_t *object = json_object();

    for (const comparison_definition *one = comparison_definitions; one->key; one++)
        (void)json_object_set_new(object, one->key, json_string(one->text));
    (void)json_object_set_new(object, "bins", json_integer(BP_CALIBRATION_BINS));
    (void)json_object_set_new(object, "norm", json_string("L1"));
    (void)json_object_set_new(object, "positive_class", json_string("shifted"));
    (void)json_object_set_new(object, "logarithm", json_string("natural (nats)"));
    (void)json_object_set_new(object, "resamples", json_integer(results->resamples));
    (void)json_object_set_new(object, "confidence_level", json_real(0.95));
    return object;
}

bp_err comparison_summary(json_t **out, const comparison_results *results)
{
    json_t *methods = json_object();

    for (int64_t m = 0; m < results->methods.count; m++)
        (void)json_object_set_new(methods, results->methods.items[m].name, method_json(results, m));
    *out = json_pack("{s:i, s:o, s:o, s:o, s:o}", "format_version", 1, "methods", methods,
                     "differences", differences_json(results), "groups", groups_json(results),
                     "definitions", definitions_json(results));
    return *out ? BP_OK : BP_FAIL(BP_ERR_SYSTEM, "no memory for the summary of a study");
}
