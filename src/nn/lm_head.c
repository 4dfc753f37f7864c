/* The last block: final norm, logits of this rank's part of the vocabulary, softmax over tensor
 * ranks, loss. It goes through the logits in chunks of rows. */
#include "base/err.h"
#include "math/kernels/entmax.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/lm_head_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EPSILON 1e-5F

/* Of one item that it reads, as this rank has it. */
static size_t item_bytes(const lm_head *self, const bp_pass *pass)
{
    return bp_arena_bytes(bp_nn_rows(self->block.nn, pass).count * self->wte->shape[1],
                          sizeof(float));
}

static size_t head_saved(const bp_block *block, const bp_extent *most)
{
    const lm_head *self = (const lm_head *)block;
    bp_pass pass = bp_pass_planned(block, most, true);

    return (self->shape.twice ? 2 : 1) * item_bytes(self, &pass);
}

/* Scratch of an evaluation, by chunks of so many rows. */
typedef struct evaluation_work {
    head_chunk c;
    float *hidden; /* [chunk rows][C] the scored rows, gathered */
    bp_operand normed;
} evaluation_work;

static evaluation_work alloc_evaluation(const lm_head *self, bp_arena *arena, int64_t chunk_rows)
{
    int64_t C = self->wte->shape[1];
    evaluation_work work = {.c = head_chunk_alloc(self, arena, chunk_rows, false)};

    work.hidden = bp_arena_floats(arena, work.c.rows * C);
    work.normed = bp_operand_alloc(arena, self->block.nn->gemm, work.c.rows, C);
    return work;
}

/* Scratch of the backward pass, by chunks of so many rows. */
typedef struct backward_work {
    head_chunk c;
    bp_operand normed;  /* [B * T][C] */
    bp_operand dlogits; /* [chunk rows][V here]; in float32 the logits' own memory. bf16 has memory
                           of its own: oneDNN has no fast product for rows with gaps between them */
    float *dnormed;     /* [B * T][C] */
    float *mean, *rstd; /* of this rank's rows */
    float *sums;
    bp_operand scored; /* sparse: [chunk rows][C] of normed, and of dnormed */
    float *dscored;
    bp_distill_work soft;          /* where the training has a teacher */
    float *sampled, *sampled_sums; /* where outcomes are sampled: [columns][C], [columns] */
} backward_work;

static backward_work alloc_backward(const lm_head *self, bp_arena *arena, const bp_pass *pass,
                                    int64_t chunk_rows)
{
    int64_t C = self->wte->shape[1], rows = pass->B * pass->T;
    int64_t own = bp_nn_rows(self->block.nn, pass).count;
    backward_work work = {.c = head_chunk_alloc(self, arena, chunk_rows, true)};

    work.normed = bp_operand_alloc(arena, self->block.nn->gemm, rows, C);
    work.dlogits = bp_operand_over(arena, self->block.nn->gemm, work.c.logits,
                                   work.c.rows * head_softmaxes(self), head_columns(self, true));
    work.dnormed = bp_arena_floats(arena, rows * C);
    work.mean = bp_arena_floats(arena, own);
    work.rstd = bp_arena_floats(arena, own);
    work.sums = bp_arena_floats(arena, bp_layer_norm_scratch(own, C));
    if (self->shape.sparse) {
        work.scored = bp_operand_alloc(arena, self->block.nn->gemm, work.c.rows, C);
        work.dscored = bp_arena_floats(arena, work.c.rows * C);
    }
    if (self->sampled) {
        work.sampled = bp_arena_floats(arena, head_columns(self, true) * C);
        work.sampled_sums = bp_arena_floats(arena, head_columns(self, true));
    }
    if (self->block.nn->distills)
        work.soft = bp_distill_alloc(arena, work.c.rows, self->wte->extent[0]);
    return work;
}

static size_t head_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const lm_head *self = (const lm_head *)block;
    bp_pass pass = bp_pass_planned(block, most, training);
    int64_t rows = head_chunk_rows_most(self, most->B * most->T[block->stream], training);
    bp_arena count = {0};

    if (!training) {
        alloc_evaluation(self, &count, rows);
        return count.used_bytes;
    }
    alloc_backward(self, &count, &pass, rows);
    bp_arena_floats(&count, block->nn->distills ? 2 * rows : 0);
    bp_arena_floats(&count, bp_nn_sum_floats(block->nn, &pass, self->wte->shape[1]));
    return count.used_bytes;
}

