/* The family of GPT-2: its sizes, and its blocks: embedding, layers, head. */
#include "models/gpt/gpt.h"

#include "models/transformer.h"
#include "models/variants.h"
#include "nn/layers.h"

#define EPSILON 1e-5

/* What GPT-2 has no choice of is written where it is chosen alone. */
static const bp_model_size SIZES[] = {
    {.name = "layers", .at = BP_SIZE_AT(layers)},
    {.name = "width", .at = BP_SIZE_AT(width)},
    {.name = "heads", .at = BP_SIZE_AT(heads)},
    {.name = "context", .at = BP_SIZE_AT(context)},
    BP_POSITIONS_SIZE,
    {.name = "head_width",
     .at = BP_SIZE_AT(own[BP_GPT_HEAD_WIDTH]),
     .optional = true,
     .quiet = true},
    {.name = "inner", .at = BP_SIZE_AT(own[BP_GPT_INNER]), .optional = true, .quiet = true},
    {.name = "norm_epsilon",
     .at = BP_SIZE_AT(real[BP_GPT_EPSILON]),
     .type = BP_SIZE_REAL,
     .optional = true,
     .quiet = true},
    {.name = "tied",
     .at = BP_SIZE_AT(own[BP_GPT_UNTIED]),
     .type = BP_SIZE_FLAG,
     .optional = true,
     .quiet = true,
     .inverse = true},
    BP_VARIANT_ATTENTION_SIZE,
    BP_VARIANT_HEAD_SIZES,
    {0}};

static int64_t head_width(const bp_model_shape *shape)
{
    int64_t given = shape->own[BP_GPT_HEAD_WIDTH];

    return given > 0 ? given : shape->width / shape->heads;
}

static int64_t inner(const bp_model_shape *shape)
{
    int64_t given = shape->own[BP_GPT_INNER];

    return given > 0 ? given : 4 * shape->width;
}

static void settle(bp_model_shape *shape)
{
    double *epsilon = &shape->real[BP_GPT_EPSILON];

    if (shape->width % shape->heads == 0)
        shape->own[BP_GPT_HEAD_WIDTH] = head_width(shape);
    shape->own[BP_GPT_INNER] = inner(shape);
    *epsilon = *epsilon > 0 ? *epsilon : EPSILON;
}

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    if (shape->own[BP_GPT_HEAD_WIDTH] == 0)
        bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensors, config);
    if (inner(shape) != 4 * shape->width) /* else heads say it */
        bp_transformer_check_inner(shape, inner(shape), tensors, config);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    return shape->own[BP_GPT_HEAD_WIDTH] > 0 ? BP_OK : bp_transformer_check_read(shape, where);
}

static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int blocks)
{
    return shape->own[BP_GPT_UNTIED]
               ? NULL
               : bp_transformer_add_tied(network, shape, stage, stages, blocks);
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int number)
{
    bp_layer_shape layer = {.C = shape->width,
                            .entmax = shape->attention_entmax == 1,
                            .H = shape->heads,
                            .D = head_width(shape),
                            .F = inner(shape),
                            .epsilon = (float)shape->real[BP_GPT_EPSILON],
                            .layers = shape->layers,
                            .number = number,
                            .stack = "h",
                            .first_mask = 4 * number + 1}; /* 0 is the embedding's */
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
        bp_param *wte = shared ? shared : bp_transformer_add_table(network, shape, "wte");
        bp_group *whole = bp_network_add_group(network, true);
        bp_param *wpe = bp_group_add_matrix(whole, "wpe", bp_model_positions(shape), shape->width,
                                            BP_TRANSFORMER_STD / 2);
        bp_embedding_new(&block, &network->nn, &(bp_embedding_part){.wte = wte, .wpe = wpe}, 1);
    } else if (number == bp_transformer_blocks(shape) - 1) {
        bp_head_shape head = {.norm = "ln_f", .epsilon = (float)shape->real[BP_GPT_EPSILON]};
        bp_param *table = shared ? shared : bp_transformer_add_table(network, shape, "head");
        bp_variants_set_head(&head, network, shape);
        bp_lm_head_new(&block, &network->nn, &head, table, bp_network_add_group(network, true));
    } else {
        block = new_layer(network, shape, number - 1);
    }
    bp_network_add_block(network, block);
}

/* Multiplications of one token in the matrices of a layer: 12 C^2 of GPT-2's. */
static double layer_matrices(const bp_model_shape *shape)
{
    double C = (double)shape->width, heads = (double)(shape->heads * head_width(shape));

    return 4 * C * heads + 2 * C * (double)inner(shape);
}

/* FLOPs of one token through a block, about; the embedding's look-up counts as a few passes over
 * the width. */
static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width, heads = (double)(shape->heads * head_width(shape));

    if (block == 0)
        return 50 * C;
    if (block == bp_transformer_blocks(shape) - 1)
        return 2 * (double)shape->vocab_size * C;
    return 2 * layer_matrices(shape) + 4 * (double)shape->context * heads;
}

/* Parameters: 12LC^2 + 13LC + (V + T + 2)C of GPT-2's. FLOPs: 6 (12LC^2 + VC) + 12LTC. Source:
 * Kaplan et al. 2020, section 2.1, with the head. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    int64_t L = shape->layers, C = shape->width, heads = shape->heads * head_width(shape),
            tables = shape->own[BP_GPT_UNTIED] ? 2 : 1;
    double matrices = (double)L * layer_matrices(shape) + (double)shape->vocab_size * (double)C;

    return (bp_model_facts){
        .parameters =
            L * (4 * C * heads + 2 * C * inner(shape) + 3 * heads + inner(shape) + 6 * C) +
            (tables * shape->vocab_size + bp_model_positions(shape) + 2) * C,
        .train_flops = 6 * matrices + 12 * (double)L * (double)shape->context * (double)heads};
}

/* A tied head has no parameters of its own. */
static bp_backbone backbone(const bp_model_shape *shape)
{
    int64_t table = shape->vocab_size * shape->width;

    return (bp_backbone){.blocks = bp_transformer_blocks(shape) - 1,
                         .layers_from = 1,
                         .norm = "ln_f",
                         .tied = !shape->own[BP_GPT_UNTIED],
                         .epsilon = (float)shape->real[BP_GPT_EPSILON],
                         .head_parameters = shape->own[BP_GPT_UNTIED] ? table : 0,
                         .head_flops = 6 * (double)table};
}

const bp_model_family bp_gpt_family = {.name = "gpt",
                                       .sizes = SIZES,
                                       .settle = settle,
                                       .check = check,
                                       .check_read = check_read,
                                       .facts = facts,
                                       .objective = &bp_objective_causal,
                                       .huggingface = bp_gpt_huggingface,
                                       .blocks = bp_transformer_blocks,
                                       .key_block = bp_transformer_key_block,
                                       .backbone = backbone,
                                       .blocks_are = "embedding, layers, head",
                                       .cost = cost,
                                       .behind = bp_transformer_behind,
                                       .add_shared = add_shared,
                                       .add_block = add_block};
