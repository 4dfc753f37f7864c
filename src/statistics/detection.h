/* Does a score distinguish documents of another domain from those of one's own? Local: no MPI.
 *
 * Positive class: shifted. A higher score indicates it. */
#pragma once

#include "base/err.h"

#include <stdint.h>

/** Documents of both kinds in descending order of score, sorted once. */
typedef struct bp_detection bp_detection;

/** NaN scores (documents without tokens) are left out; counts below still have an element for them.
 *
 * Owns:       *out is the caller's, bp_detection_free().
 * Errors:     BP_ERR_SYSTEM memory. */
bp_err bp_detection_new(bp_detection **out, const double *in_domain, int64_t in_domain_count,
                        const double *shifted, int64_t shifted_count);
void bp_detection_free(bp_detection **detection);

typedef struct bp_detection_figures {
    /** Probability that a shifted document scores above an in-domain one, ties counting half: by
     * average ranks (Mann-Whitney). */
    double auroc;
    /** Average precision, sum_n (R_n - R_(n-1)) P_n over distinct thresholds, as
     * sklearn.metrics.average_precision_score: no interpolation. */
    double aupr;
    /** The smallest false positive rate of thresholds with a true positive rate >= 0.95 (a document
     * is called shifted when its score is at least the threshold). */
    double fpr95;
} bp_detection_figures;

/** Figures of all documents (NULL, NULL), or of a resample: how often each document counts. NaN if
 * one of the two kinds has no document. O(n), without a sort.
 *
 * Source: Fawcett 2006, An introduction to ROC analysis, algorithms 1 and 2; FPR at 95 % TPR:
 * Liang et al. 2018 (arXiv:1706.02690). */
bp_detection_figures bp_detection_of(const bp_detection *detection, const int32_t *in_domain_counts,
                                     const int32_t *shifted_counts);
