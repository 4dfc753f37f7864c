/* Adapters: a few trainable parameters beside a model's own, which stay fixed. */
#ifndef BP_NN_ADAPTER_H
#define BP_NN_ADAPTER_H

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

/** Part of a model's shape; plain data. All 0: none. */
typedef struct bp_adapter {
    int64_t kind, rank; /* of a bottleneck (nn/transformer/bottleneck.h): its width */
    int64_t targets;    /* LoRA's weights, */
    double scale;       /* and its alpha */
} bp_adapter;

/** LoRA of one product y = W x of weights that are contiguous: each of some of them becomes W +
 * (scale / rank) B A, A [rank][ins] drawn, B [its outs][rank] 0 at first. Products read the merged
 * weights, so forward costs nothing, and backward two products of `rank` columns more in place of
 * W's gradient. Source: Hu et al. 2021, section 4.1. */
typedef struct bp_lora bp_lora;

typedef struct bp_lora_product {
    int64_t outs, ins; /* of the whole product on this rank */
    bool row_split;    /* tensor ranks split ins, else outs */
    int count;         /* of weights that are adapted, 3 at most */
    bp_param *weight[3];
    int64_t first[3]; /* the row of the product at which each begins */
} bp_lora_product;

/** Adds "NAME.lora_a" and "NAME.lora_b" for each weight "NAME.weight": what W splits goes into
 * `split`, as W is; the other into `partial`, whose gradients each tensor rank has its part of
 * (bp_group.partial). Local. */
bp_lora *bp_lora_new(const bp_adapter *adapter, const bp_lora_product *product, bp_group *split,
                     bp_group *partial);
void bp_lora_free(bp_lora **lora);
/** The values are bound; with a gemm of only forward products they are loaded too. *values: what
 * products read, [outs][ins], borrowed: with such a gemm `base` itself, into which A and B are
 * merged now. Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_lora_bind(bp_lora *lora, bp_gemm *gemm, float *base, const float **values);
/** The values have changed: they are merged again. Local. */
void bp_lora_refresh(bp_lora *lora);
/** Adds to the gradients of A and B what dy[rows][outs] and x[rows][ins] give them. Local. */
void bp_lora_backward(bp_lora *lora, bp_arena *scratch, const bp_operand *dy, const bp_operand *x);
size_t bp_lora_scratch_bytes(const bp_lora *lora, const bp_gemm *gemm, int64_t rows);
/** Bytes of what bind makes, and the largest scratch of a product. */
size_t bp_lora_copy_bytes(const bp_lora *lora, const bp_gemm *gemm);
size_t bp_lora_product_scratch(const bp_lora *lora, const bp_gemm *gemm, int64_t rows);

/** w[outs][ins] += scale b[outs][rank] a[rank][ins], row by row in the order of ranks. */
void bp_lora_merge(float *w, const float *a, const float *b, float scale, int64_t outs,
                   int64_t rank, int64_t ins);

#endif