static bp_product_bytes head_products(const bp_block *block, const bp_extent *most)
{
    const lm_head *self = (const lm_head *)block;
    bp_product_bytes bytes = {0};
    int64_t rows = head_chunk_rows_most(self, most->B * most->T[block->stream], false);

    if (self->sampled)
        sampled_softmax_products(
            self->sampled, &bytes,
            head_chunk_rows_most(self, most->B * most->T[block->stream], true));
    if (self->wte->extent[0] > 0)
        bp_product_bytes_add(&bytes, block->nn, rows * head_softmaxes(self), self->wte->extent[0],
                             self->wte->shape[1]);
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

/* The outcome that is the most probable, of all tensor ranks; of equal ones the first. */
static void take_predicted(const lm_head *self, bp_pass *pass, const head_chunk *c, int64_t rows)
{
    int64_t V = self->wte->extent[0], first = self->wte->offset[0];

    for (int64_t r = 0; r < rows; r++) {
        c->weight[r] = -INFINITY;
        for (int64_t v = V - 1; v >= 0; v--)
            if (c->logits[r * V + v] >= c->max[r])
                c->weight[r] = (float)-(first + v);
    }
    bp_all_max(c->weight, rows, self->block.nn->tensor);
    for (int64_t r = 0; r < rows; r++)
        pass->predicted[c->places[r]] = isfinite(c->weight[r]) ? (int32_t)-c->weight[r] : 0;
}

/* Rows without a target cost nothing: the others are put together before the logits. */
static void evaluate(const lm_head *self, bp_pass *pass, const float *hidden)
{
    int64_t rows = pass->B * pass->T, C = self->wte->shape[1], at = 0, n,
            targets = head_target_count(self, pass);
    evaluation_work work =
        alloc_evaluation(self, pass->scratch, head_chunk_rows(self, rows, false));
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
        for (int64_t r = 0; logprob && r < n; r++)
            logprob[c->places[r]] = (float)head_chunk_logprob(self, c, n, r);
    }
}

/* The head as its second item and term have it. */
static lm_head second_of(const lm_head *self)
{
    lm_head second = *self;

    second.shape.item = self->shape.second_item;
    second.shape.term = self->shape.second_term;
    return second;
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
        lm_head second = second_of(self);

        read_item(&second, pass, activations,
                  pass->training ? (char *)saved + item_bytes(self, pass) : NULL);
    }
}

/* dlogits of one chunk, from a target and a teacher's probabilities: of rows [first, first + rows)
 * of the pass. */
static void distill_chunk(const lm_head *self, bp_pass *pass, const backward_work *work,
                          const bp_operand *dlogits, const int32_t *targets, int64_t first)
{
    const head_chunk *c = &work->c;
    int64_t rows = dlogits->rows, V = self->wte->extent[0];
    int term = self->shape.term;
    size_t mark = pass->scratch->used_bytes;
    float hard = (float)(1 - pass->teacher->weight), loss_weight = pass->loss_weight[term];
    bp_operand floats = bp_operand_floats(c->logits, rows, V);
    bp_smoothing smoothing = head_smoothing(self, pass);

    pass->loss_sum[term] +=
        bp_distill(pass->teacher, pass, &work->soft,
                   &(bp_distilled){.logits = c->logits,
                                   .targets = targets,
                                   .first_place = first,
                                   .places = self->shape.sparse ? c->rows_of : NULL,
                                   .rows = rows,
                                   .V = V,
                                   .first = self->wte->offset[0]},
                   self->block.nn->tensor);
    pass->scratch->used_bytes = mark;
    if (V == 0)
        return;
    for (int64_t r = 0; r < rows; r++)
        c->weight[r] = targets[r] >= 0 ? hard * loss_weight : 0;
    bp_softmax_gradient(&floats, c->logits, c->max, c->sums, targets, c->weight,
                        self->wte->offset[0], smoothing.share > 0 ? &smoothing : NULL);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t v = 0; v < V && targets[r] >= 0; v++)
            c->logits[r * V + v] += loss_weight * work->soft.work[r * V + v];
    bp_operand_fill(dlogits, c->logits);
}

/* From the gradient of logits: dstates, which is dnormed where there is one softmax, and the
 * vocabulary's part. */
