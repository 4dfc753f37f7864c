/* Heads of keys and values where tensor ranks do not divide them: a rank's query heads need key
 * heads that other ranks' heads need, too. Called by transformer_layer.c and
 * transformer_backward.c.
 *
 * The parameters are cut by rows with one owner each, so that optimizer, norm and checkpoints have
 * each once. Before the first forward pass after an update the ranks gather them. Each rank
 * appends the key heads that its query heads read to its queries' weights, so that one product
 * still makes q, k and v. Backward computes gradients of the copies, which are summed over the
 * ranks into their owners', micro-batch by micro-batch, in the fixed order of bp_reduce_scatter.
 * In messages a bias is the last column of its row. */
#include "mesh/collective.h"
#include "nn/transformer/transformer_priv.h"

#include <string.h>

/* Rows of k, and of v, on a rank (fewer on the last ranks); and floats of a row in messages. */
static int64_t share_rows(const layer *self)
{
    int64_t tensors = self->block.nn->tensor_ranks;

    return (self->shape.G * self->D + tensors - 1) / tensors;
}

static int64_t way_columns(const layer *self)
{
    return self->shape.C + (self->q_bias ? 1 : 0);
}

/* For all ranks' k and v. */
static int64_t way_floats(const layer *self)
{
    return self->block.nn->tensor_ranks * 2 * share_rows(self) * way_columns(self);
}

/* Where the share of `rank` begins. */
static float *share_of(const layer *self, float *way, int64_t rank)
{
    int tensors = self->block.nn->tensor_ranks;

    return way +
           bp_shard_first(tensors * 2 * share_rows(self), (int)rank, tensors) * way_columns(self);
}

/* Row `row` of all key heads' k (kind 0) or v (1). */
static float *row_of(const layer *self, float *way, int kind, int64_t row)
{
    int64_t each = share_rows(self);

    return share_of(self, way, row / each) + (kind * each + row % each) * way_columns(self);
}

static int64_t joined_floats(const layer *self)
{
    return layer_qkv_columns(self) * (self->shape.C + 1);
}

const float *layer_qkv_bias(const layer *self)
{
    if (self->joined && self->q_bias)
        return self->joined + layer_qkv_columns(self) * self->shape.C;
    return self->q_bias ? self->q_bias->value : NULL;
}

float *keys_join(layer *self)
{
    self->joined = bp_alloc("nn.keys", joined_floats(self), sizeof *self->joined);
    self->stale = true;
    return self->joined;
}

size_t keys_joined_bytes(const layer *self)
{
    return self->repeats ? (size_t)joined_floats(self) * sizeof(float) : 0;
}

static void put_own(const layer *self, float *way)
{
    int64_t C = self->shape.C, each = share_rows(self);
    float *share = share_of(self, way, self->block.nn->tensor_rank);

    memset(share, 0, (size_t)(2 * each * way_columns(self)) * sizeof *share);
    for (int kind = 0; kind < 2; kind++)
        for (int64_t i = 0; i < self->key_weight[kind]->extent[0]; i++) {
            float *row = share + (kind * each + i) * way_columns(self);

            memcpy(row, self->key_weight[kind]->value + i * C, (size_t)C * sizeof *row);
            if (self->q_bias)
                row[C] = self->key_bias[kind]->value[i];
        }
}

/* After q's rows, and its bias's numbers. */
static void take_needed(layer *self, float *way)
{
    int64_t C = self->shape.C, first = self->first_key * self->D, rows = self->Gl * self->D;
    float *weights = self->joined, *biases = weights + layer_qkv_columns(self) * C;

    memcpy(weights, self->q_weight->value, (size_t)(self->Cl * C) * sizeof *weights);
    if (self->q_bias)
        memcpy(biases, self->q_bias->value, (size_t)self->Cl * sizeof *biases);
    for (int kind = 0; kind < 2; kind++)
        for (int64_t i = 0; i < rows; i++) {
            const float *row = row_of(self, way, kind, first + i);
            int64_t to = self->Cl + kind * rows + i;

            memcpy(weights + to * C, row, (size_t)C * sizeof *row);
            if (self->q_bias)
                biases[to] = row[C];
        }
}

void keys_gather(layer *self, bp_pass *pass)
{
    size_t mark = pass->scratch->used_bytes;
    float *way;

    if (!self->stale)
        return;
    way = bp_arena_floats(pass->scratch, way_floats(self));
    put_own(self, way);
    bp_all_gather_shards(way, way_floats(self), self->block.nn->tensor);
    take_needed(self, way);
    bp_weight_refresh(self->qkv);
    self->stale = false;
    pass->scratch->used_bytes = mark;
}

/* Scratch of the gradients. */
typedef struct keys_work {
    float *joined, *way, *sums;
} keys_work;

static keys_work alloc_work(const layer *self, bp_arena *arena)
{
    keys_work work = {.joined = bp_arena_floats(arena, layer_qkv_columns(self) * self->shape.C)};

    work.way = bp_arena_floats(arena, way_floats(self));
    work.sums = bp_arena_floats(
        arena, bp_reduce_scatter_scratch(way_floats(self), self->block.nn->tensor_ranks));
    return work;
}

size_t keys_scratch(const layer *self, bool training)
{
    bp_arena count = {0};

    if (!self->repeats)
        return 0;
    if (training)
        alloc_work(self, &count);
    else
        bp_arena_floats(&count, way_floats(self));
    return count.used_bytes;
}

/* The gradients of the rows copied to this rank, to be sent to their owners; 0 for the others. */
static void put_needed(const layer *self, float *way, const float *joined, const float *dbias)
{
    int64_t C = self->shape.C, first = self->first_key * self->D, rows = self->Gl * self->D;

    memset(way, 0, (size_t)way_floats(self) * sizeof *way);
    for (int kind = 0; kind < 2; kind++)
        for (int64_t i = 0; i < rows; i++) {
            float *row = row_of(self, way, kind, first + i);
            int64_t from = self->Cl + kind * rows + i;

            memcpy(row, joined + from * C, (size_t)C * sizeof *row);
            if (dbias)
                row[C] = dbias[from];
        }
}

static void add_own(const layer *self, float *way)
{
    int64_t C = self->shape.C, each = share_rows(self);
    const float *share = share_of(self, way, self->block.nn->tensor_rank);

    for (int kind = 0; kind < 2; kind++)
        for (int64_t i = 0; i < self->key_weight[kind]->extent[0]; i++) {
            const float *row = share + (kind * each + i) * way_columns(self);

            bp_add(self->key_weight[kind]->gradient + i * C, row, C);
            if (self->q_bias)
                self->key_bias[kind]->gradient[i] += row[C];
        }
}

void keys_backward(layer *self, bp_pass *pass, const bp_operand *dqkv, const bp_operand *normed,
                   const float *dbias)
{
    size_t mark = pass->scratch->used_bytes;
    keys_work work = alloc_work(self, pass->scratch);

    bp_linear_backward_weight_operand(self->block.nn->gemm, work.joined, dqkv, normed, true);
    bp_add(self->q_weight->gradient, work.joined, self->Cl * self->shape.C);
    if (dbias)
        bp_add(self->q_bias->gradient, dbias, self->Cl);
    put_needed(self, work.way, work.joined, dbias);
    bp_reduce_scatter(work.way, way_floats(self), work.sums, self->block.nn->tensor);
    add_own(self, work.way);
    pass->scratch->used_bytes = mark;
}

void keys_free(layer *self)
{
    bp_free(self->joined);
}
