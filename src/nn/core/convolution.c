/* A convolution over a block's input, in parallel with the block, and a norm of their sum. Tensor
 * ranks hold all of its parameters and share the rows out, or do all rows alike; the input's rows
 * are gathered, since a place reads its neighbours. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "nn/core/layers.h"

#include <string.h>

#define INIT_STD 0.02F
#define ROWS     512 /* that are unfolded at once */

typedef struct convolution {
    bp_block block;
    bp_block *inner;
    bp_convolution_shape shape;
    bp_param *weight, *bias, *gain, *shift;
    bp_weight **maps; /* [G] */
} convolution;

/* Saved by forward for backward, for this rank's N rows, after the inner block's. */
typedef struct states {
    float *x;      /* [N][C] the input */
    float *sums;   /* [N][C] what the activation reads */
    float *before; /* [N][C] the norm's input; then, backward, its gradient */
    float *mean, *rstd;
} states;

typedef struct work {
    float *all;    /* [B T][C] the input of all rows; NULL: this rank has all */
    float *folded; /* [ROWS][C / G K] */
    float *one;    /* [ROWS][C / G] a group's */
    /* backward */
    float *dfolded;
    float *dsums; /* [N][C] */
    float *again; /* [N][C] the activation's output, not read */
    float *dx;    /* [B T][C] */
} work;

static const convolution *layer_of(const bp_block *block)
{
    return (const convolution *)block;
}

static int64_t columns_of(const convolution *self)
{
    return self->shape.C / self->shape.G;
}

static size_t inner_saved(const convolution *self, const bp_extent *most)
{
    return bp_arena_bytes((int64_t)self->inner->ops->saved_bytes(self->inner, most), 1);
}

static states alloc_states(const convolution *self, bp_arena *arena, int64_t N)
{
    int64_t n = N * self->shape.C;
    states kept = {.x = bp_arena_floats(arena, n)};

    kept.sums = bp_arena_floats(arena, n);
    kept.before = bp_arena_floats(arena, n);
    kept.mean = bp_arena_floats(arena, N);
    kept.rstd = bp_arena_floats(arena, N);
    return kept;
}

static work alloc_work(const convolution *self, bp_arena *arena, const bp_pass *pass, bool backward)
{
    int64_t N = bp_nn_rows(self->block.nn, pass).count, all = pass->B * pass->T, C = self->shape.C,
            Cg = columns_of(self), rows = N < ROWS ? N : ROWS;
    work w = {.all = N < all ? bp_arena_floats(arena, all * C) : NULL};

    w.folded = bp_arena_floats(arena, rows * Cg * self->shape.K);
    w.one = bp_arena_floats(arena, rows * Cg);
    if (!backward)
        return w;
    w.dfolded = bp_arena_floats(arena, rows * Cg * self->shape.K);
    w.dsums = bp_arena_floats(arena, N * C);
    w.again = bp_arena_floats(arena, N * C);
    w.dx = bp_arena_floats(arena, all * C);
    return w;
}

/* Scratch of the norm's backward pass: the gradient of its output. */
static float *alloc_norm(const convolution *self, bp_arena *arena, int64_t N, float **sums)
{
    float *dy = bp_arena_floats(arena, N * self->shape.C);

    *sums = bp_arena_floats(arena, bp_layer_norm_scratch(N, self->shape.C));
    return dy;
}

static size_t convolution_saved(const bp_block *block, const bp_extent *most)
{
    const convolution *self = layer_of(block);
    bp_pass pass = bp_pass_planned(block, most, true);
    bp_arena count = {.used_bytes = inner_saved(self, most)};

    alloc_states(self, &count, bp_nn_rows(block->nn, &pass).count);
    return count.used_bytes;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t convolution_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const convolution *self = layer_of(block);
    bp_pass pass = bp_pass_planned(block, most, training);
    int64_t N = bp_nn_rows(block->nn, &pass).count;
    bp_arena kept = {0}, own = {0}, norm = {0};
    float *sums;

    if (!training)
        alloc_states(self, &kept, N);
    alloc_work(self, &own, &pass, training);
    if (training) {
        own.used_bytes +=
            bp_arena_bytes(bp_nn_sum_floats(block->nn, &pass, self->shape.C), sizeof(float));
        alloc_norm(self, &norm, N, &sums);
    }
    return kept.used_bytes + larger(larger(own.used_bytes, norm.used_bytes),
                                    self->inner->ops->scratch_bytes(self->inner, most, training));
}

static bp_product_bytes convolution_products(const bp_block *block, const bp_extent *most)
{
    const convolution *self = layer_of(block);
    bp_product_bytes bytes = self->inner->ops->product_bytes(self->inner, most);
    int64_t rows = most->B * most->T[block->stream], Cg = columns_of(self);

    for (int64_t g = 0; g < self->shape.G; g++)
        bp_product_bytes_add(&bytes, block->nn, rows < ROWS ? rows : ROWS, Cg, Cg * self->shape.K);
    return bytes;
}

