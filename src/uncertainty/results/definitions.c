/* Names of figures, and their definitions, also for regressions. Called by page.c, summary.c and
 * tables.c. */
#include "uncertainty/results/results.h"

#include <math.h>

/* Definitions of figures of distributions. */
static const comparison_definition DEFINITIONS[] = {
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
     "2017). Noise alone makes it larger than 0, so it has no interval: see the RMS calibration "
     "error"},
    {"ece_adaptive", "Adaptive ECE",
     "the same over 15 bins of equal token count (Nguyen and O'Connor 2015)",
     "the same over 15 bins of equal document count (Nguyen and O'Connor 2015)",
     "the same over 15 bins of equal count (Nguyen and O'Connor 2015)"},
    {"squared_calibration_error", "Squared calibration error",
     "sum_b n_b / N (accuracy_b - confidence_b)^2 over the bins of the ECE, less what noise adds "
     "to it, estimated from differences between documents (debiased; Kumar, Liang and Ma 2019): a "
     "little below 0 where the truth is near 0"},
    {"rms_calibration_error", "RMS calibration error",
     "the root of the squared calibration error and of its interval, 0 of what is below 0; the "
     "true "
     "one is never below the true ECE"},
    {"tempered", "Tempered",
     "NLL, Brier, ECE and the squared and RMS calibration error of the distribution at the "
     "method's temperature, p^(1/T) over its sum, in the domain. T is fitted on corpus.valid and "
     "taken as given: resamples do not fit it again. The accuracy is the same at any temperature. "
     "Missing for a method that an older version scored, and for predictions of others without "
     "rows of corpus.valid"},
    {"nll_tempered", "NLL, tempered", "NLL at the method's temperature"},
    {"brier_tempered", "Brier, tempered", "Brier at the method's temperature"},
    {"ece_tempered", "ECE, tempered", "ECE at the method's temperature, without an interval"},
    {"rms_calibration_error_tempered", "RMS calibration error, tempered",
     "RMS calibration error at the method's temperature"},
    {"squared_calibration_error_tempered", "Squared calibration error, tempered",
     "squared calibration error at the method's temperature"},
    {"aurc", "AURC",
     "area under the risk-coverage curve: mean error rate of the k most confident tokens over all "
     "k (Geifman et al. 2019), lower is better",
     "area under the risk-coverage curve: mean error rate of the k most confident documents over "
     "all k (Geifman et al. 2019), lower is better",
     "area under the risk-coverage curve: mean error rate of the k most confident predictions over "
     "all k (Geifman et al. 2019), lower is better"},
    {"accuracy_at", "Selective accuracy",
     "at 80 % coverage: accuracy of the 80 % of the tokens with the highest confidence; tokens of "
     "equal confidence count as their mean (El-Yaniv and Wiener 2010)",
     "at 80 % coverage: accuracy of the 80 % of the documents with the highest confidence; "
     "documents "
     "of equal confidence count as their mean (El-Yaniv and Wiener 2010)",
     "at 80 % coverage: accuracy of the 80 % of the predictions with the highest confidence; those "
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
     "method is too sure of itself (Guo et al. 2017); missing without corpus.valid"},
    {"ood", "Shift detection",
     "is a document of the shift distinguished from one in the domain by its mean score a token? "
     "Positive class: shifted; a higher score speaks for it. Scores: mutual_information (between "
     "the prediction and the member: what the model does not know), entropy (of the mixture: all "
     "that is uncertain), nll. A method of one distribution has no mutual information (it is 0 for "
     "all text), so no figure and no difference by it",
     "is a document of the shift distinguished from one in the domain? Positive class: shifted; a "
     "higher score speaks for it. Scores: mutual_information (between the prediction and the "
     "member: what the model does not know), entropy (of the mixture: all that is uncertain), "
     "confidence (minus the logarithm of the largest probability; Hendrycks and Gimpel 2017), "
     "energy (minus the logarithm of the sum of exp(logit) over classes, the mean over members; "
     "Liu et al. 2020, at temperature 1), logit_variance (of SNGP: the mean over classes of the "
     "variance of a logit), mahalanobis (with :mahalanobis: the squared distance of the last state "
     "from the nearest class mean of corpus.train, in the covariance that classes share; Lee et "
     "al. "
     "2018), differential_entropy (of one prior network: that of its Dirichlet; Malinin and Gales "
     "2018; its energy is minus the logarithm of the precision). No label of a shifted document is "
     "used. A method of one distribution has no mutual "
     "information, "
     "so no figure and no difference by it",
     "is a document of the shift distinguished from one in the domain by the mean score of its "
     "predictions? Positive class: shifted; a higher score speaks for it. Scores: "
     "mutual_information (between the prediction and the member), entropy (of the mixture), "
     "confidence (minus the logarithm of the largest probability), energy (minus the logarithm of "
     "the sum of exp(logit), the mean over members; Liu et al. 2020, at temperature 1; not of "
     "spans), mahalanobis (with :mahalanobis: the squared distance of the last state from the "
     "nearest class mean of corpus.train, in the covariance that classes share; Lee et al. 2018; "
     "not of spans). No label of a shifted document is used. A method of one distribution has no "
     "mutual information, so no figure and no difference by it"},
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
     "95 % percentile bootstrap over documents, with uncertainty.cluster over the "
     "clusters of documents that share its label's value; all methods see the same resamples "
     "(paired), so a difference has an interval of its own, often narrower than those of its "
     "sides. That of AUPR is made of its resamples' deviation on the scale of logits, and FPR95 "
     "has one from 50 documents of each kind up. That of the squared calibration error is "
     "corrected "
     "for bias: simulated, it covers 95 % of "
     "the time, more where the error is near 0. the ECE and the adaptive ECE have none"},
    {"differences", "Differences", "the first method minus the second"},
    {"train_seconds", "Training",
     "wall-clock seconds of the training steps of all models of the method, one after another, "
     "those after a best checkpoint too; missing for models that were imported"},
    {"fit_seconds", "Fit",
     "seconds of the fit of :laplace or :mahalanobis; missing for other methods"},
    {"score_seconds", "Scoring",
     "wall-clock seconds to score all corpora, over all starts but those that were killed"},
    {"memory_mib", "Memory", "peak resident memory of the largest rank while scoring, in MiB"},
    {NULL, NULL, NULL, NULL, NULL}};

