/* Linear maps y = x Wt + b and their gradients: all the matrix products of a network.
 *
 * Two files implement this header: linear_onednn.c and linear_blas.c. The first one uses kernels
 * of our own where they are faster: with AMX for all bf16 products (bf16_linear.c); with
 * AVX512_BF16 for copies of weights, and for weight gradients that are too large for the caches;
 * with AVX-512 for float32 products, except for narrow weights (f32_gemm.c). Results are float32,
 * row-major. In BF16 the operands are rounded to bfloat16 and products are summed in float32: by
 * bf16 instructions, or by float32 instructions where these are faster on this CPU. An operand is
 * made once, by the pass that computes its values (the producers in kernels.h), and read by each
 * product that needs it (operand.h).
 *
 * Bits: the same inputs and the same threads give the same bits. A row of y or dx does not depend
 * on the number of rows (checked with oneDNN 2.6.3 and OpenBLAS by tests/math/test_linear.c: run
 * it with another library). Weight gradients may depend on the number of threads and, without
 * AVX-512, on the number of rows. Our own kernels sum over k in order, or block by block, with any
 * number of threads: their bits never differ.
 *
 * Unplanned memory, and shapes that the library refuses, are bugs (BP_ASSERT). It warns when
 * oneDNN falls back to its reference implementation.
 */
#pragma once

#include "base/err.h"
#include "base/mem.h"
#include "math/gemm/operand.h"
#include "math/kernels/kernels.h"
#include "math/precision.h"
#include <stdbool.h>
#include <stdint.h>

/** The context of products: precision, primitives cached by shape, scratch. One per thread of
 * control.
 *
 * Errors: BP_ERR_CONFIG bf16 on a CPU or in a build without it, BP_ERR_SYSTEM no memory, or the
 *         library does not start; *out is NULL.
 */
bp_err bp_gemm_new(bp_gemm **out, bp_precision precision);
/** The same for forward products only: a weight holds its values once, in the form that these
 * read. */
bp_err bp_gemm_new_forward(bp_gemm **out, bp_precision precision);
/** Hold weights made from now on in 8 bits (math/kernels/q8.h), instead of the precision's form:
 * 1.06 bytes a value. Requires bp_gemm_new_forward. A row of y then does not depend on the number
 * of rows, the threads or the instruction set. */
void bp_gemm_hold_q8(bp_gemm *gemm);
void bp_gemm_free(bp_gemm **gemm);
bp_precision bp_gemm_precision(const bp_gemm *gemm);
/** Is it from bp_gemm_new_forward? Then no weight changes any more. */
bool bp_gemm_is_forward_only(const bp_gemm *gemm);
/** Do forward products read a weight's own values in place? false: they read a copy. */
bool bp_gemm_reads_values(const bp_gemm *gemm);

/** Allocate an operand from the arena; its values are computed later. An arena without a base is
 * only counted. */
bp_operand bp_operand_alloc(bp_arena *arena, const bp_gemm *gemm, int64_t rows, int64_t columns);
/** The same with the best row stride for products (bp_linear_row_stride): our own kernels then
 * need not pack the rows. */
bp_operand bp_operand_alloc_apart(bp_arena *arena, const bp_gemm *gemm, int64_t rows,
                                  int64_t columns);
/** The operand of float32 rows: in F32 the rows themselves, which must outlive it; else allocated
 * this way from the arena. */
bp_operand bp_operand_over(bp_arena *arena, const bp_gemm *gemm, const float *x, int64_t rows,
                           int64_t columns);

/** A weight matrix [outs][ins], float32, and its copies in the best layouts for the products.
 *
 * Owns:   the copies, made at first use; `value` and `gemm` are borrowed for the weight's life.
 * Errors: BP_ERR_SYSTEM no memory; *out is NULL.
 */
typedef struct bp_weight bp_weight;
bp_err bp_weight_new(bp_weight **out, bp_gemm *gemm, const float *value, int64_t outs, int64_t ins);
void bp_weight_free(bp_weight **weight);
/** Call after the values have changed: copies are refreshed at their next use. With
 * bp_gemm_new_forward they are made now, and the values are not read again unless
 * bp_gemm_reads_values. */
void bp_weight_refresh(bp_weight *weight);
/** Bytes of the copies, for the plan. */
size_t bp_weight_copy_bytes(const bp_gemm *gemm, int64_t outs, int64_t ins);

/** The destination of products: float32 rows, or rows in the form of the gemm's operands, rounded
 * as by bp_operand_fill (so that another product can read them without float32 in memory). Returns
 * the row stride, in elements, that is best for products and their readers. With our own kernels it
 * is an odd number of cache lines, which makes products up to twice as fast if `columns` are not
 * whole lines; otherwise there are no gaps, as other products need. */
int64_t bp_linear_row_stride(const bp_gemm *gemm, bp_operand_form form, int64_t columns);
/** y[rows][outs] = x Wt + bias (may be NULL); the stride of y is `outs` or that of
 * bp_linear_row_stride. */