static bp_err convolution_bind(bp_block *block)
{
    convolution *self = (convolution *)block;
    int64_t Cg = columns_of(self), ins = Cg * self->shape.K;
    bp_err err = self->inner->ops->bind(self->inner);

    for (int64_t g = 0; g < self->shape.G && err == BP_OK; g++)
        err = bp_weight_new(&self->maps[g], block->nn->gemm, self->weight->value + g * Cg * ins, Cg,
                            ins);
    return err;
}

static void convolution_refresh(bp_block *block)
{
    convolution *self = (convolution *)block;

    self->inner->ops->refresh(self->inner);
    for (int64_t g = 0; g < self->shape.G && self->maps[g]; g++)
        bp_weight_refresh(self->maps[g]);
}

/* ---- the convolution: rows with their neighbours, then a product ---- */

static int64_t length_of(const bp_pass *pass, int64_t example)
{
    const int32_t *lengths = pass->batch.stream[pass->stream].lengths;

    return lengths ? lengths[example] : pass->T;
}

/* folded[count][C / G][K] of rows [first, first + count): the input of each tap of a row, 0
 * outside of its text. */
static void unfold(const convolution *self, const bp_pass *pass, float *folded, const float *all,
                   int64_t first, int64_t count, int64_t group)
{
    int64_t C = self->shape.C, K = self->shape.K, Cg = columns_of(self), T = pass->T;

#pragma omp parallel for schedule(static) if (count * Cg * K > 8192)
    for (int64_t r = 0; r < count; r++) {
        int64_t t = (first + r) % T, length = length_of(pass, (first + r) / T);
        const float *x = all + (first + r) * C + group * Cg;

        for (int64_t k = 0; k < K; k++) {
            int64_t by = k - K / 2;
            bool there = t < length && t + by >= 0 && t + by < length;

            for (int64_t c = 0; c < Cg; c++)
                folded[(r * Cg + c) * K + k] = there ? x[by * C + c] : 0;
        }
    }
}

/* The gradients of the folded rows go to dx of all rows. */
static void fold(const convolution *self, const bp_pass *pass, float *dx, const float *dfolded,
                 int64_t first, int64_t count, int64_t group)
{
    int64_t C = self->shape.C, K = self->shape.K, Cg = columns_of(self), T = pass->T,
            from = first > K / 2 ? first - K / 2 : 0, to = first + count + K / 2;

    to = to < pass->B * T ? to : pass->B * T;
#pragma omp parallel for schedule(static) if (count * Cg * K > 8192)
    for (int64_t s = from; s < to; s++) {
        int64_t length = length_of(pass, s / T);

        for (int64_t k = 0; k < K && s % T < length; k++) {
            int64_t t = s % T - (k - K / 2), r = s - (k - K / 2) - first;
            float *at = dx + s * C + group * Cg;

            if (t < 0 || t >= length || r < 0 || r >= count)
                continue;
            for (int64_t c = 0; c < Cg; c++)
                at[c] += dfolded[(r * Cg + c) * K + k];
        }
    }
}

/* Copies columns between a group's own rows and rows of all columns. */
static void copy_group(const convolution *self, float *rows, float *one, int64_t count,
                       int64_t group, bool into_rows)
{
    int64_t Cg = columns_of(self);

    for (int64_t r = 0; r < count; r++) {
        float *at = rows + r * self->shape.C + group * Cg;

        memcpy(into_rows ? at : one + r * Cg, into_rows ? one + r * Cg : at,
               (size_t)Cg * sizeof *one);
    }
}

static void clear_padding(const convolution *self, const bp_pass *pass, float *rows,
                          bp_row_range own)
{
    for (int64_t r = 0; r < own.count; r++)
        if ((own.first + r) % pass->T >= length_of(pass, (own.first + r) / pass->T))
            bp_zero(rows + r * self->shape.C, self->shape.C);
}

static const float *gather(const convolution *self, const bp_pass *pass, const work *w,
                           const float *x, bp_row_range own)
{
    int64_t C = self->shape.C;
    bp_operand all = bp_operand_floats(w->all, pass->B * pass->T, C);

    if (!w->all)
        return x;
    memcpy(w->all + own.first * C, x, (size_t)(own.count * C) * sizeof *x);
    bp_nn_gather(self->block.nn, pass, &all);
    return w->all;
}

static bp_rng_key mask_of(const convolution *self, const bp_pass *pass)
{
    return bp_dropout_key(self->block.nn, pass, self->shape.dropout_stream);
}

