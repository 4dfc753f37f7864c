/* Correlation of two lists. Local: no MPI. */
#pragma once

#include "statistics/inference.h"

#include <stdint.h>

/** Pearson's correlation; NaN for fewer than two pairs, or if a list is constant. */
double bp_pearson(const double *x, const double *y, int64_t n);
/** Spearman's: the correlation of ranks; equal values get their mean rank. NaN if a value is
 * NaN. */
double bp_spearman(const double *x, const double *y, int64_t n);

/** The same for pairs that count counts[k] times each (NULL: once). */
double bp_pearson_counted(const double *x, const double *y, const int32_t *counts, int64_t n);
/** order_x, order_y: places in ascending order of x and of y (bp_order_of). */
double bp_spearman_counted(const double *x, const double *y, const int64_t *order_x,
                           const int64_t *order_y, const int32_t *counts, int64_t n);

/** Kendall's tau-b: concordant minus discordant pairs, over the geometric mean of the number of
 * pairs not tied in x and that of pairs not tied in y; NaN for fewer than two elements, or if a
 * list is constant. No element may be NaN. Source: Kendall 1945, The treatment of ties in ranking
 * problems, Biometrika 33. */
double bp_kendall(const double *x, const double *y, int64_t n);
/** Its 95 % interval, on the scale of Fisher's z with variance 0.437 / (n - 4); NaN and NaN for n <
 * 5. If all pairs agree (or all disagree), half a pair counts as the opposite. Source: Fieller,
 * Hartley and Pearson 1957, Tests for rank correlation coefficients, Biometrika 44. */
bp_interval bp_kendall_interval(double tau, int64_t n);

/** order[n]: the indices of values in ascending order; any order if a value is NaN. */
void bp_order_of(int64_t *order, const double *values, int64_t n);
