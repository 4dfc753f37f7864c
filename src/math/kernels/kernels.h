/* Fused passes over memory: normalisation, activation, dropout, residual, softmax cross-entropy,
 * optimizers. All float32 except for the operands of products that they make (operand.h),
 * row-major, threaded with OpenMP over independent outputs (static schedule): the bits depend on
 * no schedule, and sums that cross rows are block sums in index order. Bits do not depend on
 * alignment or on the division of a range, and are the same with every instruction set
 * (activations and the softmax: with every one that has fused multiply-adds). A non-finite number
 * stays non-finite.
 */
#pragma once

#include "base/rng.h"
#include "math/gemm/operand.h"
#include <stdbool.h>
#include <stdint.h>

/** A layer norm by row, y = (x - mean) / sqrt(var + epsilon) * gain + bias; mean[rows] and
 * rstd[rows] are kept for backward unless NULL. Source: Ba et al. 2016. Without a bias, and not
 * centred, it is a norm by the root mean square, y = x / sqrt(mean of x^2 + epsilon) * gain, and
 * mean is not kept. Source: Zhang and Sennrich 2019. */
typedef struct bp_norm {
    const float *gain, *bias;
    float epsilon;
    float *mean, *rstd;
    bool centred; /* the mean is subtracted, although there is no bias */
} bp_norm;

/** The residual sum of a branch: base + dropout(branch), as bp_add_dropout. branch NULL: only
 * base. */
typedef struct bp_residual {
    const float *base, *branch;
    float dropout;
    const bp_rng_key *key;
    int64_t first;
} bp_residual;

/** y = norm(h), where h is the residual sum, kept in h[rows][C] unless NULL; h may be base. y may
 * overwrite base if h does not. */
void bp_layer_norm_forward(const bp_operand *y, float *h, const bp_norm *norm,
                           const bp_residual *x);
/** dx += the gradient through the norm (dx already has the residual's gradient), or = if fresh;
 * dgain, dbias += . y (NULL: not wanted) is the norm's output, recomputed. scratch:
 * bp_layer_norm_scratch floats. */
typedef struct bp_norm_gradients {
    float *dx, *dgain, *dbias;
    bool fresh;
} bp_norm_gradients;
void bp_layer_norm_backward(const bp_norm_gradients *to, const bp_operand *y, const float *dy,
                            const float *x, const bp_norm *norm, int64_t rows, int64_t C,
                            float *scratch);
int64_t bp_layer_norm_scratch(int64_t rows, int64_t C);

/** A norm by the root mean square, in place, of `parts` contiguous parts of a row with D numbers
 * each, with one gain [D]; rows are `row` floats apart. A norm may span `whole` numbers over
 * several ranks: they add up sums and dots between the two calls of a pass. Numbers before
 * `counted_from` are copies from another rank and do not count. Source: Zhang and Sennrich 2019;
 * by heads: Dehghani et al. 2023, "Scaling Vision Transformers to 22 Billion Parameters", 2.1. */
typedef struct bp_part_norm {
    int64_t row, rows, parts, D, whole, counted_from;
    const float *gain;
    float epsilon;
} bp_part_norm;
/** sums[rows][parts], of squares. */
void bp_part_norm_squares(float *sums, const float *x, const bp_part_norm *norm);
/** Norms x; before[rows][parts][D] gets the input (NULL: not kept); the sums become 1 / root. */
void bp_part_norm_forward(float *x, float *before, float *sums, const bp_part_norm *norm);
/** dots[rows][parts], of dx gain and the norm's input. */
void bp_part_norm_dots(float *dots, const float *dx, const float *before, const float *rstd,
                       const bp_part_norm *norm);
/** dx becomes the gradient before the norm; dgain += (NULL: not wanted). scratch:
 * bp_part_norm_scratch floats. */
typedef struct bp_part_norm_gradients {
    float *dx, *dgain;
} bp_part_norm_gradients;
void bp_part_norm_backward(const bp_part_norm_gradients *to, const float *before, const float *rstd,
                           const float *dots, const bp_part_norm *norm, float *scratch);
int64_t bp_part_norm_scratch(int64_t rows, int64_t D);

/** A bias's gradient, accumulated: column sums in blocks of rows, then of the blocks in order.
 * NULL: not wanted. scratch: bp_bias_scratch floats. */
