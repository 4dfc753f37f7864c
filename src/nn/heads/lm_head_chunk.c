/* One chunk of the head's rows: its memory, its logits and their sums, its loss. Called by
 * lm_head.c and lm_head_backward.c. */
#include "nn/heads/lm_head_priv.h"

#include "math/kernels/kernels.h"
#include "mesh/collective.h"

#include <math.h>

#define CHUNK_BYTES    (100LL << 20) /* of logits held at once, */
#define BESIDE_BYTES   (52LL << 20)  /* and if their gradients are kept for longer */
#define CHUNK_ROWS_MIN 64
#define CHUNK_ROWS_MAX 1024

int64_t head_softmaxes(const lm_head *self)
{
    return self->mixture ? self->shape.softmaxes : 1;
}

int64_t head_columns(const lm_head *self, bool training)
{
    return training && self->sampled ? sampled_softmax_columns(self->sampled)
                                     : self->wte->extent[0];
}

bool head_keeps_gradient(const lm_head *self)
{
    bp_arena count = {0};

    return !self->mixture && !self->sampled &&
           bp_operand_alloc(&count, self->block.nn->gemm, 0, 0).form == BP_OPERAND_BF16;
}

int64_t head_largest_share(const lm_head *self)
{
    int64_t tensors = self->block.nn->tensor_ranks;

    return (self->wte->shape[0] + tensors - 1) / tensors;
}

int64_t head_least_share(const lm_head *self)
{
    int64_t rest =
        self->wte->shape[0] - (self->block.nn->tensor_ranks - 1) * head_largest_share(self);

    return rest > 0 ? rest : 0;
}

/* For rows of this many columns. */
static int64_t stride_of(const lm_head *self, bool training, bp_operand_form form, int64_t columns)
{
    bool is_simple = head_is_plain(self) && !(training && self->sampled) &&
                     self->shape.dirichlet.classes == 0 && !self->block.nn->distills &&
                     self->shape.cap == 0;

    return is_simple ? bp_linear_row_stride(self->block.nn->gemm, form, columns) : columns;
}

int64_t head_stride(const lm_head *self, bool training, bp_operand_form form)
{
    return stride_of(self, training, form, head_columns(self, training));
}

int64_t head_largest_stride(const lm_head *self, bp_operand_form form)
{
    return stride_of(self, true, form, head_largest_share(self));
}

int64_t head_rows_of(int64_t bytes, int64_t row_bytes)
{
    int64_t n = bytes / row_bytes / 16 * 16;

    return n < CHUNK_ROWS_MIN ? CHUNK_ROWS_MIN : n > CHUNK_ROWS_MAX ? CHUNK_ROWS_MAX : n;
}

int64_t head_chunk_rows_most(const lm_head *self, int64_t rows, bool training)
{
    int64_t V = training && self->sampled ? head_columns(self, true) : head_largest_share(self);
    int64_t bytes = training && head_keeps_gradient(self) ? BESIDE_BYTES : CHUNK_BYTES;
    int64_t n = head_rows_of(bytes, V * head_softmaxes(self) * (int64_t)sizeof(float));

    return n < rows ? n : rows;
}

int64_t head_equal_rows(int64_t rows, int64_t most)
{
    int64_t chunks = most > 0 ? (rows + most - 1) / most : 1;

    return chunks > 1 ? ((rows + chunks - 1) / chunks + 15) / 16 * 16 : most;
}

