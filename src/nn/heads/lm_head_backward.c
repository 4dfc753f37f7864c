/* The head backward: logits, loss and dlogits by chunks of rows. In bf16 dlogits of more rows than
 * a chunk are kept, so that the input's gradient and the vocabulary's are products of many rows:
 * the vocabulary's gradient, which is larger than the caches, is written once and seldom added to.
 * Called by lm_head.c in training. */
#include "base/err.h"
#include "math/kernels/entmax.h"
#include "math/kernels/kernels.h"
#include "nn/heads/lm_head_priv.h"

#include <string.h>

#define KEPT_BYTES (100LL << 20) /* of dlogits in scratch */
#define PIECES     2             /* of dlogits, by where they are */
enum { LENT, OWN };

/* How the rows of a pass are divided. */
typedef struct row_cut {
    int64_t kept;  /* rows whose dlogits are kept at once, */
    int64_t lent;  /* this many of them in lent memory (bp_pass.lent) */
    int64_t chunk; /* the most rows of logits at once */
    bool in_table; /* they use the memory of the vocabulary's gradient, which is written later */
} row_cut;

/* Logits in the memory of the vocabulary's gradient, if all dlogits are kept before it is
 * written. */
static void take_table(const lm_head *self, row_cut *c, int64_t rows)
{
    int64_t floats = head_least_share(self) * self->wte->shape[1],
            stride = head_largest_stride(self, BP_OPERAND_F32);
    int64_t most = head_rows_of(floats * (int64_t)sizeof(float), stride * (int64_t)sizeof(float));

    if (c->lent == 0 || c->kept < rows || most * stride > floats || self->shape.twice ||
        self->shape.sparse) /* its targets may be more than rows */
        return;
    c->in_table = most >= c->chunk;
    if (c->in_table)
        c->chunk = most < rows ? most : rows;
}

/* The most that the memory plan allows for. */
static row_cut cut_most(const lm_head *self, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T, row_bytes = 2 * head_largest_stride(self, BP_OPERAND_BF16);
    row_cut c = {.chunk = head_chunk_rows_most(self, rows, true)};

    c.kept = c.chunk;
    if (!head_keeps_gradient(self))
        return c;
    c.lent = (int64_t)pass->lent.size_bytes / row_bytes / 32 * 32;
    c.lent = c.lent < rows ? c.lent : rows;
    c.kept = c.lent + head_rows_of(KEPT_BYTES, 2 * head_largest_share(self));
    c.kept = c.kept < rows ? c.kept : rows;
    take_table(self, &c, rows);
    return c;
}

typedef struct backward_work {
    row_cut cut;
    head_chunk c;
    bp_operand normed;          /* [B * T][C] */
    bp_operand dlogits[PIECES]; /* [kept rows][V here]; in float32 the logits' own memory */
    float *dnormed;             /* [B * T][C] */
    float *mean, *rstd;         /* of this rank's rows */
    float *sums;
    bp_operand scored; /* sparse: [kept rows][C] of normed, and of dnormed */
    float *dscored;
    float *slopes;                 /* [chunk rows][V here] of capped logits */
    bp_distill_work soft;          /* where the training has a teacher */
    float *sampled, *sampled_sums; /* where outcomes are sampled: [columns][C], [columns] */
} backward_work;

/* Rows in memory of their own, with the stride that suits products best. */
static bp_operand alloc_rows(const lm_head *self, bp_arena *arena, int64_t rows)
{
    int64_t stride = head_stride(self, true, BP_OPERAND_BF16);
    bp_operand to = bp_operand_alloc(arena, self->block.nn->gemm, rows, stride);

    to.columns = head_columns(self, true);
    return to;
}

static void alloc_gradient(const lm_head *self, bp_arena *arena, bp_arena lent, backward_work *work)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t V = head_columns(self, true), own = work->cut.kept - work->cut.lent;

    if (head_keeps_gradient(self)) {
        work->dlogits[LENT] = alloc_rows(self, &lent, work->cut.lent);
        work->dlogits[OWN] = alloc_rows(self, arena, own > 0 ? own : 0);
    } else {
        work->dlogits[OWN] =
            bp_operand_over(arena, gemm, work->c.logits, own * head_softmaxes(self), V);
    }
    if (work->cut.in_table)
        work->c.logits = self->wte->gradient;
}

