/* The hidden layer of a feed-forward language model: tanh units over the vectors of the last
 * words. Words before a window's first one have the vector 0; outside training a window in pieces
 * uses those of the previous piece. Called by models/feedforward/feedforward.c. */
#include "nn/core/layers.h"

#include "base/err.h"
#include "math/kernels/kernels.h"

#include <math.h>
#include <string.h>

typedef struct layer {
    bp_block block;
    bp_feedforward_shape shape;
    int64_t I; /* words x E */
    bp_param *weight, *bias;
    bp_weight *map;
} layer;

static layer *layer_of(const bp_block *block)
{
    return (layer *)block;
}

/* Columns of a row that leaves. */
static int64_t outs_of(const layer *self)
{
    return self->shape.H + (self->shape.direct ? self->I : 0);
}

/* Computed by forward and read by backward, N = B T rows. */
typedef struct states {
    float *x; /* [N][I] the vectors of a row's words, the latest one first */
    float *h; /* [N][H] tanh units */
} states;

static states alloc_states(const layer *self, bp_arena *arena, int64_t N)
{
    return (states){.x = bp_arena_floats(arena, N * self->I),
                    .h = bp_arena_floats(arena, N * self->shape.H)};
}

static size_t layer_saved(const bp_block *block, const bp_extent *most)
{
    bp_arena count = {0};

    alloc_states(layer_of(block), &count, most->B * most->T[block->stream]);
    return count.used_bytes;
}

/* Forward: buffers that it does not keep, and rows of units after dropout. Backward: the gradients
 * of both. */
static size_t layer_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    bp_arena count = {0};

    (void)training;
    alloc_states(layer_of(block), &count, most->B * most->T[block->stream]);
    bp_arena_floats(&count, most->B * most->T[block->stream] * layer_of(block)->shape.H);
    return count.used_bytes;
}

static bp_product_bytes layer_products(const bp_block *block, const bp_extent *most)
{
    const layer *self = layer_of(block);
    bp_product_bytes bytes = {0};

    bp_product_bytes_add(&bytes, block->nn, most->B * most->T[block->stream], self->shape.H,
                         self->I);
    return bytes;
}

static bp_err layer_bind(bp_block *block)
{
    layer *self = layer_of(block);

    return bp_weight_new(&self->map, block->nn->gemm, self->weight->value, self->shape.H, self->I);
}

static void layer_refresh(bp_block *block)
{
    bp_weight_refresh(layer_of(block)->map);
}

/* ---- consecutive rows of one sequence ---- */

/* The words before a sequence's next row, [words - 1][E], the latest one first: before[k] is the
 * vector of the word k + 1 positions back. NULL: zeros. */
static void take_words(const layer *self, float *x, const float *vectors, int64_t rows,
                       const float *before)
{
    int64_t E = self->shape.E;

    for (int64_t t = 0; t < rows; t++)
        for (int64_t k = 0; k < self->shape.words; k++) {
            float *to = x + t * self->I + k * E;

            if (k <= t)
                memcpy(to, vectors + (t - k) * E, (size_t)E * sizeof *to);
            else if (before)
                memcpy(to, before + (k - t - 1) * E, (size_t)E * sizeof *to);
            else
                bp_zero(to, E);
        }
}

/* The same words after some rows; `after` may be `before`. */
static void leave_words(const layer *self, float *after, const float *vectors, int64_t rows,
                        const float *before)
{
    int64_t E = self->shape.E;

    for (int64_t k = self->shape.words - 2; k >= 0; k--) {
        float *to = after + k * E;

        if (k < rows)
            memcpy(to, vectors + (rows - 1 - k) * E, (size_t)E * sizeof *to);
        else if (before)
            memmove(to, before + (k - rows) * E, (size_t)E * sizeof *to);
        else
            bp_zero(to, E);
    }
}

static void take_windows(const layer *self, const bp_pass *pass, float *x, const float *vectors)
{
    const bp_carry *carry = self->shape.before;
    const float *before = carry ? bp_carry_before(carry, pass) : NULL;
    float *after = carry ? bp_carry_after(carry, pass) : NULL;
    int64_t T = pass->T, E = self->shape.E, columns = self->I - E;

#pragma omp parallel for schedule(static) if (pass->B * T * self->I > 32768)
    for (int64_t b = 0; b < pass->B; b++) {
        const float *own = before ? before + b * columns : NULL;

        take_words(self, x + b * T * self->I, vectors + b * T * E, T, own);
        if (after)
            leave_words(self, after + b * columns, vectors + b * T * E, T, own);
    }
}

/* Continued sequences: rows of each are consecutive. Reads and writes do not overlap, except
 * within a sequence. */
static void continue_sequences(const layer *self, const bp_continuation *of, float *x,
                               const float *vectors)
{
    int64_t E = self->shape.E, columns = self->I - E, count = of->rows.count, end;
    float *after = of->scratch; /* [slots][columns] */

    for (int64_t r = 0, n = 0; r < count; r = end, n++) {
        int32_t slot = of->rows.slots[r], from = of->states_from[slot];
        const float *before = from < 0 ? NULL : of->cache + from * columns;

        for (end = r + 1; end < count && of->rows.slots[end] == slot;)
            end++;
        take_words(self, x + r * self->I, vectors + r * E, end - r, before);
        leave_words(self, after + n * columns, vectors + r * E, end - r, before);
    }
    for (int64_t r = 0; r < count; r++)
        if (r == 0 || of->rows.slots[r] != of->rows.slots[r - 1]) {
            memcpy(of->cache + of->states_to[of->rows.slots[r]] * columns, after,
                   (size_t)columns * sizeof *after);
            after += columns;
        }
}

