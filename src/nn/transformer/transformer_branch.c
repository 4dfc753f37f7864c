/* What the branches of a Transformer layer share: names, masks, shapes and scratch, and how a
 * branch joins the residual stream, forward and backward. transformer_layer.c and cross_attention.c
 * have the branches. */
#include "nn/transformer/transformer_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *layer_param_name(char *buffer, const layer *self, const char *part)
{
    snprintf(buffer, BP_PARAM_NAME, "%s.%lld.%s", self->shape.stack, (long long)self->shape.number,
             part);
    return buffer;
}

float layer_residual_std(const layer *self)
{
    return self->shape.post_norm ? INIT_STD : INIT_STD / sqrtf(2.0F * (float)self->shape.layers);
}

float layer_query_std(const layer *self)
{
    return self->shape.unscaled ? INIT_STD / sqrtf((float)self->D) : INIT_STD;
}

bp_pass layer_source_pass(const layer *self, const bp_pass *pass)
{
    bp_pass source = *pass;

    bp_pass_go_by(&source, self->shape.source_stream);
    return source;
}

static float dropout(const layer *self, const bp_pass *pass)
{
    return pass->dropout ? self->block.nn->dropout : 0;
}

bp_attention_shape layer_attention_shape(const layer *self, const bp_pass *pass, bool cross,
                                         const bp_rng_key *key)
{
    int keys_of = cross ? self->shape.source_stream : self->block.stream;
    bool sees_padding =
        !cross && (self->shape.crosses || (self->shape.window > 0 && !self->shape.sees_all));

    return (bp_attention_shape){
        .B = pass->B,
        .T = pass->T,
        .slot_T = pass->slot_T[pass->stream],
        .slot_K = pass->slot_T[cross ? keys_of : pass->stream],
        .K = cross ? pass->extent.T[keys_of] : 0,
        .lengths = sees_padding ? NULL : pass->batch.stream[keys_of].lengths,
        .H = self->Hl,
        .D = self->D,
        .key_heads = cross ? 0 : self->Gl,
        .group = cross ? 0 : self->shape.H / self->shape.G,
        .before = cross ? 0 : self->first_head % (self->shape.H / self->shape.G),
        .causal = !cross && !self->shape.sees_all,
        .window = cross ? 0 : self->shape.window,
        .entmax = self->shape.entmax,
        .scale = self->shape.unscaled ? 1 : self->shape.scale,
        .cap = self->shape.score_cap,
        .apart = self->shape.apart.table ? &self->distances : NULL,
        .dropout = dropout(self, pass),
        .key = key,
        .first_sequence = pass->first_slot,
        .first_head = self->first_head,
        .all_heads = self->shape.H,
    };
}

bp_cached_shape layer_cached_shape(const layer *self, int64_t slots, int64_t capacity)
{
    return (bp_cached_shape){.H = self->Hl,
                             .key_heads = self->Gl,
                             .group = self->shape.H / self->shape.G,
                             .before = self->first_head % (self->shape.H / self->shape.G),
                             .D = self->D,
                             .window = self->shape.window,
                             .entmax = self->shape.entmax,
                             .scale = self->shape.unscaled ? 1 : self->shape.scale,
                             .cap = self->shape.score_cap,
                             .slots = slots,
                             .capacity = capacity};
}

int64_t layer_cached_floats(const layer *self, int64_t slots, int64_t capacity)
{
    bp_cached_shape shape = layer_cached_shape(self, slots, capacity);

    return bp_cached_floats(&shape);
}

bp_rng_key layer_dropout_key(const layer *self, const bp_pass *pass, int which)
{
    return bp_dropout_key(self->block.nn, pass, self->shape.first_dropout_stream + which);
}

void *layer_alloc_attention(const layer *self, bp_arena *arena, const bp_pass *pass, bool cross)
{
    bp_attention_shape shape = layer_attention_shape(self, pass, cross, NULL);
    size_t bytes = bp_attention_scratch_bytes(bp_gemm_precision(self->block.nn->gemm), &shape);

    return bp_arena_floats(arena, (int64_t)(bytes / sizeof(float)));
}

