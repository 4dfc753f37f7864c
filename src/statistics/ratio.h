/* A mean over parts of documents (tokens, for example), with its interval by documents, from
 * running sums over documents. Local: no MPI. */
#ifndef BP_STATISTICS_RATIO_H
#define BP_STATISTICS_RATIO_H

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

#endif
