/* Heads of tasks that are not a softmax over outcomes: a value of a text, and where in it a span
 * begins and ends. Their few columns are separate products; each tensor rank computes all of it.
 * Called by models/task/heads.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

#define INIT_STD 0.02F
#define ENDS     2 /* start and end of a span */

typedef struct text_head {
    bp_block block;
    bp_text_head_shape shape;
    int columns;             /* 1, or ENDS */
    bp_param *weight, *bias; /* [columns][C], [columns]; may be NULL */
} text_head;

static const text_head *head_of(const bp_block *block)
{
    return (const text_head *)block;
}

static size_t head_saved(const bp_block *block, const bp_extent *most)
{
    bp_pass pass = bp_pass_planned(block, most, true);

    return bp_arena_bytes(bp_nn_rows(block->nn, &pass).count * head_of(block)->shape.C,
                          sizeof(float));
}

typedef struct work {
    float *logits, *sums; /* [B * T][columns], of all rows; over tensor ranks */
    float *max, *total;   /* [B][columns] of a span's ends: over positions, of exp(logit - max) */
} work;

static work alloc_work(const text_head *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t values = pass->B * pass->T * self->columns;

    return (work){.logits = bp_arena_floats(arena, values),
                  .sums = bp_arena_floats(arena, values),
                  .max = bp_arena_floats(arena, pass->B * self->columns),
                  .total = bp_arena_floats(arena, pass->B * self->columns)};
}

static size_t head_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0};

    alloc_work(head_of(block), &count, &pass);
    return count.used_bytes;
}

/* A value uses only a text's first place. */
static bool is_read(const text_head *self, const bp_pass *pass, int64_t row)
{
    return self->columns == ENDS || row % pass->T == 0 || !pass->training;
}

/* Logits of all rows, from the rows that this rank has. */
static void multiply(const text_head *self, const bp_pass *pass, work *w, const float *hidden)
{
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);
    int64_t C = self->shape.C, rows = pass->B * pass->T, columns = self->columns;

    bp_zero(w->logits, rows * columns);
    for (int64_t r = 0; r < own.count; r++)
        for (int64_t k = 0; k < columns && is_read(self, pass, own.first + r); k++) {
            double sum = self->bias ? (double)self->bias->value[k] : 0;

            for (int64_t c = 0; c < C; c++)
                sum += (double)self->weight->value[k * C + c] * (double)hidden[r * C + c];
            w->logits[(own.first + r) * columns + k] = (float)sum;
        }
    if (own.count < rows)
        bp_all_sum(w->logits, rows * columns, w->sums, nn->tensor);
}

/* ---- values ---- */

static void take_values(const text_head *self, bp_pass *pass, const work *w)
{
    int term = self->shape.term;
    int64_t count = pass->batch.term[term].count, stride = pass->T / count, done = 0;
    const int32_t *targets = pass->batch.term[term].targets;

    for (int64_t k = 0; k < pass->B * count; k++) {
        float value = w->logits[k * stride];

        if (pass->logprob)
            pass->logprob[k] = targets[k] < 0 ? NAN : value;
        if (pass->log_p && targets[k] >= 0)
            pass->log_p[done++] = self->block.nn->tensor_rank == 0 ? value : 0;
        if (targets[k] >= 0) {
            double error = (double)value - (double)bp_target_value(targets[k]);
            pass->loss_sum[term] += error * error;
            pass->loss_count[term]++;
        }
    }
}

/* The loss's slope by the logit of text b. */
static float value_slope(const text_head *self, const bp_pass *pass, const work *w, int64_t b)
{
    int32_t target = pass->batch.term[self->shape.term].targets[b];

    if (pass->explains)
        return target < 0 ? 0 : -pass->loss_weight[self->shape.term];
    return target < 0 ? 0
                      : 2 * (w->logits[b * pass->T] - bp_target_value(target)) *
                            pass->loss_weight[self->shape.term];
}

/* ---- spans ---- */

static float *logit_at(const work *w, const bp_pass *pass, int64_t b, int64_t t, int64_t end)
{
    return &w->logits[(b * pass->T + t) * ENDS + end];
}

/* Padding has probability 0, except in training: there the softmax is over all positions, as in the
 * reference models. */
static int64_t positions_of(const text_head *self, const bp_pass *pass, int64_t b)
{
    const int32_t *lengths = pass->batch.stream[self->block.stream].lengths;

    return lengths && !pass->training ? lengths[b] : pass->T;
}

static double end_logprob(const work *w, const bp_pass *pass, int64_t b, int64_t t, int64_t end)
{
    return (double)(*logit_at(w, pass, b, t, end) - w->max[b * ENDS + end]) -
           log((double)w->total[b * ENDS + end]);
}

static void softmax_over_positions(const text_head *self, const bp_pass *pass, const work *w)
{
    for (int64_t b = 0; b < pass->B; b++)
        for (int64_t end = 0; end < ENDS; end++) {
            int64_t positions = positions_of(self, pass, b);
            float max = -INFINITY;
            double total = 0;

            for (int64_t t = 0; t < positions; t++)
                max = fmaxf(max, *logit_at(w, pass, b, t, end));
            for (int64_t t = positions; t < pass->T; t++)
                *logit_at(w, pass, b, t, end) = -INFINITY;
            for (int64_t t = 0; t < positions; t++)
                total += exp((double)(*logit_at(w, pass, b, t, end) - max));
            w->max[b * ENDS + end] = max;
            w->total[b * ENDS + end] = (float)total;
        }
}

