/* Operands of matrix products: produced once, in the form that the products of a bp_gemm
 * (linear.h) read, by the pass that computes their values (kernels.h). */
#pragma once

#include "base/mem.h"
#include <stdint.h>
#include <string.h>

typedef struct bp_gemm bp_gemm;

/** A matrix as the products of a bp_gemm read it: float32 rows, floats rounded to bf16's precision,
 * or bf16 (uint16_t). Row r begins `stride` elements after row r - 1. */
typedef enum bp_operand_form {
    BP_OPERAND_F32,
    BP_OPERAND_ROUNDED,
    BP_OPERAND_BF16
} bp_operand_form;
typedef struct bp_operand {
    bp_operand_form form;
    int64_t rows, columns, stride;
    void *data; /* borrowed */
} bp_operand;

/** Bytes of an operand that has memory of its own, without gaps between rows. */
size_t bp_operand_bytes(bp_operand_form form, int64_t rows, int64_t columns);
/** Float32 rows: the output of a pass that no product reads. */
static inline bp_operand bp_operand_floats(float *x, int64_t rows, int64_t columns)
{
    return (bp_operand){BP_OPERAND_F32, rows, columns, columns, x};
}
/** The destination of a product whose result the next pass rounds. */
static inline bp_operand bp_operand_unrounded(const bp_operand *to)
{
    bp_operand out = *to;

    out.form = to->form == BP_OPERAND_ROUNDED ? BP_OPERAND_F32 : to->form;
    return out;
}
/** Element `at` of its memory, as a float. */
static inline float bp_operand_value(const bp_operand *x, int64_t at)
{
    float value;
    uint32_t bits;

    if (x->form != BP_OPERAND_BF16)
        return ((const float *)x->data)[at];
    bits = (uint32_t)((const uint16_t *)x->data)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}
/** The values of x[rows][columns], converted; nothing where `to` is x. */
void bp_operand_fill(const bp_operand *to, const float *x);
/** Rows [first, first + rows) of it; of no rows, where its first one would be. */
bp_operand bp_operand_part(const bp_operand *all, int64_t first, int64_t rows);
