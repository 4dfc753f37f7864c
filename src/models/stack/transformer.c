/* Shared by families of Transformers: their sizes and valid combinations, their blocks. */
#include "models/stack/transformer.h"

#include <stdio.h>
#include <string.h>

/* "1, 2, 4, 8": divisors of n, at most twelve of them, those near `wish`. */
static void list_divisors(char *out, size_t bytes, int64_t n, int64_t wish)
{
    int64_t near[12];
    int count = 0;
    size_t used = 0;

    for (int64_t d = 1; d <= n; d++) {
        if (n % d != 0)
            continue;
        if (count == 12) {
            if (d > 4 * wish)
                break;
            memmove(near, near + 1, 11 * sizeof near[0]);
            count = 11;
        }
        near[count++] = d;
    }
    out[0] = '\0';
    for (int k = 0; k < count; k++)
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%lld", k ? ", " : "", (long long)near[k]);
}

void bp_transformer_check_width(const bp_model_shape *shape, bp_config *config)
{
    char fits[512];

    if (shape->width % shape->heads == 0)
        return;
    list_divisors(fits, sizeof fits, shape->width, shape->heads);
    bp_config_fault(config, "model.not_dividing",
                    "model.heads = %lld does not divide model.width = %lld: at model.heads; "
                    "heads that fit: %s",
                    (long long)shape->heads, (long long)shape->width, fits);
}

void bp_transformer_check_heads(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    char fits[512];

    if (shape->heads % tensor_ranks == 0)
        return;
    list_divisors(fits, sizeof fits, shape->heads, tensor_ranks);
    bp_config_fault(config, "mesh.not_dividing",
                    "mesh.tensor = %d does not divide model.heads = %lld: at mesh.tensor; "
                    "tensor ranks that fit: %s",
                    tensor_ranks, (long long)shape->heads, fits);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

void bp_transformer_check_inner(const bp_model_shape *shape, int64_t inner, int tensor_ranks,
                                bp_config *config)
{
    char fits[512];

    if (inner % tensor_ranks == 0)
        return;
    list_divisors(fits, sizeof fits, common_divisor(shape->heads, inner), tensor_ranks);
    bp_config_fault(config, "mesh.not_dividing",
                    "mesh.tensor = %d does not divide model.inner = %lld: at mesh.tensor; tensor "
                    "ranks that fit: %s",
                    tensor_ranks, (long long)inner, fits);
}

void bp_transformer_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensor_ranks, config);
}

bp_err bp_transformer_check_read(const bp_model_shape *shape, const char *where)
{
    if (shape->width % shape->heads == 0)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT, "model.bad_size",
        "the model's %lld heads do not divide its width %lld: at %s; the checkpoint is wrong",
        (long long)shape->heads, (long long)shape->width, where);
}

const bp_model_size bp_transformer_sizes[] = {{.name = "layers", .at = BP_SIZE_AT(layers)},
                                              {.name = "width", .at = BP_SIZE_AT(width)},
                                              {.name = "heads", .at = BP_SIZE_AT(heads)},
                                              {.name = "context", .at = BP_SIZE_AT(context)},
                                              {0}};

int bp_transformer_blocks(const bp_model_shape *shape)
{
    return (int)shape->layers + 2;
}

int bp_transformer_key_block(const bp_model_shape *shape)
{
    return (int)shape->layers;
}

bp_activations bp_transformer_block_output(const bp_model_shape *shape, int block)
{
    (void)block;
    return (bp_activations){
        .count = 1, .item = {{.name = "hidden", .columns = shape->width, .has_gradient = true}}};
}

bp_block *bp_transformer_new_layer(bp_network *network, const bp_layer_shape *layer)
{
    bp_group *split = bp_network_add_group(network, false),
             *whole = bp_network_add_group(network, true);
    bp_layer_shape own = *layer;
    bp_block *block;

    if (own.query_norm != BP_QUERY_NORM_NONE) {
        own.query_group = bp_network_add_group(network, true);
        own.query_group->partial = true;
    }
    if (own.experts.count > 0) {
        if (!own.query_group) {
            own.query_group = bp_network_add_group(network, true);
            own.query_group->partial = true;
        }
        own.experts.router = own.query_group;
        own.experts.weights = bp_network_add_group(network, false);
        own.experts.weights->sources = bp_nn_experts(&network->nn);
    }
    bp_transformer_layer_new(&block, &network->nn, &own, split, whole);
    return block;
}