static backward_work alloc_backward(const lm_head *self, bp_arena *arena, const bp_pass *pass,
                                    const row_cut *cut)
{
    int64_t C = self->wte->shape[1], rows = pass->B * pass->T;
    int64_t own = bp_nn_rows(self->block.nn, pass).count;
    const bp_gemm *gemm = self->block.nn->gemm;
    backward_work work = {
        .cut = *cut,
        .c = head_chunk_alloc(self, arena,
                              &(head_chunk_size){cut->chunk, cut->kept, true, cut->in_table})};

    alloc_gradient(self, arena, pass->lent, &work);
    work.normed = bp_operand_alloc(arena, gemm, rows, C);
    work.dnormed = bp_arena_floats(arena, rows * C);
    work.mean = bp_arena_floats(arena, own);
    work.rstd = bp_arena_floats(arena, own);
    work.sums = bp_arena_floats(arena, bp_layer_norm_scratch(own, C));
    if (self->shape.sparse) {
        work.scored = bp_operand_alloc(arena, gemm, cut->kept, C);
        work.dscored = bp_arena_floats(arena, cut->kept * C);
    }
    if (self->sampled) {
        work.sampled = bp_arena_floats(arena, head_columns(self, true) * C);
        work.sampled_sums = bp_arena_floats(arena, head_columns(self, true));
    }
    if (self->shape.cap > 0)
        work.slopes = bp_arena_floats(arena, cut->chunk * self->wte->extent[0]);
    if (self->block.nn->distills)
        work.soft = bp_distill_alloc(arena, cut->chunk, self->wte->extent[0]);
    return work;
}

size_t lm_head_backward_bytes(const lm_head *self, const bp_pass *pass)
{
    const bp_nn *nn = self->block.nn;
    row_cut c = cut_most(self, pass);
    bp_arena count = {0};

    alloc_backward(self, &count, pass, &c);
    bp_arena_floats(&count, nn->distills ? 2 * c.chunk : 0);
    bp_arena_floats(&count, bp_nn_sum_floats(nn, pass, self->wte->shape[1]));
    return count.used_bytes;
}

int64_t lm_head_backward_rows(const lm_head *self, const bp_pass *pass)
{
    return cut_most(self, pass).kept;
}

/* ---- one chunk ---- */

typedef struct chunk_rows {
    bp_operand normed, dlogits;
    const int32_t *targets;
    int64_t first; /* of the rows of the pass, or of the gathered ones */
} chunk_rows;

/* The weight of a target's loss in the gradient of the logits' product. */
static float target_weight(const lm_head *self, const bp_pass *pass)
{
    return pass->loss_weight[self->shape.term] * (self->shape.scale > 0 ? self->shape.scale : 1);
}

/* From a target and a teacher's probabilities. */
static void distill_chunk(const lm_head *self, bp_pass *pass, const backward_work *work,
                          const chunk_rows *rows)
{
    const head_chunk *c = &work->c;
    int64_t n = rows->dlogits.rows, V = self->wte->extent[0];
    int term = self->shape.term;
    size_t mark = pass->scratch->used_bytes;
    float hard = (float)(1 - pass->teacher->weight), loss_weight = target_weight(self, pass);
    bp_operand floats = bp_operand_floats(c->logits, n, V);
    bp_logit_rows in = head_logit_rows(self, c, rows->targets, n);
    bp_smoothing smoothing = head_smoothing(self, pass);

    pass->loss_sum[term] += bp_distill(
        pass->teacher, pass, &work->soft,
        &(bp_distilled){.logits = c->logits,
                        .targets = rows->targets,
                        .first_place = rows->first,
                        .positions = self->shape.sparse ? c->rows_of + rows->first : NULL,
                        .rows = n,
                        .V = V,
                        .first = self->wte->offset[0]},
        self->block.nn->tensor);
    pass->scratch->used_bytes = mark;
    if (V == 0)
        return;
    for (int64_t r = 0; r < n; r++)
        c->weight[r] = rows->targets[r] >= 0 ? hard * loss_weight : 0;
    bp_softmax_gradient(&floats, &in, c->max, c->sums, c->weight,
                        smoothing.share > 0 ? &smoothing : NULL);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < n; r++)
        for (int64_t v = 0; v < V && rows->targets[r] >= 0; v++)
            c->logits[r * V + v] += loss_weight * work->soft.work[r * V + v];
    bp_operand_fill(&rows->dlogits, c->logits);
}

