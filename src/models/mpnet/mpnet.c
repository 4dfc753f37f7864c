/* The family of MPNet. */
#include "models/mpnet/mpnet.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

#define TABLE 1 /* that all layers have in common */

/* It counts positions from its padding token's number on, which is 1. */
static const bp_stack STACK = {.post_norm = true,
                               .embedding_norm = true,
                               .epsilon = 1e-12,
                               .position_std = BP_TRANSFORMER_STD,
                               .first_position = 2,
                               .sees_all = true,
                               .activation = BP_GELU_EXACT,
                               .tied = true,
                               .head_bias = true,
                               .transform = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_DISTANCE_SIZES(bp_mpnet_sizes, distances),
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_TIED_KEY,
                                 {.key = "model.norm_epsilon",
                                  .type = BP_OPTION_REAL,
                                  .min = 1e-12,
                                  .max = 1,
                                  .help = "what norms add to the variance; 1e-12 if not given"},
                                 BP_DISTANCE_KEYS,
                                 {0}};

static void fill_defaults(bp_model_shape *shape)
{
    bp_mpnet_sizes *own = bp_mpnet_sizes_in(shape);

    bp_stack_fill_defaults(shape);
    own->bert.no_pooler = 1; /* to the objective of masked words */
    bp_distance_fill_defaults(&own->distances);
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_stack_check(shape, tensor_ranks, config);
    bp_masked_check_context(shape, config);
    bp_distance_check(bp_mpnet_sizes_of(shape)->distances, config);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    bp_err err = bp_distance_check_read(bp_mpnet_sizes_of(shape)->distances, where);

    return err == BP_OK ? bp_stack_check_read(shape, where) : err;
}

static void add_common(bp_network *network, const bp_model_shape *shape, int stage)
{
    bp_tied_table table = {"relative", bp_mpnet_sizes_of(shape)->distances.buckets, shape->heads,
                           BP_TRANSFORMER_STD};

    bp_network_add_common(network, &table, TABLE, stage);
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    bp_layer_shape layer;

    if (number == 0 || number > shape->layers) {
        bp_stack_add_block(network, shape, number, shared);
        return;
    }
    layer = bp_stack_layer(shape, number - 1);
    layer.relative = bp_network_common(network, TABLE);
    layer.relative_buckets = bp_mpnet_sizes_of(shape)->distances.buckets;
    layer.relative_distance = bp_mpnet_sizes_of(shape)->distances.distance;
    bp_network_add_block(network, bp_transformer_new_layer(network, &layer));
}

static const bp_block_list BLOCK_LIST = {BP_STACK_BLOCKS, .cost = bp_stack_cost,
                                         .add_common = add_common, .add = add_block};

const bp_model_family bp_mpnet_family = {.name = "mpnet",
                                         .stack = &STACK,
                                         .sizes = SIZES,
                                         .keys = KEYS,
                                         .fill_defaults = fill_defaults,
                                         .check = check,
                                         .check_read = check_read,
                                         .facts = bp_stack_facts,
                                         .blocks = &BLOCK_LIST,
                                         .objective = &bp_objective_masked,
                                         .huggingface = bp_mpnet_huggingface,
                                         .state_width = bp_stack_state_width,
                                         .key_block = bp_transformer_key_block};
