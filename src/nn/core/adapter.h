/* Adapters: a few trainable parameters added to a model, whose own stay fixed. */
#pragma once

#include "base/mem.h"
#include "math/gemm/linear.h"
#include "tensor/param.h"

#include <stdint.h>

typedef enum bp_adapter_kind {
    BP_ADAPTER_NONE,
    BP_ADAPTER_LORA,
    BP_ADAPTER_BOTTLENECK
} bp_adapter_kind;

/** Weights of a Transformer layer that LoRA adapts, as bits. UP is the first product of the MLP,
 * with its gate. */
typedef enum bp_adapter_target {
    BP_ADAPT_Q = 1,
    BP_ADAPT_K = 2,
    BP_ADAPT_V = 4,
    BP_ADAPT_OUT = 8,
    BP_ADAPT_UP = 16,
    BP_ADAPT_DOWN = 32
} bp_adapter_target;

/** Part of a model's shape; plain data. All 0: no adapter. */
typedef struct bp_adapter {
    int64_t kind, rank; /* width of a bottleneck (nn/transformer/bottleneck.h) */
    int64_t targets;    /* LoRA's weights, */
    double scale;       /* and its alpha */
} bp_adapter;

/** LoRA for one product y = W x of contiguous weights: each adapted one becomes W + (scale / rank)
 * B A, A [rank][ins] drawn, B [its outs][rank] 0 at first. Products read the merged weights, so
 * forward costs nothing, and backward two products of `rank` columns more in place of W's
 * gradient. Source: Hu et al. 2021, section 4.1. */
typedef struct bp_lora bp_lora;

typedef struct bp_lora_product {
    int64_t outs, ins; /* size of the whole product on this rank */
    bool row_split;    /* tensor ranks split ins, else outs */
    int count;         /* adapted weights, at most 3 */
    bp_param *weight[3];
    int64_t first[3]; /* the first row of each in the product */
} bp_lora_product;

/** Adds "NAME.lora_a" and "NAME.lora_b" for each weight "NAME.weight": the one that is cut as W is
 * goes into `split`; the other into `partial`, whose gradients are partial sums on each tensor
 * rank (bp_group.partial). Local. */
bp_lora *bp_lora_new(const bp_adapter *adapter, const bp_lora_product *product, bp_group *split,
                     bp_group *partial);
void bp_lora_free(bp_lora **lora);
/** Called once the values are bound; with a forward-only gemm they are loaded too. *values: the
 * matrix that products read, [outs][ins], borrowed: with such a gemm `base` itself, into which A
 * and B are merged now. Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_lora_bind(bp_lora *lora, bp_gemm *gemm, float *base, const float **values);
/** Merges again after the values have changed. Local. */
void bp_lora_refresh(bp_lora *lora);
/** Adds the contribution of dy[rows][outs] and x[rows][ins] to the gradients of A and B. Local. */
void bp_lora_backward(bp_lora *lora, bp_arena *scratch, const bp_operand *dy, const bp_operand *x);
size_t bp_lora_scratch_bytes(const bp_lora *lora, const bp_gemm *gemm, int64_t rows);
/** Bytes that bind allocates, and the largest scratch of a product. */
size_t bp_lora_copy_bytes(const bp_lora *lora, const bp_gemm *gemm);
size_t bp_lora_product_scratch(const bp_lora *lora, const bp_gemm *gemm, int64_t rows);

/** w[outs][ins] += scale b[outs][rank] a[rank][ins], row by row in the order of ranks. */
void bp_lora_merge(float *w, const float *a, const float *b, float scale, int64_t outs,
                   int64_t rank, int64_t ins);
