/* What figures are called, and what those of regressions mean. Called by page.c, summary.c and
 * tables.c. */
#include "uncertainty/results/results.h"

const comparison_definition comparison_value_definitions[] = {
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
    {"rmse", "RMSE", "the root of mse and of its interval"},
    {"aurc", "AURC",
     "area under the risk-coverage curve: mean squared error of the k documents with the least "
     "variance over all k (Geifman et al. 2019), lower is better; null of a method of one member, "
     "whose predictions have one variance"},
    {"mse_at", "Selective MSE",
     "mse_at_80: mean squared error of the 80 % of the documents with the least variance"},
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
     "_low and _high: 95 % percentile bootstrap over documents; all methods see the same resamples "
     "(paired), so a difference has an interval of its own. calibration_error has none"},
    {"differences", "Differences", "differences.A.B is A minus B"},
    {"reliability", "Reliability",
     "of each level (confidence): the share of values in the central interval (accuracy)"},
    {"train_seconds", "Training",
     "wall-clock seconds of the training steps of all models of the method, one after another; "
     "null for models that were imported"},
    {"score_seconds", "Scoring",
     "wall-clock seconds to score all corpora, over all starts but those that were killed"},
    {"memory_mib", "Memory", "peak resident memory of the largest rank while scoring, in MiB"},
    {NULL, NULL, NULL, NULL, NULL}};

const comparison_definition *comparison_definitions_of(const comparison_results *results)
{
    return results->task->is_value ? comparison_value_definitions : comparison_definitions;
}

const char *comparison_figure_name(const comparison_results *results, int figure)
{
    static const char *const NAMES[] = {
        "nll", "accuracy", "brier", "ece", "ece_adaptive", "squared_calibration_error", "aurc"};
    static const char *const OF_VALUES[] = {"nll",      "coverage_95", "mae", "calibration_error",
                                            "variance", "mse",         "aurc"};

    if (figure >= COMPARISON_FIGURES)
        return results->coverage_names[figure - COMPARISON_FIGURES];
    return results->task->is_value ? OF_VALUES[figure] : NAMES[figure];
}

const char *comparison_root_name(const comparison_results *results)
{
    return results->task->is_value ? "rmse" : "rms_calibration_error";
}
