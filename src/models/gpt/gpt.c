/* The family of GPT-2: its sizes, and its blocks: embedding, layers, head. */
#include "models/gpt/gpt.h"

#include "nn/layers.h"

#include <stdio.h>
#include <string.h>

#define INIT_STD                                                                                   \
    0.02F /* GPT-2's, of weights and token embeddings; positions start at half of it               \
           */

/* The token embedding: a group of its own, since the first stage and the last one hold it both.
 */
static bp_param *add_vocabulary(bp_network *network, const bp_model_shape *shape, int stage,
                                int stages, int blocks)
{
    int64_t first, count;

    if (stage > 0 && stage < stages - 1)
        return NULL;
    bp_group *group = bp_network_add_group(network, false);
    bp_vocab_share(&network->nn, shape->vocab_size, &first, &count);
    group->block = stage == 0 ? 0 : blocks - 1; /* the first that reads it */
    group->tied = stages > 1;
    group->published = stage == 0;
    return bp_group_add_matrix_part(group, "wte", shape->vocab_size, shape->width, INIT_STD, 0,
                                    first, count);
}

static int blocks_of(const bp_model_shape *shape)
{
    return (int)shape->layers + 2;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number, bp_param *wte)
{
    bp_block *block = NULL;

    if (number == 0) {
        bp_group *whole = bp_network_add_group(network, true);
        bp_param *wpe =
            bp_group_add_matrix(whole, "wpe", shape->context, shape->width, INIT_STD / 2);
        bp_embedding_new(&block, &network->nn, &(bp_embedding_part){.wte = wte, .wpe = wpe}, 1);
    } else if (number == blocks_of(shape) - 1) {
        bp_lm_head_new(&block, &network->nn, &(bp_head_shape){0}, wte,
                       bp_network_add_group(network, true));
    } else {
        bp_layer_shape layer = {.C = shape->width,
                                .H = shape->heads,
                                .F = 4 * shape->width,
                                .layers = shape->layers,
                                .number = number - 1,
                                .stack = "h",
                                .first_mask = 4 * (number - 1) + 1}; /* 0 is the embedding's */
        bp_group *split = bp_network_add_group(network, false);
        bp_transformer_layer_new(&block, &network->nn, &layer, split,
                                 bp_network_add_group(network, true));
    }
    bp_network_add_block(network, block);
}

static bp_activations behind(const bp_model_shape *shape, int block)
{
    (void)block;
    return (bp_activations){
        .count = 1, .item = {{.name = "hidden", .columns = shape->width, .has_gradient = true}}};
}

/* FLOPs of one token through a block, about; the embedding's look-up counts as a few passes over
 * the width. */
static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width;

    if (block == 0)
        return 50 * C;
    if (block == blocks_of(shape) - 1)
        return 2 * (double)shape->vocab_size * C;
    return 24 * C * C + 4 * (double)shape->context * C;
}

/* Parameters: 12LC^2 + 13LC + (V + T + 2)C. FLOPs: 6 (12LC^2 + VC) + 12LTC. Source: Kaplan et al.
 * 2020, section 2.1, with the head. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    int64_t L = shape->layers, C = shape->width;
    double matrices =
        12 * (double)L * (double)C * (double)C + (double)shape->vocab_size * (double)C;

    return (bp_model_facts){
        .parameters = 12 * L * C * C + 13 * L * C + (shape->vocab_size + shape->context + 2) * C,
        .train_flops = 6 * matrices + 12 * (double)L * (double)shape->context * (double)C};
}

/* "1, 2, 4, 8": divisors of n, at most twelve of them, those near `wish`. */
static void list_divisors(char *out, size_t bytes, int64_t n, int64_t wish, int64_t multiple_of)
{
    int64_t near[12];
    int count = 0;
    size_t used = 0;

    for (int64_t d = multiple_of; d <= n; d += multiple_of) {
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

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    char fits[512];

    if (shape->width % shape->heads != 0) {
        list_divisors(fits, sizeof fits, shape->width, shape->heads, 1);
        bp_config_fault(config,
                        "model.heads = %lld does not divide model.width = %lld: at model.heads; "
                        "heads that fit: %s",
                        (long long)shape->heads, (long long)shape->width, fits);
    }
    if (shape->heads % tensors != 0) {
        list_divisors(fits, sizeof fits, shape->heads, tensors, 1);
        bp_config_fault(config,
                        "mesh.tensor = %d does not divide model.heads = %lld: at mesh.tensor; "
                        "tensor ranks that fit: %s",
                        tensors, (long long)shape->heads, fits);
    }
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (shape->width % shape->heads == 0)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT,
        "the model's %lld heads do not divide its width %lld: at %s; the checkpoint is wrong",
        (long long)shape->heads, (long long)shape->width, where);
}

static const bp_model_size SIZES[] = {{"layers", BP_SIZE_AT(layers)},
                                      {"width", BP_SIZE_AT(width)},
                                      {"heads", BP_SIZE_AT(heads)},
                                      {"context", BP_SIZE_AT(context)},
                                      {0}};

const bp_model_family bp_gpt_family = {.name = "gpt",
                                       .sizes = SIZES,
                                       .check = check,
                                       .check_read = check_read,
                                       .facts = facts,
                                       .objective = &bp_objective_causal,
                                       .blocks = blocks_of,
                                       .blocks_are = "embedding, layers, head",
                                       .cost = cost,
                                       .behind = behind,
                                       .add_shared = add_vocabulary,
                                       .add_block = add_block};
