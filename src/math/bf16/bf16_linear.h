/* Linear maps by our own bf16 products (bf16_gemm.h). */
#pragma once

#include "math/bf16/bf16_gemm.h"
#include "math/gemm/linear_parts.h"

/** The panels of a weight, Wt's for the forward products and W's for the backward ones: packed at
 * first use. All fields but `columns` are initially zero. */
typedef struct bp_bf16_copies {
    int64_t columns; /* columns of a panel (bp_bf16_pack_both) */
    uint32_t *panels[2];
    bool fresh[2];
} bp_bf16_copies;
enum { BP_BF16_FORWARD, BP_BF16_BACKWARD };
/** Those of one direction; packs them again unless fresh. */
const uint32_t *bp_bf16_copy_of(bp_bf16_copies *copies, const bp_bf16_kernel *kernel, int direction,
                                const float *w, int64_t outs, int64_t ins);
void bp_bf16_copies_refresh(bp_bf16_copies *copies);
void bp_bf16_copies_clear(bp_bf16_copies *copies);

/** x[rows] times the panels, + bias (may be NULL): written to y, float32 or bf16, or passed to the
 * epilogue (y NULL). bf16 only if the kernel supports it. */
typedef struct bp_bf16_target {
    const bp_operand *y;
    const bp_epilogue *epilogue;
    const float *bias;
    int64_t columns;
} bp_bf16_target;
void bp_bf16_map(const bp_bf16_kernel *kernel, bp_workspace *workspace, const bp_bf16_target *to,
                 const bp_operand *x, const uint32_t *panels);
/** dw = dyt x if fresh, else dw += dyt x; the rows of `more` (may be NULL) follow dy's, which are
 * then whole steps. */
void bp_bf16_weight_gradient(const bp_bf16_kernel *kernel, bp_workspace *workspace, float *dw,
                             const bp_operand *dy, const bp_operand *more, const bp_operand *x,
                             bool fresh);
/** Workspace of the products of one weight for at most `rows` rows, with the current threads;
 * optionally only of the forward ones. */
size_t bp_bf16_workspace_bytes(const bp_bf16_kernel *kernel, int64_t rows, int64_t outs,
                               int64_t ins, bool forward_only);