head_chunk head_chunk_alloc(const lm_head *self, bp_arena *arena, const head_chunk_size *size)
{
    int64_t rows = size->rows, all = rows * head_softmaxes(self);
    head_chunk c = {.rows = rows, .stride = head_stride(self, size->training, BP_OPERAND_F32)};

    if (!size->elsewhere)
        c.logits = bp_arena_floats(arena, all * c.stride);
    c.max = bp_arena_floats(arena, 2 * all);
    c.sums = (double *)(void *)bp_arena_floats(arena, 2 * 2 * all);
    if (self->block.nn->label_smoothing > 0)
        c.all = (double *)(void *)bp_arena_floats(arena, 2 * rows);
    c.weight = bp_arena_floats(arena, all);
    if (self->shape.entmax)
        c.sparse = entmax_rows_alloc(arena, rows);
    if (self->shape.dirichlet.classes > 0)
        c.prior = (double *)(void *)bp_arena_floats(arena, 2 * rows);
    if (self->mixture)
        c.mixed = softmax_mixture_alloc(self->mixture, arena, rows, size->training);
    if (size->training && self->sampled)
        c.own = (int32_t *)(void *)bp_arena_floats(arena, rows);
    c.found = size->found;
    c.targets = (int32_t *)(void *)bp_arena_floats(arena, c.found);
    c.positions = (int32_t *)(void *)bp_arena_floats(arena, c.found);
    c.rows_of = (int32_t *)(void *)bp_arena_floats(arena, c.found);
    return c;
}

bp_operand head_states(const lm_head *self, const head_chunk *c, int64_t rows)
{
    return bp_operand_part(&c->mixed.operand, 0, rows * head_softmaxes(self));
}

bp_logit_rows head_logit_rows(const lm_head *self, const head_chunk *c, const int32_t *targets,
                              int64_t rows)
{
    return (bp_logit_rows){.logits = c->logits,
                           .targets = targets,
                           .rows = rows,
                           .V = self->wte->extent[0],
                           .first = self->wte->offset[0],
                           .stride = c->stride};
}

void head_chunk_logits(const lm_head *self, const head_chunk *c, const bp_operand *states)
{
    bp_operand to = {BP_OPERAND_F32, states->rows, self->wte->extent[0], c->stride, c->logits};

    if (to.columns > 0)
        bp_linear_forward_into(self->block.nn->gemm, &to, states, self->vocabulary,
                               bp_lm_head_bias(&self->block));
    if (self->shape.scale > 0)
        bp_scale(c->logits, self->shape.scale, to.rows * to.columns);
    if (self->shape.cap > 0)
        bp_cap_all(c->logits, self->shape.cap, to.rows * to.columns);
}

void head_chunk_forward(const lm_head *self, head_chunk *c, const bp_operand *normed,
                        const int32_t *targets, int64_t rows, int64_t step)
{
    const bp_nn *nn = self->block.nn;
    bp_operand states = *normed;
    bp_logit_rows in = head_logit_rows(self, c, targets, rows * head_softmaxes(self));

    if (self->mixture) {
        softmax_mixture_forward(self->mixture, &c->mixed, normed, targets, rows);
        states = head_states(self, c, normed->rows);
        in.targets = c->mixed.targets;
    }
    if (c->own) {
        sampled_softmax_forward(self->sampled, c->logits, c->own, normed, targets, step);
        in.targets = c->own;
        in.V = head_columns(self, true);
        in.first = 0;
    } else
        head_chunk_logits(self, c, &states);
    if (self->shape.entmax)
        entmax_rows_forward(&c->sparse, &in, nn->tensor);
    else
        bp_logit_statistics(c->max, c->sums, &in, nn->tensor);
    if (self->mixture)
        softmax_mixture_combine(self->mixture, &c->mixed, c->max, c->sums, rows);
}

double head_chunk_logprob(const lm_head *self, const head_chunk *c, int64_t rows, int64_t r)
{
    if (self->shape.entmax)
        return c->sparse.logprob[r];
    return self->mixture ? c->mixed.logprob[r] : bp_logit_logprob(c->max, c->sums, rows, r);
}

const int32_t *head_targets(const lm_head *self, const bp_pass *pass)
{
    return pass->batch.term[self->shape.term].targets;
}

int64_t head_target_count(const lm_head *self, const bp_pass *pass)
{
    return pass->B * pass->batch.term[self->shape.term].count;
}

