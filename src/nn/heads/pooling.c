/* The input of a task's head: the final norm, the state of a whole text from its positions' states,
 * a pooler, dropout. Without a head: the text's vector. A text has one row, so each tensor rank
 * computes everything after pooling. Called by models/task/task.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <stdio.h>
#include <string.h>

#define INIT_STD 0.02F

typedef struct pooling {
    bp_block block;
    bp_pooling_shape shape;
    int64_t O;                                     /* columns of the pooler */
    bp_param *gain, *shift, *pooler, *pooler_bias; /* may be NULL */
    bp_weight *map;
} pooling;

static const pooling *pooling_of(const bp_block *block)
{
    return (const pooling *)block;
}

static bool keeps_positions(const pooling *self)
{
    return self->shape.pool == BP_POOL_NONE;
}

/* ---- memory ---- */

typedef struct saved_rows {
    float *pooled;               /* [B][C]; NULL if each place keeps its state */
    float *hidden, *mean, *rstd; /* [own rows][C] before the norm; NULL without one */
} saved_rows;

static saved_rows alloc_saved(const pooling *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t C = self->shape.C, own = bp_nn_rows(self->block.nn, pass).count;

    saved_rows rows = {.pooled =
                           keeps_positions(self) ? NULL : bp_arena_floats(arena, pass->B * C)};

    if (self->gain) {
        rows.hidden = bp_arena_floats(arena, own * C);
        rows.mean = bp_arena_floats(arena, own);
        rows.rstd = bp_arena_floats(arena, own);
    }
    return rows;
}

typedef struct work {
    float *units;               /* [B][O] of the pooler */
    float *dropped, *sums;      /* [B][C]: after dropout; over tensor ranks */
    float *before;              /* [B][O] the input of GELU or ReLU; else NULL */
    float *dunits, *dpooled;    /* [B][C] */
    float *dnormed, *norm_sums; /* [own rows][C] */
} work;

static work alloc_work(const pooling *self, bp_arena *arena, const bp_pass *pass, bool backward)
{
    int64_t C = self->shape.C, own = bp_nn_rows(self->block.nn, pass).count;
    int64_t texts = keeps_positions(self) ? 0 : pass->B * C,
            units = keeps_positions(self) ? 0 : pass->B * self->O;
    work w = {.units = bp_arena_floats(arena, units),
              .dropped = bp_arena_floats(arena, texts),
              .sums = bp_arena_floats(arena, texts)};

    if (self->shape.gelu || self->shape.relu)
        w.before = bp_arena_floats(arena, units);
    if (!backward)
        return w;
    w.dunits = bp_arena_floats(arena, texts);
    w.dpooled = bp_arena_floats(arena, texts);
    if (self->gain) {
        w.dnormed = bp_arena_floats(arena, own * C);
        w.norm_sums = bp_arena_floats(arena, bp_layer_norm_scratch(own, C));
    }
    return w;
}

static size_t pooling_saved(const bp_block *block, const bp_extent *most)
{
    bp_pass pass = bp_pass_planned(block, most, true);
    bp_arena count = {0};

    alloc_saved(pooling_of(block), &count, &pass);
    return count.used_bytes;
}

static bool pooling_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some,
                           void *to, void *from)
{
    const pooling *self = pooling_of(block);
    bp_pass of_some = bp_pass_planned(block, some, true),
            of_all = bp_pass_planned(block, all, true);
    int64_t C = self->shape.C, own = bp_nn_rows(block->nn, &of_some).count,
            times = all->B / some->B;
    bp_arena had = {.base = from, .size_bytes = SIZE_MAX},
             has = {.base = to, .size_bytes = SIZE_MAX};
    saved_rows kept = alloc_saved(self, &had, &of_some),
               all_kept = alloc_saved(self, &has, &of_all);

    bp_repeat_floats(all_kept.pooled, kept.pooled, some->B * C, times);
    bp_repeat_floats(all_kept.hidden, kept.hidden, own * C, times);
    bp_repeat_floats(all_kept.mean, kept.mean, own, times);
    bp_repeat_floats(all_kept.rstd, kept.rstd, own, times);
    return true;
}

