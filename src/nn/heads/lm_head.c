/* The last block: final norm, logits of this rank's part of the vocabulary, softmax over tensor
 * ranks, loss. It computes the logits in chunks of rows. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/heads/lm_head_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EPSILON 1e-5F

static size_t head_saved(const bp_block *block, const bp_extent *most)
{
    const lm_head *self = (const lm_head *)block;
    bp_pass pass = bp_pass_planned(block, most, true);

    return (self->shape.twice ? 2 : 1) * head_item_bytes(self, &pass);
}

/* Scratch of an evaluation, by chunks of this many rows. */
typedef struct evaluation_work {
    head_chunk c;
    float *hidden; /* [chunk rows][C] the scored rows, gathered */
    bp_operand normed;
} evaluation_work;

static evaluation_work alloc_evaluation(const lm_head *self, bp_arena *arena, int64_t chunk_rows)
{
    int64_t C = self->wte->shape[1];
    evaluation_work work = {
        .c = head_chunk_alloc(self, arena,
                              &(head_chunk_size){chunk_rows, chunk_rows, false, false})};

    work.hidden = bp_arena_floats(arena, work.c.rows * C);
    work.normed = bp_operand_alloc(arena, self->block.nn->gemm, work.c.rows, C);
    return work;
}

static size_t head_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const lm_head *self = (const lm_head *)block;
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0};

    if (training)
        return lm_head_backward_bytes(self, &pass);
    alloc_evaluation(self, &count, head_chunk_rows_most(self, pass.B * pass.T, false));
    return count.used_bytes;
}

static bp_product_bytes head_products(const bp_block *block, const bp_extent *most)
{
    const lm_head *self = (const lm_head *)block;
    bp_product_bytes bytes = {0};
    bp_pass pass = bp_pass_planned(block, most, true);
    int64_t rows = head_chunk_rows_most(self, pass.B * pass.T, false),
            trained = lm_head_backward_rows(self, &pass);

    if (self->sampled)
        sampled_softmax_products(self->sampled, &bytes,
                                 head_chunk_rows_most(self, pass.B * pass.T, true));
    if (self->wte->extent[0] > 0)
        bp_product_bytes_add_operands(&bytes, block->nn,
                                      (trained > rows ? trained : rows) * head_softmaxes(self),
                                      self->wte->extent[0], self->wte->shape[1]);
    if (self->mixture)
        softmax_mixture_products(self->mixture, &bytes, rows);
    return bytes;
}

static bp_err head_bind(bp_block *block)
{
    lm_head *self = (lm_head *)block;
    bp_err err = self->mixture   ? softmax_mixture_bind(self->mixture)
                 : self->sampled ? sampled_softmax_bind(self->sampled)
                                 : BP_OK;

    if (self->wte->extent[0] == 0 || err != BP_OK)
        return err;
    return bp_weight_new(&self->vocabulary, block->nn->gemm, self->wte->value, self->wte->extent[0],
                         self->wte->shape[1]);
}

static void head_refresh(bp_block *block)
{
    lm_head *self = (lm_head *)block;

    if (self->vocabulary)
        bp_weight_refresh(self->vocabulary);
    if (self->mixture)
        softmax_mixture_refresh(self->mixture);
    if (self->sampled)
        sampled_softmax_refresh(self->sampled);
}

/* The most probable outcome over all tensor ranks; ties go to the first. */
static void take_predicted(const lm_head *self, bp_pass *pass, const head_chunk *c, int64_t rows)
{
    int64_t V = self->wte->extent[0], first = self->wte->offset[0];

    for (int64_t r = 0; r < rows; r++) {
        c->weight[r] = -INFINITY;
        for (int64_t v = V - 1; v >= 0; v--)
            if (c->logits[r * c->stride + v] >= c->max[r])
                c->weight[r] = (float)-(first + v);
    }
    bp_all_max(c->weight, rows, self->block.nn->tensor);
    for (int64_t r = 0; r < rows; r++)
        pass->predicted[c->positions[r]] = isfinite(c->weight[r]) ? (int32_t)-c->weight[r] : 0;
}

/* Columns of other tensor ranks are 0. */
static void take_distribution(const lm_head *self, const head_chunk *c, int64_t rows, float *log_p)
{
    int64_t V = self->wte->shape[0], first = self->wte->offset[0];

    BP_ASSERT(head_is_plain(self));
    bp_zero(log_p, rows * V);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t v = 0; v < self->wte->extent[0]; v++)
            log_p[r * V + first + v] =
                (float)bp_logit_log_p(c->max, c->sums, r, (double)c->logits[r * c->stride + v]);
}