static bool layer_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need)
{
    const layer *self = layer_of(block);
    size_t bytes = (size_t)(slots * (self->I - self->shape.E)) * sizeof(float);

    (void)capacity;
    *need = (bp_cache_need){.kept_bytes = bytes, .scratch_bytes = bytes};
    return true;
}

/* ---- forward and backward ---- */

static bool drops(const layer *self, const bp_pass *pass)
{
    return pass->dropout && self->block.nn->dropout > 0;
}

/* An output row is units (after dropout), then x. */
static void put_rows(const layer *self, float *rows, const float *units, const float *x, int64_t N)
{
    int64_t H = self->shape.H, outs = outs_of(self);

#pragma omp parallel for schedule(static) if (N * outs > 32768)
    for (int64_t r = 0; r < N; r++) {
        memcpy(rows + r * outs, units + r * H, (size_t)H * sizeof *rows);
        if (self->shape.direct)
            memcpy(rows + r * outs + H, x + r * self->I, (size_t)self->I * sizeof *rows);
    }
}

static void layer_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const layer *self = layer_of(block);
    const bp_nn *nn = block->nn;
    int64_t N = pass->B * pass->T, H = self->shape.H;
    float *rows = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    states to = alloc_states(self, saved ? &kept : pass->scratch, N);
    float *units = to.h;

    if (pass->continuation) {
        bp_zero(to.x, N * self->I); /* including padding rows */
        continue_sequences(self, pass->continuation, to.x, rows);
    } else {
        take_windows(self, pass, to.x, rows);
    }
    bp_linear_forward(nn->gemm, to.h, to.x, self->map, self->bias->value, N);
    bp_tanh(to.h, to.h, N * H);
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);

        units = bp_arena_floats(pass->scratch, N * H);
        bp_add_dropout(units, NULL, to.h, N * H, nn->dropout, &key, bp_nn_first_row(nn, pass) * H);
    }
    put_rows(self, rows, units, to.x, N);
    pass->scratch->used_bytes = mark;
}

/* dh[N][H] of the units' sums, from the gradients of the output rows. */
static void take_gradients(const layer *self, const bp_pass *pass, float *dh, const float *rows,
                           const float *h)
{
    const bp_nn *nn = self->block.nn;
    int64_t N = pass->B * pass->T, H = self->shape.H, outs = outs_of(self);

#pragma omp parallel for schedule(static) if (N * H > 32768)
    for (int64_t r = 0; r < N; r++)
        memcpy(dh + r * H, rows + r * outs, (size_t)H * sizeof *dh);
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);

        bp_dropout_backward(dh, dh, N * H, nn->dropout, &key, bp_nn_first_row(nn, pass) * H);
    }
#pragma omp parallel for schedule(static) if (N * H > 32768)
    for (int64_t i = 0; i < N * H; i++)
        dh[i] *= 1 - h[i] * h[i];
}

/* rows[N][E], the gradients of word vectors: a word is read by its own row and the next ones of
 * its window. */
static void give_words(const layer *self, const bp_pass *pass, float *rows, const float *dx)
{
    int64_t T = pass->T, E = self->shape.E, I = self->I;

#pragma omp parallel for schedule(static) if (pass->B * T * I > 32768)
    for (int64_t r = 0; r < pass->B * T; r++) {
        float *to = rows + r * E;

        memcpy(to, dx + r * I, (size_t)E * sizeof *to);
        for (int64_t k = 1; k < self->shape.words && r % T + k < T; k++)
            for (int64_t i = 0; i < E; i++)
                to[i] += dx[(r + k) * I + k * E + i];
    }
}

static void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const layer *self = layer_of(block);
    int64_t N = pass->B * pass->T, H = self->shape.H, I = self->I, outs = outs_of(self);
    float *rows = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    states of = alloc_states(self, &kept, N);
    float *dh = bp_arena_floats(pass->scratch, N * H), *dx = bp_arena_floats(pass->scratch, N * I);

    take_gradients(self, pass, dh, rows, of.h);
    bp_linear_backward(&(bp_linear_gradients){dx, self->weight->gradient, self->bias->gradient},
                       block->nn->gemm, dh, of.x, self->map, N);
    for (int64_t r = 0; self->shape.direct && r < N; r++)
        bp_add(dx + r * I, rows + r * outs + H, I);
    give_words(self, pass, rows, dx);
    pass->scratch->used_bytes = mark;
}

static void layer_free(bp_block *block)
{
    bp_weight_free(&layer_of(block)->map);
    bp_free(block);
}

static const bp_block_ops OPS = {
    .kind = "feedforward",
    .cache = layer_cache,
    .saved_bytes = layer_saved,
    .scratch_bytes = layer_scratch,
    .product_bytes = layer_products,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .free = layer_free,
};

void bp_feedforward_layer_new(bp_block **out, const bp_nn *nn, const bp_feedforward_shape *shape,
                              bp_group *group)
{
    layer *self = bp_alloc("nn.layer", 1, sizeof *self);
    float bound;

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->I = shape->words * shape->E;
    bound = 1 / sqrtf((float)self->I); /* as torch.nn.Linear's begin */
    self->weight = bp_group_add_matrix(group, "hidden.weight", shape->H, self->I, bound);
    self->weight->init = BP_INIT_UNIFORM;
    self->bias = bp_group_add_vector(group, "hidden.bias", shape->H, BP_INIT_UNIFORM);
    self->bias->init_std = bound;
    *out = &self->block;
}
