/* How passes write operands: n values of a row at a time, through a buffer that stays in the
 * first-level cache. */
#pragma once

#include "base/numbers.h"
#include "math/kernels/kernels.h"
#include "math/loops/loops.h"
#include <string.h>

#define BP_PASS_COLUMNS 1024 /* columns that a pass takes at a time */
#define BP_BLOCK_ROWS   64 /* summed by one thread: fixed, so that threads do not change the sums */

static inline int64_t bp_block_count(int64_t rows)
{
    return (rows + BP_BLOCK_ROWS - 1) / BP_BLOCK_ROWS;
}

/* Where a pass makes the values of row r from column c on: in place, or in `workspace`. */
static inline float *bp_operand_workspace(const bp_operand *to, int64_t r, int64_t c,
                                          float *workspace)
{
    return to->form == BP_OPERAND_BF16 ? workspace : (float *)to->data + r * to->stride + c;
}

/* n values, converted: x, the first of them, may be where bp_operand_workspace said. */
static inline void bp_operand_store(const bp_loops *loops, const bp_operand *to, int64_t r,
                                    int64_t c, const float *x, int64_t n)
{
    int64_t at = r * to->stride + c;
    float *y = (float *)to->data + at;

    if (to->form == BP_OPERAND_BF16)
        loops->to_bf16((uint16_t *)to->data + at, x, n);
    else if (to->form == BP_OPERAND_ROUNDED)
        loops->round_bf16(y, x, n);
    else if (y != x)
        memcpy(y, x, (size_t)n * sizeof *x);
}

/* The gap between bf16 row r and the next row, which products may read. */
static inline void bp_operand_end_row(const bp_operand *to, int64_t r)
{
    if (to->form == BP_OPERAND_BF16 && to->stride > to->columns)
        memset((uint16_t *)to->data + r * to->stride + to->columns, 0,
               (size_t)(to->stride - to->columns) * sizeof(uint16_t));
}
/* Rounds floats that a product has written, if the operand's form requires it. */
void bp_operand_round(const bp_operand *to);

/* n values as floats: in place, or widened into `workspace`. */
static inline const float *bp_operand_load(const bp_loops *loops, const bp_operand *from, int64_t r,
                                           int64_t c, float *workspace, int64_t n)
{
    int64_t at = r * from->stride + c;

    if (from->form != BP_OPERAND_BF16)
        return (const float *)from->data + at;
    loops->from_bf16(workspace, (const uint16_t *)from->data + at, n);
    return workspace;
}

/* Bytes that a pass moves, for the trace: an operand's values, and `times` as many floats. */
static inline double bp_operand_moved(const bp_operand *one)
{
    return (one->form == BP_OPERAND_BF16 ? 2.0 : 4.0) * (double)(one->rows * one->columns);
}

static inline double bp_float_bytes(const bp_operand *one, int times)
{
    return 4.0 * (double)times * (double)(one->rows * one->columns);
}

/* One unit of a pass: x[n], n <= BP_PASS_COLUMNS columns of row r from c on, as floats; the sums
 * of its results are added to sums[n], if wanted. */
typedef void bp_row_pass(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                         float *sums);
/* All units of x. Threads share blocks of rows and panels of columns: the sums do not depend on
 * the division. */
void bp_run_pass(bp_row_pass *pass, const void *context, const bp_operand *x,
                 const bp_bias_gradient *bias);

/* A pass over the sums of a product as they are finished, while they are in cache; they never go
 * to memory. Only the pass decides which of its results are kept. */
typedef struct bp_epilogue {
    bp_row_pass *pass;
    const void *context;
    const bp_bias_gradient *bias;        /* NULL: not wanted; its scratch is not used */
    const bp_operand *read, *written[2]; /* bf16, prefetched; may be NULL */
} bp_epilogue;
