/* Bottleneck adapters: a small network between a branch's output and the residual stream. */
#pragma once

#include "nn/core/block.h"

/** x becomes x + up GELU(down x + bias) + bias, down [rank][C], up [C][rank]. Both are small at
 * first, so x stays nearly as it is. It works row by row: tensor ranks that share rows out process
 * their own rows, others all. Source: Houlsby et al. 2019, section 2.1. */
typedef struct bp_bottleneck bp_bottleneck;

/** Saved by forward for backward. */
typedef struct bp_bottleneck_rows {
    float *x;   /* [rows][C] */
    float *pre; /* [rows][rank] what GELU reads */
} bp_bottleneck_rows;

/** Adds "NAME.down.weight", "NAME.down.bias", "NAME.up.weight" and "NAME.up.bias" to the replicated
 * group. nn is borrowed. Local. */
bp_bottleneck *bp_bottleneck_new(const bp_nn *nn, int64_t C, int64_t rank, const char *name,
                                 bp_group *whole);
void bp_bottleneck_free(bp_bottleneck **bottleneck);
/** The values are bound; they have changed. Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_bottleneck_bind(bp_bottleneck *self);
void bp_bottleneck_refresh(bp_bottleneck *self);

bp_bottleneck_rows bp_bottleneck_alloc(const bp_bottleneck *self, bp_arena *arena, int64_t rows);
/** Copies of the saved data of `rows` rows, `times` times. Local. */
void bp_bottleneck_repeat(const bp_bottleneck *self, const bp_bottleneck_rows *to,
                          const bp_bottleneck_rows *from, int64_t rows, int64_t times);
/** x[rows][C] in place; kept->x NULL: keeps nothing. Local. */
void bp_bottleneck_forward(const bp_bottleneck *self, bp_arena *scratch, float *x, int64_t rows,
                           const bp_bottleneck_rows *kept);
/** dx[rows][C] in place; adds to the gradients. Local. */
void bp_bottleneck_backward(const bp_bottleneck *self, bp_arena *scratch, float *dx, int64_t rows,
                            const bp_bottleneck_rows *kept);
/** Scratch of either. */
size_t bp_bottleneck_scratch_bytes(const bp_bottleneck *self, int64_t rows);
/** Memory of its products, added. */
void bp_bottleneck_add_products(const bp_bottleneck *self, int64_t rows, bp_product_bytes *bytes);