static size_t pooling_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0};

    if (!training)
        alloc_saved(pooling_of(block), &count, &pass);
    alloc_work(pooling_of(block), &count, &pass, training);
    return count.used_bytes;
}

static bp_product_bytes pooling_products(const bp_block *block, const bp_extent *most)
{
    const pooling *self = pooling_of(block);
    bp_product_bytes bytes = {0};

    if (self->pooler)
        bp_product_bytes_add(&bytes, block->nn, most->B, self->O, self->shape.C);
    return bytes;
}

static bp_err pooling_bind(bp_block *block)
{
    pooling *self = (pooling *)block;

    return self->pooler ? bp_weight_new(&self->map, block->nn->gemm, self->pooler->value, self->O,
                                        self->shape.C)
                        : BP_OK;
}

static void pooling_refresh(bp_block *block)
{
    pooling *self = (pooling *)block;

    if (self->map)
        bp_weight_refresh(self->map);
}

/* ---- the state of a text ---- */

static int64_t length_of(const pooling *self, const bp_pass *pass, int64_t b)
{
    const int32_t *lengths = pass->batch.stream[self->block.stream].lengths;

    return lengths ? lengths[b] : pass->T;
}

/* The weight of place t's state in that of text b. */
static float share_of(const pooling *self, const bp_pass *pass, int64_t b, int64_t t)
{
    int64_t length = length_of(self, pass, b);

    switch (self->shape.pool) {
    case BP_POOL_FIRST:
        return t == 0;
    case BP_POOL_LAST:
        return t == length - 1;
    default:
        return t < length ? 1 / (float)length : 0;
    }
}

/* Ranks that share rows out have parts of sums. */
static void sum_parts(const pooling *self, const bp_pass *pass, float *x, float *scratch)
{
    if (bp_nn_rows(self->block.nn, pass).count < pass->B * pass->T)
        bp_all_sum(x, pass->B * self->shape.C, scratch, self->block.nn->tensor);
}

static void pool(const pooling *self, const bp_pass *pass, float *pooled, const float *hidden,
                 float *scratch)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t C = self->shape.C;

    bp_zero(pooled, pass->B * C);
    for (int64_t r = 0; r < own.count; r++) {
        int64_t b = (own.first + r) / pass->T;
        float share = share_of(self, pass, b, (own.first + r) % pass->T);

        for (int64_t c = 0; share != 0 && c < C; c++)
            pooled[b * C + c] += share * hidden[r * C + c];
    }
    sum_parts(self, pass, pooled, scratch);
}

static bool drops(const pooling *self, const bp_pass *pass)
{
    return pass->dropout && self->block.nn->dropout > 0 &&
           self->shape.dropout_stream != BP_NO_DROPOUT;
}

static bp_activation activation_of(const pooling *self)
{
    return self->shape.relu ? BP_RELU : BP_GELU_EXACT;
}

static void activate(const pooling *self, const work *w, int64_t B)
{
    int64_t O = self->O;
    bp_operand y = bp_operand_floats(w->units, B, O), x = bp_operand_floats(w->before, B, O);

    if (w->before)
        bp_activation_forward(activation_of(self), &y, &x);
    else if (!self->shape.linear)
        bp_tanh(w->units, w->units, B * O);
}

static void activate_backward(const pooling *self, const work *w, float *dunits, int64_t B)
{
    int64_t C = self->shape.C;

    if (w->before) {
        bp_operand dx = bp_operand_floats(dunits, B, C), y = bp_operand_floats(w->units, B, C),
                   x = bp_operand_floats(w->before, B, C);

        bp_activation_backward(activation_of(self), &dx, &y, NULL, &dx, &x);
        return;
    }
    for (int64_t i = 0; i < B * C; i++)
        dunits[i] *= 1 - w->units[i] * w->units[i];
}

