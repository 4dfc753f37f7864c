/* State-space layers of stacks: sizes without a key, checks, and the layers. Dao and Gu 2024,
 * "Transformers are SSMs". Called by stack.c. */
#include "models/stack/stack_priv.h"

#include <stdio.h>

#define STATE 128 /* defaults */
#define TAPS  4

bool stack_attends(const bp_model_shape *shape, int64_t number)
{
    const double *layers = shape->stack.attention_layers;

    if (shape->family->stack->mixer != BP_STACK_HYBRID)
        return shape->family->stack->mixer == BP_STACK_ATTENTION;
    for (int k = 0; k < BP_MODEL_REALS && layers[k] > 0; k++)
        if ((int64_t)layers[k] == number + 1)
            return true;
    return false;
}

static int64_t heads_of(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.state_heads, shape->heads);
}

static int64_t groups_of(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.groups, 1);
}

static bp_state_space_shape layer_of(const bp_model_shape *shape, int64_t number)
{
    const bp_stack_sizes *own = &shape->stack;
    bool hybrid = shape->family->stack->mixer == BP_STACK_HYBRID;

    return (bp_state_space_shape){
        .C = shape->width,
        .H = heads_of(shape),
        .P = bp_given_or(own->state_head_width, 2 * shape->width / heads_of(shape)),
        .N = bp_given_or(own->state, STATE),
        .G = groups_of(shape),
        .K = bp_given_or(own->taps, TAPS),
        .epsilon = (float)stack_epsilon(shape),
        .branch_scale = (float)own->branch_scale,
        .layers = shape->layers,
        .number = number,
        .dropout_stream = hybrid ? 4 * number + 2 : number + 1}; /* as that of attention's sum */
}

void stack_fill_states(bp_model_shape *shape)
{
    bp_stack_sizes *own = &shape->stack;
    bp_state_space_shape layer = layer_of(shape, 0);

    if (own->state_head_width > 0 || 2 * shape->width % layer.H == 0)
        own->state_head_width = layer.P;
    own->state_heads = layer.H;
    own->state = layer.N;
    own->groups = layer.G;
    own->taps = layer.K;
}

/* The keys of heads and their width. */
static const char *heads_key(const bp_model_shape *shape)
{
    return shape->family->stack->mixer == BP_STACK_HYBRID ? "model.state_heads" : "model.heads";
}

static const char *width_key(const bp_model_shape *shape)
{
    return shape->family->stack->mixer == BP_STACK_HYBRID ? "model.state_head_width"
                                                          : "model.head_width";
}

static void check_attention_layers(const bp_model_shape *shape, bp_config *config)
{
    const double *layers = shape->stack.attention_layers;

    for (int k = 0; k < BP_MODEL_REALS && layers[k] > 0; k++)
        if (layers[k] != (double)(int64_t)layers[k] || layers[k] > (double)shape->layers ||
            (k > 0 && layers[k] <= layers[k - 1]))
            bp_config_fault(
                config, "model.bad_layers",
                "model.attention_layers has %g, and is not a rising list of layers from 1 "
                "to %lld: at model.attention_layers; use some of them, as 2,4",
                layers[k], (long long)shape->layers);
}

void stack_check_states(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    const char *key = heads_key(shape);
    int64_t heads = heads_of(shape);

    if (shape->stack.state_head_width == 0)
        bp_config_fault(config, "model.not_dividing",
                        "%s = %lld does not divide twice model.width = %lld: at %s; use one that "
                        "does, or give %s",
                        key, (long long)heads, (long long)shape->width, key, width_key(shape));
    if (heads % groups_of(shape) != 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.groups = %lld does not divide %s = %lld: at model.groups; use one "
                        "that does",
                        (long long)groups_of(shape), key, (long long)heads);
    if (heads % tensor_ranks != 0)
        bp_config_fault(config, "mesh.not_dividing",
                        "mesh.tensor = %d does not divide %s = %lld: at mesh.tensor; use a divisor",
                        tensor_ranks, key, (long long)heads);
    check_attention_layers(shape, config);
}

bp_err stack_check_read_states(const bp_model_shape *shape, const char *where)
{
    if (shape->stack.state_head_width > 0 && heads_of(shape) % groups_of(shape) == 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                   "the model's %lld heads do not divide twice its width %lld, or are not in %lld "
                   "groups: at %s; the checkpoint is wrong",
                   (long long)heads_of(shape), (long long)shape->width, (long long)groups_of(shape),
                   where);
}

static bp_carry *add_carry(bp_network *network, int64_t layer, const char *what, int64_t columns)
{
    char name[64];

    (void)snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, what);
    return bp_network_add_carry(network, name, columns);
}

bp_block *stack_new_states(bp_network *network, const bp_model_shape *shape, int64_t number)
{
    bp_state_space_shape layer = layer_of(shape, number);
    bp_group *split = bp_network_add_group(network, false),
             *whole = bp_network_add_group(network, true);
    bp_block *block;
    int tensors = network->nn.tensor_ranks;

    if (shape->family->unlimited) {
        layer.taps = add_carry(network, number, "taps", bp_state_space_taps(&layer, tensors));
        layer.states = add_carry(network, number, "states", bp_state_space_states(&layer, tensors));
    }
    bp_state_space_new(&block, &network->nn, &layer, split, whole);
    return block;
}

/* Entries of its matrices, and 4 multiplications of the scan per element of the state. */
double stack_states_cost(const bp_model_shape *shape)
{
    bp_state_space_shape layer = layer_of(shape, 0);
    double inner = (double)(layer.H * layer.P), groups = 2 * (double)(layer.G * layer.N);

    return 2 * (double)layer.C * (3 * inner + groups + (double)layer.H) +
           8 * inner * (double)layer.N;
}