void head_check_targets(const lm_head *self, const bp_pass *pass)
{
    bp_ids_within("target", head_targets(self, pass), head_target_count(self, pass), -1,
                  self->wte->shape[0] + (self->shape.dirichlet.precision > 0)); /* or outside */
}

bool head_is_plain(const lm_head *self)
{
    return !self->mixture && !self->shape.entmax;
}

bp_smoothing head_smoothing(const lm_head *self, const bp_pass *pass)
{
    return (bp_smoothing){pass->training && head_is_plain(self) ? self->block.nn->label_smoothing
                                                                : 0,
                          self->wte->shape[0]};
}

/* For a prior network's training. */
static void prior_loss(const lm_head *self, bp_pass *pass, const head_chunk *c,
                       const int32_t *targets, int64_t rows)
{
    int term = self->shape.term;
    bp_logit_rows in = head_logit_rows(self, c, targets, rows);

    dirichlet_rows_forward(c->prior, &self->shape.dirichlet, &in, c->max, c->sums,
                           self->block.nn->tensor);
    for (int64_t r = 0; r < rows; r++)
        if (targets[r] >= 0) {
            pass->loss_sum[term] += c->prior[r];
            pass->loss_count[term]++;
        }
}

bool head_has_teacher(const lm_head *self, const bp_pass *pass)
{
    return pass->teacher && self->block.nn->distills;
}

void head_chunk_sums(const lm_head *self, const bp_pass *pass, const head_chunk *c, int64_t rows)
{
    bp_logit_rows in = head_logit_rows(self, c, NULL, rows);

    if (head_smoothing(self, pass).share <= 0)
        return;
    bp_logit_sums(c->all, &in);
    bp_all_sum_double(c->all, rows, self->block.nn->tensor);
}

void head_chunk_loss(const lm_head *self, bp_pass *pass, const head_chunk *c,
                     const int32_t *targets, int64_t rows)
{
    int term = self->shape.term;
    double hard = head_has_teacher(self, pass) ? 1 - pass->teacher->weight : 1;
    bp_smoothing smoothing = head_smoothing(self, pass);
    double share = (double)smoothing.share;

    if (pass->training && self->shape.dirichlet.classes > 0) {
        prior_loss(self, pass, c, targets, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        if (targets[r] >= 0) {
            double logprob = head_chunk_logprob(self, c, rows, r);

            if (share > 0)
                logprob = (1 - share) * logprob + share * (c->all[r] / (double)smoothing.V -
                                                           (double)c->max[r] - log(c->sums[r]));
            pass->loss_sum[term] += self->shape.entmax ? c->sparse.loss[r] : -hard * logprob;
            pass->loss_count[term]++;
            pass->right += term == 0 && !pass->training && head_is_plain(self) &&
                           (float)c->sums[rows + r] >= c->max[r];
        }
}

int64_t head_chunk_find(const lm_head *self, const bp_pass *pass, head_chunk *c, int64_t *at)
{
    const int32_t *targets = head_targets(self, pass);
    int64_t count = 0, all = head_target_count(self, pass),
            a_place = pass->batch.term[self->shape.term].count / pass->T;

    for (; *at < all && count < c->found; (*at)++)
        if (targets[*at] >= 0) {
            c->targets[count] = targets[*at];
            c->rows_of[count] = (int32_t)(a_place > 0 ? *at / a_place : *at * pass->T);
            c->positions[count++] = (int32_t)*at;
        }
    return count;
}

size_t head_item_bytes(const lm_head *self, const bp_pass *pass)
{
    return bp_arena_bytes(bp_nn_rows(self->block.nn, pass).count * self->wte->shape[1],
                          sizeof(float));
}

lm_head head_second(const lm_head *self)
{
    lm_head second = *self;

    second.shape.item = self->shape.second_item;
    second.shape.term = self->shape.second_term;
    return second;
}
