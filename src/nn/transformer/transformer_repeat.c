/* What a layer keeps of one example, for several that read the same. Called by
 * models/network_gradient.c through the block's table. */
#include "nn/transformer/transformer_priv.h"

/* Copies for the examples of a pass, from one over the first of them. */
typedef struct copies {
    int64_t times, rows, own; /* examples; rows of one, and those of this rank */
} copies;

static void repeat_branch(const layer *self, const copies *by, int k, const saved *to,
                          const saved *from)
{
    int64_t floats = by->own * self->shape.C;

    bp_repeat_floats(to->before[k], from->before[k], floats, by->times);
    bp_repeat_floats(to->mean[k], from->mean[k], by->own, by->times);
    bp_repeat_floats(to->rstd[k], from->rstd[k], by->own, by->times);
    bp_repeat_floats(to->closed[k], from->closed[k], floats, by->times);
    bp_repeat_floats(to->closed_mean[k], from->closed_mean[k], by->own, by->times);
    bp_repeat_floats(to->closed_rstd[k], from->closed_rstd[k], by->own, by->times);
    if (self->bottleneck[k])
        bp_bottleneck_repeat(self->bottleneck[k], &to->bottled[k], &from->bottled[k], by->own,
                             by->times);
}

static void repeat_clipped(const layer *self, const copies *by, const saved *to, const saved *from)
{
    int64_t bytes = by->rows * layer_qkv_columns(self);

    for (int64_t k = 0; k < by->times && to->clipped; k++)
        memcpy(to->clipped + k * bytes, from->clipped, (size_t)bytes);
}

bool layer_repeat(const bp_block *block, const bp_extent *all, void *to, void *from)
{
    const layer *self = (const layer *)block;
    bp_extent one = bp_extent_of_one(all);
    bp_pass of_one = bp_pass_planned(block, &one, true), of_all = bp_pass_planned(block, all, true);
    bp_arena had = {.base = from, .size_bytes = SIZE_MAX},
             has = {.base = to, .size_bytes = SIZE_MAX};
    copies by = {all->B, of_one.T, bp_nn_rows(block->nn, &of_one).count};

    if (self->experts) /* whose rows are sorted by expert */
        return false;
    saved kept = layer_alloc_saved(self, &had, &of_one),
          all_kept = layer_alloc_saved(self, &has, &of_all);
    bp_repeat_rows(&all_kept.qkv, &kept.qkv, by.times);
    bp_repeat_rows(&all_kept.attended, &kept.attended, by.times);
    bp_repeat_floats(all_kept.lse, kept.lse, by.rows * self->Hl, by.times);
    bp_repeat_rows(&all_kept.up, &kept.up, by.times);
    if (all_kept.entered != all_kept.before[ATTENTION])
        bp_repeat_floats(all_kept.entered, kept.entered, by.own * self->shape.C, by.times);
    for (int k = 0; k < BRANCHES; k++)
        repeat_branch(self, &by, k, &all_kept, &kept);
    repeat_clipped(self, &by, &all_kept, &kept);
    query_repeat(self, &of_one, &all_kept, &kept, by.times);
    if (self->shape.crosses)
        cross_repeat(self, &of_one, &all_kept, &kept, by.times);
    return true;
}