norm_work layer_alloc_norm(const layer *self, bp_arena *arena, int64_t rows, int64_t columns)
{
    int64_t C = self->shape.C, norm = bp_layer_norm_scratch(rows, C),
            bias = bp_bias_scratch(rows, columns > C ? columns : C);

    return (norm_work){.normed = bp_operand_alloc(arena, self->block.nn->gemm, rows, C),
                       .dnormed = bp_arena_floats(arena, rows * C),
                       .sums = bp_arena_floats(arena, norm > bias ? norm : bias)};
}

closing_work layer_alloc_closing(const layer *self, bp_arena *arena, int64_t own)
{
    return (closing_work){.dy = bp_arena_floats(arena, own * self->shape.C),
                          .sums =
                              bp_arena_floats(arena, bp_layer_norm_scratch(own, self->shape.C))};
}

bp_operand layer_alloc_dbranch(const layer *self, bp_arena *arena, const bp_pass *pass,
                               const float *dout)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    bool over = dropout(self, pass) == 0 && bp_nn_rows(self->block.nn, pass).count == rows &&
                !self->bottleneck[MLP] && !self->closing_gain[MLP] && self->shape.branch_scale == 0;

    return over ? bp_operand_over(arena, gemm, dout, rows, self->shape.C)
                : bp_operand_alloc_apart(arena, gemm, rows, self->shape.C);
}

/* Rows [first, end) of texts of one length; 0: of any. */
static void rotate_rows(const layer *self, const bp_pass *pass, float *qkv, int64_t first,
                        int64_t end, int64_t length, bool back)
{
    const bp_rotary *face = self->shape.rotary;
    int64_t columns = layer_qkv_columns(self);
    bp_rotary by = *face->of_length(face, length);

    by.T = pass->T;
    by.positions = pass->continuation ? pass->continuation->rows.positions + first : NULL;
    bp_rotary_turn(qkv + first * columns, columns, end - first, self->Hl + self->Gl, self->D, &by,
                   back);
}

/* The length of row r's text. */
static int64_t length_of(const bp_pass *pass, int64_t r)
{
    const bp_continuation *rest = pass->continuation;
    const int32_t *lengths = pass->batch.stream[pass->stream].lengths;

    if (rest)
        return r < rest->rows.count ? rest->lengths[rest->rows.slots[r]] : 1;
    return lengths ? lengths[r / pass->T] : pass->T;
}

void layer_rotate(const layer *self, const bp_pass *pass, float *qkv, bool back)
{
    int64_t rows = pass->B * pass->T, step = pass->continuation ? 1 : pass->T, first = 0;

    if (!self->shape.rotary)
        return;
    if (self->shape.rotary->changes_after == 0) {
        rotate_rows(self, pass, qkv, 0, rows, 0, back);
        return;
    }
    for (int64_t end = step; first < rows; end += step)
        if (end >= rows || length_of(pass, end) != length_of(pass, first)) {
            rotate_rows(self, pass, qkv, first, end, length_of(pass, first), back);
            first = end;
        }
}

void layer_set_bias(const layer *self, bp_attention_shape *shape, float *bias)
{
    bp_relative by = layer_relative(self);

    shape->bias = bias;
    if (bias && self->shape.alibi)
        bp_alibi_fill(bias, shape);
    else if (bias)
        bp_relative_fill(bias, self->shape.relative->value, &by, shape);
}

static bp_rng_key sum_key(const layer *self, const bp_pass *pass, branch_kind branch)
{
    static const int MASKS[BRANCHES] = {
        [ATTENTION] = DROPOUT_ATTENTION_SUM, [CROSS] = DROPOUT_CROSS_SUM, [MLP] = DROPOUT_MLP_SUM};

    return layer_dropout_key(self, pass, MASKS[branch]);
}

