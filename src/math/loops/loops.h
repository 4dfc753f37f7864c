/* The inner loops of the kernels: single-threaded, over a range, compiled once for each
 * instruction set.
 *
 * They are plain C in fixed order: sums run in LANES accumulators that are added up pairwise, so a
 * result does not depend on alignment or the instruction set, except for fused multiply-adds.
 * These occur in tile_product, dots, weighted_rows, tile_softmax, tile_weights, mixture and
 * temperature if the compiler fuses, and in activations, exp_scale and softmax_statistics with
 * every instruction set that has them (`fused`): their bits are the same from AVX2 on.
 */
#pragma once

#include "base/rng.h"
#include "math/kernels/cells.h"
#include "math/kernels/kernels.h"
#include "math/kernels/q8.h"
#include "math/kernels/rows.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Query positions of an attention tile: the fastest axis of its scores. */
#define BP_TILE_QUERIES 64
#define BP_TILE_KEYS    64

/** As many multiply-adds of `operands` as the registers hold, `times` times; returns the number of
 * operations. *out keeps the compiler from removing them. */
typedef int64_t bp_multiply_adds(float *out, const float *operands, int64_t times);
#define BP_PEAK_OPERANDS 2048 /* four tiles of AMX */

/** Dropout for the loops: element i is kept iff its word >= threshold, and multiplied by
 * `scale`. */
typedef struct bp_mask {
    const bp_rng_key *key;
    uint32_t threshold; /* ceil(p * 2^32) */
    float scale;        /* 1 / (1 - p) */
} bp_mask;
bp_mask bp_mask_of(float p, const bp_rng_key *key);

/** An update rule, rounded to float32: AdamW's with its bias corrections; for others beta1 is the
 * moment's decay (rest1: 1 less it), beta2 the momentum. */
typedef struct bp_update_constants {
    float rate, beta1, rest1, beta2, rest2, correction1, correction2, epsilon, decay,
        gradient_scale;
} bp_update_constants;
/** For n parameters; a moment that the rule lacks is NULL. */
typedef bp_update_sums (*bp_update_loop)(float *w, float *m, float *v, const float *g, int64_t n,
                                         const bp_update_constants *constants);

/** C[M][N] (+)= sum over k of A(m, k) B[k][N], A(m, k) at a[m * a_row + k * a_column]; N is a
 * multiple of 16. */
typedef struct bp_tile {
    float *c;
    const float *a, *b;
    int64_t c_row, a_row, a_column, b_row;
    int64_t M, N, K;
    bool accumulate;
} bp_tile;

/** y[rows][outs] (+)= x[rows][ins] times w[outs][ins] transposed: sums over the columns of both. */
typedef struct bp_dots {
    float *y;
    const float *x, *w;
    int64_t y_row, x_row, w_row;
    int64_t rows, outs, ins;
    bool accumulate;
} bp_dots;

/** Some columns of one row of an ensemble (math/kernels/mixture.h): at most BP_MIXTURE_BLOCK. */
typedef struct bp_mixture_block {
    int64_t members, columns;
    const float *logits; /* of member 0 */
    int64_t member_stride;
    const bp_member_row *known; /* of member 0 */
    int64_t known_stride;
} bp_mixture_block;

/** A row's data for a layer norm's backward pass. */
typedef struct bp_norm_row {
    float mean, rstd, mean_d, mean_dot;
} bp_norm_row;

