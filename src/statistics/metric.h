/* Metrics of a test set with their 95 % intervals, of one system or of two compared. Local: no
 * MPI. */
#pragma once

#include "base/config/json.h"
#include "statistics/resample.h"

#define BP_METRIC_FIGURES 12 /* most figures of a metric */

/** What a figure is a share of. Shares of documents have Wilson's interval. Shares of parts of
 * documents, which are dependent, have it only at 0 or 1, where resamples do not vary. */
typedef enum bp_share { BP_SHARE_OF_NOTHING, BP_SHARE_OF_DOCUMENTS, BP_SHARE_OF_PARTS } bp_share;

/** Figures that are computed together. `answers` is defined in the metric's header: the reference
 * and a system's hypothesis of each document. */
typedef struct bp_metric {
    const char *kind;
    int64_t width;
    const char *names[BP_METRIC_FIGURES]; /* [width] */
    /** values[width] for documents that count counts[document] times each (NULL: once); NaN if
     * undefined. Called by several threads at once. */
    void (*figures)(double *values, const int32_t *counts, const void *answers);
    bool lower[BP_METRIC_FIGURES]; /* lower is better */
    bp_share share[BP_METRIC_FIGURES];
    /* Documents below which a figure has no interval; 0: BP_FEW_DOCUMENTS. */
    int64_t fewest[BP_METRIC_FIGURES];
} bp_metric;

typedef struct bp_figure {
    double value;
    bp_interval interval; /* NaN for fewer documents than `fewest` of its metric */
} bp_figure;

/** figures[metric->width] of `documents` documents; intervals by BP_RESAMPLES resamples of
 * documents, and Wilson's of shares.
 *
 * Errors:     BP_ERR_SYSTEM memory. */
bp_err bp_metric_estimate(bp_figure *figures, const bp_metric *metric, const void *answers,
                          int64_t documents, uint64_t seed);

/** The same where documents of one number in cluster[documents] (NULL: none) depend on each other:
 * clusters are resampled, each with all its documents, and their number is what makes an interval
 * narrow, or counts as too few. A share has Wilson's interval, of clusters, only at 0 or 1. */
bp_err bp_metric_estimate_clusters(bp_figure *figures, const bp_metric *metric, const void *answers,
                                   int64_t documents, const int64_t *cluster, uint64_t seed);

/** {NAME: {"value", "low", "high"}, ...}; null if a figure is undefined. New reference. */
json_t *bp_metric_json(const bp_metric *metric, const bp_figure *figures);

/** Two systems on the same documents and the same resamples. */
typedef struct bp_figure_pair {
    bp_figure one, other, difference; /* one - other */
    /* The share of resamples in which `one` is better, ties counted half (Koehn 2004, Statistical
     * significance tests for machine translation evaluation, section 4). */
    double wins;
    /* Two-sided: the share of resamples whose difference deviates from the mean of all resamples by
     * at least |difference.value|, with one added to numerator and denominator (Riezler and Maxwell
     * 2005, On some pitfalls in automatic evaluation and significance testing for MT, figure 2). */
    double p_value;
} bp_figure_pair;

bp_err bp_metric_compare(bp_figure_pair *pairs, const bp_metric *metric, const void *one,
                         const void *other, int64_t documents, uint64_t seed);
