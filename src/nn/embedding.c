/* Token and position embeddings: the first block. The vocabulary is split over tensor ranks. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "nn/layers.h"

#include <string.h>

typedef struct embedding {
    bp_block block;
    bp_param *wte, *wpe;
} embedding;

/* Streams of the dropout masks: the embedding has 0, layer L has 4L+1 .. 4L+4. */
#define DROPOUT_STREAM 0

static size_t embedding_saved(const bp_block *block, const bp_extent *most)
{
    (void)block, (void)most;
    return 0;
}

/* All rows where this rank has but some of the hidden state's: else the hidden state itself. */
static float *alloc_all(const embedding *self, bp_arena *arena, const bp_pass *pass, float *hidden)
{
    int64_t rows = pass->B * pass->T;

    if (bp_nn_rows(self->block.nn, pass).count == rows)
        return hidden;
    return bp_arena_floats(arena, rows * self->wpe->shape[1]);
}

static size_t embedding_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const embedding *self = (const embedding *)block;
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0};
    int64_t C = self->wpe->shape[1];

    alloc_all(self, &count, &pass, NULL);
    bp_arena_floats(&count, bp_nn_sum_floats(block->nn, &pass, C));
    return count.used_bytes;
}

static bp_product_bytes embedding_products(const bp_block *block, const bp_extent *most)
{
    (void)block, (void)most;
    return (bp_product_bytes){0};
}

static bp_err embedding_bind(bp_block *block)
{
    (void)block;
    return BP_OK;
}

static void embedding_refresh(bp_block *block)
{
    (void)block;
}

static bp_rng_key mask_key(const embedding *self, const bp_pass *pass)
{
    return bp_mask_key(self->block.nn, pass, DROPOUT_STREAM);
}

static void embedding_forward(bp_block *block, bp_pass *pass, bp_activations *activations,
                              void *saved)
{
    embedding *self = (embedding *)block;
    const bp_param *wte = self->wte;
    int64_t C = self->wpe->shape[1];
    bp_row_range own = bp_nn_rows(block->nn, pass);
    size_t mark = pass->scratch->used_bytes;
    float *hidden = activations->item[0].data, *all = alloc_all(self, pass->scratch, pass, hidden);

    (void)saved;
    bp_embedding_forward(all, wte->value, pass->batch.stream[0].inputs, pass->B * pass->T, C,
                         wte->offset[0], wte->extent[0]);
    bp_nn_sum(block->nn, pass, all, C);
    if (all != hidden)
        memcpy(hidden, all + own.first * C, (size_t)(own.count * C) * sizeof *hidden);
    bp_positions_forward(hidden, self->wpe->value,
                         &(bp_position_rows){own.first, own.count, pass->T}, C);
    if (pass->dropout && block->nn->dropout > 0) {
        bp_rng_key key = mask_key(self, pass);
        bp_add_dropout(hidden, NULL, hidden, own.count * C, block->nn->dropout, &key,
                       bp_nn_first_row(block->nn, pass) * C);
    }
    pass->scratch->used_bytes = mark;
}

static void embedding_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                               void *saved)
{
    embedding *self = (embedding *)block;
    const bp_param *wte = self->wte;
    int64_t C = self->wpe->shape[1], rows = pass->B * pass->T;
    bp_row_range own = bp_nn_rows(block->nn, pass);
    size_t mark = pass->scratch->used_bytes;
    float *dhidden = activations->item[0].data,
          *all = alloc_all(self, pass->scratch, pass, dhidden);

    (void)saved;
    if (pass->dropout && block->nn->dropout > 0) {
        bp_rng_key key = mask_key(self, pass);
        bp_dropout_backward(dhidden, dhidden, own.count * C, block->nn->dropout, &key,
                            bp_nn_first_row(block->nn, pass) * C);
    }
    bp_positions_backward(self->wpe->gradient, dhidden,
                          &(bp_position_rows){own.first, own.count, pass->T}, C);
    if (all != dhidden) {
        bp_operand whole = bp_operand_floats(all, rows, C);
        memcpy(all + own.first * C, dhidden, (size_t)(own.count * C) * sizeof *all);
        bp_nn_gather(block->nn, pass, &whole);
    }
    bp_embedding_backward(wte->gradient, all, pass->batch.stream[0].inputs, rows, C, wte->offset[0],
                          wte->extent[0]);
    pass->scratch->used_bytes = mark;
}

static void embedding_free(bp_block *block)
{
    bp_free(block);
}

static const bp_block_ops OPS = {
    .kind = "embedding",
    .saved_bytes = embedding_saved,
    .scratch_bytes = embedding_scratch,
    .product_bytes = embedding_products,
    .bind = embedding_bind,
    .refresh = embedding_refresh,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .free = embedding_free,
};

void bp_embedding_new(bp_block **out, const bp_nn *nn, bp_param *wte, bp_param *wpe)
{
    embedding *self = bp_alloc("nn.embedding", 1, sizeof *self);

    *out = NULL;
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->wte = wte;
    self->wpe = wpe;
    *out = &self->block;
}