/* Units, before and after dropout; returns the latter. */
static float *transform(const pooling *self, const bp_pass *pass, const work *w, float *pooled)
{
    const bp_nn *nn = self->block.nn;
    int64_t B = pass->B, C = self->shape.C;
    float *units = pooled;

    if (self->pooler) {
        units = w->units;
        bp_linear_forward(nn->gemm, w->before ? w->before : units, pooled, self->map,
                          self->pooler_bias ? self->pooler_bias->value : NULL, B);
        activate(self, w, B);
    }
    if (!drops(self, pass))
        return units;
    bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);
    bp_add_dropout(w->dropped, NULL, units, B * C, nn->dropout, &key, pass->first_slot * C);
    return w->dropped;
}

/* In training the text's state is at its first place; else at each, for targets of any. */
static void give_rows(const pooling *self, const bp_pass *pass, float *hidden, const float *states)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t C = self->shape.C;

    for (int64_t r = 0; r < own.count; r++)
        if (!pass->training || (own.first + r) % pass->T == 0)
            memcpy(hidden + r * C, states + (own.first + r) / pass->T * C,
                   (size_t)C * sizeof *hidden);
}

/* For each scored text, on the first tensor rank. */
static void give_states(const pooling *self, const bp_pass *pass, const float *states)
{
    int64_t O = self->O, done = 0;
    const int32_t *targets = pass->batch.term[0].targets;

    for (int64_t k = 0; pass->log_p && k < pass->B * pass->T; k++)
        if (targets[k] >= 0)
            for (int64_t c = 0; c < O; c++)
                pass->log_p[done++] =
                    self->block.nn->tensor_rank == 0 ? states[k / pass->T * O + c] : 0;
}

static bp_norm norm_of(const pooling *self, const saved_rows *rows)
{
    return (bp_norm){bp_param_gain(self->gain),
                     self->shift ? self->shift->value : NULL,
                     self->shape.epsilon,
                     rows->mean,
                     rows->rstd,
                     self->shape.no_norm_bias};
}

static void normalise(const pooling *self, const bp_pass *pass, float *hidden,
                      const saved_rows *rows)
{
    int64_t count = bp_nn_rows(self->block.nn, pass).count;
    bp_norm norm = norm_of(self, rows);
    bp_operand to = bp_operand_floats(hidden, count, self->shape.C);

    memcpy(rows->hidden, hidden, (size_t)(count * self->shape.C) * sizeof *hidden);
    bp_layer_norm_forward(&to, NULL, &norm, &(bp_residual){.base = rows->hidden});
}

static void drop_positions(const pooling *self, const bp_pass *pass, float *x, bool backward)
{
    const bp_nn *nn = self->block.nn;
    int64_t C = self->shape.C, n = bp_nn_rows(nn, pass).count * C;

    if (!drops(self, pass))
        return;
    bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);
    if (backward)
        bp_dropout_backward(x, x, n, nn->dropout, &key, bp_nn_first_row(nn, pass) * C);
    else
        bp_add_dropout(x, NULL, x, n, nn->dropout, &key, bp_nn_first_row(nn, pass) * C);
}

static void pooling_forward(bp_block *block, bp_pass *pass, bp_activations *activations,
                            void *saved)
{
    const pooling *self = pooling_of(block);
    float *hidden = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    saved_rows rows = alloc_saved(self, saved ? &kept : pass->scratch, pass);
    work w = alloc_work(self, pass->scratch, pass, false);

    if (self->gain)
        normalise(self, pass, hidden, &rows);
    if (keeps_positions(self)) {
        drop_positions(self, pass, hidden, false);
    } else {
        const float *states;

        pool(self, pass, rows.pooled, hidden, w.sums);
        states = transform(self, pass, &w, rows.pooled);
        if (self->shape.is_last)
            give_states(self, pass, states);
        else
            give_rows(self, pass, hidden, states);
    }
    pass->scratch->used_bytes = mark;
}

