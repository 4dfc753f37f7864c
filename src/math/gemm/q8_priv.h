/* Weights held in 8 bits (math/kernels/q8.h), and products with them. */
#pragma once

#include "math/gemm/linear_parts.h"
#include "math/kernels/q8.h"

size_t bp_q8_bytes(int64_t outs, int64_t ins);
/** The blocks of w[outs][ins]. Owns: the caller's, bp_free(). */
bp_q8_weights *bp_q8_new(const float *w, int64_t outs, int64_t ins);
/** y[rows][outs] = x Wt + bias (NULL: none). The workspace takes bp_q8_scratch_bytes. */
void bp_q8_forward(const bp_operand *y, const bp_operand *x, const bp_q8_weights *w,
                   const float *bias, bp_workspace *workspace);
size_t bp_q8_scratch_bytes(int64_t rows, int64_t ins);

typedef void bp_q8_multiply(const bp_q8_product *product);
/** The fastest implementation here; all have the same bits. */
bp_q8_multiply *bp_q8_multiply_here(void);