typedef struct bp_bias_gradient {
    float *sums, *scratch;
} bp_bias_gradient;
int64_t bp_bias_scratch(int64_t rows, int64_t columns);

/** The sums of x's columns; does nothing if bias is NULL. */
void bp_operand_sums(const bp_bias_gradient *bias, const bp_operand *x);
/** bp_operand_fill with the sums of x's columns. */
void bp_operand_fill_sums(const bp_operand *to, const bp_bias_gradient *bias, const float *x);

/** The activation of an MLP, between its two products. Source: Hendrycks and Gimpel 2016, section
 * 2, the GELU x Phi(x) and its approximation with tanh (GPT-2's gelu_new); Shazeer 2020, SwiGLU
 * and GEGLU, with that approximation or without it. */
typedef enum bp_activation {
    BP_GELU_TANH,
    BP_GELU_EXACT,
    BP_RELU,
    BP_SILU,
    BP_SWIGLU, /* gated, as all from here on */
    BP_GEGLU,  /* by tanh */
    BP_GEGLU_EXACT
} bp_activation;

/** y = f(x) for an activation that is not gated. If operands are rounded, so are y, x and dy:
 * floats of form BP_OPERAND_ROUNDED need not be rounded on entry, and x is rounded on return. y
 * may overwrite x. */
void bp_activation_forward(bp_activation kind, const bp_operand *y, const bp_operand *x);
/** dx = dy * f'(x), its bias's gradient, and y = f(x) recomputed. dx may overwrite dy. */
void bp_activation_backward(bp_activation kind, const bp_operand *dx, const bp_operand *y,
                            const bp_bias_gradient *bias, const bp_operand *dy,
                            const bp_operand *x);

/** y[rows][F] = f(x[:, :F]) x[:, F:] for x[rows][2F], where f is silu or GELU. Source: Shazeer
 * 2020.
 */
void bp_gated_forward(bp_activation kind, const bp_operand *y, const bp_operand *x);
/** dx[rows][2F], and y made again. */
void bp_gated_backward(bp_activation kind, const bp_operand *dx, const bp_operand *y,
                       const bp_operand *dy, const bp_operand *x);

/** Rotary positions: in the first 2 half numbers of each head, pairs (i, i + half) are rotated by
 * the angle of their position. Source: Su et al. 2021, section 3.4.2, in the pairing of LLaMA. */
typedef struct bp_rotary {
    int64_t T, half;
    const float *cosine, *sine; /* [T][half] */
    const int32_t *positions;   /* [rows] of each row; NULL: row r is position r mod T */
    int64_t
        changes_after; /* longer texts have other tables; 0: all texts use these. Not read here */
    /* Returns the tables for texts of this length (0: of any), filled. Not called here. */
    const struct bp_rotary *(*of_length)(const struct bp_rotary *self, int64_t length);
} bp_rotary;
/** In place: x[rows] of `heads` heads of D numbers, `row` floats from row to row. back: rotates
 * gradients. */
void bp_rotary_turn(float *x, int64_t row, int64_t rows, int64_t heads, int64_t D,
                    const bp_rotary *by, bool back);

/** y = a + dropout(x) with keep probability 1-p, kept values scaled by 1/(1-p); p = 0: y = a + x.
 * `first` is the place of element 0 in the global tensor. The mask is a function of (key, place):
 * an element is kept iff word place % 4 of bp_rng_block(place / 4) is at least p 2^32. y may be a
 * or x. a NULL: y = dropout(x). */
void bp_add_dropout(float *y, const float *a, const float *x, int64_t n, float p,
                    const bp_rng_key *key, int64_t first);
/** dx = dropout's gradient: dy masked and scaled by the same function. */
void bp_dropout_backward(float *dx, const float *dy, int64_t n, float p, const bp_rng_key *key,
                         int64_t first);
/** The same into an operand, with its bias's gradient; p = 0 is bp_operand_fill_sums. */
void bp_dropout_backward_operand(const bp_operand *dx, const bp_bias_gradient *bias,
                                 const float *dy, float p, const bp_rng_key *key, int64_t first);

void bp_add(float *y, const float *x, int64_t n);      /* y += x */
void bp_scale(float *y, float factor, int64_t n);      /* y *= factor */
void bp_multiply(float *y, const float *x, int64_t n); /* y *= x */
void bp_zero(float *y, int64_t n);