static void logits_backward(const lm_head *self, bp_pass *pass, backward_work *work,
                            const bp_operand *states, float *dstates, const int32_t *targets,
                            int64_t first_row, bool fresh)
{
    head_chunk *c = &work->c;
    const bp_nn *nn = self->block.nn;
    bp_smoothing smoothing = head_smoothing(self, pass);

    bp_operand dlogits = bp_operand_part(&work->dlogits, 0, states->rows);

    if (head_has_teacher(self, pass)) /* a plain head alone */
        distill_chunk(self, pass, work, &dlogits, targets, first_row);
    if (self->wte->extent[0] == 0) {
        bp_zero(dstates, states->rows * states->columns);
        return;
    }
    if (self->shape.dirichlet.classes > 0) {
        bp_logit_rows in = head_logit_rows(self, c, targets, states->rows);

        dirichlet_rows_gradient(c->logits, &self->shape.dirichlet, &in, c->max, c->sums, c->weight);
        bp_operand_fill(&dlogits, c->logits);
    } else if (self->shape.entmax)
        bp_entmax_gradient(&dlogits, c->logits, c->sparse.tau, targets, c->weight,
                           self->wte->offset[0]);
    else if (!head_has_teacher(self, pass))
        bp_softmax_gradient(&dlogits, c->logits, c->max, c->sums, targets, c->weight,
                            self->wte->offset[0], smoothing.share > 0 ? &smoothing : NULL);
    bp_linear_backward_input_operand(nn->gemm, dstates, &dlogits, self->vocabulary);
    if (self->wte->gradient)
        bp_linear_backward_weight_operand(nn->gemm, self->wte->gradient, &dlogits, states, fresh);
    if (self->shape.bias && self->shape.bias->gradient)
        bp_logit_column_sums(self->shape.bias->gradient, &dlogits);
}

/* The same of a row's target and the sampled outcomes. */
static void sampled_backward(const lm_head *self, backward_work *work, const bp_operand *normed,
                             float *dnormed, const int32_t *targets, bool fresh)
{
    const head_chunk *c = &work->c;
    bp_operand dlogits = bp_operand_part(&work->dlogits, 0, normed->rows);

    bp_softmax_gradient(&dlogits, c->logits, c->max, c->sums, c->own, c->weight, 0, NULL);
    sampled_softmax_backward(self->sampled,
                             &(sampled_gradients){dnormed, work->sampled, work->sampled_sums},
                             &dlogits, normed, targets, fresh);
}

/* dnormed of one chunk, and its part of the vocabulary's gradient, which the first chunk may write.
 */
static void chunk_backward(const lm_head *self, bp_pass *pass, backward_work *work,
                           const bp_operand *normed, float *dnormed, const int32_t *targets,
                           int64_t first_row, bool fresh)
{
    head_chunk *c = &work->c;
    int64_t rows = normed->rows, K = head_softmaxes(self);

    for (int64_t r = 0; r < rows; r++) {
        float weight = targets[r] >= 0 ? pass->loss_weight[self->shape.term] : 0;

        for (int64_t k = r * K; k < (r + 1) * K; k++)
            c->weight[k] = self->mixture ? weight * c->mixed.posterior[k] : weight;
    }
    if (self->sampled) {
        sampled_backward(self, work, normed, dnormed, targets, fresh);
        return;
    }
    if (!self->mixture) {
        logits_backward(self, pass, work, normed, dnormed, targets, first_row, fresh);
        return;
    }
    bp_operand states = head_states(self, c, rows);
    logits_backward(self, pass, work, &states, c->mixed.dstates, c->mixed.targets, first_row,
                    fresh);
    for (int64_t r = 0; r < rows; r++)
        c->weight[r] = targets[r] >= 0 ? pass->loss_weight[self->shape.term] : 0;
    softmax_mixture_backward(self->mixture, &c->mixed, dnormed, normed, c->weight);
}

/* Every row has its target. */
static void backward_all(const lm_head *self, bp_pass *pass, backward_work *work, bool fresh)
{
    int64_t rows = pass->B * pass->T;

    for (int64_t first = 0; first < rows; first += work->c.rows) {
        int64_t n = first + work->c.rows < rows ? work->c.rows : rows - first;
        bp_operand normed = bp_operand_part(&work->normed, first, n);
        const int32_t *targets = head_targets(self, pass) + first;

        head_chunk_forward(self, &work->c, &normed, targets, n, pass->step);
        head_chunk_loss(self, pass, &work->c, targets, n);
        chunk_backward(self, pass, work, &normed, work->dnormed + first * normed.columns, targets,
                       first, fresh && first == 0);
    }
}

static char *row_at(const bp_operand *all, int64_t row)
{
    return (char *)all->data + bp_operand_bytes(all->form, row, all->columns);
}

/* Some rows have targets: they are put together before the vocabulary's products, filled up with
 * rows of zeros that count for nothing. */
