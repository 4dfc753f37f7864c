/* What networks share: blocks and groups of parameters, their place in memory, initial values. */
#include "models/network/network.h"

#include "base/err.h"
#include "base/trace.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <stdio.h>
#include <string.h>

void bp_network_new(bp_network **out, const bp_nn *nn, int blocks, int groups)
{
    bp_network *network = bp_alloc("nn.network", 1, sizeof *network);

    *out = NULL;
    if (network) {
        network->nn = *nn;
        network->block_capacity = blocks;
        network->group_capacity = groups;
        network->blocks = bp_alloc("nn.network", blocks, sizeof(bp_block *));
        network->outputs = bp_alloc("nn.network", blocks, sizeof(bp_activations));
        network->groups = bp_alloc("nn.network", groups, sizeof(bp_group));
        network->carries = bp_alloc("nn.network", 2 * (int64_t)blocks, sizeof(bp_carry));
    }
    *out = network;
}

static void free_groups(bp_network *network)
{
    for (int g = 0; g < network->group_count; g++)
        bp_group_clear(&network->groups[g]);
}

void bp_network_free(bp_network **network)
{
    bp_network *self = *network;

    if (!self)
        return;
    for (int k = 0; k < self->block_count; k++)
        self->blocks[k]->ops->free(self->blocks[k]);
    free_groups(self);
    bp_free(self->blocks);
    bp_free(self->outputs);
    bp_free(self->tables);
    bp_free(self->groups);
    bp_free(self->carries);
    bp_free(self);
    *network = NULL;
}

bp_group *bp_network_add_group(bp_network *network, bool replicated)
{
    BP_ASSERT(network->group_count < network->group_capacity);
    bp_group *group = &network->groups[network->group_count++];

    group->block = network->block_count;
    group->replicated = replicated;
    group->published = !replicated || network->nn.tensor_rank == 0;
    return group;
}

bp_param *bp_network_add_words(bp_network *network, bp_group *group, const char *name, int64_t V,
                               int64_t columns, float init_std)
{
    int64_t first, count;

    bp_vocab_share(&network->nn, V, &first, &count);
    return bp_group_add_matrix_part(group, name, V, columns, init_std, 0, first, count);
}

bp_param *bp_network_add_word_biases(bp_network *network, bp_group *group, const char *name,
                                     int64_t V)
{
    int64_t first, count;

    bp_vocab_share(&network->nn, V, &first, &count);
    return bp_group_add_vector_part(group, name, V, first, count);
}

bp_param *bp_network_add_tied(bp_network *network, const bp_tied_table *table, int stage,
                              int stages, int blocks)
{
    if (stage > 0 && stage < stages - 1)
        return NULL;
    bp_group *group = bp_network_add_group(network, false);
    group->block = stage == 0 ? 0 : blocks - 1; /* the first of them that reads it */
    group->tied = stages > 1;
    group->published = stage == 0;
    return bp_network_add_words(network, group, table->name, table->rows, table->columns,
                                table->init_std);
}

static bp_param *add_columns(bp_group *group, const bp_nn *nn, const bp_tied_table *table)
{
    int64_t own = table->columns / nn->tensor_ranks;

    BP_ASSERT(table->columns % nn->tensor_ranks == 0);
    return bp_group_add_matrix_part(group, table->name, table->rows, table->columns,
                                    table->init_std, 1, nn->tensor_rank * own, own);
}

void bp_network_add_common(bp_network *network, const bp_tied_table *table, int set, int stage)
{
    bp_group *group = bp_network_add_group(network, false);

    group->common = set;
    group->published = stage == 0 && network->chunk_count == 0;
    (void)add_columns(group, &network->nn, table);
}

bp_param *bp_network_add_distances(bp_network *network, const bp_tied_table *table)
{
    return add_columns(bp_network_add_group(network, false), &network->nn, table);
}

bp_group *bp_network_add_common_group(bp_network *network, int set, int stage)
{
    bp_group *group = bp_network_add_group(network, true);

    group->common = set;
    group->partial = true;
    group->published = group->published && stage == 0 && network->chunk_count == 0;
    return group;
}

bp_param *bp_network_common(const bp_network *network, int set)
{
    int g = network->group_count - 1;

    while (network->groups[g].common != set)
        g--;
    return &network->groups[g].params[0];
}

bp_carry *bp_network_add_carry(bp_network *network, const char *name, int64_t columns)
{
    BP_ASSERT(network->carry_count < 2 * network->block_capacity);
    bp_carry *carry = &network->carries[network->carry_count++];

    *carry = (bp_carry){.columns = columns};
    (void)snprintf(carry->name, sizeof carry->name, "carry/%s", name);
    return carry;
}

void bp_network_add_block(bp_network *network, bp_block *block)
{
    BP_ASSERT(network->block_count < network->block_capacity);
    network->blocks[network->block_count++] = block;
}

void bp_network_end_chunk(bp_network *network)
{
    BP_ASSERT(network->chunk_count < BP_NETWORK_CHUNKS);
    network->chunk_end[network->chunk_count++] = network->block_count;
}

