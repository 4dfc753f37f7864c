/* Copies of a layer's saved data, for other examples with the same input. Called by
 * models/network_gradient.c through the block's table. */
#include "nn/transformer/transformer_priv.h"

/* The number of copies of a pass's examples; their rows, and those of this rank. */
typedef struct copies {
    int64_t times, rows, own;
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

bool layer_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                  void *from)
{
    const layer *self = (const layer *)block;
    bp_pass of_some = bp_pass_planned(block, some, true),
            of_all = bp_pass_planned(block, all, true);
    bp_arena had = {.base = from, .size_bytes = SIZE_MAX},
             has = {.base = to, .size_bytes = SIZE_MAX};
    copies by = {all->B / some->B, of_some.B * of_some.T, bp_nn_rows(block->nn, &of_some).count};

    if (self->experts) /* whose rows are sorted by expert */
        return false;
    saved kept = layer_alloc_saved(self, &had, &of_some),
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
    query_repeat(self, &of_some, &all_kept, &kept, by.times);
    if (self->shape.crosses)
        cross_repeat(self, &of_some, &all_kept, &kept, by.times);
    return true;
}
