/* Correlation of two lists. Local: no MPI. */
#ifndef BP_STATISTICS_CORRELATION_H
#define BP_STATISTICS_CORRELATION_H

#include <stdint.h>

/** Pearson's correlation; NaN of fewer than two pairs, or where a list is constant. */
double bp_pearson(const double *x, const double *y, int64_t n);
/** Spearman's: of ranks, equal values having the mean of theirs. None is NaN. */
double bp_spearman(const double *x, const double *y, int64_t n);

#endif
