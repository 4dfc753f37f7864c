/* A mean over what documents hold (their tokens, say), with its interval by documents, from sums
 * that are kept while documents come by. Local: no MPI. */
#ifndef BP_STATISTICS_RATIO_H
#define BP_STATISTICS_RATIO_H

#include "statistics/inference.h"

/** {0}: of no document. */
typedef struct bp_ratio {
    double sum, weight; /* of all documents */
    double square, cross, weight_square;
    double documents; /* with a weight */
} bp_ratio;

/** A document whose `weight` values (a weight of 0: it has none) sum to `sum`. */
void bp_ratio_add(bp_ratio *ratio, double sum, double weight);
/** NaN of no document. */
double bp_ratio_mean(const bp_ratio *ratio);
/** The 95 % interval, NaN and NaN of fewer than BP_FEW_DOCUMENTS documents.
 *
 * Source:     Cochran 1977, Sampling Techniques, section 6.3: the variance of a ratio by its linear
 *             term; Student's t. */
bp_interval bp_ratio_interval(const bp_ratio *ratio);

#endif