const float *layer_bias_once(const layer *self, const bp_param *bias)
{
    return bias && self->block.nn->tensor_rank == 0 ? bias->value : NULL;
}

static bp_norm norm_of(const layer *self, branch_kind branch, const saved *kept)
{
    return (bp_norm){self->gain[branch] ? bp_param_gain(self->gain[branch]) : NULL,
                     layer_value_of(self->bias[branch]),
                     self->shape.epsilon,
                     kept->mean[branch],
                     kept->rstd[branch],
                     self->shape.no_norm_bias};
}

static bp_norm closing_norm(const layer *self, branch_kind branch, const saved *kept)
{
    return (bp_norm){bp_param_gain(self->closing_gain[branch]),
                     layer_value_of(self->closing_bias[branch]),
                     self->shape.epsilon,
                     kept->closed_mean[branch],
                     kept->closed_rstd[branch],
                     self->shape.no_norm_bias};
}

/* This rank's rows of a branch through its closing norm, in place. */
static void close_rows(const layer *self, const saved *kept, branch_kind branch, float *rows,
                       int64_t count)
{
    bp_norm norm = closing_norm(self, branch, kept);
    bp_operand to = bp_operand_floats(rows, count, self->shape.C);

    bp_layer_norm_forward(&to, kept->closed[branch], &norm, &(bp_residual){.base = rows});
}

/* A branch, summed over tensor ranks, after its bottleneck and its closing norm, with the dropout
 * mask of `key`, for the residual stream. */
static bp_residual residual_of(layer *self, bp_pass *pass, const saved *kept, branch_kind branch,
                               const float *base, float *sums, bp_rng_key *key)
{
    int64_t C = self->shape.C;
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);

    *key = sum_key(self, pass, branch);
    bp_nn_sum(nn, pass, sums, C);
    if (self->bottleneck[branch])
        bp_bottleneck_forward(self->bottleneck[branch], pass->scratch, sums + own.first * C,
                              own.count, &kept->bottled[branch]);
    if (self->closing_gain[branch])
        close_rows(self, kept, branch, sums + own.first * C, own.count);
    if (self->shape.branch_scale > 0)
        bp_scale(sums + own.first * C, self->shape.branch_scale, own.count * C);
    return (bp_residual){.base = base,
                         .branch = sums + own.first * C,
                         .dropout = dropout(self, pass),
                         .key = key,
                         .first = bp_nn_first_row(nn, pass) * C};
}

/* h = base + the branch in `work` */
static void add_branch(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                       branch_kind branch, const float *base, float *h)
{
    bp_rng_key key;
    bp_residual sum = residual_of(self, pass, kept, branch, base, work->branch, &key);

    bp_add_dropout(h, sum.base, sum.branch, bp_nn_rows(self->block.nn, pass).count * self->shape.C,
                   sum.dropout, &key, sum.first);
}

/* h = the norm of base + the branch in `work`, which that norm follows. */
static void close_branch(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                         branch_kind branch, float *h)
{
    bp_rng_key key;
    bp_norm norm = norm_of(self, branch, kept);
    bp_operand rows = bp_operand_floats(h, bp_nn_rows(self->block.nn, pass).count, self->shape.C);
    bp_residual sum = residual_of(self, pass, kept, branch, h, work->branch, &key);

    if (kept->before[branch]) {
        bp_layer_norm_forward(&rows, kept->before[branch], &norm, &sum);
    } else {
        bp_add_dropout(h, h, sum.branch, rows.rows * self->shape.C, sum.dropout, &key, sum.first);
        bp_layer_norm_forward(&rows, NULL, &norm, &(bp_residual){.base = h});
    }
}

void layer_end(layer *self, bp_pass *pass, const saved *kept, forward_work *work, const float *base,
               float *h)
{
    if (self->shape.post_norm)
        close_branch(self, pass, kept, work, MLP, h);
    else
        add_branch(self, pass, kept, work, MLP, base, h);
}