static void weigh(const lm_head *self, const bp_pass *pass, const head_chunk *c,
                  const chunk_rows *rows)
{
    int64_t K = head_softmaxes(self);

    for (int64_t r = 0; r < rows->normed.rows; r++) {
        float weight = rows->targets[r] >= 0 ? target_weight(self, pass) : 0;

        for (int64_t k = r * K; k < (r + 1) * K; k++)
            c->weight[k] = self->mixture ? weight * c->mixed.posterior[k] : weight;
    }
}

/* dlogits, from the logits and their statistics. */
static void plain_gradient(const lm_head *self, bp_pass *pass, backward_work *work,
                           const chunk_rows *rows)
{
    head_chunk *c = &work->c;
    bp_smoothing smoothing = head_smoothing(self, pass);
    bp_logit_rows in = head_logit_rows(self, c, self->mixture ? c->mixed.targets : rows->targets,
                                       rows->dlogits.rows);

    if (head_has_teacher(self, pass)) { /* only a plain head */
        distill_chunk(self, pass, work, rows);
    } else if (self->wte->extent[0] == 0) {
        return;
    } else if (self->shape.dirichlet.classes > 0) {
        dirichlet_rows_gradient(c->logits, &self->shape.dirichlet, &in, c->max, c->sums, c->weight);
        bp_operand_fill(&rows->dlogits, c->logits);
    } else if (self->shape.entmax) {
        bp_entmax_gradient(&rows->dlogits, c->logits, c->sparse.tau, in.targets, c->weight,
                           in.first);
    } else {
        bp_softmax_gradient(&rows->dlogits, &in, c->max, c->sums, c->weight,
                            smoothing.share > 0 ? &smoothing : NULL);
    }
}

/* The same; for capped logits through floats in their place, multiplied by the cap's slopes. */
static void chunk_gradient(const lm_head *self, bp_pass *pass, backward_work *work,
                           const chunk_rows *rows)
{
    float *logits = work->c.logits;
    int64_t n = rows->dlogits.rows, V = self->wte->extent[0];
    chunk_rows floats = *rows;

    if (self->shape.cap == 0) {
        plain_gradient(self, pass, work, rows);
        return;
    }
    bp_cap_slopes(work->slopes, logits, self->shape.cap, n * V);
    floats.dlogits = bp_operand_floats(logits, n, V);
    plain_gradient(self, pass, work, &floats);
    if (V > 0) {
        bp_multiply(logits, work->slopes, n * V);
        bp_operand_fill(&rows->dlogits, logits);
    }
}

/* No sum over tensor ranks is needed between a row's statistics and its gradient. */
static bool is_at_once(const lm_head *self, const bp_pass *pass)
{
    return head_is_plain(self) && !self->sampled && self->shape.dirichlet.classes == 0 &&
           !head_has_teacher(self, pass) && self->shape.cap == 0 &&
           self->block.nn->tensor_ranks == 1;
}

/* Logits, loss and dlogits. */
static void chunk_forward(const lm_head *self, bp_pass *pass, backward_work *work,
                          const chunk_rows *rows)
{
    head_chunk *c = &work->c;
    int64_t n = rows->normed.rows;
    bp_smoothing smoothing = head_smoothing(self, pass);

    if (is_at_once(self, pass)) {
        bp_logit_rows in = head_logit_rows(self, c, rows->targets, n);

        head_chunk_logits(self, c, &rows->normed);
        weigh(self, pass, c, rows);
        head_chunk_sums(self, pass, c, n); /* before dlogits overwrite the logits */
        bp_softmax_statistics_gradient(&rows->dlogits, c->max, c->sums, c->sums + n, &in, c->weight,
                                       smoothing.share > 0 ? &smoothing : NULL);
        head_chunk_loss(self, pass, c, rows->targets, n);
        return;
    }
    head_chunk_forward(self, c, &rows->normed, rows->targets, n, pass->step);
    head_chunk_sums(self, pass, c, n);
    head_chunk_loss(self, pass, c, rows->targets, n);
    weigh(self, pass, c, rows);
    if (!self->sampled)
        chunk_gradient(self, pass, work, rows);
}

