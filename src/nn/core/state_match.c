/* A block whose result learns from the states of a teacher's layer. The inner block is unchanged;
 * backward compares first, and then runs the inner block backward. Called by
 * models/network/dropconnect.c and models/network/stages.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/heads/distill.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct state_match {
    bp_block block;
    bp_block *inner;
    bp_state_match match;
    bp_param *weight; /* NULL: widths are equal */
    bp_weight *map;
} state_match;

static size_t inner_saved(const state_match *self, const bp_extent *most)
{
    return bp_arena_bytes((int64_t)self->inner->ops->saved_bytes(self->inner, most), 1);
}

/* In training: this rank's rows. */
static int64_t rows_of(const state_match *self, const bp_extent *most)
{
    bp_pass pass = bp_pass_planned(&self->block, most, true);

    return bp_nn_rows(self->block.nn, &pass).count;
}

static size_t match_saved(const bp_block *block, const bp_extent *most)
{
    const state_match *self = (const state_match *)block;
    bp_arena count = {.used_bytes = inner_saved(self, most)};

    bp_arena_floats(&count, rows_of(self, most) * self->match.C);
    return count.used_bytes;
}

typedef struct work {
    float *y;       /* [rows][columns] h Wt, then its gradient */
    float *dh;      /* [rows][C]; NULL: no projection */
    double *losses; /* [rows] */
} work;

static work alloc_work(const state_match *self, bp_arena *arena, int64_t rows)
{
    work w = {.y = bp_arena_floats(arena, rows * self->match.columns)};

    if (self->weight)
        w.dh = bp_arena_floats(arena, rows * self->match.C);
    w.losses = (double *)(void *)bp_arena_floats(arena, 2 * rows);
    return w;
}

static size_t match_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const state_match *self = (const state_match *)block;
    size_t inner = self->inner->ops->scratch_bytes(self->inner, most, training);
    bp_arena count = {0};

    if (training)
        alloc_work(self, &count, rows_of(self, most));
    return count.used_bytes > inner ? count.used_bytes : inner;
}

static bp_product_bytes match_products(const bp_block *block, const bp_extent *most)
{
    const state_match *self = (const state_match *)block;
    bp_product_bytes bytes = self->inner->ops->product_bytes(self->inner, most);

    if (self->weight)
        bp_product_bytes_add(&bytes, block->nn, rows_of(self, most), self->match.columns,
                             self->match.C);
    return bytes;
}

static bp_err match_bind(bp_block *block)
{
    state_match *self = (state_match *)block;
    bp_err err = self->inner->ops->bind(self->inner);

    if (err == BP_OK && self->weight)
        err = bp_weight_new(&self->map, block->nn->gemm, self->weight->value, self->match.columns,
                            self->match.C);
    return err;
}

static void match_refresh(bp_block *block)
{
    state_match *self = (state_match *)block;

    self->inner->ops->refresh(self->inner);
    if (self->map)
        bp_weight_refresh(self->map);
}

static bool match_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need)
{
    const bp_block *inner = ((const state_match *)block)->inner;

    return inner->ops->cache && inner->ops->cache(inner, slots, capacity, need);
}

static float *kept_states(const state_match *self, const bp_pass *pass, void *saved)
{
    return (float *)(void *)((char *)saved + inner_saved(self, &pass->extent));
}

static void match_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    state_match *self = (state_match *)block;

    self->inner->ops->forward(self->inner, pass, activations, saved);
    if (pass->training)
        memcpy(kept_states(self, pass, saved), activations->item[0].data,
               (size_t)(bp_nn_rows(block->nn, pass).count * self->match.C) * sizeof(float));
}

/* (y - s)^2 of a row, over its columns; y becomes the gradient of scale times that. */
static double squared_error(float *y, const float *s, int64_t columns, double scale)
{
    float slope = (float)(2 * scale / (double)columns);
    double sum = 0;

    for (int64_t c = 0; c < columns; c++) {
        float d = y[c] - s[c];

        sum += (double)d * (double)d;
        y[c] = slope * d;
    }
    return sum / (double)columns;
}