/* In scoring the first two positions of a text hold its targets: the start and the end. */
static void score_spans(const text_head *self, bp_pass *pass, const work *w)
{
    const int32_t *targets = pass->batch.term[self->shape.term].targets;
    int64_t T = pass->T, done = 0;

    bp_ids_within("answer", targets, pass->B * T, -1, T);
    for (int64_t k = 0; k < pass->B * T; k++)
        BP_ASSERT(targets[k] < 0 || k % T < ENDS);
    for (int64_t k = 0; pass->logprob && k < pass->B * T; k++)
        pass->logprob[k] =
            targets[k] < 0 ? NAN : (float)end_logprob(w, pass, k / T, targets[k], k % T);
    for (int64_t k = 0; pass->log_p && k < pass->B * T; k++)
        for (int64_t t = 0; targets[k] >= 0 && t < T; t++)
            pass->log_p[done++] =
                self->block.nn->tensor_rank == 0 ? (float)end_logprob(w, pass, k / T, t, k % T) : 0;
}

/* In training each of two terms has one place per text. */
static void take_spans(const text_head *self, bp_pass *pass, const work *w)
{
    softmax_over_positions(self, pass, w);
    if (!pass->training && pass->batch.term[self->shape.term].count == pass->T) {
        score_spans(self, pass, w);
        return;
    }
    for (int end = 0; end < ENDS; end++)
        for (int64_t b = 0; b < pass->B; b++) {
            int term = self->shape.term + end;
            int32_t target = pass->batch.term[term].targets[b];

            bp_ids_within("answer", &target, 1, -1, positions_of(self, pass, b));
            if (target < 0)
                continue;
            pass->loss_sum[term] -= end_logprob(w, pass, b, target, end);
            pass->loss_count[term]++;
        }
}

static float span_slope(const text_head *self, const bp_pass *pass, const work *w, int64_t b,
                        int64_t t, int64_t end)
{
    int term = self->shape.term + (int)end;
    int32_t target = pass->batch.term[term].targets[b];

    return target < 0 ? 0
                      : pass->loss_weight[term] *
                            ((float)exp(end_logprob(w, pass, b, t, end)) - (float)(t == target));
}

/* ---- both ---- */

static void take_loss(const text_head *self, bp_pass *pass, const work *w)
{
    if (self->columns == ENDS)
        take_spans(self, pass, w);
    else
        take_values(self, pass, w);
}

static void head_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const text_head *self = head_of(block);
    const float *hidden = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;

    if (saved) {
        memcpy(saved, hidden,
               (size_t)(bp_nn_rows(block->nn, pass).count * self->shape.C) * sizeof *hidden);
        return;
    }
    work w = alloc_work(self, pass->scratch, pass);

    multiply(self, pass, &w, hidden);
    take_loss(self, pass, &w);
    pass->scratch->used_bytes = mark;
}

static void head_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const text_head *self = head_of(block);
    const float *hidden = saved;
    float *dhidden = activations->item[self->shape.item].data;
    bp_row_range own = bp_nn_rows(block->nn, pass);
    int64_t C = self->shape.C;
    size_t mark = pass->scratch->used_bytes;
    work w = alloc_work(self, pass->scratch, pass);

    multiply(self, pass, &w, hidden);
    take_loss(self, pass, &w);
    bp_zero(dhidden, own.count * C);
    for (int64_t r = 0; r < own.count; r++)
        for (int64_t k = 0; k < self->columns && is_read(self, pass, own.first + r); k++) {
            int64_t b = (own.first + r) / pass->T, t = (own.first + r) % pass->T;
            float slope = self->columns == ENDS ? span_slope(self, pass, &w, b, t, k)
                                                : value_slope(self, pass, &w, b);

            for (int64_t c = 0; c < C; c++)
                dhidden[r * C + c] += slope * self->weight->value[k * C + c];
            if (!self->weight->gradient) /* explanations have no gradients of weights */
                continue;
            if (self->bias)
                self->bias->gradient[k] += slope;
            for (int64_t c = 0; c < C; c++)
                self->weight->gradient[k * C + c] += slope * hidden[r * C + c];
        }
    pass->scratch->used_bytes = mark;
}

static const bp_block_ops OPS = {
    .kind = "text_head",
    .saved_bytes = head_saved,
    .scratch_bytes = head_scratch,
    .product_bytes = bp_block_no_products,
    .bind = bp_block_binds_nothing,
    .refresh = bp_block_refreshes_nothing,
    .forward = head_forward,
    .backward = head_backward,
    .free = bp_block_free_alone,
};

void bp_text_head_new(bp_block **out, const bp_nn *nn, const bp_text_head_shape *shape,
                      bp_group *group)
{
    text_head *self = bp_alloc("nn.head", 1, sizeof *self);

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->block.stream = shape->stream;
    self->shape = *shape;
    self->columns = shape->finds_spans ? ENDS : 1;
    self->weight = bp_group_add_matrix(group, "task.weight", self->columns, shape->C, INIT_STD);
    if (!shape->unbiased)
        self->bias = bp_group_add_vector(group, "task.bias", self->columns, BP_INIT_ZERO);
    *out = &self->block;
}