/* ---- rows whose dlogits are kept together ---- */

/* The products for all of them: rows `states` and their gradient. */
static void multiply(const lm_head *self, const backward_work *work, const bp_operand *states,
                     float *dstates, bool fresh)
{
    const bp_nn *nn = self->block.nn;
    bp_operand dlogits[PIECES];
    int64_t at = 0;

    if (self->wte->extent[0] == 0) {
        bp_zero(dstates, states->rows * states->columns);
        return;
    }
    for (int p = 0; p < PIECES; p++) {
        int64_t rest = states->rows - at, most = work->dlogits[p].rows;

        dlogits[p] = bp_operand_part(&work->dlogits[p], 0, rest < most ? rest : most);
        if (dlogits[p].rows > 0)
            bp_linear_backward_input_operand(nn->gemm, dstates + at * states->columns, &dlogits[p],
                                             self->vocabulary);
        if (dlogits[p].rows > 0 && self->shape.bias && self->shape.bias->gradient)
            bp_logit_column_sums(self->shape.bias->gradient, &dlogits[p]);
        at += dlogits[p].rows;
    }
    if (self->wte->gradient)
        bp_linear_backward_weight_pieces(nn->gemm, self->wte->gradient, dlogits, states, fresh);
}

static void multiply_sampled(const lm_head *self, const backward_work *work, const chunk_rows *rows,
                             float *dnormed, bool fresh)
{
    const head_chunk *c = &work->c;
    int64_t columns = head_columns(self, true);
    bp_logit_rows in = {c->logits, c->own, rows->normed.rows, columns, 0, columns};

    bp_softmax_gradient(&rows->dlogits, &in, c->max, c->sums, c->weight, NULL);
    sampled_softmax_backward(self->sampled,
                             &(sampled_gradients){dnormed, work->sampled, work->sampled_sums},
                             &rows->dlogits, &rows->normed, rows->targets, fresh);
}

/* For a mixture, or for sampled outcomes, one chunk is kept. */
static void multiply_kept(const lm_head *self, const bp_pass *pass, backward_work *work,
                          const chunk_rows *rows, float *dnormed, bool fresh)
{
    head_chunk *c = &work->c;
    int64_t n = rows->normed.rows;

    if (self->sampled) {
        bp_operand dlogits = bp_operand_part(&work->dlogits[OWN], 0, n);

        multiply_sampled(self, work, &(chunk_rows){rows->normed, dlogits, rows->targets, 0},
                         dnormed, fresh);
        return;
    }
    if (!self->mixture) {
        multiply(self, work, &rows->normed, dnormed, fresh);
        return;
    }
    bp_operand states = head_states(self, c, n);
    multiply(self, work, &states, c->mixed.dstates, fresh);
    for (int64_t r = 0; r < n; r++)
        c->weight[r] = rows->targets[r] >= 0 ? pass->loss_weight[self->shape.term] : 0;
    softmax_mixture_backward(self->mixture, &c->mixed, dnormed, &rows->normed, c->weight);
}

/* For rows of the pass, or gathered ones: dnormed, and their part of the vocabulary's gradient,
 * which they may overwrite. */
