/* Correlation of two lists. Local: no MPI. */
#ifndef BP_STATISTICS_CORRELATION_H
#define BP_STATISTICS_CORRELATION_H

#include <stdint.h>

/** Pearson's correlation; NaN of fewer than two pairs, or where a list is constant. */
double bp_pearson(const double *x, const double *y, int64_t n);
/** Spearman's: of ranks, equal values having the mean of theirs. None is NaN. */
double bp_spearman(const double *x, const double *y, int64_t n);

/** The same of pairs that are there counts[k] times each (NULL: once). */
double bp_pearson_counted(const double *x, const double *y, const int32_t *counts, int64_t n);
/** order_x, order_y: places in ascending order of x and of y (bp_order_of). */
double bp_spearman_counted(const double *x, const double *y, const int64_t *order_x,
                           const int64_t *order_y, const int32_t *counts, int64_t n);

/** order[n]: the places of values, none NaN, in ascending order. */
void bp_order_of(int64_t *order, const double *values, int64_t n);

#endif