bp_block *bp_transformer_new_norm(bp_network *network, const bp_row_shape *shape)
{
    bp_group *whole = bp_network_add_group(network, true);
    char name[BP_PARAM_NAME];
    bp_row_shape row = *shape;
    bp_block *block;

    (void)snprintf(name, sizeof name, "%s.gain", shape->name);
    row.gain = bp_group_add_vector(whole, name, shape->O, BP_INIT_ONE);
    (void)snprintf(name, sizeof name, "%s.bias", shape->name);
    if (!row.rms && !row.no_norm_bias)
        row.shift = bp_group_add_vector(whole, name, shape->O, BP_INIT_ZERO);
    bp_row_layer_new(&block, &network->nn, &row, NULL);
    return block;
}

bp_param *bp_transformer_add_table(bp_network *network, const bp_model_shape *shape,
                                   const char *name)
{
    return bp_network_add_words(network, bp_network_add_group(network, false), name,
                                shape->vocab_size, shape->width, BP_TRANSFORMER_STD);
}

bp_param *bp_transformer_add_tied(bp_network *network, const bp_model_shape *shape, int stage,
                                  int stages, int blocks)
{
    bp_tied_table table = {"wte", shape->vocab_size, shape->width, BP_TRANSFORMER_STD};

    return bp_network_add_tied(network, &table, stage, stages, blocks);
}

void bp_distance_fill_defaults(bp_model_shape *shape)
{
    shape->stack.relative_buckets = bp_given_or(shape->stack.relative_buckets, 32);
    shape->stack.relative_distance = bp_given_or(shape->stack.relative_distance, 128);
}

void bp_distance_add_common(bp_network *network, const bp_model_shape *shape,
                            const bp_tied_table *table, int set, int stage)
{
    if (shape->stack.relative_layers == 0)
        bp_network_add_common(network, table, set, stage);
}

static bp_param *add_own(bp_network *network, const bp_model_shape *shape,
                         const bp_layer_shape *layer, float init_std)
{
    bp_tied_table table = {NULL, shape->stack.relative_buckets, layer->H, init_std};
    char name[BP_PARAM_NAME];

    (void)snprintf(name, sizeof name, "%s.%lld.attn.relative", layer->stack,
                   (long long)layer->number);
    table.name = name;
    return bp_network_add_distances(network, &table);
}

void bp_distance_set(bp_layer_shape *layer, bp_network *network, const bp_model_shape *shape,
                     int set, float init_std)
{
    layer->relative = shape->stack.relative_layers == 0 ? bp_network_common(network, set)
                                                        : add_own(network, shape, layer, init_std);
    layer->relative_buckets = shape->stack.relative_buckets;
    layer->relative_distance = shape->stack.relative_distance;
}

#define BAD_BUCKETS                                                                                \
    "%lld buckets of distances up to %lld do not go together: at %s; give an even number of "      \
    "buckets, at least 4, and a distance above half of it"

static bool fit(int64_t *buckets, int64_t *distance, const bp_model_shape *shape)
{
    bp_model_shape filled = *shape;

    bp_distance_fill_defaults(&filled);
    *buckets = filled.stack.relative_buckets;
    *distance = filled.stack.relative_distance;
    return *buckets >= 4 && *buckets % 2 == 0 && *distance > *buckets / 2;
}

void bp_distance_check(const bp_model_shape *shape, bp_config *config)
{
    int64_t buckets, distance;

    if (!fit(&buckets, &distance, shape))
        bp_config_fault(config, "model.bad_buckets", BAD_BUCKETS, (long long)buckets,
                        (long long)distance, "model.relative_buckets");
}

bp_err bp_distance_check_read(const bp_model_shape *shape, const char *where)
{
    int64_t buckets, distance;

    return fit(&buckets, &distance, shape)
               ? BP_OK
               : BP_FAIL(BP_ERR_FORMAT, "model.bad_size", BAD_BUCKETS, (long long)buckets,
                         (long long)distance, where);
}
