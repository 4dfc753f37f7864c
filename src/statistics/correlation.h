/* Correlation of two lists. Local: no MPI. */
#ifndef BP_STATISTICS_CORRELATION_H
#define BP_STATISTICS_CORRELATION_H

#include "statistics/inference.h"

#include <stdint.h>

/** Pearson's correlation; NaN of fewer than two pairs, or where a list is constant. */
double bp_pearson(const double *x, const double *y, int64_t n);
/** Spearman's: of ranks, equal values having the mean of theirs; NaN where a value is. */
double bp_spearman(const double *x, const double *y, int64_t n);

/** The same of pairs that are there counts[k] times each (NULL: once). */
double bp_pearson_counted(const double *x, const double *y, const int32_t *counts, int64_t n);
/** order_x, order_y: places in ascending order of x and of y (bp_order_of). */
double bp_spearman_counted(const double *x, const double *y, const int64_t *order_x,
                           const int64_t *order_y, const int32_t *counts, int64_t n);

/** Kendall's tau-b: pairs of elements in the same order less those in the opposite one, by the
 * pairs that x and y order at all; NaN of fewer than two, or where a list is constant. None is NaN.
 * Source: Kendall 1945, The treatment of ties in ranking problems, Biometrika 33. */
double bp_kendall(const double *x, const double *y, int64_t n);
/** Its 95 % interval, on the scale of Fisher's z with variance 0.437 / (n - 4); NaN and NaN of n
 * < 5. If all pairs agree (or none), half a pair counts as if it did not. Source: Fieller, Hartley
 * and Pearson 1957, Tests for rank correlation coefficients, Biometrika 44. */
bp_interval bp_kendall_interval(double tau, int64_t n);

/** order[n]: the places of values in ascending order; in any order where one is NaN. */
void bp_order_of(int64_t *order, const double *values, int64_t n);

#endif
