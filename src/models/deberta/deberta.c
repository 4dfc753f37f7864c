/* The family of DeBERTa-v2 and DeBERTaV3. */
#include "models/deberta/deberta.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

#include <math.h>

#define TABLE 1 /* that all layers have in common */

static const bp_stack STACK = {.post_norm = true,
                               .embedding_norm = true,
                               .epsilon = 1e-7,
                               .position_std = BP_TRANSFORMER_STD,
                               .sees_all = true,
                               .activation = BP_GELU_EXACT,
                               .gelu_pooler = true,
                               .tied = true,
                               .head_bias = true,
                               .transform = true};

#define OWN_COUNT(key, field)                                                                      \
    {                                                                                              \
        .name = key, .at = BP_OWN_AT(bp_deberta_sizes, field), .optional = true                    \
    }
#define OWN_QUIET(key, field)                                                                      \
    {                                                                                              \
        .name = key, .at = BP_OWN_AT(bp_deberta_sizes, field), .optional = true, .quiet = true     \
    }
#define OWN_FLAG(key, field)                                                                       \
    {                                                                                              \
        .name = key, .at = BP_OWN_AT(bp_deberta_sizes, field), .type = BP_SIZE_FLAG,               \
        .optional = true, .inverse = true                                                          \
    }
static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,
                                      BP_STACK_QUIET("head_width", head_width),
                                      {.name = "absolute",
                                       .at = BP_SIZE_AT(stack.no_positions),
                                       .type = BP_SIZE_FLAG,
                                       .optional = true,
                                       .inverse = true},
                                      BP_STACK_COUNT("segments", segments),
                                      OWN_COUNT("buckets", buckets),
                                      OWN_COUNT("distance", distance),
                                      OWN_FLAG("shared", other_projections),
                                      OWN_FLAG("distance_norm", no_norm),
                                      BP_STACK_QUIET("embedding", embedding),
                                      OWN_QUIET("convolution", convolution),
                                      OWN_QUIET("convolution_groups", groups),
                                      {.name = "convolution_activation",
                                       .at = BP_OWN_AT(bp_deberta_sizes, activation),
                                       .type = BP_SIZE_CHOICE,
                                       .words = BP_DEBERTA_ACTIVATIONS,
                                       .optional = true,
                                       .quiet = true},
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_TIED_KEY,
    {BP_REAL_KEY("model.norm_epsilon", NULL, 1e-12, 1),
     .help = "what norms add to the mean square; 1e-7 if not given"},
    {BP_INT_KEY("model.segments", NULL, 1, 1 << 16),
     .help = "kinds of segments that have an embedding; none if not given"},
    {BP_BOOL_KEY("model.absolute", NULL),
     .help = "embeddings have learned positions; yes if not given"},
    {BP_INT_KEY("model.buckets", NULL, 2, 1 << 20),
     .help = "distances share this many rows of their table to either side; each has its own if "
             "not given"},
    {BP_INT_KEY("model.distance", NULL, 2, 1 << 24),
     .help = "from which on distances have the last row; model.context if not given"},
    {BP_BOOL_KEY("model.shared", NULL), .help = "distances are projected as queries and keys are, "
                                                "else by matrices of their own; yes if not given"},
    {BP_BOOL_KEY("model.distance_norm", NULL),
     .help = "the table of distances goes through a norm; yes if not given"},
    {BP_INT_KEY("model.embedding", NULL, 1, 1 << 20),
     .help = "width of token embeddings, which a projection makes as wide as the model; "
             "model.width if not given"},
    {BP_INT_KEY("model.convolution", NULL, 1, 63),
     .help = "positions, an odd number, that a convolution beside the first layer reads; there is "
             "none if not given"},
    {BP_INT_KEY("model.convolution_groups", NULL, 1, 1 << 20),
     .help = "groups of columns of the convolution, which divide model.width; 1 if not given"},
    {BP_CHOICE_KEY("model.convolution_activation", NULL, BP_DEBERTA_ACTIVATIONS),
     .help = "of what the convolution gives; tanh if not given"},
    {0}};