/* From the gradients of the texts' rows to those of all positions. */
static void pool_backward(const pooling *self, bp_pass *pass, const work *w, float *dhidden,
                          float *pooled)
{
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);
    int64_t B = pass->B, C = self->shape.C;
    float *dunits = w->dunits, *dpooled = dunits;

    (void)transform(self, pass, w, pooled);
    bp_zero(dunits, B * C);
    for (int64_t r = 0; r < own.count; r++)
        if ((own.first + r) % pass->T == 0)
            memcpy(dunits + (own.first + r) / pass->T * C, dhidden + r * C,
                   (size_t)C * sizeof *dunits);
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);
        bp_dropout_backward(dunits, dunits, B * C, nn->dropout, &key, pass->first_slot * C);
    }
    if (self->pooler) {
        dpooled = w->dpooled;
        activate_backward(self, w, dunits, B);
        bp_linear_backward(
            &(bp_linear_gradients){dpooled, self->pooler->gradient, self->pooler_bias->gradient},
            nn->gemm, dunits, pooled, self->map, B);
    }
    sum_parts(self, pass, dpooled, w->sums);
    for (int64_t r = 0; r < own.count; r++) {
        int64_t b = (own.first + r) / pass->T;
        float share = share_of(self, pass, b, (own.first + r) % pass->T);

        for (int64_t c = 0; c < C; c++)
            dhidden[r * C + c] = share * dpooled[b * C + c];
    }
}

static void norm_backward(const pooling *self, const bp_pass *pass, const work *w, float *dhidden,
                          const saved_rows *rows)
{
    int64_t C = self->shape.C, count = bp_nn_rows(self->block.nn, pass).count;
    bp_norm norm = norm_of(self, rows);
    bp_norm_gradients to = {dhidden, self->gain->gradient,
                            self->shift ? self->shift->gradient : NULL, true};

    memcpy(w->dnormed, dhidden, (size_t)(count * C) * sizeof *dhidden);
    bp_layer_norm_backward(&to, NULL, w->dnormed, rows->hidden, &norm, count, C, w->norm_sums);
}

static void pooling_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                             void *saved)
{
    const pooling *self = pooling_of(block);
    float *dhidden = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    saved_rows rows = alloc_saved(self, &kept, pass);
    work w = alloc_work(self, pass->scratch, pass, true);

    if (keeps_positions(self))
        drop_positions(self, pass, dhidden, true);
    else
        pool_backward(self, pass, &w, dhidden, rows.pooled);
    if (self->gain)
        norm_backward(self, pass, &w, dhidden, &rows);
    pass->scratch->used_bytes = mark;
}

static void pooling_free(bp_block *block)
{
    pooling *self = (pooling *)block;

    bp_weight_free(&self->map);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "pooling",
    .saved_bytes = pooling_saved,
    .scratch_bytes = pooling_scratch,
    .product_bytes = pooling_products,
    .bind = pooling_bind,
    .refresh = pooling_refresh,
    .forward = pooling_forward,
    .backward = pooling_backward,
    .repeat = pooling_repeat,
    .free = pooling_free,
};

void bp_pooling_new(bp_block **out, const bp_nn *nn, const bp_pooling_shape *shape, bp_group *group)
{
    pooling *self = bp_alloc("nn.head", 1, sizeof *self);
    char name[BP_PARAM_NAME];
    int64_t C = shape->C;

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->block.stream = shape->stream;
    self->shape = *shape;
    if (shape->norm) {
        snprintf(name, sizeof name, "%s.gain", shape->norm);
        self->gain = bp_group_add_vector(group, name, C, BP_INIT_ONE);
        snprintf(name, sizeof name, "%s.bias", shape->norm);
        self->shift = shape->rms || shape->no_norm_bias
                          ? NULL
                          : bp_group_add_vector(group, name, C, BP_INIT_ZERO);
    }
    self->O = shape->vector > 0 ? shape->vector : C;
    if (shape->pooler) {
        self->pooler = bp_group_add_matrix(group, "pooler.weight", C, C, INIT_STD);
        self->pooler_bias = bp_group_add_vector(group, "pooler.bias", C, BP_INIT_ZERO);
    } else if (shape->vector > 0) {
        self->pooler = bp_group_add_matrix(group, "vector.weight", self->O, C, INIT_STD);
        self->pooler_bias = shape->unbiased
                                ? NULL
                                : bp_group_add_vector(group, "vector.bias", self->O, BP_INIT_ZERO);
    }
    *out = &self->block;
}
