/* The block between ELECTRA's generator and its discriminator: at masked positions tokens are drawn
 * from the generator's distribution, and the text with them is embedded again. No gradient goes
 * through a draw. Called by models/electra/electra.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

#define CHUNK BP_HEAD_ROW_CLASS /* masked rows per product with the vocabulary */

typedef struct replacement {
    bp_block block;
    bp_replacement_shape shape;
    bp_block *embedding; /* of the replaced text */
} replacement;

static const replacement *replacement_of(const bp_block *block)
{
    return (const replacement *)block;
}

static int64_t vocabulary_here(const replacement *self)
{
    return self->shape.embedding.wte->extent[0];
}

/* For a chunk of masked rows. */
typedef struct work {
    float *hidden; /* [CHUNK][E] gathered */
    bp_operand x;
    float *logits;       /* [CHUNK][V here] */
    float *max;          /* [CHUNK] over the whole vocabulary */
    double *sums;        /* [CHUNK][tensors] of exp(logit - max), each rank's part */
    double *drawn;       /* [CHUNK] ids; only the rank that finds one has it, others 0 */
    int32_t *rows, *ids; /* [CHUNK] their rows; [B * T] the text, outside training */
} work;

static work alloc_work(const replacement *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t E = self->shape.embedding.wte->shape[1];
    work w = {.ids = (int32_t *)(void *)bp_arena_floats(arena, pass->B * pass->T)};

    w.hidden = bp_arena_floats(arena, CHUNK * E);
    w.x = bp_operand_alloc(arena, self->block.nn->gemm, CHUNK, E);
    w.logits = bp_arena_floats(arena, CHUNK * vocabulary_here(self));
    w.max = bp_arena_floats(arena, CHUNK);
    w.sums = (double *)(void *)bp_arena_floats(arena, 2LL * CHUNK * self->block.nn->tensor_ranks);
    w.drawn = (double *)(void *)bp_arena_floats(arena, 2LL * CHUNK);
    w.rows = (int32_t *)(void *)bp_arena_floats(arena, CHUNK);
    return w;
}

static size_t replacement_saved(const bp_block *block, const bp_extent *most)
{
    return bp_arena_bytes(most->B * most->T[block->stream], sizeof(int32_t));
}

static size_t replacement_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const replacement *self = replacement_of(block);
    bp_pass pass = bp_pass_planned(block, most, training);
    size_t inner = self->embedding->ops->scratch_bytes(self->embedding, most, training);
    bp_arena count = {0};

    alloc_work(self, &count, &pass);
    return count.used_bytes + inner;
}

static bp_product_bytes replacement_products(const bp_block *block, const bp_extent *most)
{
    const replacement *self = replacement_of(block);
    bp_product_bytes bytes = {0};

    (void)most;
    if (vocabulary_here(self) > 0)
        bp_product_bytes_add(&bytes, block->nn, CHUNK, vocabulary_here(self),
                             self->shape.embedding.wte->shape[1]);
    bytes.copies = 0; /* they are the head's */
    return bytes;
}

static bp_err replacement_bind(bp_block *block)
{
    return replacement_of(block)->embedding->ops->bind(replacement_of(block)->embedding);
}

static void replacement_refresh(bp_block *block)
{
    replacement_of(block)->embedding->ops->refresh(replacement_of(block)->embedding);
}

/* In training a draw is a function of (seed, step, slot, place). Otherwise the example's own
 * tokens replace step and slot, so that it does not depend on the rank that evaluates it. */
static bp_rng_key key_of(const bp_nn *nn, const bp_pass *pass, int64_t b)
{
    const int32_t *inputs = pass->batch.stream[0].inputs + b * pass->T;
    uint64_t hash = 14695981039346656037U; /* FNV-1a's, by tokens */

    if (pass->training)
        return bp_rng_key_of(nn->seed, BP_RNG_REPLACE, 0, pass->step, pass->first_slot + b);
    for (int64_t t = 0; t < pass->T; t++)
        hash = (hash ^ (uint64_t)inputs[t]) * 1099511628211U;
    return bp_rng_key_of(nn->seed, BP_RNG_REPLACE, 1, 0, (int64_t)(hash >> 1));
}

/* Logits of `n` gathered rows, and over the whole vocabulary their maxima and the sum of exp of
 * each tensor rank's part. */
static void find_distribution(const replacement *self, work *w, int64_t n)
{
    const bp_nn *nn = self->block.nn;
    int64_t V = vocabulary_here(self), tensors = nn->tensor_ranks;

    bp_operand_fill(&w->x, w->hidden);
    if (V > 0)
        bp_linear_forward_operand(nn->gemm, w->logits, &w->x, bp_lm_head_map(self->shape.head),
                                  bp_lm_head_bias(self->shape.head));
    for (int64_t r = 0; r < n; r++) {
        w->max[r] = -INFINITY;
        for (int64_t v = 0; v < V; v++)
            w->max[r] = fmaxf(w->max[r], w->logits[r * V + v]);
    }
    bp_all_max(w->max, n, nn->tensor);
    memset(w->sums, 0, (size_t)(n * tensors) * sizeof *w->sums);
    for (int64_t r = 0; r < n; r++)
        for (int64_t v = 0; v < V; v++)
            w->sums[r * tensors + nn->tensor_rank] +=
                exp((double)w->logits[r * V + v] - (double)w->max[r]);
    bp_all_sum_double(w->sums, n * tensors, nn->tensor);
}