static int64_t distance_of(const bp_model_shape *shape)
{
    return bp_given_or(bp_deberta_sizes_of(shape)->distance, shape->context);
}

static int64_t rows_of(const bp_model_shape *shape)
{
    return 2 * bp_given_or(bp_deberta_sizes_of(shape)->buckets, distance_of(shape));
}

static bool has_convolution(const bp_model_shape *shape)
{
    return bp_deberta_sizes_of(shape)->convolution > 0;
}

static int64_t groups_of(const bp_model_shape *shape)
{
    return bp_given_or(bp_deberta_sizes_of(shape)->groups, 1);
}

static void fill_defaults(bp_model_shape *shape)
{
    bp_stack_fill_defaults(shape);
    bp_deberta_sizes_in(shape)->bert.no_pooler = 1; /* to the objective of masked words */
    bp_deberta_sizes_in(shape)->distance = distance_of(shape);
    shape->stack.embedding = bp_stack_embedding_width(shape);
    if (has_convolution(shape))
        bp_deberta_sizes_in(shape)->groups = groups_of(shape);
}

static bool fits_convolution(const bp_model_shape *shape)
{
    return !has_convolution(shape) || (bp_deberta_sizes_of(shape)->convolution % 2 == 1 &&
                                       shape->width % groups_of(shape) == 0);
}

static void check_convolution(const bp_model_shape *shape, bp_config *config)
{
    const bp_deberta_sizes *own = bp_deberta_sizes_of(shape);

    if (!fits_convolution(shape))
        bp_config_fault(config, "model.bad_convolution",
                        "model.convolution = %lld in %lld groups: at model.convolution; use an odd "
                        "number, and groups that divide model.width = %lld",
                        (long long)own->convolution, (long long)groups_of(shape),
                        (long long)shape->width);
    if (!has_convolution(shape) && (own->groups != 0 || own->activation != 0))
        bp_config_fault(config, "model.no_convolution",
                        "model.convolution is not given, and other keys of it are: at "
                        "model.convolution_groups, model.convolution_activation; leave them out, "
                        "or give it");
}

static bool is_fit(const bp_model_shape *shape)
{
    int64_t buckets = bp_deberta_sizes_of(shape)->buckets;

    return buckets == 0 || (buckets % 2 == 0 && distance_of(shape) > buckets / 2 + 1);
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_stack_check(shape, tensor_ranks, config);
    bp_masked_check_context(shape, config);
    check_convolution(shape, config);
    bp_stack_check_embedding(shape, config);
    if (!is_fit(shape))
        bp_config_fault(config, "model.bad_buckets",
                        "model.buckets = %lld is not an even number with a half below "
                        "model.distance - 1 = %lld: at model.buckets; use one that is",
                        (long long)bp_deberta_sizes_of(shape)->buckets,
                        (long long)distance_of(shape) - 1);
    if (shape->stack.no_positions != 0 && bp_stack_segments(shape) > 0)
        bp_config_fault(config, "model.segments_without_positions",
                        "model.segments = %lld are added to positions, and model.absolute = no has "
                        "none: at model.segments; leave one of them out",
                        (long long)bp_stack_segments(shape));
    if (shape->adapter.kind == BP_ADAPTER_LORA &&
        bp_deberta_sizes_of(shape)->other_projections == 0)
        bp_config_fault(config, "adapter.shared_products",
                        "adapter.kind = lora changes products that distances share with queries "
                        "and keys: at adapter.kind; use bottleneck");
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (!is_fit(shape))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's %lld buckets are not those of distances up to %lld: at %s; the "
                       "checkpoint is wrong",
                       (long long)bp_deberta_sizes_of(shape)->buckets,
                       (long long)distance_of(shape), where);
    if (!fits_convolution(shape))
        return BP_FAIL(
            BP_ERR_FORMAT, "model.bad_size",
            "the model's convolution of %lld positions has %lld groups of %lld columns: at "
            "%s; the checkpoint is wrong",
            (long long)bp_deberta_sizes_of(shape)->convolution, (long long)groups_of(shape),
            (long long)shape->width, where);
    return bp_stack_check_read(shape, where);
}