/** A soft cap: x = cap tanh(x / cap); and its slopes 1 - (x / cap)^2 of capped x. Source: Gemma
 * Team 2024, "Gemma 2", section 2. */
void bp_cap_all(float *x, float cap, int64_t n);
void bp_cap_slopes(float *slopes, const float *x, float cap, int64_t n);

/** x[rows][C] = table rows; zeros for ids outside [first_row, first_row + rows_here) (another
 * tensor rank has them). */
void bp_embedding_forward(float *x, const float *table, const int32_t *ids, int64_t rows, int64_t C,
                          int64_t first_row, int64_t rows_here);
/** dtable[id - first_row] += dx, in the order of rows (threads split the columns). */
void bp_embedding_backward(float *dtable, const float *dx, const int32_t *ids, int64_t rows,
                           int64_t C, int64_t first_row, int64_t rows_here);
/** Rows [first, first + count) of contiguous sequences of length T: row r has position (first + r)
 * % T, or positions[r] if that is not NULL (only forward). */
typedef struct bp_position_rows {
    int64_t first, count, T;
    const int32_t *positions;
} bp_position_rows;
/** x[count][C] += table's rows, and its gradient: dtable[t] += sum over position t's rows in order.
 */
void bp_positions_forward(float *x, const float *table, const bp_position_rows *rows, int64_t C);
void bp_positions_backward(float *dtable, const float *dx, const bp_position_rows *rows, int64_t C);

/** The statistics of one row of logits over the whole vocabulary; lp = (logit - max) - log_sum. */
typedef struct bp_member_row {
    float max, log_sum;
    float logprob;    /* of the target */
    int32_t top;      /* first entry of the largest lp */
    double log_total; /* log_sum, not rounded */
    float more;       /* only for some members: the variance of a logit, or a distance */
} bp_member_row;

/** Rows of logits, for this rank's part [rows][V] of the vocabulary from outcome `first` on, and
 * each row's target. */
typedef struct bp_logit_rows {
    const float *logits;
    const int32_t *targets;
    int64_t rows, V, first;
    int64_t stride; /* floats from row to row */
} bp_logit_rows;
/** The target distribution: the target itself, or with label smoothing 1 - `share` of it and an
 * equal part of `share` for each of the V outcomes. Source: Szegedy et al. 2016, section 7. */
typedef struct bp_smoothing {
    float share;
    int64_t V;
} bp_smoothing;
/** Softmax over a vocabulary split over tensor ranks, by its parts. row_max[r] = max of the part;
 * row_sum[r] = sum of exp(logit - max) over it, NaN where a logit is; target_logit[r] = the
 * target's logit if this part has it, else 0. */
void bp_softmax_statistics(float *row_max, double *row_sum, double *target_logit,
                           const bp_logit_rows *in);
/** For whole rows: row_max and row_sum to the bit, and entropy[r] of the softmax of row r, in
 * nats: log S - T / S, with T the sum of (logit - max) exp(logit - max). NaN where a logit is.
 * Targets are not read. */
void bp_softmax_entropies(float *row_max, double *row_sum, double *entropy,
                          const bp_logit_rows *in);
/** sums[r] = the sum of row r's logits, in order. */
void bp_logit_sums(double *sums, const bp_logit_rows *in);
/** The loss's gradient, (softmax - onehot) * weight[r], with maximum and sum of the whole
 * vocabulary: softmax = exp(logit - max) / sum; its rows are zero beyond the columns. The operand
 * may overwrite the logits (bp_operand_over). smoothing may be NULL. */
void bp_softmax_gradient(const bp_operand *gradient, const bp_logit_rows *in, const float *row_max,
                         const double *row_sum, const float *weight, const bp_smoothing *smoothing);
/** Both, for a vocabulary that is whole on this rank: each row is read from memory once. */
void bp_softmax_statistics_gradient(const bp_operand *gradient, float *row_max, double *row_sum,
                                    double *target_logit, const bp_logit_rows *in,
                                    const float *weight, const bp_smoothing *smoothing);

/** Sums of squares over blocks of BP_NORM_BLOCK elements: sums[ceil(n / block)], float64. */
#define BP_NORM_BLOCK 4096
void bp_square_sums(double *sums, const float *x, int64_t n);

/** The sum of the elements' 32 bits as a whole number, modulo 2^32: one changed element always
 * changes it. */