int bp_network_chunk_first(const bp_network *network, int chunk)
{
    return chunk == 0 ? 0 : network->chunk_end[chunk - 1];
}

typedef enum group_part { TRAINED, TRAINED_EXPERTS, FROZEN, FROZEN_EXPERTS } group_part;

static void place_groups(bp_network *network, group_part part, int64_t multiple)
{
    for (int g = 0; g < network->group_count; g++) {
        bp_group *group = &network->groups[g];

        if ((group->frozen ? FROZEN : TRAINED) + (group->sources > 0) != (int)part)
            continue;
        group->place = network->floats;
        group->padded = (group->floats + multiple - 1) / multiple * multiple;
        network->floats += group->padded;
    }
}

void bp_network_lay_out(bp_network *network, int64_t multiple)
{
    int64_t first;

    network->floats = 0;
    place_groups(network, TRAINED, multiple);
    first = network->floats;
    place_groups(network, TRAINED_EXPERTS, multiple);
    network->trained_floats = network->floats;
    network->source_floats = network->floats - first;
    network->gradient_floats = network->floats;
    place_groups(network, FROZEN, multiple);
    place_groups(network, FROZEN_EXPERTS, multiple);
}

void bp_network_set_searched(bp_network *network, bool asked)
{
    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].searched)
            network->groups[g].frozen = !asked;
}

void bp_network_part_sources(bp_network *network)
{
    network->gradient_floats =
        network->trained_floats + (bp_nn_experts(&network->nn) - 1) * network->source_floats;
    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].sources > 1 && !network->groups[g].frozen)
            network->groups[g].source_floats = network->source_floats;
}

bp_err bp_network_bind_values(bp_network *network, float *values)
{
    bp_err err = BP_OK;

    for (int g = 0; g < network->group_count; g++) {
        bp_group *group = &network->groups[g];
        for (int k = 0; k < group->count; k++)
            group->params[k].value = values + group->place + group->params[k].place;
    }
    for (int k = 0; k < network->block_count && err == BP_OK; k++)
        err = network->blocks[k]->ops->bind(network->blocks[k]);
    return err;
}

void bp_network_bind_gradients(bp_network *network, float *gradients)
{
    for (int g = 0; g < network->group_count; g++)
        bp_group_bind_gradients(&network->groups[g], gradients);
}

void bp_group_bind_gradients(bp_group *group, float *gradients)
{
    for (int k = 0; k < group->count; k++)
        group->params[k].gradient =
            group->frozen ? NULL : gradients + group->place + group->params[k].place;
}

/* The gaps between params, and after the last one. */
static void clear_gaps(const bp_group *group, float *gradients)
{
    for (int k = 0; k < group->count; k++) {
        int64_t end = group->params[k].place + bp_param_floats(&group->params[k]),
                next = k + 1 < group->count ? group->params[k + 1].place : group->padded;

        if (next > end)
            bp_zero(gradients + end, next - end);
    }
}

void bp_group_open_gradients(bp_group *group, float *gradients)
{
    if (group->frozen)
        return;
    for (int k = 0; k < group->count; k++) {
        bp_param *param = &group->params[k];

        param->fresh = param->product_first;
        if (!param->fresh)
            bp_zero(param->gradient, bp_param_floats(param));
    }
    for (int s = 0; s < bp_group_sums(group); s++)
        clear_gaps(group, gradients + group->place + s * group->source_floats);
}

bool bp_group_is_written(const bp_group *group)
{
    for (int k = 0; k < group->count; k++)
        if (group->params[k].fresh)
            return false;
    return true;
}

void bp_network_initialise(bp_network *network, uint64_t seed)
{
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            bp_param_initialise(&network->groups[g].params[k], seed);
    bp_network_refresh(network);
}

void bp_network_refresh(bp_network *network)
{
    BP_TRACE(BP_TRACE_COPIES, 0, 0);

    for (int k = 0; k < network->block_count; k++)
        bp_network_refresh_block(network, k);
}

static void refresh_gains(bp_group *group)
{
    for (int k = 0; k < group->count; k++) {
        bp_param *param = &group->params[k];
        int64_t floats = bp_param_floats(param);

        if (!param->from_one)
            continue;
        if (!param->gain) /* the values are set for the first time */
            param->gain = bp_alloc("nn.gains", floats, sizeof *param->gain);
        for (int64_t i = 0; i < floats; i++)
            param->gain[i] = 1 + param->value[i];
    }
}

void bp_network_refresh_block(bp_network *network, int block)
{
    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].block == block)
            refresh_gains(&network->groups[g]);
    network->blocks[block]->ops->refresh(network->blocks[block]);
}

size_t bp_network_saved_bytes(const bp_network *network, const bp_extent *most)
{
    size_t bytes = 0;

    for (int k = 0; k < network->block_count; k++)
        bytes += bp_arena_bytes(
            (int64_t)network->blocks[k]->ops->saved_bytes(network->blocks[k], most), 1);
    return bytes;
}

