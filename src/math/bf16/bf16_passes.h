/* Attention's passes between its bf16 products, in AVX-512: packing, the softmax and its gradient
 * by panels of BP_PANEL queries, and conversion to float32 rows.
 *
 * A panel of scores is [key][query]: queries are the lanes, so nothing is summed across. Scores
 * come in powers of 2 (log2 e is in the queries' scale). D is the head width, Dp that in whole
 * BP_BF16_BLOCKs; elements beyond D, and beyond the last row, are written as 0.
 */
#pragma once

#include "math/loops/loops.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_PANEL 32

/** Rows of float32, or of bf16 (halves): `rows` of D, `row` apart. */
typedef struct bp_bf16_rows {
    const void *x;
    int64_t rows, D, row;
    bool halves;
} bp_bf16_rows;

/** Which weights of a panel dropout keeps: bit q % 16 of words[k][q / 16]. */
typedef uint16_t bp_panel_bits[2];

/** A panel of the forward pass: scores become weights in pairs of keys. Query q of the panel sees
 * key k iff k < keys and k <= q + visible; rows of weights up to the next block of 32 are 0.
 * Scores and dropout bits of rows up to there are read, with any content: here and in the
 * gradient. Weights may overwrite scores from the first one on, and pairs of the gradient may
 * overwrite dweights. */
typedef struct bp_panel_softmax {
    const float *scores;       /* [keys][BP_PANEL] */
    uint32_t *weights;         /* pairs [keys / 2][BP_PANEL]: 2^(score - top), or 0 if dropped */
    float *top, *sum, *factor; /* [BP_PANEL] */
    const bp_panel_bits *kept; /* NULL: all */
    int64_t keys, visible;
} bp_panel_softmax;

/** A panel of the backward pass: weights p = 2^(score - lse), their gradient p (dweight - delta).
 * Rows up to the next block of 32 are 0. */
typedef struct bp_panel_gradient {
    const float *scores, *dweights; /* [keys][BP_PANEL] */
    const float *lse, *delta;       /* [BP_PANEL]; lse to the base of 2 */
    uint16_t *weights, *dscores;    /* [keys] rows, `row` apart; dropped weights are 0 */
    uint32_t *pairs;                /* of dscores: [keys / 2][BP_PANEL], queries in panel order */
    const bp_panel_bits *kept;      /* NULL: all */
    float kept_factor;              /* factor of the gradients of weights that are kept */
    float cap; /* scores are capped by it, and their gradient is that of the uncapped ones; 0: no
                  cap */
    int64_t keys, visible, row;
} bp_panel_gradient;

typedef struct bp_bf16_passes {
    /* y[all][Dp] = x */
    void (*rows)(uint16_t *y, const bp_bf16_rows *x, int64_t all);
    /* pairs y[all / 2][Dp] of rows of x */
    void (*row_pairs)(uint32_t *y, const bp_bf16_rows *x, int64_t all);
    /* pairs y[Dp / 2][BP_PANEL] of columns of x times scale, transposed; at most a panel's rows */
    void (*transposed_pairs)(uint32_t *y, const bp_bf16_rows *x, float scale);
    /* y[Dp][all] = x transposed; `all` is in whole blocks of 32 */
    void (*transposed_rows)(uint16_t *y, const bp_bf16_rows *x, int64_t all);

    /* `top` of a query grows only if a score exceeds it by more than 8 (a factor of 2^8), so that
     * factors for previous sums are rarely needed: true if one is not 1. */
    bool (*softmax)(const bp_panel_softmax *panel);
    void (*gradient)(const bp_panel_gradient *panel);
    /* y[rows][BP_PANEL] *= factors */
    void (*scale_panel)(float *y, const float *factors, int64_t rows);
    /* y[r][0..D) = x[Dp][BP_PANEL], transposed back, times factors[r], in the form of `shape`;
     * in_panel_order: the queries of x are those of bp_panel_gradient's pairs */
    void (*turn_back)(void *y, int64_t y_row, const float *x, const float *factors,
                      const bp_bf16_rows *shape, bool in_panel_order);
    /* y[rows][D], y_row apart, = factor x[rows][Dp], in the form of `shape` */
    void (*scaled_rows)(void *y, int64_t y_row, const float *x, float factor,
                        const bp_bf16_rows *shape);
    /* delta[r] = sum over d of a[r][d] x[r][d], up to a panel's rows; a is as x */
    void (*row_products)(float *delta, const void *a, const bp_bf16_rows *x);
    /* The word of (query q, key k) is that of place first + q * stride + k; all in fours. */
    void (*mask)(bp_panel_bits *kept, const bp_mask *mask, int64_t keys, int64_t first,
                 int64_t stride);
} bp_bf16_passes;

extern const bp_bf16_passes bp_bf16_passes_avx512;
