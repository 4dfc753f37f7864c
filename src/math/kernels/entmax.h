/* 1.5-entmax: a distribution that gives outcomes far below the best score probability 0. For
 * scores z
 *
 *     p_i = max(z_i / 2 - tau, 0)^2,     tau such that they sum to 1.
 *
 * tau is the root of |max(z / 2 - tau, 0)| - 1, which is convex and decreasing: Newton's steps
 * from max(z) / 2 - 1 approach it from below without overshoot. Its loss, for a target y, is
 *
 *     L = (p - e_y) z + 4/3 (1 - sum p_i^(3/2)),     its gradient p - e_y.
 *
 * Source: Peters, Niculae & Martins 2019, "Sparse Sequence-to-Sequence Models", equations 7 and 8,
 * sections 3.2 and 3.3; the steps are ours.
 */
#pragma once

#include "math/gemm/operand.h"
#include <stdbool.h>

/** One step of `tau` (from bp_entmax_begin) by the sums of d and d^2, d = max(z / 2 - tau, 0).
 * true: it was the last step, since the rest is rounding, or a NaN. */
double bp_entmax_begin(float max);
bool bp_entmax_step(double *tau, double sum, double square);
/** More steps than a row takes. */
#define BP_ENTMAX_STEPS 100

/** tau of one row z[n], n > 0. */
double bp_entmax_tau(const float *z, int64_t n);

/** sums[rows][3] of d, d^2 and d^3 of rows z[rows][n]; rows with done[r] are skipped. */
void bp_entmax_sums(double *sums, const float *z, int64_t rows, int64_t n, const double *tau,
                    const bool *done);
/** The largest of each row; -infinity where n = 0. */
void bp_entmax_max(float *max, const float *z, int64_t rows, int64_t n);

/** gradient[r] = weight[r] (p - e_target) of rows of logits that begin at outcome `first`; 0 where
 * the target is -1. Source: as above, equation 8. */
void bp_entmax_gradient(const bp_operand *gradient, const float *logits, const double *tau,
                        const int32_t *targets, const float *weight, int64_t first);
/** y[n] = log p for z[n], or `zero` where p is 0. */
void bp_entmax_logs(float *y, const float *z, int64_t n, double tau, float zero);