/* The table, and its norm. */
static void add_common(bp_network *network, const bp_model_shape *shape, int stage)
{
    bp_group *group = bp_network_add_common_group(network, TABLE, stage);

    bp_group_add_matrix(group, "distances", rows_of(shape), shape->width, BP_TRANSFORMER_STD)
        ->values_read = true;
    if (bp_deberta_sizes_of(shape)->no_norm != 0)
        return;
    bp_group_add_vector(group, "distances.ln.gain", shape->width, BP_INIT_ONE);
    bp_group_add_vector(group, "distances.ln.bias", shape->width, BP_INIT_ZERO);
}

static bp_layer_distances distances_of(const bp_network *network, const bp_model_shape *shape)
{
    bp_param *table = bp_network_common(network, TABLE);
    bool normed = bp_deberta_sizes_of(shape)->no_norm == 0;

    return (bp_layer_distances){.table = table,
                                .gain = normed ? table + 1 : NULL,
                                .bias = normed ? table + 2 : NULL,
                                .rows = rows_of(shape),
                                .buckets = bp_deberta_sizes_of(shape)->buckets,
                                .distance = distance_of(shape),
                                .own = bp_deberta_sizes_of(shape)->other_projections != 0};
}

static bp_block *new_convolution(bp_network *network, const bp_model_shape *shape, bp_block *inner)
{
    static const bp_activation ACTIVATIONS[] = {BP_GELU_EXACT /* not read */, BP_GELU_EXACT,
                                                BP_RELU, BP_GELU_TANH};
    bp_layer_shape layer = bp_stack_layer(shape, 0);
    bp_convolution_shape convolution = {.C = shape->width,
                                        .K = bp_deberta_sizes_of(shape)->convolution,
                                        .G = groups_of(shape),
                                        .tanh = bp_deberta_sizes_of(shape)->activation == 0,
                                        .activation =
                                            ACTIVATIONS[bp_deberta_sizes_of(shape)->activation],
                                        .epsilon = bp_stack_epsilon(shape),
                                        .dropout_stream = layer.first_dropout_stream + 3};
    bp_block *block;

    bp_convolution_new(&block, inner, &convolution, bp_network_add_group(network, true));
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    bp_layer_shape layer;
    bp_block *block;

    if (number == 0 || number > shape->layers) {
        bp_stack_add_block(network, shape, number, shared);
        return;
    }
    layer = bp_stack_layer(shape, number - 1);
    layer.scale = 1 / sqrtf((float)(3 * layer.D)); /* of three products */
    layer.apart = distances_of(network, shape);
    block = bp_transformer_new_layer(network, &layer);
    if (number == 1 && has_convolution(shape))
        block = new_convolution(network, shape, block);
    bp_network_add_block(network, block);
}

static double cost(const bp_model_shape *shape, int block)
{
    bool is_layer = block > 0 && block <= shape->layers;
    double C = (double)shape->width, taps = (double)bp_deberta_sizes_of(shape)->convolution;

    return bp_stack_cost(shape, block) + (is_layer ? 4 * (double)rows_of(shape) * C : 0) +
           (block == 1 ? 2 * taps * C * C / (double)groups_of(shape) : 0);
}

static const bp_block_list BLOCK_LIST = {BP_STACK_BLOCKS, .cost = cost, .add_common = add_common,
                                         .add = add_block};

const bp_model_family bp_deberta_family = {.name = "deberta",
                                           .stack = &STACK,
                                           .sizes = SIZES,
                                           .keys = KEYS,
                                           .fill_defaults = fill_defaults,
                                           .check = check,
                                           .check_read = check_read,
                                           .facts = bp_stack_facts,
                                           .objective = &bp_objective_masked,
                                           .huggingface = bp_deberta_huggingface,
                                           .blocks = &BLOCK_LIST,
                                           .state_width = bp_stack_state_width,
                                           .key_block = bp_transformer_key_block};