void bp_linear_forward_into(bp_gemm *gemm, const bp_operand *y, const bp_operand *x,
                            const bp_weight *w, const float *bias);
/** dx[rows][ins] = dy W; dx must not be dy's memory. */
void bp_linear_backward_input_into(bp_gemm *gemm, const bp_operand *dx, const bp_operand *dy,
                                   const bp_weight *w);
/** The same into float32 rows without gaps.
 *
 * y[rows][outs] = x Wt + bias (NULL: none). */
void bp_linear_forward_operand(bp_gemm *gemm, float *y, const bp_operand *x, const bp_weight *w,
                               const float *bias);
/** dx[rows][ins] = dy W; dx must not be dy's memory. */
void bp_linear_backward_input_operand(bp_gemm *gemm, float *dx, const bp_operand *dy,
                                      const bp_weight *w);
/** dw[outs][ins] = dyt x if fresh (its content is not read), else dw += dyt x. */
void bp_linear_backward_weight_operand(bp_gemm *gemm, float *dw, const bp_operand *dy,
                                       const bp_operand *x, bool fresh);
/** The same for rows in two places; the second may be empty. With our own kernels it is one
 * product, which writes dw once, if the first place has whole steps of 32 rows. */
void bp_linear_backward_weight_pieces(bp_gemm *gemm, float *dw, const bp_operand dy[2],
                                      const bp_operand *x, bool fresh);

/** A product whose sums, rounded like operands, go through an activation. Forward equals
 * bp_linear_forward_into followed by bp_activation_forward, backward equals
 * bp_linear_backward_input_into followed by bp_activation_backward, to the bit, except for the
 * order of summation of the bias's gradient. With our own kernels, and a short K, the sums stay in
 * the caches; else they go through x (forward) or dx (backward). */
typedef struct bp_activation_rows {
    const bp_operand *y;          /* the activation's output */
    const bp_operand *x;          /* its input: forward writes it, backward reads it */
    const bp_operand *dx;         /* backward: its input's gradient */
    const bp_bias_gradient *bias; /* backward: the sums of dx; NULL: not wanted */
    bp_activation kind;
} bp_activation_rows;
/** y = f(x Wt + bias) */
void bp_linear_activation_forward(bp_gemm *gemm, const bp_activation_rows *to, const bp_operand *x,
                                  const bp_weight *w, const float *bias);
/** dx = (dy W) f'(x), y = f(x) */
void bp_linear_activation_backward(bp_gemm *gemm, const bp_activation_rows *to,
                                   const bp_operand *dy, const bp_weight *w);
/** x[rows][inner] that is not kept for backward; `width` is the other side of the weight. It has
 * no memory if the sums stay in the caches. */
bp_operand bp_linear_activation_alloc(bp_arena *arena, const bp_gemm *gemm, int64_t rows,
                                      int64_t width, int64_t inner);

/** Is a forward product prepared at the first use of a number of rows, which takes far longer than
 * a small product? */
bool bp_gemm_prepares(const bp_gemm *gemm);

/** Switch forward products of few rows on or off, for decoding: our own loops compute float32
 * ones, reading a weight once for up to 64 rows. Then a row of y does not depend on the number of
 * rows or the threads, and nothing is allocated; its bits differ from the library's. bf16 products
 * are unchanged. */
void bp_gemm_take_few_rows(bp_gemm *gemm, bool few);

/* Maps of float32 rows, converted inside.
 *
 * y[rows][outs] = x[rows][ins] Wt + bias (NULL: none). */
void bp_linear_forward(bp_gemm *gemm, float *y, const float *x, const bp_weight *w,
                       const float *bias, int64_t rows);
/** dx[rows][ins] = dy[rows][outs] W */
void bp_linear_backward_input(bp_gemm *gemm, float *dx, const float *dy, const bp_weight *w,
                              int64_t rows);
/** dw[outs][ins] += dyt x; dbias[outs] += column sums of dy in row order (either may be NULL). */
void bp_linear_backward_weight(bp_gemm *gemm, float *dw, float *dbias, const float *dy,
                               const float *x, int64_t rows, int64_t outs, int64_t ins);

/** Both gradients of one map, bitwise equal to bp_linear_backward_weight and
 * bp_linear_backward_input; dy is rounded once. dx must not be dy. */
typedef struct bp_linear_gradients {
    float *dx, *dw, *dbias; /* dw, dbias may be NULL */
} bp_linear_gradients;
void bp_linear_backward(const bp_linear_gradients *to, bp_gemm *gemm, const float *dy,
                        const float *x, const bp_weight *w, int64_t rows);

/** Internal scratch bytes of these calls for at most `rows` rows with the current threads, for the
 * plan (held by the bp_gemm, grown on first use; the largest of its maps counts). */
size_t bp_linear_scratch_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins);
/** For calls whose rows are already operands. */
size_t bp_linear_operand_scratch_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs,
                                       int64_t ins);
