/* Several blocks as one, which must be on one pipeline stage. Made by models/task/task.c and
 * models/stack/stack.c. */
#include "base/err.h"
#include "nn/core/layers.h"

#include <string.h>

typedef struct series {
    bp_block block;
    bp_block_ops ops; /* with `adapt`, where a part has it */
    bp_block *parts[BP_SERIES_BLOCKS];
    int count;
} series;

static size_t part_saved(const bp_block *part, const bp_extent *most)
{
    return bp_arena_bytes((int64_t)part->ops->saved_bytes(part, most), 1);
}

static size_t series_saved(const bp_block *block, const bp_extent *most)
{
    const series *self = (const series *)block;
    size_t bytes = 0;

    for (int k = 0; k < self->count; k++)
        bytes += part_saved(self->parts[k], most);
    return bytes;
}

static size_t series_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const series *self = (const series *)block;
    size_t largest = 0;

    for (int k = 0; k < self->count; k++) {
        size_t bytes = self->parts[k]->ops->scratch_bytes(self->parts[k], most, training);

        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static bp_product_bytes series_products(const bp_block *block, const bp_extent *most)
{
    const series *self = (const series *)block;
    bp_product_bytes all = {0};

    for (int k = 0; k < self->count; k++) {
        bp_product_bytes bytes = self->parts[k]->ops->product_bytes(self->parts[k], most);

        all.copies += bytes.copies;
        all.scratch = bytes.scratch > all.scratch ? bytes.scratch : all.scratch;
    }
    return all;
}

static bp_err series_bind(bp_block *block)
{
    series *self = (series *)block;
    bp_err err = BP_OK;

    for (int k = 0; k < self->count && err == BP_OK; k++)
        err = self->parts[k]->ops->bind(self->parts[k]);
    return err;
}

static void series_refresh(bp_block *block)
{
    series *self = (series *)block;

    for (int k = 0; k < self->count; k++)
        self->parts[k]->ops->refresh(self->parts[k]);
}

/* The offset of each part's memory in the whole. */
static void find_memory(const series *self, const bp_pass *pass, void *saved,
                        void *of[BP_SERIES_BLOCKS])
{
    char *at = saved;

    for (int k = 0; k < self->count; k++) {
        of[k] = at;
        if (at)
            at += part_saved(self->parts[k], &pass->extent);
    }
}

static void series_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    series *self = (series *)block;
    void *of[BP_SERIES_BLOCKS];

    find_memory(self, pass, saved, of);
    for (int k = 0; k < self->count; k++)
        self->parts[k]->ops->forward(self->parts[k], pass, activations, of[k]);
}

static void series_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                            void *saved)
{
    series *self = (series *)block;
    void *of[BP_SERIES_BLOCKS];

    find_memory(self, pass, saved, of);
    for (int k = self->count - 1; k >= 0; k--)
        self->parts[k]->ops->backward(self->parts[k], pass, activations, of[k]);
}

static bool series_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some,
                          void *to, void *from)
{
    const series *self = (const series *)block;
    char *at = from, *next = to;
    bool can = true;

    for (int k = 0; k < self->count; k++) {
        can = bp_block_repeat(self->parts[k], all, some, next, at) && can;
        at = at ? at + part_saved(self->parts[k], some) : NULL;
        next = next ? next + part_saved(self->parts[k], all) : NULL;
    }
    return can;
}

/* At most one part keeps a cache of sequences: the memory is that part's. */
static bool series_cache(const bp_block *block, int64_t slots, int64_t capacity,
                         bp_cache_need *need)
{
    const series *self = (const series *)block;

    for (int k = 0; k < self->count; k++) {
        const bp_block *part = self->parts[k];
        bp_cache_need own = *need;

        own.kept_bytes = own.scratch_bytes = 0;
        if (!part->ops->cache || !part->ops->cache(part, slots, capacity, &own) ||
            (own.kept_bytes > 0 && need->kept_bytes > 0))
            return false;
        need->kept_bytes += own.kept_bytes;
        need->scratch_bytes =
            own.scratch_bytes > need->scratch_bytes ? own.scratch_bytes : need->scratch_bytes;
    }
    return true;
}

/* Those that can. */
static void series_adapt(bp_block *block, const bp_adapter *adapter, bp_group *split,
                         bp_group *whole)
{
    series *self = (series *)block;

    for (int k = 0; k < self->count; k++)
        if (self->parts[k]->ops->adapt)
            self->parts[k]->ops->adapt(self->parts[k], adapter, split, whole);
}

static void series_free(bp_block *block)
{
    series *self = (series *)block;

    for (int k = 0; k < self->count; k++)
        self->parts[k]->ops->free(self->parts[k]);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "series",
    .cache = series_cache,
    .saved_bytes = series_saved,
    .scratch_bytes = series_scratch,
    .product_bytes = series_products,
    .bind = series_bind,
    .refresh = series_refresh,
    .forward = series_forward,
    .backward = series_backward,
    .repeat = series_repeat,
    .free = series_free,
};

void bp_series_new(bp_block **out, const bp_nn *nn, bp_block *const *blocks, int count)
{
    series *self = bp_alloc("nn.series", 1, sizeof *self);

    BP_ASSERT(count > 0 && count <= BP_SERIES_BLOCKS);
    self->ops = OPS;
    self->block.ops = &self->ops;
    self->block.nn = nn;
    self->block.stream = blocks[0]->stream;
    self->count = count;
    for (int k = 0; k < count; k++) {
        BP_ASSERT(blocks[k]->stream == self->block.stream);
        self->parts[k] = blocks[k];
        if (blocks[k]->ops->adapt)
            self->ops.adapt = series_adapt;
    }
    *out = &self->block;
}

const bp_block *bp_series_first(const bp_block *block)
{
    return block->ops->free == series_free ? ((const series *)block)->parts[0] : block;
}