static void backward_kept(const lm_head *self, bp_pass *pass, backward_work *work,
                          const chunk_rows *rows, float *dnormed, bool fresh)
{
    int64_t at = 0, K = head_softmaxes(self);

    for (int p = 0; p < PIECES; p++) {
        int64_t rest = rows->normed.rows - at, most = work->dlogits[p].rows / K,
                piece = rest < most ? rest : most, chunk = head_equal_rows(piece, work->cut.chunk);

        for (int64_t from = 0; from < piece; from += chunk) {
            int64_t n = from + chunk < piece ? chunk : piece - from;

            chunk_forward(self, pass, work,
                          &(chunk_rows){bp_operand_part(&rows->normed, at + from, n),
                                        bp_operand_part(&work->dlogits[p], from * K, n * K),
                                        rows->targets + at + from, rows->first + at + from});
        }
        at += piece;
    }
    multiply_kept(self, pass, work, rows, dnormed, fresh);
}

/* Every row has its target. */
static void backward_all(const lm_head *self, bp_pass *pass, backward_work *work, bool fresh)
{
    int64_t rows = pass->B * pass->T;

    for (int64_t first = 0; first < rows; first += work->cut.kept) {
        int64_t n = first + work->cut.kept < rows ? work->cut.kept : rows - first;
        bp_operand normed = bp_operand_part(&work->normed, first, n);

        backward_kept(self, pass, work,
                      &(chunk_rows){.normed = normed,
                                    .targets = head_targets(self, pass) + first,
                                    .first = first},
                      work->dnormed + first * normed.columns, fresh && first == 0);
    }
}

static char *row_at(const bp_operand *all, int64_t row)
{
    return (char *)all->data + bp_operand_bytes(all->form, row, all->columns);
}

/* Gathers the rows of the `n` targets found, padded with rows of zeros. */
static bp_operand put_together(const backward_work *work, int64_t n)
{
    const head_chunk *c = &work->c;
    bp_operand scored =
        bp_operand_part(&work->scored, 0, bp_head_filled_rows(n, work->scored.rows));
    size_t row_bytes = bp_operand_bytes(scored.form, 1, scored.columns);

    memset(scored.data, 0, (size_t)scored.rows * row_bytes);
    for (int64_t r = 0; r < n; r++)
        memcpy(row_at(&scored, r), row_at(&work->normed, c->rows_of[r]), row_bytes);
    for (int64_t r = n; r < scored.rows; r++)
        c->targets[r] = -1;
    return scored;
}

/* If only some rows have targets, they are gathered before the vocabulary's products. */
static void backward_scored(const lm_head *self, bp_pass *pass, backward_work *work, bool fresh)
{
    head_chunk *c = &work->c;
    int64_t C = self->wte->shape[1], at = 0, n;

    bp_zero(work->dnormed, pass->B * pass->T * C);
    while ((n = head_chunk_find(self, pass, c, &at)) > 0) {
        bp_operand scored = put_together(work, n);

        backward_kept(self, pass, work, &(chunk_rows){.normed = scored, .targets = c->targets},
                      work->dscored, fresh);
        for (int64_t r = 0; r < n; r++)
            memcpy(work->dnormed + c->rows_of[r] * C, work->dscored + r * C,
                   (size_t)C * sizeof(float));
        fresh = false;
    }
    if (fresh && self->wte->gradient) /* no product has written it */
        bp_zero(self->wte->gradient, bp_param_floats(self->wte));
}

/* The gradient of this rank's rows of the hidden state, from the gradient after the norm. */
static void norm_backward(const lm_head *self, float *dx, const backward_work *work,
                          const float *hidden, bp_row_range own)
{
    int64_t C = self->wte->shape[1];
    float *dnormed = work->dnormed + own.first * C;

    if (self->gain) {
        bp_norm norm = {bp_param_gain(self->gain), self->bias ? self->bias->value : NULL,
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
    row_cut cut = cut_most(self, pass);

    cut.kept = head_equal_rows(rows, cut.kept);
    backward_work work = alloc_backward(self, pass->scratch, pass, &cut);
    bp_operand own_normed = bp_nn_own(nn, pass, &work.normed);
    bool fresh = bp_params_take_fresh(self->wte, 1);

    BP_ASSERT(fresh || !cut.in_table);
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

void lm_head_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const lm_head *self = (const lm_head *)block;

    item_backward(self, pass, activations, saved);
    if (self->shape.twice) {
        lm_head second = head_second(self);

        item_backward(&second, pass, activations, (char *)saved + head_item_bytes(self, pass));
    }
}
