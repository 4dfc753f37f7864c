/* Shared by families of Transformers, of one stack (stack.h) and of two (seq2seq): checks and
 * blocks. */
#pragma once

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

/** Rows of the sizes of a family whose layers share one of T5's tables of distances between tokens,
 * and of its keys. */
#define BP_DISTANCE_SIZES                                                                          \
    {.name = "relative_buckets", .at = BP_SIZE_AT(stack.relative_buckets), .optional = true},      \
    {                                                                                              \
        .name = "relative_distance", .at = BP_SIZE_AT(stack.relative_distance), .optional = true   \
    }
/** Of a family whose layers may have a table each. */
#define BP_DISTANCE_LAYERS                                                                         \
    {                                                                                              \
        .name = "relative_layers", .at = BP_SIZE_AT(stack.relative_layers), .type = BP_SIZE_FLAG,  \
        .optional = true, .quiet = true                                                            \
    }
#define BP_DISTANCE_LAYERS_KEY                                                                     \
    {                                                                                              \
        BP_BOOL_KEY("model.relative_layers", NULL),                                                \
            .help = "each layer has a table of distances, as in umT5; no if not given: the "       \
                    "layers of a stack share one"                                                  \
    }
#define BP_DISTANCE_KEYS                                                                           \
    {BP_INT_KEY("model.relative_buckets", NULL, 4, 1 << 16),                                       \
     .help = "groups of distances between tokens that attention distinguishes; 32 if not given"},  \
    {                                                                                              \
        BP_INT_KEY("model.relative_distance", NULL, 3, 1 << 24),                                   \
            .unit = "tokens",                                                                      \
            .help = "distances from this one on are one group, above half of "                     \
                    "model.relative_buckets; 128 if not given"                                     \
    }
/** Replace 0 by T5's defaults. */
void bp_distance_fill_defaults(bp_model_shape *shape);
/** A fault, or BP_ERR_FORMAT, for an odd number of buckets, fewer than 4, or a distance of at most
 * half of it. Half of the buckets may be for each side; half of those are for exact distances. */
void bp_distance_check(const bp_model_shape *shape, bp_config *config);
bp_err bp_distance_check_read(const bp_model_shape *shape, const char *where);
/** For bp_block_list.add_common: the table that layers share, if they do. */
void bp_distance_add_common(bp_network *network, const bp_model_shape *shape,
                            const bp_tied_table *table, int set, int stage);
/** Scores of this layer get what goes by the table of `set` (bp_network_common), or by one of its
 * own, "STACK.NUMBER.attn.relative", with this deviation of initial values. */
void bp_distance_set(bp_layer_shape *layer, bp_network *network, const bp_model_shape *shape,
                     int set, float init_std);
