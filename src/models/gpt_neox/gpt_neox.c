/* The family of GPT-NeoX: its sizes, and its blocks: embedding, layers, head. */
#include "models/gpt_neox/gpt_neox.h"

#include "models/transformer.h"
#include "models/variants.h"
#include "nn/layers.h"

static const bp_model_size SIZES[] = {
    {.name = "layers", .at = BP_SIZE_AT(layers)},
    {.name = "width", .at = BP_SIZE_AT(width)},
    {.name = "heads", .at = BP_SIZE_AT(heads)},
    {.name = "head_width", .at = BP_SIZE_AT(own[BP_NEOX_HEAD_WIDTH]), .optional = true},
    {.name = "inner", .at = BP_SIZE_AT(own[BP_NEOX_INNER]), .optional = true},
    {.name = "context", .at = BP_SIZE_AT(context)},
    {.name = "norm_epsilon",
     .at = BP_SIZE_AT(real[BP_NEOX_EPSILON]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "rope_theta",
     .at = BP_SIZE_AT(real[BP_NEOX_THETA]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "rope_fraction",
     .at = BP_SIZE_AT(real[BP_NEOX_FRACTION]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "parallel_residual",
     .at = BP_SIZE_AT(own[BP_NEOX_IN_TURN]),
     .type = BP_SIZE_FLAG,
     .optional = true,
     .inverse = true},
    {.name = "tied", .at = BP_SIZE_AT(own[BP_NEOX_TIED]), .type = BP_SIZE_FLAG, .optional = true},
    BP_VARIANT_ATTENTION_SIZE,
    BP_VARIANT_HEAD_SIZES,
    {0}};

static void settle(bp_model_shape *shape)
{
    int64_t *own = shape->own;
    double *real = shape->real;

    if (own[BP_NEOX_HEAD_WIDTH] == 0 && shape->width % shape->heads == 0)
        own[BP_NEOX_HEAD_WIDTH] = shape->width / shape->heads;
    own[BP_NEOX_INNER] = own[BP_NEOX_INNER] > 0 ? own[BP_NEOX_INNER] : 4 * shape->width;
    real[BP_NEOX_EPSILON] = real[BP_NEOX_EPSILON] > 0 ? real[BP_NEOX_EPSILON] : 1e-5;
    real[BP_NEOX_THETA] = real[BP_NEOX_THETA] > 0 ? real[BP_NEOX_THETA] : 10000;
    real[BP_NEOX_FRACTION] = real[BP_NEOX_FRACTION] > 0 ? real[BP_NEOX_FRACTION] : 0.25;
}

/* Numbers of a head that are rotated: an even one of 2 or more. */
static int64_t rotated(const bp_model_shape *shape)
{
    return (int64_t)((double)shape->own[BP_NEOX_HEAD_WIDTH] * shape->real[BP_NEOX_FRACTION]);
}

static bool has_pairs(const bp_model_shape *shape)
{
    return rotated(shape) >= 2 && rotated(shape) % 2 == 0 &&
           rotated(shape) <= shape->own[BP_NEOX_HEAD_WIDTH];
}

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    bp_transformer_check_heads(shape, tensors, config);
    bp_transformer_check_inner(shape, shape->own[BP_NEOX_INNER], tensors, config);
    if (shape->own[BP_NEOX_HEAD_WIDTH] == 0)
        bp_transformer_check_width(shape, config);
    else if (!has_pairs(shape))
        bp_config_fault(config, "model.bad_rope",
                        "model.rope_fraction = %g turns %lld of the %lld numbers of a head: at "
                        "model.rope_fraction; an even number of 2 or more fits",
                        shape->real[BP_NEOX_FRACTION], (long long)rotated(shape),
                        (long long)shape->own[BP_NEOX_HEAD_WIDTH]);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (shape->own[BP_NEOX_HEAD_WIDTH] == 0)
        return bp_transformer_check_read(shape, where);
    if (!has_pairs(shape))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model turns %lld of the %lld numbers of a head: at %s; the checkpoint "
                       "is wrong",
                       (long long)rotated(shape), (long long)shape->own[BP_NEOX_HEAD_WIDTH], where);
    return BP_OK;
}

static double heads_width(const bp_model_shape *shape)
{
    return (double)(shape->heads * shape->own[BP_NEOX_HEAD_WIDTH]);
}

/* Multiplications of one token in the matrices of a layer. */
static double layer_matrices(const bp_model_shape *shape)
{
    double C = (double)shape->width;

    return 4 * C * heads_width(shape) + 2 * C * (double)shape->own[BP_NEOX_INNER];
}

/* FLOPs: 6 a matrix's entry, and 12 LT of attention by the width of all heads. Source: as GPT's. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    double C = (double)shape->width, L = (double)shape->layers, V = (double)shape->vocab_size,
           matrices = L * layer_matrices(shape) + V * C;
    int64_t biases =
                (int64_t)(3 * heads_width(shape)) + 2 * shape->width + shape->own[BP_NEOX_INNER],
            tables = shape->own[BP_NEOX_TIED] ? 1 : 2;

    return (bp_model_facts){.parameters = (int64_t)(L * layer_matrices(shape)) +
                                          shape->layers * (4 * shape->width + biases) +
                                          (tables * shape->vocab_size + 2) * shape->width,
                            .train_flops = 6 * matrices +
                                           12 * L * (double)shape->context * heads_width(shape)};
}

static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width;

    if (block == 0)
        return 50 * C;
    if (block == bp_transformer_blocks(shape) - 1)
        return 2 * (double)shape->vocab_size * C;
    return 2 * layer_matrices(shape) + 4 * (double)shape->context * heads_width(shape);
}

static void begin(bp_network *network, const bp_model_shape *shape)
{
    bp_rope rope = {.theta = shape->real[BP_NEOX_THETA], .rotated = rotated(shape)};

    bp_network_add_rotary(network, &rope, shape->context);
}

static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int blocks)
{
    return shape->own[BP_NEOX_TIED] ? bp_transformer_add_tied(network, shape, stage, stages, blocks)
                                    : NULL;
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int number)
{
    bp_layer_shape layer = {.C = shape->width,
                            .entmax = shape->attention_entmax == 1,
                            .H = shape->heads,
                            .D = shape->own[BP_NEOX_HEAD_WIDTH],
                            .F = shape->own[BP_NEOX_INNER],
                            .epsilon = (float)shape->real[BP_NEOX_EPSILON],
                            .activation = BP_GELU_EXACT,
                            .parallel = !shape->own[BP_NEOX_IN_TURN],
                            .rotary = network->tables,
                            .layers = shape->layers,
                            .number = number,
                            .stack = "h",
                            .first_mask = 4 * number + 1};
    bp_group *split = bp_network_add_group(network, false);
    bp_block *block;

    bp_transformer_layer_new(&block, &network->nn, &layer, split,
                             bp_network_add_group(network, true));
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    bp_block *block = NULL;

    if (number == 0) {
        bp_embedding_part part = {.wte = shared ? shared
                                                : bp_transformer_add_table(network, shape, "wte")};
        bp_embedding_new(&block, &network->nn, &part, 1);
    } else if (number == bp_transformer_blocks(shape) - 1) {
        bp_head_shape head = {.norm = "ln_f", .epsilon = (float)shape->real[BP_NEOX_EPSILON]};
        bp_param *table = shared ? shared : bp_transformer_add_table(network, shape, "head");
        bp_variants_set_head(&head, network, shape);
        bp_lm_head_new(&block, &network->nn, &head, table, bp_network_add_group(network, true));
    } else {
        block = new_layer(network, shape, number - 1);
    }
    bp_network_add_block(network, block);
}

/* A tied head has no parameters of its own. */
static bp_backbone backbone(const bp_model_shape *shape)
{
    int64_t table = shape->vocab_size * shape->width;

    return (bp_backbone){.blocks = bp_transformer_blocks(shape) - 1,
                         .layers_from = 1,
                         .norm = "ln_f",
                         .epsilon = (float)shape->real[BP_NEOX_EPSILON],
                         .head_parameters = !shape->own[BP_NEOX_TIED] ? table : 0,
                         .head_flops = 6 * (double)table};
}

const bp_model_family bp_gpt_neox_family = {.name = "gpt_neox",
                                            .sizes = SIZES,
                                            .any_context = true,
                                            .settle = settle,
                                            .check = check,
                                            .check_read = check_read,
                                            .facts = facts,
                                            .objective = &bp_objective_causal,
                                            .huggingface = bp_gpt_neox_huggingface,
                                            .blocks = bp_transformer_blocks,
                                            .key_block = bp_transformer_key_block,
                                            .backbone = backbone,
                                            .blocks_are = "embedding, layers, head",
                                            .cost = cost,
                                            .behind = bp_transformer_behind,
                                            .begin = begin,
                                            .add_shared = add_shared,
                                            .add_block = add_block};
