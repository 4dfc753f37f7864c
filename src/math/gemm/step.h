/* A weight that is repeatedly multiplied with few rows: the state's in a recurrent layer, once per
 * position.
 *
 * In float32 our own loops multiply: the weight is packed in panels of columns, which threads
 * share, the same ones at each call, so that a thread's panels stay in its caches. A row's sums
 * are added in the order of k, whatever the other rows and the threads: a row's bits depend only
 * on that row. In bf16 the products are the library's (linear.h). */
#pragma once

#include "math/gemm/linear.h"

typedef struct bp_step_weight bp_step_weight;

/** For a weight [outs][ins]; with a gemm of bp_gemm_new_forward, only for forward products.
 *
 * Owns:   the panels; `value` and `gemm` are borrowed for the weight's life.
 * Errors: BP_ERR_SYSTEM no memory; *out is NULL. */
bp_err bp_step_weight_new(bp_step_weight **out, bp_gemm *gemm, const float *value, int64_t outs,
                          int64_t ins);
void bp_step_weight_free(bp_step_weight **weight);
/** Repacks the panels immediately, after the values have changed. */
void bp_step_weight_refresh(bp_step_weight *weight);
/** Bytes of the panels or of the library's copies, for the plan; and a product's internal scratch.
 */
size_t bp_step_copy_bytes(const bp_gemm *gemm, int64_t outs, int64_t ins);
size_t bp_step_scratch_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins);

/** y[rows][outs] = x[rows][ins] Wt + bias (NULL: none). */
void bp_step_forward(float *y, const float *x, const bp_step_weight *w, const float *bias,
                     int64_t rows);
/** dx[rows][ins] = dy[rows][outs] W; dx must not be dy's memory. */
void bp_step_backward(float *dx, const float *dy, const bp_step_weight *w, int64_t rows);