/* The rows of this rank as all ranks' products read them. */
static void spread(layer *self, bp_pass *pass, forward_work *work, const float *h)
{
    bp_operand own = bp_nn_own(self->block.nn, pass, &work->normed);

    bp_operand_fill(&own, h);
    bp_nn_gather(self->block.nn, pass, &work->normed);
}

void layer_enter(layer *self, bp_pass *pass, const saved *kept, forward_work *work, const float *x)
{
    branch_kind first = layer_attends(self) ? ATTENTION : MLP;
    bp_norm norm = norm_of(self, first, kept);
    bp_operand normed = bp_nn_own(self->block.nn, pass, &work->normed);

    if (layer_reads_stream(self, first)) {
        if (kept->entered)
            memcpy(kept->entered, x,
                   (size_t)(bp_nn_rows(self->block.nn, pass).count * self->shape.C) * sizeof *x);
        spread(self, pass, work, x);
        return;
    }
    bp_layer_norm_forward(&normed, kept->before[first], &norm, &(bp_residual){.base = x});
    if (first == MLP)
        bp_probe_mlp(pass, x, self->shape.C, &norm);
    bp_nn_gather(self->block.nn, pass, &work->normed);
}

void layer_join(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                branch_kind branch, const float *base, float *h, branch_kind next)
{
    bp_rng_key key;
    bp_norm norm = norm_of(self, next, kept);
    bp_operand normed = bp_nn_own(self->block.nn, pass, &work->normed);

    if (layer_reads_stream(self, next)) {
        if (self->shape.post_norm)
            close_branch(self, pass, kept, work, branch, h);
        else
            add_branch(self, pass, kept, work, branch, base, h);
        if (next == MLP)
            bp_probe_mlp(pass, h, self->shape.C, NULL);
        spread(self, pass, work, h);
        return;
    }
    if (self->shape.parallel) { /* before h, which may overlap base */
        if (next == MLP)
            bp_probe_mlp(pass, base, self->shape.C, &norm);
        bp_layer_norm_forward(&normed, NULL, &norm, &(bp_residual){.base = base});
        bp_nn_gather(self->block.nn, pass, &work->normed);
        add_branch(self, pass, kept, work, branch, base, h);
        return;
    }
    bp_residual sum = residual_of(self, pass, kept, branch, base, work->branch, &key);
    bp_layer_norm_forward(&normed, h, &norm, &sum);
    if (next == MLP)
        bp_probe_mlp(pass, h, self->shape.C, &norm);
    bp_nn_gather(self->block.nn, pass, &work->normed);
}

/* dx = the gradient before a closing norm, from that after it. */
static void open_closing(const layer *self, const bp_pass *pass, branch_kind branch,
                         const saved *kept, float *dx, int64_t rows)
{
    size_t mark = pass->scratch->used_bytes;
    int64_t C = self->shape.C;
    closing_work work = layer_alloc_closing(self, pass->scratch, rows);
    bp_norm norm = closing_norm(self, branch, kept);
    bp_norm_gradients to = {dx, layer_gradient_of(self->closing_gain[branch]),
                            layer_gradient_of(self->closing_bias[branch]), true};

    memcpy(work.dy, dx, (size_t)(rows * C) * sizeof *dx);
    bp_layer_norm_backward(&to, NULL, work.dy, kept->closed[branch], &norm, rows, C, work.sums);
    pass->scratch->used_bytes = mark;
}

