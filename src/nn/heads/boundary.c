/* Inputs of SpanBERT's boundary objective: for each place of a masked span the states before and
 * after the span, and the place's number in it. The spans are the runs of positions that a loss
 * term scores. A block of BERT's family. Called by models/bert/bert.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "nn/core/layers.h"

#include <string.h>

#define INIT_STD 0.02F

typedef struct boundary {
    bp_block block;
    bp_boundary_shape shape;
    bp_param *positions; /* [BP_BOUNDARY_POSITIONS][C] */
} boundary;

static const boundary *boundary_of(const bp_block *block)
{
    return (const boundary *)block;
}

/* All rows of the states (or of their gradients), if this rank has only some of them. */
static float *alloc_all(const boundary *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T;

    return bp_nn_rows(self->block.nn, pass).count == rows
               ? NULL
               : bp_arena_floats(arena, rows * self->shape.C);
}

static size_t boundary_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const boundary *self = boundary_of(block);
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0};

    alloc_all(self, &count, &pass);
    bp_arena_floats(&count, bp_nn_sum_floats(block->nn, &pass, self->shape.C));
    return count.used_bytes;
}

/* The rows before and after the run of scored positions that contains row r, and its number there;
 * false if it is not scored, or an example's end cuts the run. */
typedef struct ends {
    int64_t before, after, number;
} ends;

static bool find_ends(const boundary *self, const bp_pass *pass, int64_t r, ends *out)
{
    const int32_t *targets = pass->batch.term[self->shape.term].targets;
    int64_t first = r / pass->T * pass->T, end = first + pass->T;

    if (!targets || targets[r] < 0)
        return false;
    out->before = out->after = r;
    while (out->before >= first && targets[out->before] >= 0)
        out->before--;
    while (out->after < end && targets[out->after] >= 0)
        out->after++;
    out->number = r - out->before - 1;
    return out->before >= first && out->after < end && out->number < BP_BOUNDARY_POSITIONS;
}

static void boundary_forward(bp_block *block, bp_pass *pass, bp_activations *activations,
                             void *saved)
{
    const boundary *self = boundary_of(block);
    const bp_nn *nn = block->nn;
    int64_t C = self->shape.C;
    size_t bytes = (size_t)C * sizeof(float), mark = pass->scratch->used_bytes;
    bp_row_range own = bp_nn_rows(nn, pass);
    const float *hidden = activations->item[0].data;
    float *to = activations->item[self->shape.item].data;
    float *all = alloc_all(self, pass->scratch, pass);

    (void)saved;
    if (all) {
        bp_operand whole = bp_operand_floats(all, pass->B * pass->T, C);
        memcpy(all + own.first * C, hidden, (size_t)own.count * bytes);
        bp_nn_gather(nn, pass, &whole);
        hidden = all;
    }
    bp_zero(to, own.count * 3 * C);
    for (int64_t k = 0; k < own.count; k++) {
        ends at;

        if (!find_ends(self, pass, own.first + k, &at))
            continue;
        memcpy(to + 3 * k * C, hidden + at.before * C, bytes);
        memcpy(to + (3 * k + 1) * C, hidden + at.after * C, bytes);
        memcpy(to + (3 * k + 2) * C, self->positions->value + at.number * C, bytes);
    }
    pass->scratch->used_bytes = mark;
}

/* Rows in order, so that sums have a fixed order. */
static void boundary_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                              void *saved)
{
    const boundary *self = boundary_of(block);
    const bp_nn *nn = block->nn;
    int64_t C = self->shape.C, rows = pass->B * pass->T;
    size_t mark = pass->scratch->used_bytes;
    bp_row_range own = bp_nn_rows(nn, pass);
    const float *from = activations->item[self->shape.item].data;
    float *dhidden = activations->item[0].data, *all = alloc_all(self, pass->scratch, pass);
    float *to = all ? all : dhidden;

    (void)saved;
    if (all)
        bp_zero(all, rows * C);
    for (int64_t k = 0; k < own.count; k++) {
        ends at;

        if (!find_ends(self, pass, own.first + k, &at))
            continue;
        bp_add(to + at.before * C, from + 3 * k * C, C);
        bp_add(to + at.after * C, from + (3 * k + 1) * C, C);
        if (self->positions->gradient)
            bp_add(self->positions->gradient + at.number * C, from + (3 * k + 2) * C, C);
    }
    if (all) {
        bp_nn_sum(nn, pass, all, C);
        bp_add(dhidden, all + own.first * C, own.count * C);
    }
    pass->scratch->used_bytes = mark;
}

static const bp_block_ops OPS = {
    .kind = "boundary",
    .saved_bytes = bp_block_saves_nothing,
    .scratch_bytes = boundary_scratch,
    .product_bytes = bp_block_no_products,
    .bind = bp_block_binds_nothing,
    .refresh = bp_block_refreshes_nothing,
    .forward = boundary_forward,
    .backward = boundary_backward,
    .free = bp_block_free_alone,
};

void bp_boundary_new(bp_block **out, const bp_nn *nn, const bp_boundary_shape *shape,
                     bp_group *group)
{
    boundary *self = bp_alloc("nn.head", 1, sizeof *self);

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->positions =
        bp_group_add_matrix(group, "boundary.positions", BP_BOUNDARY_POSITIONS, shape->C, INIT_STD);
    *out = &self->block;
}