typedef struct bp_loops {
    const char *name;
    void (*gelu_forward)(float *y, const float *x, int64_t n); /* with tanh */
    /* dx may be dy */
    void (*gelu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
    void (*gelu_exact_forward)(float *y, const float *x, int64_t n);
    void (*gelu_exact_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
    void (*relu_forward)(float *y, const float *x, int64_t n);
    void (*relu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
    void (*silu_forward)(float *y, const float *x, int64_t n);
    void (*silu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
    /* y = silu(gate) up */
    void (*swiglu_forward)(float *y, const float *gate, const float *up, int64_t n);
    /* dgate may be gate, dup up, y dy */
    void (*swiglu_backward)(float *y, float *dgate, float *dup, const float *dy, const float *gate,
                            const float *up, int64_t n);
    /* the same for y = gelu(gate) up, by tanh */
    void (*geglu_forward)(float *y, const float *gate, const float *up, int64_t n);
    void (*geglu_backward)(float *y, float *dgate, float *dup, const float *dy, const float *gate,
                           const float *up, int64_t n);
    /* and by the exact normal distribution */
    void (*geglu_exact_forward)(float *y, const float *gate, const float *up, int64_t n);
    void (*geglu_exact_backward)(float *y, float *dgate, float *dup, const float *dy,
                                 const float *gate, const float *up, int64_t n);
    /* pairs (x[i], x[i + half]) rotated by angles of these cosines and sines; sign -1: back */
    void (*rotate)(float *x, const float *cosine, const float *sine, int64_t half, float sign);
    void (*add)(float *y, const float *x, int64_t n);
    void (*sum)(float *y, const float *a, const float *x, int64_t n);
    void (*scale)(float *y, float factor, int64_t n);
    /* y = a + mask(x), a NULL: mask(x); `first` is the place of element 0 */
    void (*dropout)(float *y, const float *a, const float *x, int64_t n, const bp_mask *mask,
                    int64_t first);
    void (*to_bf16)(uint16_t *y, const float *x, int64_t n);
    void (*round_bf16)(float *y, const float *x, int64_t n); /* to the precision of bf16 */
    void (*from_bf16)(float *y, const uint16_t *x, int64_t n);
    void (*column_sums)(float *sums, const float *x, int64_t rows, int64_t columns,
                        int64_t row_stride);

    void (*norm_statistics)(float *mean, float *rstd, const float *x, int64_t C, float epsilon);
    void (*norm_apply)(float *y, const float *x, const float *gain, const float *bias, float mean,
                       float rstd, int64_t n);
    /* means over a row of dy gain and of dy gain xhat */
    void (*norm_means)(float *mean_d, float *mean_dot, const float *dy, const float *x,
                       const float *gain, float mean, float rstd, int64_t C);
    /* adds to dx, dgain and dbias: n columns of a row */
    void (*norm_gradient)(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                          const float *gain, const bp_norm_row *row, int64_t n);

    float (*row_max)(const float *x, int64_t n);
    /* the maximum, and the sum of exp(x - max); a NaN shows in the sum */
    void (*softmax_statistics)(float *max, double *sum, const float *x, int64_t n);
    /* the same bits, and the entropy of the row's softmax, in nats */
    void (*softmax_entropy)(float *max, double *sum, double *entropy, const float *x, int64_t n);
    /* y = exp(x - max) * factor, x at most max */
    void (*exp_scale)(float *y, const float *x, int64_t n, float max, float factor);
    /* With d = max(x / 2 - tau, 0): sums of d, d^2, d^3; and y = factor d^2, may be in place. */
    void (*threshold_sums)(double sums[3], const float *x, int64_t n, double tau);
    void (*threshold_square)(float *y, const float *x, int64_t n, double tau, float factor);
    double (*square_sum)(const float *x, int64_t n);
    uint32_t (*bit_sum)(const float *x, int64_t n);

    /* logprob and p of a block's entries, and sums over members and entries: -p_m lp_m, and p_m
     * (lp_m - log p) */
    void (*mixture)(float *logprob, float *p, double ends[2], const bp_mixture_block *block);
    /* index of the first x with (x - max) - log_sum == -log_sum; n if there is no such x */
    int64_t (*first_top)(const float *x, int64_t n, float max, float log_sum);
    /* sums of exp(b u), u exp(b u) and u^2 exp(b u), u = logprob - shift */
    void (*temperature)(double sums[3], const float *logprob, int64_t n, float shift, float b);

    bp_update_loop adamw, sgd, adagrad, adadelta, rmsprop, rmsprop_momentum;
    void (*lamb_moments)(float *m, float *v, const float *g, int64_t n,
                         const bp_update_constants *constants);
    /* sums of squares of the weights and of their steps */
    void (*lamb_squares)(double sums[2], const float *w, const float *m, const float *v, int64_t n,
                         const bp_update_constants *constants);
    void (*lamb_apply)(float *w, const float *m, const float *v, int64_t n,
                       const bp_update_constants *constants);
    /* the sum of (g scale)^2 + floor over a part of a row, each also added to its column (unless
     * NULL); only that addition */
    double (*factor_sum)(double *columns, const float *g, int64_t n, float scale, float floor);
    void (*factor_columns)(double *columns, const float *g, int64_t n, float scale, float floor);
    /* the sum of squares of g row column[i] */
    double (*factor_squares)(const float *g, const float *column, int64_t n, float row);
    void (*factor_apply)(float *w, const float *g, const float *column, int64_t n, float row,
                         float keep);

    bp_multiply_adds *multiply_adds;
    void (*tile_product)(const bp_tile *tile);
    void (*tanh)(float *y, const float *x, int64_t n); /* y may be x */
    /* `n` units of one row (cells.h) */
    void (*rnn_forward)(const bp_cell_units *units);
    void (*lstm_forward)(const bp_cell_units *units);
    void (*gru_forward)(const bp_cell_units *units);
    void (*rnn_backward)(const bp_cell_units *units, const bp_cell_gradients *to);
    void (*lstm_backward)(const bp_cell_units *units, const bp_cell_gradients *to);
    void (*gru_backward)(const bp_cell_units *units, const bp_cell_gradients *to);
    /* A result's bits depend only on its row of x and its row of w. */
    void (*dots)(const bp_dots *dots);
    /* y[columns] += weights[0] rows[0] + weights[1] rows[1] + ... in this order */
    void (*weighted_rows)(float *y, const float *weights, const float *rows, int64_t count,
                          int64_t row, int64_t columns);
    /* Scores [keys][BP_TILE_QUERIES] become weights; max, sum and the factor of previous sums, by
     * query. Query lane q sees the keys k <= q + visible. */
    void (*tile_softmax)(float *scores, float *max, float *sum, float *factor, int64_t keys,
                         int64_t visible);
    /* scores become weights exp(score - lse), 0 where not visible. */
    void (*tile_weights)(float *scores, const float *lse, int64_t keys, int64_t visible);
    /* ds = weights * (ds - delta) */
    void (*tile_score_gradient)(float *ds, const float *weights, const float *delta, int64_t keys);
    /* factors[keys][BP_TILE_QUERIES] of dropout; the word of (query q, key k) is that of place
     * first + q * stride + k; first and stride are multiples of 4 */
    void (*tile_mask)(float *factors, const bp_mask *mask, int64_t keys, int64_t first,
                      int64_t stride);
    void (*multiply)(float *y, const float *a, const float *x, int64_t n); /* y = a * x */
    void (*scale_columns)(float *y, const float *factors,
                          int64_t rows); /* y[rows][BP_TILE_QUERIES] */
    /* y[columns][BP_TILE_QUERIES] = x[rows][columns] transposed and scaled, the rest of the lanes 0
     */
    void (*transpose_in)(float *y, const float *x, int64_t rows, int64_t columns, int64_t x_row,
                         float factor);
    void (*transpose_out)(float *y, const float *x, int64_t rows, int64_t columns, int64_t y_row);
    void (*row_dots)(float *y, const float *x, const bp_row_list *rows); /* rows.h */
    void (*rows_add_to)(float *y, const float *weights, const bp_row_list *rows);
    void (*add_to_rows)(const bp_row_list *rows, const float *weights, const float *x);
    /* q8.h: a block of n values of a row; of `count` rows of a weight, `row` floats apart */
    void (*q8_row)(bp_q8_row *to, const float *x, int64_t n);
    void (*q8_weights)(bp_q8_weights *to, const float *w, int64_t row, int64_t count, int64_t n);
    void (*q8_multiply)(const bp_q8_product *product);
} bp_loops;

/** As bp_cap_all, for a tile, and bp_cap_slopes (NULL: not wanted). */
void bp_cap(const bp_loops *loops, float *x, float *slopes, float cap, int64_t n);

/** The loops for this CPU. */
const bp_loops *bp_loops_best(void);
/** The index-th instruction set that this CPU can run, from "base" up; NULL after the last. */
const bp_loops *bp_loops_at(int index);

/* Prefetch n floats: hardware prefetches only within a page. They may be beyond the end, since
 * nothing is read. */
static inline void bp_fetch(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        __builtin_prefetch(x + i);
}

/* Threads take runs of whole grains, so that neighbours do not write to the same cache line. */
static inline void bp_share(int64_t n, int64_t grain, int64_t parts, int64_t part, int64_t *first,
                            int64_t *last)
{
    int64_t grains = (n + grain - 1) / grain;
    int64_t begin = grains * part / parts * grain, end = grains * (part + 1) / parts * grain;

    *first = begin < n ? begin : n;
    *last = end < n ? end : n;
}