/* Definitions of figures of values. */
static const comparison_definition VALUE_DEFINITIONS[] = {
    {"nll", "NLL",
     "mean negative log density of a document's value, in nats. A prediction is a Gaussian: its "
     "mean is that of the members' values, its variance the sum of theirs (between members, "
     "divided by their number) and of noise_variance"},
    {"noise_variance", "Noise",
     "the variance of values around the best prediction: the one that minimises the NLL on "
     "corpus.valid"},
    {"coverage_95", "Coverage, 95 %",
     "share of documents whose value lies in the central 95 % interval of its prediction: above "
     "0.95 the method is not sure enough, below it too sure"},
    {"mae", "MAE", "mean absolute error of the mean, lower is better"},
    {"calibration_error", "Calibration error",
     "mean over the levels 1/30, 3/30, ..., 29/30 of the distance between the level and the share "
     "of values that lie in the central interval of that level (after Kuleshov et al. 2018). It "
     "has no interval"},
    {"variance", "Variance", "mean variance between members: what the method does not know"},
    {"mse", "MSE", "mean squared error of the mean, lower is better"},
    {"rmse", "RMSE", "the root of the MSE and of its interval"},
    {"aurc", "AURC",
     "area under the risk-coverage curve: mean squared error of the k documents with the least "
     "variance over all k (Geifman et al. 2019), lower is better; missing for a method of one "
     "member, "
     "whose predictions have one variance"},
    {"mse_at", "Selective MSE",
     "at 80 % coverage: mean squared error of the 80 % of the documents with the least variance"},
    {"ood", "Shift detection",
     "is a document of the shift distinguished from one in the domain by its variance? Positive "
     "class: shifted. Scores: mutual_information (log(1 + variance / noise_variance) / 2), entropy "
     "(of the Gaussian), confidence (minus the logarithm of its largest density); each grows with "
     "the variance alone. null by mutual_information of a method of one member"},
    {"members", "Members", "M, the values that are averaged: members or passes"},
    {"auroc", "AUROC",
     "chance that a shifted document scores higher than one in the domain, ties counting half"},
    {"aupr", "AUPR",
     "average precision over thresholds, without interpolation; its value without skill is the "
     "share of shifted documents"},
    {"fpr95", "FPR95",
     "share of in-domain documents that are called shifted at the highest threshold that finds 95 "
     "% of the shifted ones, lower is better"},
    {"intervals", "Intervals",
     "95 % percentile bootstrap over documents, with uncertainty.cluster over the "
     "clusters of documents that share its label's value; all methods see the same resamples "
     "(paired), so a difference has an interval of its own. That of AUPR is made of its resamples' "
     "deviation on the scale of logits, and FPR95 has one from 50 documents of each kind up. "
     "calibration_error has none"},
    {"differences", "Differences", "the first method minus the second"},
    {"reliability", "Reliability",
     "of each level (confidence): the share of values in the central interval (accuracy)"},
    {"train_seconds", "Training",
     "wall-clock seconds of the training steps of all models of the method, one after another; "
     "missing for models that were imported"},
    {"score_seconds", "Scoring",
     "wall-clock seconds to score all corpora, over all starts but those that were killed"},
    {"memory_mib", "Memory", "peak resident memory of the largest rank while scoring, in MiB"},
    {NULL, NULL, NULL, NULL, NULL}};

const comparison_definition *comparison_definitions_of(const comparison_results *results)
{
    return results->task->is_value ? VALUE_DEFINITIONS : DEFINITIONS;
}

static bool is_tempered(const comparison_results *results)
{
    bool any = false;

    for (int64_t m = 0; m < results->methods.count && !results->task->is_value; m++)
        any = any || isfinite(results->results[m].values[COMPARISON_FIGURE_TEMPERED_NLL].value);
    return any;
}

const char *comparison_figure_name(const comparison_results *results, int figure)
{
    static const char *const NAMES[] = {"nll",
                                        "accuracy",
                                        "brier",
                                        "ece",
                                        "ece_adaptive",
                                        "squared_calibration_error",
                                        "aurc",
                                        "nll_tempered",
                                        "brier_tempered",
                                        "ece_tempered",
                                        "squared_calibration_error_tempered"};
    static const char *const OF_VALUES[] = {"nll",      "coverage_95", "mae", "calibration_error",
                                            "variance", "mse",         "aurc"};

    if (figure >= COMPARISON_FIGURES)
        return results->coverage_names[figure - COMPARISON_FIGURES];
    if (figure >= COMPARISON_FIGURE_TEMPERED_NLL && !is_tempered(results))
        return NULL;
    return results->task->is_value ? OF_VALUES[figure] : NAMES[figure];
}

const char *comparison_root_name(const comparison_results *results, int figure)
{
    return results->task->is_value               ? "rmse"
           : figure == COMPARISON_FIGURE_SQUARED ? "rms_calibration_error"
                                                 : "rms_calibration_error_tempered";
}