/* The token at share u of the distribution, in the order of the vocabulary; 0 where another rank
 * has it. The last rank also takes the remainder due to rounding. */
static int64_t find_token(const replacement *self, const work *w, int64_t r, double u)
{
    const bp_nn *nn = self->block.nn;
    const double *parts = w->sums + r * nn->tensor_ranks;
    int64_t V = vocabulary_here(self), last = 0;
    double all = 0, before = 0;

    for (int k = 0; k < nn->tensor_ranks; k++) {
        all += parts[k];
        before += k < nn->tensor_rank ? parts[k] : 0;
        last = parts[k] > 0 ? k : last;
    }
    double wanted = u * all;
    if (wanted < before || (nn->tensor_rank < last && wanted >= before + parts[nn->tensor_rank]) ||
        nn->tensor_rank > last)
        return 0;
    for (int64_t v = 0; v < V; v++) {
        before += exp((double)w->logits[r * V + v] - (double)w->max[r]);
        if (wanted < before)
            return self->shape.embedding.wte->offset[0] + v;
    }
    return self->shape.embedding.wte->offset[0] + V - 1;
}

static void draw_chunk(const replacement *self, const bp_pass *pass, work *w, int64_t n,
                       int32_t *ids)
{
    find_distribution(self, w, n);
    for (int64_t r = 0; r < n; r++) {
        bp_rng_key key = key_of(self->block.nn, pass, w->rows[r] / pass->T);

        w->drawn[r] =
            (double)find_token(self, w, r, bp_rng_uniform(&key, (uint64_t)(w->rows[r] % pass->T)));
    }
    bp_all_sum_double(w->drawn, n, self->block.nn->tensor);
    for (int64_t r = 0; r < n; r++)
        ids[w->rows[r]] = (int32_t)w->drawn[r];
}

/* ids[B * T]: the inputs, with tokens drawn at the positions that the generator scores. */
static void draw(const replacement *self, const bp_pass *pass, work *w, const float *hidden,
                 int32_t *ids)
{
    int64_t rows = pass->B * pass->T, E = self->shape.embedding.wte->shape[1], n = 0;
    const int32_t *targets = pass->batch.term[self->shape.term].targets;

    memcpy(ids, pass->batch.stream[0].inputs, (size_t)rows * sizeof *ids);
    bp_zero(w->hidden, CHUNK * E);
    for (int64_t k = 0; targets && k <= rows; k++) {
        if (k < rows && targets[k] >= 0) {
            memcpy(w->hidden + n * E, hidden + k * E, (size_t)E * sizeof *hidden);
            w->rows[n++] = (int32_t)k;
        }
        if (n == CHUNK || (k == rows && n > 0)) {
            draw_chunk(self, pass, w, n, ids);
            n = 0;
        }
    }
}

static bp_pass with_ids(const bp_pass *pass, const int32_t *ids)
{
    bp_pass replaced = *pass;

    replaced.batch.stream[0].inputs = ids;
    return replaced;
}

static void replacement_forward(bp_block *block, bp_pass *pass, bp_activations *activations,
                                void *saved)
{
    const replacement *self = replacement_of(block);
    size_t mark = pass->scratch->used_bytes;
    work w = alloc_work(self, pass->scratch, pass);
    int32_t *ids = saved ? saved : w.ids;

    BP_ASSERT(bp_nn_rows(block->nn, pass).count == pass->B * pass->T);
    draw(self, pass, &w, activations->item[0].data, ids);
    for (int64_t k = 0; k < pass->B * pass->T; k++)
        activations->item[self->shape.ids_item].data[k] = (float)ids[k];
    bp_pass replaced = with_ids(pass, ids);
    self->embedding->ops->forward(self->embedding, &replaced, activations, NULL);
    pass->scratch->used_bytes = mark;
}

/* The vocabulary's gradient may still be fresh: the generator's head, whose product writes it,
 * goes backward later. The generator's output gets no gradient from here. */
static void replacement_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                                 void *saved)
{
    const replacement *self = replacement_of(block);
    bp_param *wte = self->shape.embedding.wte;
    bp_pass replaced = with_ids(pass, saved);

    if (bp_params_take_fresh(wte, 1))
        bp_zero(wte->gradient, bp_param_floats(wte));
    self->embedding->ops->backward(self->embedding, &replaced, activations, NULL);
    bp_zero(activations->item[0].data, pass->B * pass->T * wte->shape[1]);
}

static void replacement_free(bp_block *block)
{
    replacement *self = (replacement *)block;

    self->embedding->ops->free(self->embedding);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "replacement",
    .saved_bytes = replacement_saved,
    .scratch_bytes = replacement_scratch,
    .product_bytes = replacement_products,
    .bind = replacement_bind,
    .refresh = replacement_refresh,
    .forward = replacement_forward,
    .backward = replacement_backward,
    .free = replacement_free,
};

void bp_replacement_new(bp_block **out, const bp_nn *nn, const bp_replacement_shape *shape)
{
    replacement *self = bp_alloc("nn.embedding", 1, sizeof *self);

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    bp_embedding_new(&self->embedding, nn, &shape->embedding, 1);
    *out = &self->block;
}
