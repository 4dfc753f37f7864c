/* Token and position embeddings, per stream: the first block. The vocabulary is split over tensor
 * ranks. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <string.h>

typedef struct embedding {
    bp_block block;
    bp_embedding_part parts[BP_STREAMS];
    int count;
} embedding;

static int64_t width_of(const embedding *self)
{
    const bp_embedding_part *part = &self->parts[0];

    return part->wte ? part->wte->shape[1] : part->wpe->shape[1];
}

/* A pass as a part's stream has it. */
static bp_pass pass_of(const bp_embedding_part *part, const bp_pass *pass)
{
    bp_pass of_stream = *pass;

    bp_pass_go_by(&of_stream, part->stream);
    return of_stream;
}

/* All rows if this rank has only some of the hidden state's; else the hidden state itself. */
static float *alloc_all(const embedding *self, bp_arena *arena, const bp_pass *pass, float *hidden)
{
    int64_t rows = pass->B * pass->T;

    if (bp_nn_rows(self->block.nn, pass).count == rows)
        return hidden;
    return bp_arena_floats(arena, rows * width_of(self));
}

/* If padding has its own place: the row of wpe for each row. */
static int32_t *alloc_positions(const bp_embedding_part *part, bp_arena *arena, int64_t rows)
{
    return part->positions_padding ? (int32_t *)(void *)bp_arena_floats(arena, rows) : NULL;
}

static size_t embedding_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const embedding *self = (const embedding *)block;
    bp_pass pass = bp_pass_planned(block, most, training);
    size_t bytes = 0;

    for (int k = 0; k < self->count; k++) {
        bp_pass of_stream = pass_of(&self->parts[k], &pass);
        bp_arena count = {0};

        alloc_all(self, &count, &of_stream, NULL);
        alloc_positions(&self->parts[k], &count, of_stream.B * of_stream.T);
        bp_arena_floats(&count, bp_nn_sum_floats(block->nn, &of_stream, width_of(self)));
        bytes = count.used_bytes > bytes ? count.used_bytes : bytes;
    }
    return bytes;
}

static bool drops(const embedding *self, const bp_embedding_part *part, const bp_pass *pass)
{
    return pass->dropout && self->block.nn->dropout > 0 && !part->keeps_all;
}

/* Segments of the rows from own.first on. NULL: all rows are of segment 0, since the batch or the
 * table has no other segments. */
static const int32_t *segments_of(const bp_embedding_part *part, const bp_pass *pass,
                                  bp_row_range own)
{
    const int32_t *ids = pass->batch.stream[part->stream].segments;

    return ids && part->segments->shape[0] > 1 ? ids + own.first : NULL;
}

/* Rows that are all of segment 0: as if sequences had one place. */
static void add_segments(const bp_embedding_part *part, const bp_pass *pass, bp_row_range own,
                         float *hidden)
{
    const int32_t *ids = segments_of(part, pass, own);

    bp_ids_within("segment", ids, own.count, 0, part->segments->shape[0]);
    bp_positions_forward(hidden, part->segments->value,
                         &(bp_position_rows){own.first, own.count, 1, ids},
                         part->segments->shape[1]);
}

static void add_segment_gradients(const bp_embedding_part *part, const bp_pass *pass,
                                  bp_row_range own, const float *dhidden)
{
    const int32_t *ids = segments_of(part, pass, own);
    const bp_param *segments = part->segments;
    int64_t C = segments->shape[1];

    if (ids)
        bp_embedding_backward(segments->gradient, dhidden, ids, own.count, C, 0,
                              segments->shape[0]);
    else
        bp_positions_backward(segments->gradient, dhidden,
                              &(bp_position_rows){own.first, own.count, 1, NULL}, C);
}

static bool is_padding(const bp_embedding_part *part, const bp_pass *pass, int64_t row)
{
    const int32_t *lengths = pass->batch.stream[part->stream].lengths;

    return lengths && row % pass->T >= lengths[row / pass->T];
}