/* The extent of block k: memory is lent only to the last one. */
static bp_extent most_of(const bp_network *network, const bp_extent *most, int k)
{
    bp_extent own = *most;

    own.lent_bytes = k == network->block_count - 1 ? own.lent_bytes : 0;
    return own;
}

size_t bp_network_scratch_bytes(const bp_network *network, const bp_extent *most, bool training)
{
    size_t largest = 0;

    for (int k = 0; k < network->block_count; k++) {
        bp_extent own = most_of(network, most, k);
        size_t bytes = network->blocks[k]->ops->scratch_bytes(network->blocks[k], &own, training);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

bp_product_bytes bp_network_product_bytes(const bp_network *network, const bp_extent *most)
{
    bp_product_bytes bytes = {0};

    for (int k = 0; k < network->block_count; k++) {
        const bp_block *block = network->blocks[k];
        bp_extent own = most_of(network, most, k);
        bp_product_bytes one = block->ops->product_bytes(block, &own);

        bytes.copies += one.copies;
        bytes.scratch = one.scratch > bytes.scratch ? one.scratch : bytes.scratch;
    }
    return bytes;
}

static int chunk_of(const bp_network *network, int k)
{
    int chunk = 0;

    while (k >= network->chunk_end[chunk])
        chunk++;
    return chunk;
}

const bp_activations *bp_network_before(const bp_network *network, int k)
{
    int chunk = chunk_of(network, k);

    return k == bp_network_chunk_first(network, chunk) ? &network->inputs[chunk]
                                                       : &network->outputs[k - 1];
}

const bp_activations *bp_network_at(const bp_network *network, int k)
{
    return network->outputs[k].count > 0 ? &network->outputs[k] : bp_network_before(network, k);
}

int64_t bp_network_activation_floats(const bp_network *network, const bp_pass *pass)
{
    int64_t most = 0;

    for (int k = 0; k < network->block_count; k++) {
        int64_t at = bp_activations_floats(bp_network_at(network, k), &network->nn, pass, false);
        int64_t before =
            bp_activations_floats(bp_network_before(network, k), &network->nn, pass, false);

        most = at > most ? at : most;
        most = before > most ? before : most;
    }
    return most;
}

static void add_slice(const bp_param *param, const char *prefix, float *data,
                      const int64_t offset[2], const int64_t extent[2], bp_slice *slices,
                      int64_t *used, int64_t capacity)
{
    const int dims = param->dims;

    BP_ASSERT(*used < capacity && (dims == 1 || dims == 2));
    bp_slice *slice = &slices[(*used)++];

    memset(slice, 0, sizeof *slice);
    snprintf(slice->name, sizeof slice->name, "%s%s", prefix, param->name);
    slice->dims = dims;
    for (int d = 0; d < dims; d++) {
        slice->shape[d] = param->shape[d];
        slice->offset[d] = param->offset[d] + offset[d];
        slice->extent[d] = extent[d];
    }
    slice->data = data;
}

/* A run [first, first + count) of a slice of rows: the end of a row, whole rows, the beginning of a
 * row. */
static void add_run(const bp_param *param, const char *prefix, float *data, int64_t first,
                    int64_t count, bp_slice *slices, int64_t *used, int64_t capacity)
{
    int64_t columns = param->extent[param->dims - 1];

    if (param->dims == 1) {
        add_slice(param, prefix, data, (int64_t[2]){first, 0}, (int64_t[2]){count, 0}, slices, used,
                  capacity);
        return;
    }
    BP_ASSERT(columns > 0);
    while (count > 0) {
        int64_t row = first / columns, column = first % columns;
        int64_t rows = column == 0 && count >= columns ? count / columns : 1;
        int64_t width = rows > 1 || (column == 0 && count >= columns) ? columns : columns - column;

        if (width > count)
            width = count;
        add_slice(param, prefix, data, (int64_t[2]){row, column}, (int64_t[2]){rows, width}, slices,
                  used, capacity);
        data += rows * width;
        first += rows * width;
        count -= rows * width;
    }
}

void bp_network_slices(const bp_network *network, int g, const char *prefix, float *base,
                       int64_t first, int64_t count, bp_slice *slices, int64_t *used,
                       int64_t capacity)
{
    const bp_group *group = &network->groups[g];

    for (int k = 0; k < group->count; k++) {
        const bp_param *param = &group->params[k];
        int64_t begin = param->place > first ? param->place : first;
        int64_t end = param->place + bp_param_floats(param);

        if (end > first + count)
            end = first + count;
        if (begin < end)
            add_run(param, prefix, base + (begin - first), begin - param->place, end - begin,
                    slices, used, capacity);
    }
}

int64_t bp_network_slice_capacity(const bp_network *network)
{
    int64_t slices = 0;

    for (int g = 0; g < network->group_count; g++)
        slices += 3 * network->groups[g].count;
    return slices;
}
