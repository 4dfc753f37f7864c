/* Shared by families of Transformers, of one stack (stack.h) and of two (seq2seq): checks and
 * blocks. */
#ifndef BP_MODELS_STACK_TRANSFORMER_H
#define BP_MODELS_STACK_TRANSFORMER_H

#include "models/family.h"
#include "nn/core/layers.h"

/** The standard deviation of initial weights, and of token embeddings. */
#define BP_TRANSFORMER_STD 0.02F

/** An optional size, or its default if it is 0. */
static inline int64_t bp_given_or(int64_t given, int64_t otherwise)
{
    return given > 0 ? given : otherwise;
}

/** For one stack: the embedding, layers, the head; each passes the hidden states on. */
int bp_transformer_blocks(const bp_model_shape *shape);
int bp_transformer_key_block(const bp_model_shape *shape);
bp_activations bp_transformer_block_output(const bp_model_shape *shape, int block);
/** A vocabulary's table [V][C] that only the next block has, rows cut over tensor ranks; and one,
 * "wte", that the first and the last stage share. */
bp_param *bp_transformer_add_table(bp_network *network, const bp_model_shape *shape,
                                   const char *name);
bp_param *bp_transformer_add_tied(bp_network *network, const bp_model_shape *shape, int stage,
                                  int stages, int blocks);

/** A layer, with its groups of parameters, owned by the network once it is added. */
bp_block *bp_transformer_new_layer(bp_network *network, const bp_layer_shape *layer);

/** A norm "NAME.gain", "NAME.bias" of a network, as a block: a row's shape without a product. */
bp_block *bp_transformer_new_norm(bp_network *network, const bp_row_shape *shape);

/** Faults of sizes that are divided over tensor ranks: heads, and an inner width of the MLP. */
void bp_transformer_check_heads(const bp_model_shape *shape, int tensor_ranks, bp_config *config);
void bp_transformer_check_inner(const bp_model_shape *shape, int64_t inner, int tensor_ranks,
                                bp_config *config);
/** A fault if heads do not divide the width, where they must. */
void bp_transformer_check_width(const bp_model_shape *shape, bp_config *config);

#endif