/* 1 - y s / (|y| |s|); if either norm is 0, it is 1 without a gradient. */
static double cosine_distance(float *y, const float *s, int64_t columns, double scale)
{
    double yy = 0, ss = 0, ys = 0;

    for (int64_t c = 0; c < columns; c++) {
        yy += (double)y[c] * (double)y[c];
        ss += (double)s[c] * (double)s[c];
        ys += (double)y[c] * (double)s[c];
    }
    double norms = sqrt(yy * ss), along = norms > 0 ? scale * ys / (norms * yy) : 0,
           across = norms > 0 ? -scale / norms : 0;

    for (int64_t c = 0; c < columns; c++)
        y[c] = (float)(along * (double)y[c] + across * (double)s[c]);
    return norms > 0 ? 1 - ys / norms : 1;
}

/* Is row `row` of the pass a place of its example? */
static bool is_place(const bp_pass *pass, int64_t row)
{
    const int32_t *lengths = pass->batch.stream[pass->stream].lengths;

    return !lengths || row % pass->T < lengths[row / pass->T];
}

/* w->y becomes its gradient; returns the sum of the rows' losses. */
static double compare(const state_match *self, const bp_pass *pass, const work *w, bp_row_range own)
{
    const bp_teacher *teacher = pass->teacher;
    int64_t columns = self->match.columns;
    const float *states =
        teacher->states(teacher, self->match.number, pass->first_slot, pass->T, own.first);
    double (*loss)(float *, const float *, int64_t, double) =
        teacher->cosine ? cosine_distance : squared_error;
    double sum = 0;

#pragma omp parallel for schedule(static) if (own.count * columns > 8192)
    for (int64_t r = 0; r < own.count; r++) {
        float *y = w->y + r * columns;

        w->losses[r] = 0;
        if (is_place(pass, own.first + r))
            w->losses[r] = loss(y, states + r * columns, columns, (double)pass->states_weight);
        else
            bp_zero(y, columns);
    }
    for (int64_t r = 0; r < own.count; r++)
        sum += w->losses[r];
    return sum;
}

static void match_backward(bp_block *block, bp_pass *pass, bp_activations *gradients, void *saved)
{
    state_match *self = (state_match *)block;
    bp_gemm *gemm = block->nn->gemm;
    bp_row_range own = bp_nn_rows(block->nn, pass);
    int64_t columns = self->match.columns, C = self->match.C;
    const float *h = kept_states(self, pass, saved);
    size_t mark = pass->scratch->used_bytes;
    work w = alloc_work(self, pass->scratch, own.count);
    double loss;

    if (self->weight)
        bp_linear_forward(gemm, w.y, h, self->map, NULL, own.count);
    else
        memcpy(w.y, h, (size_t)(own.count * C) * sizeof *h);
    loss = compare(self, pass, &w, own);
    if (own.count < pass->B * pass->T) /* tensor ranks share the rows out */
        bp_all_sum_double(&loss, 1, block->nn->tensor);
    pass->states_loss += loss;
    if (self->weight) {
        bp_linear_backward_input(gemm, w.dh, w.y, self->map, own.count);
        if (self->weight->gradient)
            bp_linear_backward_weight(gemm, self->weight->gradient, NULL, w.y, h, own.count,
                                      columns, C);
    }
    bp_add(gradients->item[0].data, self->weight ? w.dh : w.y, own.count * C);
    pass->scratch->used_bytes = mark;
    self->inner->ops->backward(self->inner, pass, gradients, saved);
}

static const bp_block *match_inner(const bp_block *block)
{
    return ((const state_match *)block)->inner;
}

static void match_free(bp_block *block)
{
    state_match *self = (state_match *)block;

    self->inner->ops->free(self->inner);
    bp_weight_free(&self->map);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "state_match",
    .saved_bytes = match_saved,
    .scratch_bytes = match_scratch,
    .product_bytes = match_products,
    .bind = match_bind,
    .refresh = match_refresh,
    .forward = match_forward,
    .cache = match_cache,
    .backward = match_backward,
    .inner = match_inner,
    .free = match_free,
};

void bp_state_match_new(bp_block **out, bp_block *inner, const bp_state_match *match,
                        bp_group *group)
{
    state_match *self = bp_alloc("nn.state_match", 1, sizeof *self);
    char name[BP_PARAM_NAME];

    self->block = (bp_block){.ops = &OPS, .nn = inner->nn, .stream = inner->stream};
    self->inner = inner;
    self->match = *match;
    if (group) {
        (void)snprintf(name, sizeof name, "distill.%lld.weight", (long long)match->layer);
        self->weight = bp_group_add_matrix(group, name, match->columns, match->C,
                                           (float)sqrt(1 / (double)match->C));
    }
    *out = &self->block;
}
