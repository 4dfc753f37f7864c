/* The family of Mamba-2: the embedding, norm and head are those of a stack (models/stack.h), the
 * layers are state-space layers. */
#include "models/mamba2/mamba2.h"

#include "models/stack.h"
#include "models/variants.h"

#include <stdio.h>

#define STATE 128 /* defaults */
#define TAPS  4

static const bp_stack STACK = {.rms = true};

static const bp_model_size SIZES[] = {
    BP_STACK_SIZES,
    BP_STACK_CONTEXT,
    BP_STACK_COUNT("head_width", head_width),
    {.name = "state", .at = BP_SIZE_AT(own[BP_MAMBA2_STATE]), .optional = true},
    {.name = "groups", .at = BP_SIZE_AT(own[BP_MAMBA2_GROUPS]), .optional = true},
    {.name = "taps", .at = BP_SIZE_AT(own[BP_MAMBA2_TAPS]), .optional = true},
    BP_STACK_REAL("norm_epsilon", epsilon),
    BP_STACK_FLAG("tied", other_tie),
    BP_VARIANT_HEAD_SIZES,
    {0}};

static const bp_option KEYS[] = {
    {.key = "model.head_width",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 1 << 20,
     .help = "width of a head; twice model.width over model.heads if not given"},
    {.key = "model.state",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 1 << 16,
     .help = "numbers of the state for each number of a head; 128 if not given"},
    {.key = "model.groups",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 1 << 16,
     .help = "groups of heads, which write and read their states alike; 1 if not given"},
    {.key = "model.taps",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 64,
     .help = "places that the convolution reads, the present one included; 4 if not given"},
    {0}};

static int64_t head_width(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.head_width, 2 * shape->width / shape->heads);
}

static void settle(bp_model_shape *shape)
{
    if (shape->stack.head_width > 0 || 2 * shape->width % shape->heads == 0)
        shape->stack.head_width = head_width(shape);
    shape->own[BP_MAMBA2_STATE] = bp_given_or(shape->own[BP_MAMBA2_STATE], STATE);
    shape->own[BP_MAMBA2_GROUPS] = bp_given_or(shape->own[BP_MAMBA2_GROUPS], 1);
    shape->own[BP_MAMBA2_TAPS] = bp_given_or(shape->own[BP_MAMBA2_TAPS], TAPS);
    if (shape->stack.epsilon <= 0)
        shape->stack.epsilon = (double)bp_stack_epsilon(shape);
}

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    if (shape->stack.head_width == 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.heads = %lld does not divide twice model.width = %lld: at "
                        "model.heads; use one that does, or give model.head_width",
                        (long long)shape->heads, (long long)shape->width);
    if (shape->heads % shape->own[BP_MAMBA2_GROUPS] != 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.groups = %lld does not divide model.heads = %lld: at model.groups; "
                        "use one that does",
                        (long long)shape->own[BP_MAMBA2_GROUPS], (long long)shape->heads);
    bp_transformer_check_heads(shape, tensors, config);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (shape->stack.head_width > 0 && shape->heads % shape->own[BP_MAMBA2_GROUPS] == 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                   "the model's %lld heads do not divide twice its width %lld, or are not in %lld "
                   "groups: at %s; the checkpoint is wrong",
                   (long long)shape->heads, (long long)shape->width,
                   (long long)shape->own[BP_MAMBA2_GROUPS], where);
}

static bp_state_space_shape layer_of(const bp_model_shape *shape, int64_t number)
{
    return (bp_state_space_shape){.C = shape->width,
                                  .H = shape->heads,
                                  .P = head_width(shape),
                                  .N = shape->own[BP_MAMBA2_STATE],
                                  .G = shape->own[BP_MAMBA2_GROUPS],
                                  .K = shape->own[BP_MAMBA2_TAPS],
                                  .epsilon = bp_stack_epsilon(shape),
                                  .layers = shape->layers,
                                  .number = number,
                                  .mask = number + 1};
}

static bp_carry *add_carry(bp_network *network, int64_t layer, const char *what, int64_t columns)
{
    char name[64];

    (void)snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, what);
    return bp_network_add_carry(network, name, columns);
}

static bp_block *new_layer(bp_network *network, const bp_model_shape *shape, int64_t number)
{
    bp_state_space_shape layer = layer_of(shape, number);
    bp_group *split = bp_network_add_group(network, false),
             *whole = bp_network_add_group(network, true);
    bp_block *block;
    int tensors = network->nn.tensors;

    layer.taps = add_carry(network, number, "taps", bp_state_space_taps(&layer, tensors));
    layer.states = add_carry(network, number, "states", bp_state_space_states(&layer, tensors));
    bp_state_space_new(&block, &network->nn, &layer, split, whole);
    return block;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    if (number == 0 || number == bp_transformer_blocks(shape) - 1)
        bp_stack_add_block(network, shape, number, shared);
    else
        bp_network_add_block(network, new_layer(network, shape, number - 1));
}

/* Entries of its matrices, and of the scan 4 multiplications a number of the state. */
static double layer_cost(const bp_model_shape *shape)
{
    bp_state_space_shape layer = layer_of(shape, 0);
    double inner = (double)(layer.H * layer.P), groups = 2 * (double)(layer.G * layer.N);

    return 2 * (double)layer.C * (3 * inner + groups + (double)layer.H) +
           8 * inner * (double)layer.N;
}

static double cost(const bp_model_shape *shape, int block)
{
    bool is_layer = block > 0 && block < bp_transformer_blocks(shape) - 1;

    return is_layer ? layer_cost(shape) : bp_stack_cost(shape, block);
}

/* Backward takes twice what forward does; the embedding is not counted. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    return (bp_model_facts){.train_flops =
                                3 * ((double)shape->layers * layer_cost(shape) +
                                     bp_stack_cost(shape, bp_transformer_blocks(shape) - 1))};
}

const bp_model_family bp_mamba2_family = {.name = "mamba2",
                                          .stack = &STACK,
                                          .sizes = SIZES,
                                          .keys = KEYS,
                                          .any_context = true,
                                          .unlimited = true,
                                          .objective = &bp_objective_causal,
                                          .huggingface = bp_mamba2_huggingface,
                                          .settle = settle,
                                          .check = check,
                                          .check_read = check_read,
                                          .facts = facts,
                                          .blocks = bp_transformer_blocks,
                                          .blocks_are = "embedding, layers, head",
                                          .cost = cost,
                                          .behind = bp_transformer_behind,
                                          .add_shared = bp_stack_add_shared,
                                          .backbone = bp_stack_backbone,
                                          .add_block = add_block};
