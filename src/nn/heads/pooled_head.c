/* A head that classifies a whole example by its first place: pooler, dropout, classes. There is
 * one row per example, so each tensor rank computes all of it. Called by models/bert/bert.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <string.h>

#define INIT_STD 0.02F

typedef struct pooled_head {
    bp_block block;
    bp_pooled_shape shape;
    bp_param *pooler, *pooler_bias, *classes, *classes_bias;
    bp_weight *pooler_map, *classes_map;
} pooled_head;

static const pooled_head *head_of(const bp_block *block)
{
    return (const pooled_head *)block;
}

/* For B rows, one an example. */
typedef struct work {
    float *first;            /* [B][C] rows of first positions; all of them on each rank */
    float *units;            /* [B][C] tanh of the pooler */
    float *dropped;          /* [B][C] after dropout */
    float *logits, *max;     /* [B][classes], [2][B] */
    double *sums;            /* [2][B] */
    float *dlogits, *dunits; /* backward: [B][classes], [B][C] */
    float *dfirst, *weight;  /* [B][C], [B] */
} work;

static work alloc_work(const pooled_head *self, bp_arena *arena, int64_t B, bool backward)
{
    int64_t C = self->shape.C;
    work w = {.units = bp_arena_floats(arena, B * C), .dropped = bp_arena_floats(arena, B * C)};

    w.logits = bp_arena_floats(arena, B * self->shape.classes);
    w.max = bp_arena_floats(arena, 2 * B);
    w.sums = (double *)(void *)bp_arena_floats(arena, 2 * 2 * B);
    if (!backward)
        return w;
    w.dlogits = bp_arena_floats(arena, B * self->shape.classes);
    w.dunits = bp_arena_floats(arena, B * C);
    w.dfirst = bp_arena_floats(arena, B * C);
    w.weight = bp_arena_floats(arena, B);
    return w;
}

static int64_t first_floats(const pooled_head *self, int64_t B)
{
    return B * self->shape.C;
}

static size_t pooled_saved(const bp_block *block, const bp_extent *most)
{
    return bp_arena_bytes(first_floats(head_of(block), most->B), sizeof(float));
}

static size_t pooled_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const pooled_head *self = head_of(block);
    bp_arena count = {0};

    bp_arena_floats(&count, first_floats(self, most->B)); /* rows to keep, or sums on the way */
    alloc_work(self, &count, most->B, training);
    return count.used_bytes;
}

static bp_product_bytes pooled_products(const bp_block *block, const bp_extent *most)
{
    const pooled_head *self = head_of(block);
    bp_product_bytes bytes = {0};

    bp_product_bytes_add(&bytes, block->nn, most->B, self->shape.C, self->shape.C);
    bp_product_bytes_add(&bytes, block->nn, most->B, self->shape.classes, self->shape.C);
    return bytes;
}

static bp_err pooled_bind(bp_block *block)
{
    pooled_head *self = (pooled_head *)block;
    bp_gemm *gemm = block->nn->gemm;
    int64_t C = self->shape.C;
    bp_err err = bp_weight_new(&self->pooler_map, gemm, self->pooler->value, C, C);

    if (err == BP_OK)
        err = bp_weight_new(&self->classes_map, gemm, self->classes->value, self->shape.classes, C);
    return err;
}

static void pooled_refresh(bp_block *block)
{
    pooled_head *self = (pooled_head *)block;

    bp_weight_refresh(self->pooler_map);
    bp_weight_refresh(self->classes_map);
}

/* Is its term scored? Outside training it may not be. */
static const int32_t *targets_of(const pooled_head *self, const bp_pass *pass)
{
    return pass->batch.term[self->shape.term].targets;
}

/* Whether this rank has the first place of example b, and which of its rows that is. */
static bool has_first(const bp_row_range *own, const bp_pass *pass, int64_t b, int64_t *row)
{
    *row = b * pass->T - own->first;
    return *row >= 0 && *row < own->count;
}

/* first[B][C]: ranks that share rows out contribute theirs. */
static void take_first(const pooled_head *self, bp_pass *pass, float *first, const float *hidden)
{
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);
    int64_t C = self->shape.C, row;

    for (int64_t b = 0; b < pass->B; b++)
        if (has_first(&own, pass, b, &row))
            memcpy(first + b * C, hidden + row * C, (size_t)C * sizeof *first);
        else
            bp_zero(first + b * C, C);
    if (own.count < pass->B * pass->T) {
        size_t mark = pass->scratch->used_bytes;
        float *scratch = bp_arena_floats(pass->scratch, first_floats(self, pass->B));

        bp_all_sum(first, pass->B * C, scratch, nn->tensor);
        pass->scratch->used_bytes = mark;
    }
}

static bool drops(const pooled_head *self, const bp_pass *pass)
{
    return pass->dropout && self->block.nn->dropout > 0 &&
           self->shape.dropout_stream != BP_NO_DROPOUT;
}

