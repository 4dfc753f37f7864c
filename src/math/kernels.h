/* Fused passes over memory: normalisation, activation, dropout, residual, softmax cross-entropy,
 * optimizers. All float32, row-major, threaded with OpenMP over independent outputs (static
 * schedule): the bits depend on no schedule, and sums that cross rows are block sums in index
 * order. They depend neither on alignment nor on where a range is cut, and are the same with every
 * instruction set. A number that is not finite comes out not finite: nothing swallows it.
 */
#ifndef BP_MATH_KERNELS_H
#define BP_MATH_KERNELS_H

#include "base/rng.h"
#include <stdbool.h>
#include <stdint.h>

/** y = (x - mean) / sqrt(var + epsilon) * gain + bias by row; mean[rows], rstd[rows] are kept for
 * backward (NULL: not). Source: Ba et al. 2016. */
void bp_layer_norm_forward(float *y, float *mean, float *rstd, const float *x, const float *gain,
                           const float *bias, int64_t rows, int64_t C, float epsilon);
/** dx += the gradient through the norm (accumulates: the residual's gradient is there already);
 * dgain, dbias += . scratch: bp_layer_norm_scratch floats. */
void bp_layer_norm_backward(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                            const float *gain, const float *mean, const float *rstd, int64_t rows,
                            int64_t C, float *scratch);
int64_t bp_layer_norm_scratch(int64_t rows, int64_t C);

/** GELU with tanh (GPT-2's gelu_new): y = gelu(x); dx = dy * gelu'(x). In place is allowed. */
void bp_gelu_forward(float *y, const float *x, int64_t n);
void bp_gelu_backward(float *dx, const float *dy, const float *x, int64_t n);

/** y = a + dropout(x) with keep probability 1-p, kept values scaled by 1/(1-p); p = 0: y = a + x.
 * `first` is the place of element 0 in the global tensor: the mask is a function of (key, place):
 * an element is kept iff word place % 4 of bp_rng_block(place / 4) is at least p 2^32. y may be a
 * or x. a NULL: y = dropout(x). */
void bp_add_dropout(float *y, const float *a, const float *x, int64_t n, float p,
                    const bp_rng_key *key, int64_t first);
/** dx = dropout's gradient: dy masked and scaled by the same function. */
void bp_dropout_backward(float *dx, const float *dy, int64_t n, float p, const bp_rng_key *key,
                         int64_t first);

void bp_add(float *y, const float *x, int64_t n); /* y += x */
void bp_scale(float *y, float factor, int64_t n); /* y *= factor */
void bp_zero(float *y, int64_t n);

/** x[rows][C] = table rows; ids outside [first_row, first_row + rows_here) give zeros (another
 * tensor rank has them). */
void bp_embedding_forward(float *x, const float *table, const int32_t *ids, int64_t rows, int64_t C,
                          int64_t first_row, int64_t rows_here);
/** dtable[id - first_row] += dx, in the order of rows (threads split the columns). */
void bp_embedding_backward(float *dtable, const float *dx, const int32_t *ids, int64_t rows,
                           int64_t C, int64_t first_row, int64_t rows_here);
/** x[b][t] += table[t], and its gradient dtable[t] += sum over b in order. */
void bp_positions_forward(float *x, const float *table, int64_t B, int64_t T, int64_t C);
void bp_positions_backward(float *dtable, const float *dx, int64_t B, int64_t T, int64_t C);

/** Softmax over a vocabulary split over tensor ranks, by its parts. logits[rows][V_here],
 * row-major. row_max[r] = max; then with the maximum over all ranks: row_sum[r] = sum of exp(logit
 * - max); target_logit[r] = the logit of targets[r] if it is in [first, first + V_here), else 0. */
void bp_softmax_row_max(float *row_max, const float *logits, int64_t rows, int64_t V_here);
void bp_softmax_row_sum(double *row_sum, double *target_logit, const float *logits,
                        const float *row_max, const int32_t *targets, int64_t rows, int64_t V_here,
                        int64_t first);
/** logits become the loss's gradient: (softmax - onehot) * weight[r], softmax = exp(logit - max) /
 * sum. */
void bp_softmax_gradient(float *logits, const float *row_max, const double *row_sum,
                         const int32_t *targets, const float *weight, int64_t rows, int64_t V_here,
                         int64_t first);

/** Sums of squares over blocks of BP_NORM_BLOCK elements: sums[ceil(n / block)], float64. */
#define BP_NORM_BLOCK 4096
void bp_square_sums(double *sums, const float *x, int64_t n);

/** The sum of the elements' 32 bits as a whole number, modulo 2^32: one changed element always
 * changes it. */
uint32_t bp_bit_sum(const float *x, int64_t n);

/** One AdamW update of n parameters (Loshchilov & Hutter 2019, algorithm 2 with a decoupled decay
 * times the rate): m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;  w -= rate
 * (m/(1-beta1^step) / (sqrt(v/(1-beta2^step)) + epsilon) + decay w). g is read as gradient *
 * gradient_scale (clipping and averaging). */
typedef struct bp_adamw {
    double rate, beta1, beta2, epsilon, decay, gradient_scale;
    int64_t step; /* from 1 */
} bp_adamw;
void bp_adamw_update(float *w, float *m, float *v, const float *g, int64_t n, const bp_adamw *rule);
/** SGD with momentum: m = momentum m + g; w -= rate (m + decay w). */
typedef struct bp_sgd {
    double rate, momentum, decay, gradient_scale;
} bp_sgd;
void bp_sgd_update(float *w, float *m, const float *g, int64_t n, const bp_sgd *rule);

#endif