/* Rows without a target cost nothing: the others are gathered before the logits. */
static void evaluate(const lm_head *self, bp_pass *pass, const float *hidden)
{
    int64_t rows = pass->B * pass->T, C = self->wte->shape[1], at = 0, n, done = 0,
            targets = head_target_count(self, pass);
    evaluation_work work = alloc_evaluation(
        self, pass->scratch, head_equal_rows(rows, head_chunk_rows_most(self, rows, false)));
    head_chunk *c = &work.c;
    float *logprob = self->shape.term == 0 ? pass->logprob : NULL; /* the first term is scored */

    BP_ASSERT(rows <= INT32_MAX);
    head_check_targets(self, pass);
    for (int64_t r = 0; logprob && r < targets; r++)
        logprob[r] = NAN;
    while ((n = head_chunk_find(self, pass, c, &at)) > 0) {
        int64_t filled = bp_head_filled_rows(n, c->rows);
        bp_operand normed = bp_operand_part(&work.normed, 0, filled);

        for (int64_t r = 0; r < n; r++)
            memcpy(work.hidden + r * C, hidden + c->rows_of[r] * C, (size_t)C * sizeof(float));
        bp_zero(work.hidden + n * C, (filled - n) * C);
        lm_head_norm_rows(self, &normed, work.hidden, NULL, NULL);
        head_chunk_forward(self, c, &normed, c->targets, n, pass->step);
        head_chunk_loss(self, pass, c, c->targets, n);
        if (pass->predicted && self->shape.term == 0 && head_is_plain(self))
            take_predicted(self, pass, c, n);
        if (pass->log_p && self->shape.term == 0)
            take_distribution(self, c, n, pass->log_p + done * self->wte->shape[0]);
        done += n;
        for (int64_t r = 0; logprob && r < n; r++)
            logprob[c->positions[r]] = (float)head_chunk_logprob(self, c, n, r);
    }
}

static void read_item(const lm_head *self, bp_pass *pass, const bp_activations *activations,
                      void *saved)
{
    const float *hidden = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;

    if (pass->training)
        memcpy(saved, hidden,
               (size_t)(bp_nn_rows(self->block.nn, pass).count * self->wte->shape[1]) *
                   sizeof(float));
    else
        evaluate(self, pass, hidden);
    pass->scratch->used_bytes = mark;
}

static void head_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const lm_head *self = (const lm_head *)block;

    read_item(self, pass, activations, saved);
    if (self->shape.twice) {
        lm_head second = head_second(self);

        read_item(&second, pass, activations,
                  pass->training ? (char *)saved + head_item_bytes(self, pass) : NULL);
    }
}

static void head_free(bp_block *block)
{
    lm_head *self = (lm_head *)block;

    softmax_mixture_free(&self->mixture);
    sampled_softmax_free(&self->sampled);
    bp_free(self->rows_memory);
    bp_weight_free(&self->vocabulary);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "lm_head",
    .saved_bytes = head_saved,
    .scratch_bytes = head_scratch,
    .product_bytes = head_products,
    .bind = head_bind,
    .refresh = head_refresh,
    .forward = head_forward,
    .backward = lm_head_backward,
    .free = head_free,
};

void bp_lm_head_new(bp_block **out, const bp_nn *nn, const bp_head_shape *shape, bp_param *wte,
                    bp_group *whole)
{
    lm_head *self = bp_alloc("nn.head", 1, sizeof *self);
    char name[BP_PARAM_NAME];

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->block.stream = shape->stream;
    self->shape = *shape;
    self->shape.epsilon = shape->epsilon > 0 ? shape->epsilon : EPSILON;
    self->wte = wte;
    self->wte->product_first = true; /* a tied embedding of the same network adds after the head */
    self->wte->of_head = true;
    if (shape->entmax)
        lm_head_make_rows(self);
    BP_ASSERT(!shape->entmax || shape->softmaxes <= 1);
    BP_ASSERT((shape->cap == 0 && shape->scale == 0) ||
              (!shape->entmax && shape->softmaxes <= 1 && shape->dirichlet.classes == 0));
    if (shape->softmaxes > 1)
        self->mixture = softmax_mixture_new(nn, shape->softmaxes, wte->shape[1], shape->mixture);
    else if (!shape->entmax && shape->cap == 0 && shape->scale == 0)
        self->sampled = sampled_softmax_new(nn, wte, shape->bias);
    *out = &self->block;
    if (!shape->norm)
        return;
    snprintf(name, sizeof name, "%s.gain", shape->norm);
    self->gain = bp_group_add_vector(whole, name, wte->shape[1], BP_INIT_ONE);
    snprintf(name, sizeof name, "%s.bias", shape->norm);
    self->bias = shape->rms ? NULL : bp_group_add_vector(whole, name, wte->shape[1], BP_INIT_ZERO);
}