static bool drops(const convolution *self, const bp_pass *pass)
{
    return pass->dropout && self->block.nn->dropout > 0;
}

/* kept->sums */
static void convolve(const convolution *self, bp_pass *pass, const states *kept)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t C = self->shape.C, Cg = columns_of(self);
    size_t mark = pass->scratch->used_bytes;
    work w = alloc_work(self, pass->scratch, pass, false);
    const float *all = gather(self, pass, &w, kept->x, own);

    for (int64_t at = 0; at < own.count; at += ROWS)
        for (int64_t g = 0; g < self->shape.G; g++) {
            int64_t count = own.count - at < ROWS ? own.count - at : ROWS;

            unfold(self, pass, w.folded, all, own.first + at, count, g);
            bp_linear_forward(self->block.nn->gemm, w.one, w.folded, self->maps[g],
                              self->bias->value + g * Cg, count);
            copy_group(self, kept->sums + at * C, w.one, count, g, true);
        }
    clear_padding(self, pass, kept->sums, own);
    if (drops(self, pass)) {
        bp_rng_key key = mask_of(self, pass);

        bp_add_dropout(kept->sums, NULL, kept->sums, own.count * C, self->block.nn->dropout, &key,
                       bp_nn_first_row(self->block.nn, pass) * C);
    }
    pass->scratch->used_bytes = mark;
}

static bp_norm norm_of(const convolution *self, const states *kept)
{
    return (bp_norm){.gain = bp_param_gain(self->gain),
                     .bias = self->shift->value,
                     .epsilon = self->shape.epsilon,
                     .mean = kept->mean,
                     .rstd = kept->rstd};
}

static states states_of(const convolution *self, bp_pass *pass, void *saved)
{
    int64_t N = bp_nn_rows(self->block.nn, pass).count;
    bp_arena keep = {.base = saved, .size_bytes = SIZE_MAX};

    if (!saved)
        return alloc_states(self, pass->scratch, N);
    keep.used_bytes = inner_saved(self, &pass->extent);
    return alloc_states(self, &keep, N);
}

static void convolution_forward(bp_block *block, bp_pass *pass, bp_activations *activations,
                                void *saved)
{
    const convolution *self = layer_of(block);
    int64_t N = bp_nn_rows(block->nn, pass).count, n = N * self->shape.C;
    float *rows = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    states kept = states_of(self, pass, saved);
    bp_operand sums = bp_operand_floats(kept.sums, N, self->shape.C),
               before = bp_operand_floats(kept.before, N, self->shape.C),
               to = bp_operand_floats(rows, N, self->shape.C);
    bp_norm norm = norm_of(self, &kept);

    memcpy(kept.x, rows, (size_t)n * sizeof *rows);
    self->inner->ops->forward(self->inner, pass, activations, saved);
    convolve(self, pass, &kept);
    if (self->shape.tanh)
        bp_tanh(kept.before, kept.sums, n);
    else
        bp_activation_forward(self->shape.activation, &before, &sums);
    bp_add(kept.before, rows, n);
    bp_layer_norm_forward(&to, NULL, &norm, &(bp_residual){.base = kept.before});
    pass->scratch->used_bytes = mark;
}

/* ---- backward ---- */

/* w->dsums from the gradient of the activation's output. */
static void backward_activation(const convolution *self, bp_pass *pass, const states *kept,
                                const work *w, bp_row_range own)
{
    int64_t C = self->shape.C, n = own.count * C;
    bp_operand to = bp_operand_floats(w->dsums, own.count, C),
               again = bp_operand_floats(w->again, own.count, C),
               from = bp_operand_floats(kept->before, own.count, C),
               sums = bp_operand_floats(kept->sums, own.count, C);

    if (self->shape.tanh) {
        bp_tanh(w->again, kept->sums, n);
        for (int64_t i = 0; i < n; i++)
            w->dsums[i] = kept->before[i] * (1 - w->again[i] * w->again[i]);
    } else {
        bp_activation_backward(self->shape.activation, &to, &again, NULL, &from, &sums);
    }
    if (drops(self, pass)) {
        bp_rng_key key = mask_of(self, pass);

        bp_dropout_backward(w->dsums, w->dsums, n, self->block.nn->dropout, &key,
                            bp_nn_first_row(self->block.nn, pass) * C);
    }
    clear_padding(self, pass, w->dsums, own);
}

/* For a group and this rank's rows from `at` on: gradients of the group's weight and of all rows
 * of the input. */
