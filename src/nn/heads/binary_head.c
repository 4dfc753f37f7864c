/* A head that predicts for each place whether its token differs from the text's: a logistic
 * regression. Each tensor rank computes all rows. Called by models/electra/electra.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

#define INIT_STD 0.02F

typedef struct binary_head {
    bp_block block;
    bp_binary_shape shape;
    bp_param *weight, *bias;
} binary_head;

static const binary_head *head_of(const bp_block *block)
{
    return (const binary_head *)block;
}

/* Saved by forward for backward, for all rows. */
typedef struct states {
    float *x, *ids; /* [B * T][C], [B * T] */
} states;

static states alloc_saved(const binary_head *self, bp_arena *arena, int64_t rows)
{
    return (states){bp_arena_floats(arena, rows * self->shape.C), bp_arena_floats(arena, rows)};
}

static size_t binary_saved(const bp_block *block, const bp_extent *most)
{
    bp_arena count = {0};

    alloc_saved(head_of(block), &count, most->B * most->T[block->stream]);
    return count.used_bytes;
}

/* A logit for each row, and the ids if nothing is saved. */
static size_t binary_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    (void)training;
    return 2 * bp_arena_bytes(most->B * most->T[block->stream], sizeof(float));
}

static double logit_of(const binary_head *self, const float *x)
{
    double sum = (double)self->bias->value[0];

    for (int64_t c = 0; c < self->shape.C; c++)
        sum += (double)self->weight->value[c] * (double)x[c];
    return sum;
}

/* logits[r] become the loss's derivatives: sigmoid(logit) - label. The loss, -log of the label's
 * probability, is added in row order. */
static void to_gradients(const binary_head *self, bp_pass *pass, const float *x, const float *ids,
                         float *logits)
{
    int term = self->shape.term;
    const int32_t *targets = pass->batch.term[term].targets;
    int64_t rows = pass->B * pass->T;

#pragma omp parallel for schedule(static) if (rows * self->shape.C > 8192)
    for (int64_t r = 0; r < rows; r++)
        logits[r] = targets[r] >= 0 ? (float)logit_of(self, x + r * self->shape.C) : 0;
    for (int64_t r = 0; r < rows; r++) {
        double z = (double)logits[r];
        bool replaced = targets[r] >= 0 && (int32_t)ids[r] != targets[r];

        if (targets[r] < 0)
            continue;
        pass->loss_sum[term] += fmax(z, 0) + log1p(exp(-fabs(z))) - (replaced ? z : 0);
        pass->loss_count[term]++;
        logits[r] = (float)(1 / (1 + exp(-z)) - (replaced ? 1 : 0)) * pass->loss_weight[term];
    }
}

/* If no generator comes before it, the tokens are the inputs themselves. */
static void take_ids(const binary_head *self, const bp_pass *pass, const bp_activations *from,
                     float *ids)
{
    int64_t rows = pass->B * pass->T;

    if (self->shape.ids_item > 0)
        memcpy(ids, from->item[self->shape.ids_item].data, (size_t)rows * sizeof *ids);
    else
        for (int64_t r = 0; r < rows; r++)
            ids[r] = (float)pass->batch.stream[0].inputs[r];
}

static void binary_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const binary_head *self = head_of(block);
    int64_t rows = pass->B * pass->T;
    const float *x = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena keep = {.base = saved, .size_bytes = SIZE_MAX};

    if (saved) {
        states kept = alloc_saved(self, &keep, rows);

        memcpy(kept.x, x, (size_t)(rows * self->shape.C) * sizeof *x);
        take_ids(self, pass, activations, kept.ids);
    } else if (pass->batch.term[self->shape.term].targets) {
        float *logits = bp_arena_floats(pass->scratch, rows);
        float *ids = bp_arena_floats(pass->scratch, rows);

        take_ids(self, pass, activations, ids);
        to_gradients(self, pass, x, ids, logits);
    }
    pass->scratch->used_bytes = mark;
}

/* The weights' gradients, in row order, with any number of threads. */
static void add_gradients(const binary_head *self, const float *x, const float *dlogits,
                          int64_t rows)
{
    int64_t C = self->shape.C;

#pragma omp parallel for schedule(static) if (rows * C > 8192)
    for (int64_t c = 0; c < C; c++) {
        float sum = 0;

        for (int64_t r = 0; r < rows; r++)
            sum += dlogits[r] * x[r * C + c];
        self->weight->gradient[c] += sum;
    }
    for (int64_t r = 0; r < rows; r++)
        self->bias->gradient[0] += dlogits[r];
}

static void binary_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                            void *saved)
{
    const binary_head *self = head_of(block);
    int64_t rows = pass->B * pass->T, C = self->shape.C;
    float *dx = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena keep = {.base = saved, .size_bytes = SIZE_MAX};
    states kept = alloc_saved(self, &keep, rows);
    float *dlogits = bp_arena_floats(pass->scratch, rows);

    if (pass->batch.term[self->shape.term].targets)
        to_gradients(self, pass, kept.x, kept.ids, dlogits);
    else
        bp_zero(dlogits, rows);
    if (self->weight->gradient)
        add_gradients(self, kept.x, dlogits, rows);
#pragma omp parallel for schedule(static) if (rows * C > 8192)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < C; c++)
            dx[r * C + c] = dlogits[r] * self->weight->value[c];
    pass->scratch->used_bytes = mark;
}

static const bp_block_ops OPS = {
    .kind = "binary_head",
    .saved_bytes = binary_saved,
    .scratch_bytes = binary_scratch,
    .product_bytes = bp_block_no_products,
    .bind = bp_block_binds_nothing,
    .refresh = bp_block_refreshes_nothing,
    .forward = binary_forward,
    .backward = binary_backward,
    .free = bp_block_free_alone,
};

void bp_binary_head_new(bp_block **out, const bp_nn *nn, const bp_binary_shape *shape,
                        bp_group *group)
{
    binary_head *self = bp_alloc("nn.head", 1, sizeof *self);

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->weight = bp_group_add_matrix(group, "replaced.weight", 1, shape->C, INIT_STD);
    self->bias = bp_group_add_vector(group, "replaced.bias", 1, BP_INIT_ZERO);
    *out = &self->block;
}
