/* A mean over parts of documents (tokens, for example), with its interval by documents, from
 * running sums over documents. Local: no MPI. */
#pragma once

#include "statistics/inference.h"

/** {0}: no documents. */
typedef struct bp_ratio {
    double sum, weight; /* of all documents */
    double square, cross, weight_square;
    double documents; /* with a weight */
} bp_ratio;

/** Add a document whose `weight` values (may be 0) sum to `sum`. */
void bp_ratio_add(bp_ratio *ratio, double sum, double weight);
/** NaN without documents. */
double bp_ratio_mean(const bp_ratio *ratio);
/** The 95 % interval; NaN and NaN for fewer than BP_FEW_DOCUMENTS documents.
 *
 * Source:     Cochran 1977, Sampling Techniques, section 6.3: the variance of a ratio by its linear
 *             term; Student's t. */
bp_interval bp_ratio_interval(const bp_ratio *ratio);
/** The 95 % interval of a's mean minus b's, of other documents each, and the two-sided *p of no
 * difference; NaN for fewer than BP_FEW_DOCUMENTS documents on a side. For the difference of
 * documents that both have, add differences to one bp_ratio.
 *
 * Source:     Welch 1947, Biometrika 34, 28-35, with the variances of bp_ratio_interval. */
bp_interval bp_ratio_difference(const bp_ratio *a, const bp_ratio *b, double *p);