void layer_open_residual(const layer *self, const bp_pass *pass, const saved *kept,
                         const bp_operand *dbranch, const bp_bias_gradient *bias, const float *dout,
                         branch_kind branch)
{
    const bp_nn *nn = self->block.nn;
    bp_rng_key key = sum_key(self, pass, branch);
    bp_operand own = bp_nn_own(nn, pass, dbranch);
    int64_t C = self->shape.C, first = bp_nn_first_row(nn, pass) * C;

    if (self->bottleneck[branch] || self->closing_gain[branch] || self->shape.branch_scale > 0) {
        size_t mark = pass->scratch->used_bytes;
        float *dx = bp_arena_floats(pass->scratch, own.rows * C);
        bp_operand to = bp_operand_floats(dx, own.rows, C);

        bp_dropout_backward_operand(&to, NULL, dout, dropout(self, pass), &key, first);
        if (self->shape.branch_scale > 0)
            bp_scale(dx, self->shape.branch_scale, own.rows * C);
        if (self->closing_gain[branch])
            open_closing(self, pass, branch, kept, dx, own.rows);
        if (self->bottleneck[branch])
            bp_bottleneck_backward(self->bottleneck[branch], pass->scratch, dx, own.rows,
                                   &kept->bottled[branch]);
        bp_operand_fill_sums(&own, bias, dx);
        pass->scratch->used_bytes = mark;
    } else {
        bp_dropout_backward_operand(&own, bias, dout, dropout(self, pass), &key, first);
    }
    bp_nn_gather(nn, pass, dbranch);
}

/* The input of a branch without a norm before it: the layer's input, the previous branch's result,
 * or the norm of that. */
static void fill_read(const layer *self, const bp_operand *to, branch_kind branch,
                      const saved *kept)
{
    branch_kind last = branch == MLP && self->shape.crosses ? CROSS : ATTENTION;
    bp_norm norm = norm_of(self, last, kept);

    if (branch == ATTENTION)
        bp_operand_fill(to, kept->entered);
    else if (self->shape.closing_only)
        bp_operand_fill(to, kept->before[branch]);
    else
        bp_layer_norm_forward(to, NULL, &norm, &(bp_residual){.base = kept->before[last]});
}

void layer_fill_normed(const layer *self, const bp_pass *pass, branch_kind branch,
                       const saved *kept, const bp_operand *to)
{
    const bp_nn *nn = self->block.nn;
    bp_operand own = bp_nn_own(nn, pass, to);
    bp_norm norm = norm_of(self, branch, kept);

    if (layer_reads_stream(self, branch))
        fill_read(self, &own, branch, kept);
    else
        bp_layer_norm_forward(&own, NULL, &norm, &(bp_residual){.base = kept->before[branch]});
    bp_nn_gather(nn, pass, to);
}

void layer_open_norm(const layer *self, const bp_pass *pass, branch_kind branch, const saved *kept,
                     const norm_work *work, float *dh, float *dy)
{
    int64_t rows = bp_nn_rows(self->block.nn, pass).count, C = self->shape.C;
    bp_norm norm = norm_of(self, branch, kept);
    bp_norm_gradients to = {dh, self->gain[branch]->gradient, layer_gradient_of(self->bias[branch]),
                            true};

    memcpy(dy, dh, (size_t)(rows * C) * sizeof *dy);
    bp_layer_norm_backward(&to, NULL, dy, kept->before[branch], &norm, rows, C, work->sums);
}

void layer_backward_norm(const layer *self, bp_pass *pass, branch_kind branch, const saved *kept,
                         const norm_work *work, float *dh)
{
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);
    int64_t C = self->shape.C;
    bp_operand normed = bp_nn_own(nn, pass, &work->normed);
    bp_norm norm = norm_of(self, branch, kept);
    bp_norm_gradients to = {dh, layer_gradient_of(self->gain[branch]),
                            layer_gradient_of(self->bias[branch]), false};

    bp_nn_sum(nn, pass, work->dnormed, C);
    if (layer_reads_stream(self, branch)) {
        bp_add(dh, work->dnormed + own.first * C, own.count * C);
        fill_read(self, &normed, branch, kept);
    } else {
        bp_layer_norm_backward(&to, &normed, work->dnormed + own.first * C, kept->before[branch],
                               &norm, own.count, C, work->sums);
    }
    bp_nn_gather(nn, pass, &work->normed);
}