static void backward_rows(const convolution *self, const bp_pass *pass, const work *w,
                          const float *all, int64_t at, int64_t group)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t Cg = columns_of(self), ins = Cg * self->shape.K,
            count = own.count - at < ROWS ? own.count - at : ROWS;
    bp_gemm *gemm = self->block.nn->gemm;

    copy_group(self, w->dsums + at * self->shape.C, w->one, count, group, false);
    if (self->weight->gradient) {
        unfold(self, pass, w->folded, all, own.first + at, count, group);
        bp_linear_backward_weight(gemm, self->weight->gradient + group * Cg * ins,
                                  self->bias->gradient + group * Cg, w->one, w->folded, count, Cg,
                                  ins);
    }
    bp_linear_backward_input(gemm, w->dfolded, w->one, self->maps[group], count);
    fold(self, pass, w->dx, w->dfolded, own.first + at, count, group);
}

/* Adds the gradient through the convolution to the input's. */
static void backward_convolution(const convolution *self, bp_pass *pass, const states *kept,
                                 float *rows)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t C = self->shape.C, everything = pass->B * pass->T;
    size_t mark = pass->scratch->used_bytes;
    work w = alloc_work(self, pass->scratch, pass, true);
    const float *all = gather(self, pass, &w, kept->x, own);

    backward_activation(self, pass, kept, &w, own);
    bp_zero(w.dx, everything * C);
    for (int64_t at = 0; at < own.count; at += ROWS)
        for (int64_t g = 0; g < self->shape.G; g++)
            backward_rows(self, pass, &w, all, at, g);
    if (own.count < everything) /* a place's neighbours may be on another rank */
        bp_nn_sum(self->block.nn, pass, w.dx, C);
    bp_add(rows, w.dx + own.first * C, own.count * C);
    pass->scratch->used_bytes = mark;
}

static void convolution_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                                 void *saved)
{
    const convolution *self = layer_of(block);
    int64_t N = bp_nn_rows(block->nn, pass).count, n = N * self->shape.C;
    float *rows = activations->item[0].data, *sums;
    size_t mark = pass->scratch->used_bytes;
    states kept = states_of(self, pass, saved);
    float *dy = alloc_norm(self, pass->scratch, N, &sums);
    bp_norm norm = norm_of(self, &kept);
    bp_norm_gradients to = {rows, self->gain->gradient, self->shift->gradient, true};

    memcpy(dy, rows, (size_t)n * sizeof *rows);
    bp_layer_norm_backward(&to, NULL, dy, kept.before, &norm, N, self->shape.C, sums);
    pass->scratch->used_bytes = mark;
    memcpy(kept.before, rows, (size_t)n * sizeof *rows); /* it goes both ways */
    self->inner->ops->backward(self->inner, pass, activations, saved);
    backward_convolution(self, pass, &kept, rows);
}

static void convolution_adapt(bp_block *block, const bp_adapter *adapter, bp_group *split,
                              bp_group *whole)
{
    bp_block *inner = ((convolution *)block)->inner;

    inner->ops->adapt(inner, adapter, split, whole);
}

static const bp_block *convolution_inner(const bp_block *block)
{
    return layer_of(block)->inner;
}

static void convolution_free(bp_block *block)
{
    convolution *self = (convolution *)block;

    self->inner->ops->free(self->inner);
    for (int64_t g = 0; g < self->shape.G; g++)
        bp_weight_free(&self->maps[g]);
    bp_free(self->maps);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "convolution",
    .saved_bytes = convolution_saved,
    .scratch_bytes = convolution_scratch,
    .product_bytes = convolution_products,
    .bind = convolution_bind,
    .refresh = convolution_refresh,
    .forward = convolution_forward,
    .backward = convolution_backward,
    .adapt = convolution_adapt,
    .inner = convolution_inner,
    .free = convolution_free,
};

void bp_convolution_new(bp_block **out, bp_block *inner, const bp_convolution_shape *shape,
                        bp_group *group)
{
    convolution *self = bp_alloc("nn.convolution", 1, sizeof *self);
    int64_t C = shape->C;

    BP_ASSERT(shape->K % 2 == 1 && C % shape->G == 0 && inner->ops->adapt);
    self->block = (bp_block){.ops = &OPS, .nn = inner->nn, .stream = inner->stream};
    self->inner = inner;
    self->shape = *shape;
    self->maps = bp_alloc("nn.convolution", shape->G, sizeof(bp_weight *));
    self->weight = bp_group_add_matrix(group, "conv.weight", C, C / shape->G * shape->K, INIT_STD);
    self->weight->decays = false; /* as taps elsewhere: in other programs it has three dimensions */
    self->bias = bp_group_add_vector(group, "conv.bias", C, BP_INIT_ZERO);
    self->gain = bp_group_add_vector(group, "conv.ln.gain", C, BP_INIT_ONE);
    self->shift = bp_group_add_vector(group, "conv.ln.bias", C, BP_INIT_ZERO);
    *out = &self->block;
}
