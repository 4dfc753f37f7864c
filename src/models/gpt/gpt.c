/* GPT-2 as a list of blocks: embedding, layers, head. The engine builds a stage of it. */
#include "models/gpt/gpt.h"

#include "nn/layers.h"

#define INIT_STD                                                                                   \
    0.02F /* GPT-2's, of weights and token embeddings; positions start at half of it               \
           */

/* The token embedding: a group of its own, since the first stage and the last one hold it both.
 * `reader`: the block that reads it first. */
static bp_param *add_vocabulary(bp_network *network, const bp_gpt_shape *shape, int stage,
                                int stages, int reader)
{
    bp_group *group = bp_network_add_group(network, false);
    int64_t first, count;

    bp_vocab_share(&network->nn, shape->vocab_size, &first, &count);
    group->block = reader;
    group->tied = stages > 1;
    group->published = stage == 0;
    return bp_group_add_matrix_part(group, "wte", shape->vocab_size, shape->width, INIT_STD, 0,
                                    first, count);
}

static void add_block(bp_network *network, const bp_gpt_shape *shape, int number, bp_param *wte)
{
    bp_block *block = NULL;

    if (number == 0) {
        bp_group *whole = bp_network_add_group(network, true);
        bp_param *wpe =
            bp_group_add_matrix(whole, "wpe", shape->context, shape->width, INIT_STD / 2);
        bp_embedding_new(&block, &network->nn, wte, wpe);
    } else if (number == bp_gpt_blocks(shape) - 1) {
        bp_lm_head_new(&block, &network->nn, wte, bp_network_add_group(network, true));
    } else {
        bp_layer_shape layer = {.C = shape->width,
                                .H = shape->heads,
                                .F = 4 * shape->width,
                                .layers = shape->layers,
                                .number = number - 1};
        bp_group *split = bp_network_add_group(network, false);
        bp_transformer_layer_new(&block, &network->nn, &layer, split,
                                 bp_network_add_group(network, true));
    }
    bp_network_add_block(network, block);
}

/* Blocks of all chunks of a stage. */
static int count_blocks(const bp_gpt_shape *shape, int stage, int stages, int chunks)
{
    int count = 0, first, end;

    for (int c = 0; c < chunks; c++) {
        bp_gpt_chunk(shape, &(bp_gpt_place){stage, stages, c, chunks}, &first, &end);
        count += end - first;
    }
    return count;
}

bp_err bp_gpt_network_new_chunks(bp_network **out, const bp_nn *nn, const bp_gpt_shape *shape,
                                 int stage, int stages, int chunks)
{
    int blocks = count_blocks(shape, stage, stages, chunks);
    bp_network *network = NULL;
    bp_param *wte = NULL;

    bp_network_new(&network, nn, blocks, 2 * blocks + 1);
    BP_ASSERT(stages > 1 || chunks == 1);
    network->C = shape->width;
    if (stage == 0 || stage == stages - 1)
        wte = add_vocabulary(network, shape, stage, stages, stage == 0 ? 0 : blocks - 1);
    for (int c = 0; c < chunks; c++) {
        int first, end;

        bp_gpt_chunk(shape, &(bp_gpt_place){stage, stages, c, chunks}, &first, &end);
        for (int number = first; number < end; number++)
            add_block(network, shape, number, wte);
        bp_network_end_chunk(network);
    }
    *out = network;
    return BP_OK;
}

bp_err bp_gpt_network_new(bp_network **out, const bp_nn *nn, const bp_gpt_shape *shape, int stage,
                          int stages)
{
    return bp_gpt_network_new_chunks(out, nn, shape, stage, stages, 1);
}
