/* The blocks of GPT-2's architecture. Source: Radford et al. 2019; the split is Megatron's (Shoeybi
 * et al. 2019, section 3): columns then rows, heads over tensor ranks, the vocabulary split in the
 * embedding and in the cross-entropy. */
#ifndef BP_NN_LAYERS_H
#define BP_NN_LAYERS_H

#include "nn/block.h"

/* All constructors: *out is the caller's until it is given to a network; nn and params are
 * borrowed. Errors: BP_ERR_SYSTEM, *out is NULL. */

/** hidden = wte[inputs] + wpe[position], dropout. wte: this rank's rows of [V][C], wpe [T][C].
 * Params are borrowed. */
bp_err bp_embedding_new(bp_block **out, const bp_nn *nn, bp_param *wte, bp_param *wpe);

/** Sizes of a pre-norm transformer layer; H and F are whole, the constructor takes this rank's
 * share. */
typedef struct bp_layer_shape {
    int64_t C, H, F; /* width, heads, inner width of the MLP (4C) */
    int64_t layers;  /* of the whole model: residual projections start at std / sqrt(2 layers) */
    int64_t number;  /* of this layer, from 0 */
} bp_layer_shape;

/** h += out(attention(ln1(h))); h += down(gelu(up(ln2(h)))).
 *  Adds its params to the groups: `split` is cut over tensor ranks, `whole` is replicated. */
bp_err bp_transformer_layer_new(bp_block **out, const bp_nn *nn, const bp_layer_shape *shape,
                                bp_group *split, bp_group *whole);

/** Final norm and softmax cross-entropy over a vocabulary split over tensor ranks, by chunks of
 * rows: the logits never exist whole. In training forward only keeps its input; backward computes
 * the loss and all gradients in one go. */
bp_err bp_lm_head_new(bp_block **out, const bp_nn *nn, bp_param *wte, bp_group *whole);

/** This rank's rows of a vocabulary: ceil(V / tensors) each, fewer on the last ranks (no padding).
 */
void bp_vocab_share(const bp_nn *nn, int64_t V, int64_t *first, int64_t *count);

#endif
