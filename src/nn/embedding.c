#include "base/err.h"
#include "math/kernels.h"
#include "nn/layers.h"

typedef struct embedding {
    bp_block block;
    bp_param *wte, *wpe;
} embedding;

/* Streams of the dropout masks: the embedding has 0, layer L has 4L+1 .. 4L+4. */
#define DROPOUT_STREAM 0

static size_t embedding_saved(const bp_block *block, int64_t B, int64_t T)
{
    (void)block, (void)B, (void)T;
    return 0;
}

static size_t embedding_scratch(const bp_block *block, int64_t B, int64_t T, bool training)
{
    const embedding *self = (const embedding *)block;

    (void)training;
    return bp_arena_bytes(B * T * self->wpe->shape[1], sizeof(float));
}

static bp_product_bytes embedding_products(const bp_block *block, int64_t B, int64_t T)
{
    (void)block, (void)B, (void)T;
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

static void embedding_forward(bp_block *block, bp_pass *pass, bp_packet *packet, void *saved)
{
    embedding *self = (embedding *)block;
    const bp_param *wte = self->wte;
    int64_t C = self->wpe->shape[1], rows = pass->B * pass->T;
    float *hidden = packet->item[0].data;

    (void)saved;
    bp_embedding_forward(hidden, wte->value, pass->inputs, rows, C, wte->offset[0], wte->extent[0]);
    bp_nn_sum(block->nn, pass, hidden, rows * C);
    bp_positions_forward(hidden, self->wpe->value, pass->B, pass->T, C);
    if (pass->dropout && block->nn->dropout > 0) {
        bp_rng_key key = mask_key(self, pass);
        bp_add_dropout(hidden, NULL, hidden, rows * C, block->nn->dropout, &key,
                       pass->first_slot * pass->T * C);
    }
}

static void embedding_backward(bp_block *block, bp_pass *pass, bp_packet *packet, void *saved)
{
    embedding *self = (embedding *)block;
    const bp_param *wte = self->wte;
    int64_t C = self->wpe->shape[1], rows = pass->B * pass->T;
    float *dhidden = packet->item[0].data;

    (void)saved;
    if (pass->dropout && block->nn->dropout > 0) {
        bp_rng_key key = mask_key(self, pass);
        bp_dropout_backward(dhidden, dhidden, rows * C, block->nn->dropout, &key,
                            pass->first_slot * pass->T * C);
    }
    bp_positions_backward(self->wpe->gradient, dhidden, pass->B, pass->T, C);
    bp_embedding_backward(wte->gradient, dhidden, pass->inputs, rows, C, wte->offset[0],
                          wte->extent[0]);
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

bp_err bp_embedding_new(bp_block **out, const bp_nn *nn, bp_param *wte, bp_param *wpe)
{
    embedding *self = bp_alloc("nn.embedding", 1, sizeof *self);

    *out = NULL;
    if (!self)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "memory is short: at the embedding; use more ranks or a smaller model");
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->wte = wte;
    self->wpe = wpe;
    *out = &self->block;
    return BP_OK;
}
