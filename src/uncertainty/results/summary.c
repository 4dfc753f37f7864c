/* summary.json: all figures, with what they mean. Called by uncertainty/comparison/job.c,
 * definitions.c and page.c. */
#include "uncertainty/results/results.h"

#include "base/config/json.h"

#include <stdio.h>
#include <string.h>

const comparison_definition comparison_definitions[] = {
    {"nll", "NLL",
     "mean negative log-likelihood of a token, in nats; of a method with several members the "
     "probability is the mean of theirs (the mixture)",
     "mean negative log-likelihood of a document's class, in nats; of a method with several "
     "members the probability is the mean of theirs (the mixture)",
     "mean negative log-likelihood of a prediction's true outcome, in nats; of a method with "
     "several members the probability is the mean of theirs (the mixture)"},
    {"perplexity", "Perplexity",
     "exp(nll); perplexity_low and perplexity_high are exp of nll_low and nll_high"},
    {"accuracy", "Accuracy", "share of tokens whose most probable prediction is right",
     "share of documents whose most probable class is right",
     "share of predictions whose most probable outcome is right"},
    {"brier", "Brier",
     "mean over tokens of sum_v (p_v - [v = target])^2 over the whole vocabulary: 0 to 2 (Brier "
     "1950), lower is better",
     "mean over documents of sum_k (p_k - [k = class])^2 over all classes: 0 to 2 (Brier 1950), "
     "lower is better",
     "mean over predictions of sum_k (p_k - [k = outcome])^2 over all outcomes: 0 to 2 (Brier "
     "1950), lower is better"},
    {"ece", "ECE",
     "expected calibration error of the top prediction, sum_b n_b / N |accuracy_b - confidence_b| "
     "over 15 equal-width bins (k/15, (k+1)/15], confidence_b the mean in the bin (L1; Guo et al. "
     "2017). Noise alone makes it larger than 0, so it has no interval: see rms_calibration_error"},
    {"ece_adaptive", "Adaptive ECE",
     "the same over 15 bins of equal token count (Nguyen and O'Connor 2015)",
     "the same over 15 bins of equal document count (Nguyen and O'Connor 2015)",
     "the same over 15 bins of equal count (Nguyen and O'Connor 2015)"},
    {"squared_calibration_error", "Squared calibration error",
     "sum_b n_b / N (accuracy_b - confidence_b)^2 over the bins of the ECE, less what noise adds "
     "to it, estimated from differences between documents (debiased; Kumar, Liang and Ma 2019): a "
     "little below 0 where the truth is near 0"},
    {"rms_calibration_error", "RMS calibration error",
     "the root of squared_calibration_error and of its interval, 0 of what is below 0; the true "
     "one is never below the true ECE"},
    {"aurc", "AURC",
     "area under the risk-coverage curve: mean error rate of the k most confident tokens over all "
     "k (Geifman et al. 2019), lower is better",
     "area under the risk-coverage curve: mean error rate of the k most confident documents over "
     "all k (Geifman et al. 2019), lower is better",
     "area under the risk-coverage curve: mean error rate of the k most confident predictions over "
     "all k (Geifman et al. 2019), lower is better"},
    {"accuracy_at", "Selective accuracy",
     "accuracy_at_80: accuracy of the 80 % of the tokens with the highest confidence; tokens of "
     "equal confidence count as their mean (El-Yaniv and Wiener 2010)",
     "accuracy_at_80: accuracy of the 80 % of the documents with the highest confidence; documents "
     "of equal confidence count as their mean (El-Yaniv and Wiener 2010)",
     "accuracy_at_80: accuracy of the 80 % of the predictions with the highest confidence; those "
     "of "
     "equal confidence count as their mean (El-Yaniv and Wiener 2010)"},
    {"sets", "Conformal sets",
     "split-conformal sets of outcomes, calibrated on corpus.valid (uncertainty.coverage): "
     "coverage is the share of predictions whose set holds the true outcome, size the mean number "
     "of outcomes in a set. lac: outcomes of a probability above a threshold (Sadinle et al. "
     "2019); aps: the most probable ones up to a cumulated probability, the last one at random "
     "(Romano et al. 2020); raps: the same with a penalty by rank (Angelopoulos et al. 2021). The "
     "promise is for predictions exchangeable with those of corpus.valid"},
    {"temperature", "Temperature",
     "T that minimises the NLL of softmax(log p / T) on corpus.valid, p the mixture: above 1 the "
     "method is too sure of itself (Guo et al. 2017); null without corpus.valid"},
    {"ood", "Shift detection",
     "is a document of the shift distinguished from one in the domain by its mean score a token? "
     "Positive class: shifted; a higher score speaks for it. Scores: mutual_information (between "
     "the prediction and the member: what the model does not know), entropy (of the mixture: all "
     "that is uncertain), nll. A method of one distribution has no mutual information (it is 0 for "
     "all text), so no figure and no difference by it: null",
     "is a document of the shift distinguished from one in the domain? Positive class: shifted; a "
     "higher score speaks for it. Scores: mutual_information (between the prediction and the "
     "member: what the model does not know), entropy (of the mixture: all that is uncertain), "
     "confidence (minus the logarithm of the largest probability; Hendrycks and Gimpel 2017), "
     "energy (minus the logarithm of the sum of exp(logit) over classes, the mean over members; "
     "Liu et al. 2020, at temperature 1), logit_variance (of SNGP: the mean over classes of the "
     "variance of a logit), mahalanobis (with :mahalanobis: the squared distance of the last state "
     "from the nearest class mean of corpus.train, in the covariance that classes share; Lee et "
     "al. "
     "2018). No label of a shifted document is used. A method of one distribution has no mutual "
     "information, "
     "so no figure and no difference by it: null",
     "is a document of the shift distinguished from one in the domain by the mean score of its "
     "predictions? Positive class: shifted; a higher score speaks for it. Scores: "
     "mutual_information (between the prediction and the member), entropy (of the mixture), "
     "confidence (minus the logarithm of the largest probability), energy (minus the logarithm of "
     "the sum of exp(logit), the mean over members; Liu et al. 2020, at temperature 1; not of "
     "spans). No label of a shifted document is used. A method of one distribution has no mutual "
     "information, so no figure and no "
     "difference by it: null"},
    {"members", "Members",
     "M, the distributions that are mixed: members, passes or samples. Mutual information is a "
     "plug-in estimate: it grows with M on average, and never exceeds log M. Compare its values "
     "only between methods of one M"},
    {"auroc", "AUROC",
     "chance that a shifted document scores higher than one in the domain, ties counting half"},
    {"aupr", "AUPR",
     "average precision over thresholds, without interpolation; its value without skill is the "
     "share of shifted documents"},
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
     "null for models that were imported"},
    {"fit_seconds", "Fit", "seconds to fit the Laplace approximation; null for other methods"},
    {"score_seconds", "Scoring",
     "wall-clock seconds to score all corpora, over all starts but those that were killed"},
    {"memory_mib", "Memory", "peak resident memory of the largest rank while scoring, in MiB"},
    {NULL, NULL, NULL, NULL, NULL}};

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

