/* Shared by the files that implement linear.h, and used by the rest of this library. */
#pragma once

#include "math/bf16/bf16_tiles.h"
#include "math/gemm/linear.h"
#include "math/gemm/operand_pass.h"

/** "onednn 2.6.3" or "blas"; the instruction set that it uses, or NULL if unknown. */
void bp_gemm_library_name(char *out, size_t out_bytes);
const char *bp_gemm_isa(void);
/** bf16 products at hardware speed. */
bool bp_gemm_has_bf16(void);

/** How bf16 products are computed: by the library's bf16 instructions, in float32 on operands
 * rounded to bf16 (the same sums, except for their order), by our own kernels, or by the library
 * except where ours are faster on the same operands: large weight gradients, and copies of
 * weights. Float32 products are the library's in the first form, our own in the others if the CPU
 * supports them. */
typedef enum bp_bf16_form {
    BP_BF16_NATIVE,
    BP_BF16_ROUNDED,
    BP_BF16_OWN,
    BP_BF16_MIXED
} bp_bf16_form;
bp_err bp_gemm_new_form(bp_gemm **out, bp_precision precision, bp_bf16_form form);
/** A gemm of that precision and form, for all products or only for forward ones. */
typedef struct bp_gemm_kind {
    bp_precision precision;
    bp_bf16_form form;
    bool forward_only, q8;
} bp_gemm_kind;
size_t bp_weight_form_bytes(const bp_gemm_kind *of, int64_t outs, int64_t ins);
size_t bp_linear_form_scratch_bytes(const bp_gemm_kind *of, int64_t rows, int64_t outs,
                                    int64_t ins);
bp_gemm_kind bp_gemm_kind_of(const bp_gemm *gemm);
void bp_gemm_set_forward_only(bp_gemm *gemm);
/** The best form here, for a library with bf16. */
bp_bf16_form bp_gemm_bf16_form(void);
bp_bf16_form bp_cpu_bf16_form(void);
/** Is AMX available: allowed for the library (ONEDNN_MAX_CPU_ISA), and granted by the kernel? */
bool bp_cpu_has_tiles(void);
/** In the mixed form, does our own kernel compute the gradient of a weight [outs][ins]? */
bool bp_cpu_owns_gradient(int64_t outs, int64_t ins);

int64_t bp_weight_outs(const bp_weight *w);
int64_t bp_weight_ins(const bp_weight *w);

/** The operand form of a bp_gemm's products. */
bp_operand_form bp_gemm_form(const bp_gemm *gemm);
/** An operand of this gemm in existing memory. */
bp_operand bp_operand_at(const bp_gemm *gemm, void *data, int64_t rows, int64_t columns);
/** Products over `inner` products a sum may hand their sums to an epilogue (operand_pass.h),
 * instead of writing them. */
bool bp_gemm_takes_epilogue(const bp_gemm *gemm, int64_t inner);
void bp_linear_forward_through(bp_gemm *gemm, const bp_epilogue *epilogue, const bp_operand *x,
                               const bp_weight *w, const float *bias);
void bp_linear_backward_input_through(bp_gemm *gemm, const bp_epilogue *epilogue,
                                      const bp_operand *dy, const bp_weight *w);
/** The bf16 products of attention's tiles; NULL if float32 is as fast, or is requested. */
const bp_bf16_tiles *bp_gemm_bf16_tiles(const bp_gemm *gemm);

/** Growing memory; its content is lost when it grows. Initially all zero. */
typedef struct bp_workspace {
    void *data;
    size_t bytes;
} bp_workspace;
void *bp_workspace_of(bp_workspace *workspace, size_t bytes);
void bp_workspace_free(bp_workspace *workspace);
/** Where calls on float32 rows make their operands. */
enum { BP_WORKSPACE_SOURCE, BP_WORKSPACE_SECOND, BP_WORKSPACES };
bp_workspace *bp_gemm_workspace(bp_gemm *gemm, int which);

/** sums[c] += x[0][c] + x[1][c] + ... in this order: threads share the columns. */
void bp_column_sums(float *sums, const float *x, int64_t rows, int64_t columns);

/** y = f(x) row by row, through a library that picks its kernels by the number of rows: `product`
 * is called only on blocks of BP_ROW_BLOCK rows, the last one padded with zeros. So a row's result
 * does not depend on the number of rows or its position. oneDNN's AVX2 kernel takes 6 rows at a
 * time and treats the rest differently, so the block is a multiple of 6 for each of 2, 4, 8, 16 or
 * 32 threads. */
#define BP_ROW_BLOCK 192
typedef struct bp_rows {
    float *y;
    const float *x;
    int64_t rows, y_columns, x_columns, x_stride;
} bp_rows;
void bp_in_row_blocks(const bp_rows *all, bp_workspace *workspace,
                      void (*product)(const void *context, float *y, const float *x, int64_t rows),
                      const void *context);

/** y[rows][outs] = x[rows][ins] times w[outs][ins] transposed, + bias (may be NULL), for few rows.
 */
typedef struct bp_few_rows {
    float *y;
    const float *x, *w, *bias;
    int64_t rows, x_row, outs, ins;
} bp_few_rows;
void bp_multiply_few_rows(const bp_few_rows *all);

/** Weight gradients of rows in two places are one product; else false, and nothing is done. */
bool bp_linear_weight_at_once(bp_gemm *gemm, float *dw, const bp_operand dy[2], const bp_operand *x,
                              bool fresh);