static void backward_scored(const lm_head *self, bp_pass *pass, backward_work *work, bool fresh)
{
    head_chunk *c = &work->c;
    int64_t C = self->wte->shape[1], at = 0, n;
    size_t row_bytes = bp_operand_bytes(work->scored.form, 1, C);

    bp_zero(work->dnormed, pass->B * pass->T * C);
    while ((n = head_chunk_find(self, pass, c, &at)) > 0) {
        int64_t filled = bp_head_filled_rows(n, c->rows);
        bp_operand scored = bp_operand_part(&work->scored, 0, filled);

        memset(scored.data, 0, (size_t)filled * row_bytes);
        for (int64_t r = 0; r < n; r++)
            memcpy(row_at(&scored, r), row_at(&work->normed, c->rows_of[r]), row_bytes);
        for (int64_t r = n; r < filled; r++)
            c->targets[r] = -1;
        head_chunk_forward(self, c, &scored, c->targets, filled, pass->step);
        head_chunk_loss(self, pass, c, c->targets, filled);
        chunk_backward(self, pass, work, &scored, work->dscored, c->targets, 0, fresh);
        for (int64_t r = 0; r < n; r++)
            memcpy(work->dnormed + c->rows_of[r] * C, work->dscored + r * C,
                   (size_t)C * sizeof(float));
        fresh = false;
    }
    if (fresh && self->wte->gradient) /* no product has written it */
        bp_zero(self->wte->gradient, bp_param_floats(self->wte));
}

/* The gradient of this rank's rows of the hidden state, from that behind the norm. */
static void norm_backward(const lm_head *self, float *dx, const backward_work *work,
                          const float *hidden, bp_row_range own)
{
    int64_t C = self->wte->shape[1];
    float *dnormed = work->dnormed + own.first * C;

    if (self->gain) {
        bp_norm norm = {self->gain->value, self->bias ? self->bias->value : NULL,
                        self->shape.epsilon, work->mean, work->rstd};
        bp_norm_gradients to = {dx, self->gain->gradient, self->bias ? self->bias->gradient : NULL,
                                !self->shape.passes_on};
        bp_layer_norm_backward(&to, NULL, dnormed, hidden, &norm, own.count, C, work->sums);
    } else if (self->shape.passes_on) {
        bp_add(dx, dnormed, own.count * C);
    } else {
        memcpy(dx, dnormed, (size_t)(own.count * C) * sizeof *dx);
    }
}

static void item_backward(const lm_head *self, bp_pass *pass, const bp_activations *activations,
                          const void *saved)
{
    const bp_nn *nn = self->block.nn;
    size_t mark = pass->scratch->used_bytes;
    int64_t rows = pass->B * pass->T, C = self->wte->shape[1];
    bp_row_range own = bp_nn_rows(nn, pass);
    backward_work work =
        alloc_backward(self, pass->scratch, pass, head_chunk_rows(self, rows, true));
    bp_operand own_normed = bp_nn_own(nn, pass, &work.normed);
    bool fresh = bp_params_take_fresh(self->wte, 1);

    head_check_targets(self, pass);
    lm_head_norm_rows(self, &own_normed, saved, work.mean, work.rstd);
    bp_nn_gather(nn, pass, &work.normed);
    if (self->shape.sparse)
        backward_scored(self, pass, &work, fresh);
    else
        backward_all(self, pass, &work, fresh);
    bp_nn_sum(nn, pass, work.dnormed, C);
    norm_backward(self, activations->item[self->shape.item].data, &work, saved, own);
    pass->scratch->used_bytes = mark;
}

static void head_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const lm_head *self = (const lm_head *)block;

    item_backward(self, pass, activations, saved);
    if (self->shape.twice) {
        lm_head second = second_of(self);

        item_backward(&second, pass, activations, (char *)saved + item_bytes(self, pass));
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
    .backward = head_backward,
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
    if (shape->entmax)
        lm_head_make_rows(self);
    BP_ASSERT(!shape->entmax || shape->softmaxes <= 1);
    if (shape->softmaxes > 1)
        self->mixture = softmax_mixture_new(nn, shape->softmaxes, wte->shape[1], shape->mixture);
    else if (!shape->entmax)
        self->sampled = sampled_softmax_new(nn, wte, shape->bias);
    *out = &self->block;
    if (!shape->norm)
        return;
    snprintf(name, sizeof name, "%s.gain", shape->norm);
    self->gain = bp_group_add_vector(whole, name, wte->shape[1], BP_INIT_ONE);
    snprintf(name, sizeof name, "%s.bias", shape->norm);
    self->bias = shape->rms ? NULL : bp_group_add_vector(whole, name, wte->shape[1], BP_INIT_ZERO);
}