static json_t *method_json(const comparison_results *results, int64_t m)
{
    const comparison_method *method = &results->methods.items[m];
    const comparison_result *result = &results->results[m];
    const comparison_temperature *temperature = &results->temperatures[m];
    const comparison_cost *cost = &results->costs[m];
    const comparison_value perplexity = comparison_perplexity(results, result),
                           rms = comparison_rms(result);
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
    for (int f = COMPARISON_FIGURE_ACCURACY; f < comparison_figures(results); f++)
        put_value(object, comparison_figure_name(results, f), &result->values[f]);
    put_value(object, comparison_root_name(results), &rms);
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
                put_value(one, comparison_figure_name(results, f), &values[f]);
            (void)json_object_set_new(one, "ood",
                                      all_detection_json(results, values, COMPARISON_AUROC));
            (void)json_object_set_new(row, results->methods.items[k].name, one);
        }
        (void)json_object_set_new(object, results->methods.items[i].name, row);
    }
    return object;
}

static json_t *groups_json(const comparison_results *results)
{
    json_t *shifted = json_object();

    for (int64_t s = 0; s < results->shifted.count; s++)
        (void)json_object_set_new(shifted, results->shifted.items[s].name,
                                  json_pack("{s:I, s:I}", "documents",
                                            (json_int_t)results->shifted.items[s].document_count,
                                            "documents_without_tokens",
                                            (json_int_t)results->dropped[1 + s]));
    return json_pack("{s:{s:I, s:I, s:I}, s:o}", "in_domain", "documents",
                     (json_int_t)results->in_domain.items[0].document_count,
                     "documents_without_tokens", (json_int_t)results->dropped[0], "tokens",
                     (json_int_t)results->results[0].tokens, "shifted", shifted);
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