static void add_positions(const bp_embedding_part *part, const bp_pass *pass, bp_row_range own,
                          const int32_t *positions, float *hidden)
{
    int64_t C = part->wpe->shape[1], first = part->first_position;
    int32_t *numbers = alloc_positions(part, pass->scratch, own.count);

    if (positions)
        bp_ids_within("position", positions, own.count, 0, part->wpe->shape[0] - first);
    else
        BP_ASSERT(first + pass->T <= part->wpe->shape[0]);
    if (numbers && !positions) {
        for (int64_t r = 0; r < own.count; r++)
            numbers[r] = (int32_t)(is_padding(part, pass, own.first + r)
                                       ? first - 1
                                       : first + (own.first + r) % pass->T);
        bp_positions_forward(hidden, part->wpe->value,
                             &(bp_position_rows){own.first, own.count, pass->T, numbers}, C);
    } else {
        bp_positions_forward(hidden, part->wpe->value + first * C,
                             &(bp_position_rows){own.first, own.count, pass->T, positions}, C);
    }
}

/* hidden = the rows of wte. */
static void look_up(const embedding *self, const bp_embedding_part *part, bp_pass *pass,
                    float *hidden)
{
    const bp_param *wte = part->wte;
    const int32_t *tokens = pass->batch.stream[part->stream].inputs;
    int64_t C = width_of(self);
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    float *all = alloc_all(self, pass->scratch, pass, hidden);

    if (pass->vectors[part->stream]) {
        memcpy(all, pass->vectors[part->stream], (size_t)(pass->B * pass->T * C) * sizeof *all);
    } else {
        bp_ids_within("token", tokens, pass->B * pass->T, 0, wte->shape[0]);
        bp_embedding_forward(all, wte->value, tokens, pass->B * pass->T, C, wte->offset[0],
                             wte->extent[0]);
        bp_nn_sum(self->block.nn, pass, all, C);
    }
    if (all != hidden)
        memcpy(hidden, all + own.first * C, (size_t)(own.count * C) * sizeof *hidden);
}

static void forward_part(const embedding *self, const bp_embedding_part *part, bp_pass *pass,
                         float *hidden)
{
    const bp_nn *nn = self->block.nn;
    int64_t C = width_of(self);
    bp_row_range own = bp_nn_rows(nn, pass);
    size_t mark = pass->scratch->used_bytes;
    bool continues = pass->continuation && part->stream == self->block.stream;
    const int32_t *positions = continues ? pass->continuation->rows.positions : NULL;

    if (part->wte)
        look_up(self, part, pass, hidden);
    if (part->scale > 0)
        bp_scale(hidden, part->scale, own.count * C);
    if (part->sinusoids)
        bp_positions_forward(hidden, part->sinusoids,
                             &(bp_position_rows){own.first, own.count, pass->T, positions}, C);
    if (part->wpe)
        add_positions(part, pass, own, positions, hidden);
    if (part->segments)
        add_segments(part, pass, own, hidden);
    if (drops(self, part, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, part->dropout_stream);
        bp_add_dropout(hidden, NULL, hidden, own.count * C, nn->dropout, &key,
                       bp_nn_first_row(nn, pass) * C);
    }
    pass->scratch->used_bytes = mark;
}

static void embedding_forward(bp_block *block, bp_pass *pass, bp_activations *activations,
                              void *saved)
{
    const embedding *self = (const embedding *)block;

    (void)saved;
    for (int k = 0; k < self->count; k++) {
        bp_pass of_stream = pass_of(&self->parts[k], pass);

        forward_part(self, &self->parts[k], &of_stream,
                     activations->item[self->parts[k].item].data);
    }
}

/* Positions from `after` positions past a text on are padding, whose table row is not trained. */
static void clear_padding(const bp_embedding_part *part, const bp_pass *pass, bp_row_range own,
                          int64_t after, float *dhidden)
{
    int64_t C = part->wte ? part->wte->shape[1] : part->wpe->shape[1];

    for (int64_t r = own.first; r < own.first + own.count; r++)
        if ((part->starts_with_padding && r % pass->T == 0) ||
            (r % pass->T >= after && is_padding(part, pass, r - after)))
            bp_zero(dhidden + (r - own.first) * C, C);
}