/* Units, logits and their statistics; the loss in the order of examples. */
static void classify(const pooled_head *self, bp_pass *pass, work *w)
{
    const bp_nn *nn = self->block.nn;
    int64_t B = pass->B, C = self->shape.C, V = self->shape.classes;
    int term = self->shape.term;
    const int32_t *targets = targets_of(self, pass);

    bp_ids_within("target", targets, B, -1, V);
    bp_linear_forward(nn->gemm, w->units, w->first, self->pooler_map, self->pooler_bias->value, B);
    bp_tanh(w->units, w->units, B * C);
    memcpy(w->dropped, w->units, (size_t)(B * C) * sizeof(float));
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);
        bp_add_dropout(w->dropped, NULL, w->units, B * C, nn->dropout, &key, pass->first_slot * C);
    }
    bp_linear_forward(nn->gemm, w->logits, w->dropped, self->classes_map, self->classes_bias->value,
                      B);
    bp_softmax_statistics(w->max, w->sums, w->sums + B,
                          &(bp_logit_rows){w->logits, targets, B, V, 0, V});
    for (int64_t b = 0; b < B; b++)
        if (targets[b] >= 0) {
            pass->loss_sum[term] -= bp_logit_logprob(w->max, w->sums, B, b);
            pass->loss_count[term]++;
        }
}

static void pooled_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const pooled_head *self = head_of(block);
    const float *hidden = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;

    if (!targets_of(self, pass))
        return;
    if (saved) {
        take_first(self, pass, saved, hidden);
    } else {
        float *first = bp_arena_floats(pass->scratch, first_floats(self, pass->B));
        work w = alloc_work(self, pass->scratch, pass->B, false);

        w.first = first;
        take_first(self, pass, first, hidden);
        classify(self, pass, &w);
    }
    pass->scratch->used_bytes = mark;
}

/* Examples that count in this rank's gradients: those that are scored and whose row it has. */
static void weigh(const pooled_head *self, const bp_pass *pass, float *weight)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t row;

    for (int64_t b = 0; b < pass->B; b++)
        weight[b] = targets_of(self, pass)[b] >= 0 && has_first(&own, pass, b, &row)
                        ? pass->loss_weight[self->shape.term]
                        : 0;
}

/* Adds the gradient of the first positions' rows to the hidden state's. */
static void give_first(const pooled_head *self, const bp_pass *pass, float *dhidden,
                       const float *dfirst)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t C = self->shape.C, row;

    for (int64_t b = 0; b < pass->B; b++)
        if (has_first(&own, pass, b, &row))
            bp_add(dhidden + row * C, dfirst + b * C, C);
}

/* dx, and the gradients of a map that is not frozen. */
static void map_backward(bp_gemm *gemm, float *dx, const bp_param *weight, const bp_param *bias,
                         const bp_weight *map, const float *dy, const float *x, int64_t rows)
{
    if (weight->gradient)
        bp_linear_backward(&(bp_linear_gradients){dx, weight->gradient, bias->gradient}, gemm, dy,
                           x, map, rows);
    else
        bp_linear_backward_input(gemm, dx, dy, map, rows);
}

static void pooled_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                            void *saved)
{
    const pooled_head *self = head_of(block);
    const bp_nn *nn = block->nn;
    int64_t B = pass->B, C = self->shape.C, V = self->shape.classes;
    size_t mark = pass->scratch->used_bytes;

    if (!targets_of(self, pass))
        return;
    work w = alloc_work(self, pass->scratch, B, true);
    bp_operand dlogits = bp_operand_floats(w.dlogits, B, V);

    w.first = saved;
    classify(self, pass, &w);
    weigh(self, pass, w.weight);
    bp_softmax_gradient(&dlogits,
                        &(bp_logit_rows){w.logits, targets_of(self, pass), dlogits.rows,
                                         dlogits.columns, 0, dlogits.columns},
                        w.max, w.sums, w.weight, NULL);
    map_backward(nn->gemm, w.dunits, self->classes, self->classes_bias, self->classes_map,
                 w.dlogits, w.dropped, B);
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, self->shape.dropout_stream);
        bp_dropout_backward(w.dunits, w.dunits, B * C, nn->dropout, &key, pass->first_slot * C);
    }
    for (int64_t i = 0; i < B * C; i++)
        w.dunits[i] *= 1 - w.units[i] * w.units[i];
    map_backward(nn->gemm, w.dfirst, self->pooler, self->pooler_bias, self->pooler_map, w.dunits,
                 w.first, B);
    give_first(self, pass, activations->item[self->shape.item].data, w.dfirst);
    pass->scratch->used_bytes = mark;
}

static void pooled_free(bp_block *block)
{
    pooled_head *self = (pooled_head *)block;

    bp_weight_free(&self->pooler_map);
    bp_weight_free(&self->classes_map);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "pooled_head",
    .saved_bytes = pooled_saved,
    .scratch_bytes = pooled_scratch,
    .product_bytes = pooled_products,
    .bind = pooled_bind,
    .refresh = pooled_refresh,
    .forward = pooled_forward,
    .backward = pooled_backward,
    .free = pooled_free,
};

void bp_pooled_head_new(bp_block **out, const bp_nn *nn, const bp_pooled_shape *shape,
                        bp_group *group)
{
    pooled_head *self = bp_alloc("nn.head", 1, sizeof *self);

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->block.stream = shape->stream;
    self->shape = *shape;
    self->pooler = bp_group_add_matrix(group, "pooler.weight", shape->C, shape->C, INIT_STD);
    self->pooler_bias = bp_group_add_vector(group, "pooler.bias", shape->C, BP_INIT_ZERO);
    self->classes = bp_group_add_matrix(group, "class.weight", shape->classes, shape->C, INIT_STD);
    self->classes_bias = bp_group_add_vector(group, "class.bias", shape->classes, BP_INIT_ZERO);
    *out = &self->block;
}
