/* Products with weights of 8 bits, in integers.
 *
 * A weight [outs][ins] is cut into blocks of 32 values of a row (the last one may have fewer). A
 * value is d q, where q is in [-127, 127], and d is the block's own: the largest magnitude over
 * 127, rounded up to bf16. A row of x is divided the same way, into values s (256 high + low) of
 * 16 bits. The sum over a block is an exact integer; it is converted to float32 once, times d s,
 * and added to the sum of the previous blocks. So a result has the same bits with every
 * instruction set and any number of rows.
 *
 * Source: the blocks are those of ggml's Q8_0 (there d is float16); two digits for x are ours. */
#pragma once

#include <stdint.h>

#define BP_Q8_BLOCK   32 /* values of a row that share a scale */
#define BP_Q8_COLUMNS 32 /* rows of a weight (columns of y) in a group */

/** A block of the weight by as many of its rows: values q + 128, four of a row at a time. */
typedef struct bp_q8_weights {
    uint8_t values[BP_Q8_BLOCK / 4][BP_Q8_COLUMNS][4];
    uint16_t scales[BP_Q8_COLUMNS]; /* bf16 */
} bp_q8_weights;

/** A block of a row of x. */
typedef struct bp_q8_row {
    int8_t high[BP_Q8_BLOCK], low[BP_Q8_BLOCK];
    float scale;    /* NaN where x has a value that is not finite */
    int32_t offset; /* -128 times the sum, to cancel the weights' offset of 128 */
} bp_q8_row;

/** y[rows][columns] = start + x w: one run of at most BP_Q8_COLUMNS columns. */
typedef struct bp_q8_product {
    float *y;
    const float *start;     /* [columns], NULL: 0 */
    const bp_q8_row *x;     /* [rows][blocks] */
    const bp_q8_weights *w; /* [blocks] */
    int64_t y_row, rows, blocks, columns;
} bp_q8_product;

/** The same by AVX512_VNNI. */
void bp_q8_multiply_vnni(const bp_q8_product *product);