uint32_t bp_bit_sum(const float *x, int64_t n);

/** Bit sums of weights and moments before and after an update, computed during the update: they
 * detect memory corruption between two updates. */
enum { BP_SUM_WEIGHT, BP_SUM_MOMENT, BP_SUM_SECOND, BP_SUMS };
typedef struct bp_update_sums {
    uint32_t before[BP_SUMS], after[BP_SUMS]; /* 0 for a moment that the rule lacks */
} bp_update_sums;

/** One AdamW update of n parameters (Loshchilov & Hutter 2019, algorithm 2 with a decoupled decay
 * times the rate): m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;  w -= rate
 * (m/(1-beta1^step) / (sqrt(v/(1-beta2^step)) + epsilon) + decay w). g is read as gradient *
 * gradient_scale (clipping and averaging). */
typedef struct bp_adamw {
    double rate, beta1, beta2, epsilon, decay, gradient_scale;
    int64_t step; /* from 1 */
} bp_adamw;
bp_update_sums bp_adamw_update(float *w, float *m, float *v, const float *g, int64_t n,
                               const bp_adamw *rule);

/** n parameters, their moments (NULL if the rule lacks them), and their gradients. */
typedef struct bp_updated {
    float *w, *m, *v;
    const float *g;
    int64_t n;
} bp_updated;

/** Rules as in torch.optim, with g = gradient * gradient_scale + decay w: sgd: m = momentum m + g;
 * w -= rate m. adagrad: m += g^2; w -= rate g / (sqrt(m) + epsilon). adadelta: m = keep m +
 * (1-keep) g^2; d = sqrt(v + epsilon) / sqrt(m + epsilon) g; v = keep v + (1-keep) d^2; w -= rate
 * d. rmsprop: m = keep m + (1-keep) g^2; d = g / (sqrt(m) + epsilon); w -= rate d, or with v: v =
 * momentum v + d and w -= rate v.
 * Source: Duchi et al. 2011; Zeiler 2012; Tieleman and Hinton 2012. */
typedef struct bp_torch_rule {
    double rate, keep, momentum, epsilon, decay, gradient_scale;
} bp_torch_rule;
bp_update_sums bp_sgd_update(const bp_updated *at, const bp_torch_rule *rule);
bp_update_sums bp_adagrad_update(const bp_updated *at, const bp_torch_rule *rule);
bp_update_sums bp_adadelta_update(const bp_updated *at, const bp_torch_rule *rule);
bp_update_sums bp_rmsprop_update(const bp_updated *at, const bp_torch_rule *rule);

/** LAMB, run by run of a parameter: AdamW's moments; sums[2] += the squares of the weights, and of
 * the steps r = m/(1-beta1^step) / (sqrt(v/(1-beta2^step)) + epsilon) + decay w; w -= rate trust
 * r, where trust is the ratio of the two norms over the whole parameter. `first` is the run's
 * place in its group: sums are taken over blocks of BP_NORM_BLOCK, in their order. scratch: 2
 * bp_block_pieces(n). Source: You et al. 2020, algorithm 2. */
void bp_lamb_moments(const bp_updated *at, const bp_adamw *rule);
void bp_lamb_squares(double sums[2], double *scratch, const bp_updated *at, int64_t first,
                     const bp_adamw *rule);
void bp_lamb_apply(const bp_updated *at, const bp_adamw *rule, double trust);

/** *sum += the squares of x, over such blocks. scratch: bp_block_pieces(n). */
int64_t bp_block_pieces(int64_t n);
void bp_blocks_square_sum(double *sum, double *scratch, const float *x, int64_t n, int64_t first);

/** Adafactor: elements [place, place + n) of a matrix with this many columns, at place `first` of
 * the group. Source: Shazeer and Stern 2018, algorithm 4. */
typedef struct bp_factored {
    int64_t place, n, columns, first;
    double *row_sums, *column_sums; /* of the whole matrix; += (g scale)^2 + floor */
    const float *row, *column;      /* the step of an element is g row column */
} bp_factored;
void bp_factor_sums(const bp_factored *at, const float *g, double scale, double floor);
/** *sum += the squares of the steps. */
void bp_factor_squares(double *sum, const bp_factored *at, const float *g);
/** w = keep w - rate g row column. */
void bp_factor_apply(float *w, const bp_factored *at, const float *g, double rate, double keep);