static void backward_part(const embedding *self, const bp_embedding_part *part, bp_pass *pass,
                          float *dhidden)
{
    const bp_nn *nn = self->block.nn;
    const bp_param *wte = part->wte;
    int64_t C = width_of(self), rows = pass->B * pass->T;
    bp_row_range own = bp_nn_rows(nn, pass);
    size_t mark = pass->scratch->used_bytes;
    float *all = alloc_all(self, pass->scratch, pass, dhidden);
    bool learns = !pass->vector_gradients[part->stream]; /* those of inputs include padding */

    if (drops(self, part, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, part->dropout_stream);
        bp_dropout_backward(dhidden, dhidden, own.count * C, nn->dropout, &key,
                            bp_nn_first_row(nn, pass) * C);
    }
    if (part->segments && part->segments->gradient)
        add_segment_gradients(part, pass, own, dhidden);
    if (part->positions_padding && learns)
        clear_padding(part, pass, own, 0, dhidden);
    if (part->wpe && part->wpe->gradient)
        bp_positions_backward(part->wpe->gradient + part->first_position * C, dhidden,
                              &(bp_position_rows){own.first, own.count, pass->T, NULL}, C);
    if (learns)
        clear_padding(part, pass, own, part->tokens_after, dhidden);
    if (part->scale > 0)
        bp_scale(dhidden, part->scale, own.count * C);
    if (wte && all != dhidden && (wte->gradient || pass->vector_gradients[part->stream])) {
        bp_operand whole = bp_operand_floats(all, rows, C);
        memcpy(all + own.first * C, dhidden, (size_t)(own.count * C) * sizeof *all);
        bp_nn_gather(nn, pass, &whole);
    }
    if (wte && wte->gradient)
        bp_embedding_backward(wte->gradient, all, pass->batch.stream[part->stream].inputs, rows, C,
                              wte->offset[0], wte->extent[0]);
    if (wte && pass->vector_gradients[part->stream])
        memcpy(pass->vector_gradients[part->stream], all, (size_t)(rows * C) * sizeof *all);
    pass->scratch->used_bytes = mark;
}

static void embedding_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                               void *saved)
{
    const embedding *self = (const embedding *)block;

    (void)saved;
    for (int k = 0; k < self->count; k++) {
        bp_pass of_stream = pass_of(&self->parts[k], pass);

        backward_part(self, &self->parts[k], &of_stream,
                      activations->item[self->parts[k].item].data);
    }
}

static bool embedding_cache(const bp_block *block, int64_t slots, int64_t capacity,
                            bp_cache_need *need)
{
    const embedding *self = (const embedding *)block;

    (void)slots, (void)capacity;
    return self->count == 1 || need->source_capacity > 0;
}

static const bp_block_ops OPS = {
    .kind = "embedding",
    .cache = embedding_cache,
    .saved_bytes = bp_block_saves_nothing,
    .scratch_bytes = embedding_scratch,
    .product_bytes = bp_block_no_products,
    .bind = bp_block_binds_nothing,
    .refresh = bp_block_refreshes_nothing,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .free = bp_block_free_alone,
};

void bp_embedding_new(bp_block **out, const bp_nn *nn, const bp_embedding_part *parts, int count)
{
    embedding *self = bp_alloc("nn.embedding", 1, sizeof *self);

    BP_ASSERT(count >= 1 && count <= BP_STREAMS);
    self->block.ops = &OPS;
    self->block.nn = nn;
    memcpy(self->parts, parts, (size_t)count * sizeof *parts);
    for (int k = 0; k < count && parts[k].wte; k++)
        parts[k].wte->values_read = true;
    self->count = count;
    *out = &self->block;
}

int64_t bp_embedding_width(const bp_block *block)
{
    const bp_block *first = bp_series_first(block);

    return first->ops == &OPS ? width_of((const embedding *)first) : 0;
}

void bp_embedding_rows(const bp_block *block, int stream, const int32_t *tokens, int64_t count,
                       float *rows, float *scratch)
{
    const embedding *self = (const embedding *)bp_series_first(block);
    const bp_param *wte = self->parts[0].wte;

    for (int k = 1; k < self->count; k++)
        if (self->parts[k].stream == stream)
            wte = self->parts[k].wte;
    bp_ids_within("token", tokens, count, 0, wte->shape[0]);
    bp_embedding_forward(rows, wte->value, tokens, count, width_of(self), wte->offset[0],
                         wte->extent[0]);
    bp_all_sum(rows, count * width_of(self), scratch, block->nn->tensor);
}
