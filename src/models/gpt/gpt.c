/* The family of GPT-2: its sizes, and its blocks: embedding, layers, head. */
#include "models/gpt/gpt.h"

#include "nn/layers.h"

#define INIT_STD                                                                                   \
    0.02F /* GPT-2's, of weights and token embeddings; positions start at half of it               \
           */

static bp_param *add_vocabulary(bp_network *network, const bp_model_shape *shape, int stage,
                                int stages, int blocks)
{
    return bp_network_add_tied(network,
                               &(bp_tied_table){"wte", shape->vocab_size, shape->width, INIT_STD},
                               stage, stages, blocks);
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
        bp_lm_head_new(&block, &network->nn, &(bp_head_shape){.norm = "ln_f"}, wte,
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

const bp_model_family bp_gpt_family = {.name = "gpt",
                                       .sizes = bp_transformer_sizes,
                                       .check = bp_transformer_check,
                                       .check_read = bp_transformer_check_read,
                                       .facts = facts,
                                       .objective = &bp_objective_causal,
                                       .huggingface = bp_gpt_huggingface,
                                       .blocks = blocks_of,
                                       .blocks_are = "embedding, layers, head",
                                       .cost = cost,
                                       .behind = behind,
                                       .add_shared = add_vocabulary,
                                       .add_block = add_block};
