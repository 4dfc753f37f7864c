/* A Transformer layer, split over tensor ranks as Megatron-LM does it, with sequence
 * parallelism between its products. */
#include "base/err.h"
#include "nn/transformer_priv.h"

#include <string.h>

#define EPSILON 1e-5F /* of the layer norms, as GPT-2's */

bp_pass layer_source_pass(const layer *self, const bp_pass *pass)
{
    bp_pass source = *pass;

    bp_pass_go_by(&source, self->shape.source_stream);
    return source;
}

bp_attention_shape layer_attention_shape(const layer *self, const bp_pass *pass, bool cross,
                                         const bp_rng_key *key)
{
    int keys_of = cross ? self->shape.source_stream : self->block.stream;

    return (bp_attention_shape){
        .B = pass->B,
        .T = pass->T,
        .slot_T = pass->slot_T[pass->stream],
        .slot_K = pass->slot_T[cross ? keys_of : pass->stream],
        .K = cross ? pass->extent.T[keys_of] : 0,
        .lengths = pass->batch.stream[keys_of].lengths,
        .H = self->Hl,
        .D = self->D,
        .key_heads = cross ? 0 : self->Gl,
        .group = cross ? 0 : self->shape.H / self->shape.G,
        .before = cross ? 0 : self->first_head % (self->shape.H / self->shape.G),
        .causal = !cross && !self->shape.sees_all,
        .window = cross ? 0 : self->shape.window,
        .entmax = self->shape.entmax,
        .scale = self->shape.unscaled ? 1 : 0,
        .dropout = layer_dropout(self, pass),
        .key = key,
        .first_sequence = pass->first_slot,
        .first_head = self->first_head,
        .all_heads = self->shape.H,
    };
}

bp_rng_key layer_mask_key(const layer *self, const bp_pass *pass, int which)
{
    return bp_mask_key(self->block.nn, pass, self->shape.first_mask + which);
}

float layer_dropout(const layer *self, const bp_pass *pass)
{
    return pass->dropout ? self->block.nn->dropout : 0;
}

static bp_err layer_bind(bp_block *block)
{
    layer *self = (layer *)block;
    int64_t C = self->shape.C;
    float *qkv = self->repeats ? keys_join(self) : self->q_weight->value;
    bp_err err = layer_bind_product(self, PRODUCT_QKV, &self->qkv, qkv, layer_qkv_columns(self), C);

    if (err == BP_OK)
        err =
            layer_bind_product(self, PRODUCT_OUT, &self->out, self->out_weight->value, C, self->Cl);
    if (err == BP_OK)
        err = layer_bind_product(self, PRODUCT_UP, &self->up, self->up_weight->value,
                                 layer_up_columns(self), C);
    if (err == BP_OK)
        err = layer_bind_product(self, PRODUCT_DOWN, &self->down, self->down_weight->value, C,
                                 self->Fl);
    if (err == BP_OK && self->shape.crosses)
        err = cross_bind(self);
    if (err == BP_OK)
        err = layer_bind_bottlenecks(self);
    return err;
}

static void layer_refresh(bp_block *block)
{
    layer *self = (layer *)block;

    layer_refresh_adapted(self);
    self->stale = self->repeats;
    if (!self->repeats)
        bp_weight_refresh(self->qkv);
    bp_weight_refresh(self->out);
    bp_weight_refresh(self->up);
    bp_weight_refresh(self->down);
    if (self->shape.crosses)
        cross_refresh(self);
}

/* Where a branch's sum with the residual stream has its dropout mask. */
static const int MASKS[BRANCHES] = {
    [ATTENTION] = MASK_ATTENTION_SUM, [CROSS] = MASK_CROSS_SUM, [MLP] = MASK_MLP_SUM};

/* A branch, summed over tensor ranks and behind its bottleneck, as the residual stream takes it in:
 * with the mask of `key`. */
static bp_residual residual_of(layer *self, bp_pass *pass, const saved *kept, branch_kind branch,
                               const float *base, float *sums, bp_rng_key *key)
{
    int64_t C = self->shape.C;
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);

    *key = layer_mask_key(self, pass, MASKS[branch]);
    bp_nn_sum(nn, pass, sums, C);
    if (self->bottleneck[branch])
        bp_bottleneck_forward(self->bottleneck[branch], pass->scratch, sums + own.first * C,
                              own.count, &kept->bottled[branch]);
    return (bp_residual){.base = base,
                         .branch = sums + own.first * C,
                         .dropout = layer_dropout(self, pass),
                         .key = key,
                         .first = bp_nn_first_row(nn, pass) * C};
}

const float *layer_bias_once(const layer *self, const bp_param *bias)
{
    return bias && self->block.nn->tensor_at == 0 ? bias->value : NULL;
}

bp_norm layer_norm_of(const layer *self, branch_kind branch, const saved *kept)
{
    return (bp_norm){self->gain[branch]->value, layer_value_of(self->bias[branch]),
                     self->shape.epsilon, kept->mean[branch], kept->rstd[branch]};
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

/* h = the norm of base + the branch in `work`, which that norm stands behind. */
static void close_branch(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                         branch_kind branch, float *h)
{
    bp_rng_key key;
    bp_norm norm = layer_norm_of(self, branch, kept);
    bp_operand rows = bp_operand_floats(h, bp_nn_rows(self->block.nn, pass).count, self->shape.C);
    bp_residual sum = residual_of(self, pass, kept, branch, h, work->branch, &key);

    if (kept->before[branch]) {
        bp_layer_norm_forward(&rows, kept->before[branch], &norm, &sum);
    } else {
        bp_add_dropout(h, h, sum.branch, rows.rows * self->shape.C, sum.dropout, &key, sum.first);
        bp_layer_norm_forward(&rows, NULL, &norm, &(bp_residual){.base = h});
    }
}

/* The rows of this rank as all ranks' products read them. */
static void spread(layer *self, bp_pass *pass, forward_work *work, const float *h)
{
    bp_operand own = bp_nn_own(self->block.nn, pass, &work->normed);

    bp_operand_fill(&own, h);
    bp_nn_gather(self->block.nn, pass, &work->normed);
}

void layer_join(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                branch_kind branch, const float *base, float *h, branch_kind next)
{
    bp_rng_key key;
    bp_norm norm = layer_norm_of(self, next, kept);
    bp_operand normed = bp_nn_own(self->block.nn, pass, &work->normed);

    if (self->shape.post_norm) {
        close_branch(self, pass, kept, work, branch, h);
        if (next == MLP)
            bp_probe_mlp(pass, h, self->shape.C, NULL);
        spread(self, pass, work, h);
        return;
    }
    if (self->shape.parallel) { /* before h, which may lie over base */
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

/* work->normed = the first norm of x; with post_norm x itself */
static void enter(layer *self, bp_pass *pass, const saved *kept, forward_work *work, const float *x)
{
    bp_norm norm = layer_norm_of(self, ATTENTION, kept);
    bp_operand normed = bp_nn_own(self->block.nn, pass, &work->normed);

    if (self->shape.post_norm) {
        if (kept->entered)
            memcpy(kept->entered, x,
                   (size_t)(bp_nn_rows(self->block.nn, pass).count * self->shape.C) * sizeof *x);
        spread(self, pass, work, x);
        return;
    }
    bp_layer_norm_forward(&normed, kept->before[ATTENTION], &norm, &(bp_residual){.base = x});
    bp_nn_gather(self->block.nn, pass, &work->normed);
}

/* Queries and keys, or their gradients, by their positions. */
static void turn(const layer *self, const bp_pass *pass, float *qkv, bool back)
{
    bp_rotary by;

    if (!self->shape.rotary)
        return;
    by = *self->shape.rotary;
    by.T = pass->T;
    by.positions = pass->continuation ? pass->continuation->rows.positions : NULL;
    bp_rotary_turn(qkv, layer_qkv_columns(self), pass->B * pass->T, self->Hl + self->Gl, self->D,
                   &by, back);
}

static bp_cached_shape cached_shape(const layer *self, int64_t slots, int64_t room)
{
    return (bp_cached_shape){.H = self->Hl,
                             .key_heads = self->Gl,
                             .group = self->shape.H / self->shape.G,
                             .before = self->first_head % (self->shape.H / self->shape.G),
                             .D = self->D,
                             .window = self->shape.window,
                             .entmax = self->shape.entmax,
                             .scale = self->shape.unscaled ? 1 : 0,
                             .slots = slots,
                             .room = room};
}

int64_t layer_cached_floats(const layer *self, int64_t slots, int64_t room)
{
    bp_cached_shape shape = cached_shape(self, slots, room);

    return bp_cached_floats(&shape);
}

static bool layer_cache(const bp_block *block, int64_t slots, int64_t room, bp_cache_need *need)
{
    const layer *self = (const layer *)block;
    bp_cached_shape shape = cached_shape(self, slots, room);

    if (self->shape.sees_all) /* a source's layer is done with once that is read */
        return need->source_capacity > 0 && block->stream > 0;
    need->kept_bytes = (size_t)bp_cached_floats(&shape) * sizeof(float);
    need->scratch_bytes = bp_cached_scratch_bytes(&shape);
    if (self->shape.relative)
        need->scratch_bytes += (size_t)(self->Hl * room) * sizeof(float);
    if (self->shape.crosses)
        cross_cache(self, need);
    return !self->shape.crosses || need->source_capacity > 0;
}

static void attend_cached(const layer *self, const bp_continuation *rest, const saved *kept)
{
    bp_cached_shape shape = cached_shape(self, rest->slots, rest->room);

    if (self->shape.relative) {
        float *bias = (float *)rest->scratch + bp_cached_scratch_bytes(&shape) / sizeof(float);
        bp_relative by = layer_relative(self);
        int64_t end = 0;

        for (int64_t r = 0; r < rest->rows.count; r++)
            end = rest->rows.positions[r] >= end ? rest->rows.positions[r] + 1 : end;
        bp_relative_fill_cached(bias, self->shape.relative->value, &by, self->Hl, rest->room, end);
        shape.bias = bias;
    }
    bp_attention_cached(kept->attended, rest->cache, kept->qkv, &rest->rows, &shape, rest->scratch);
}

/* What scores get by distance, made in `bias`: NULL where they get nothing. */
static void set_bias(const layer *self, bp_attention_shape *shape, float *bias)
{
    bp_relative by = layer_relative(self);

    shape->bias = bias;
    if (bias)
        bp_relative_fill(bias, self->shape.relative->value, &by, shape);
}

/* h = x + attention's branch, and work->normed = the norm of it that `next` reads */
static void forward_attention(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                              const float *x, float *h, branch_kind next)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    attention_forward_work own = layer_alloc_attention_forward(self, pass->scratch, pass, kept);
    bp_rng_key key = layer_mask_key(self, pass, MASK_ATTENTION);
    bp_attention_shape shape = layer_attention_shape(self, pass, false, &key);
    bp_attention_input in = bp_attention_of_groups(kept->qkv, shape.H, self->Gl, shape.D);

    set_bias(self, &shape, own.bias);
    bp_linear_forward_operand(gemm, kept->qkv, &work->normed, self->qkv, layer_qkv_bias(self));
    turn(self, pass, kept->qkv, false);
    if (pass->continuation && !self->shape.sees_all)
        attend_cached(self, pass->continuation, kept);
    else
        bp_attention_forward(gemm, kept->attended, kept->lse, &in, &shape, own.scratch);
    if (!pass->continuation)
        bp_probe_attention(pass, "attention", &in, kept->lse, &shape);
    bp_operand_fill(&own.attended, kept->attended);
    bp_linear_forward_operand(gemm, work->branch, &own.attended, self->out,
                              layer_bias_once(self, self->out_bias));
    pass->scratch->used_bytes = mark;
    layer_join(self, pass, kept, work, ATTENTION, x, h, next);
}

/* h = base + the MLP's branch */
static void forward_mlp(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                        const float *base, float *h)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    mlp_forward_work own = layer_alloc_mlp_forward(self, pass->scratch, pass, kept);
    bp_activation_rows rows = {.y = &own.active,
                               .kept = kept->up.data ? &kept->up : NULL,
                               .sums = own.up,
                               .kind = self->shape.activation};

    if (layer_is_gated(self)) {
        bp_linear_forward_operand(gemm, own.up, &work->normed, self->up,
                                  layer_value_of(self->up_bias));
        bp_gated_forward(rows.kind, &own.active, rows.kept, own.up);
    } else {
        bp_linear_activation_forward(gemm, &rows, &work->normed, self->up,
                                     layer_value_of(self->up_bias));
    }
    bp_linear_forward_operand(gemm, work->branch, &own.active, self->down,
                              layer_bias_once(self, self->down_bias));
    pass->scratch->used_bytes = mark;
    if (self->shape.post_norm)
        close_branch(self, pass, kept, work, MLP, h);
    else
        add_branch(self, pass, kept, work, MLP, base, h);
}

static void layer_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *memory)
{
    layer *self = (layer *)block;
    bp_arena keep = {.base = memory, .size_bytes = SIZE_MAX};
    size_t mark = pass->scratch->used_bytes;
    float *h = activations->item[self->shape.item].data;
    saved kept = layer_alloc_saved(self, memory ? &keep : pass->scratch, pass);
    forward_work work = layer_alloc_forward(self, pass->scratch, pass);
    bool crosses = self->shape.crosses, stays = self->shape.parallel || self->shape.post_norm;
    float *middle = pass->training && !stays ? kept.before[MLP] : h,
          *first = crosses && pass->training && !stays ? kept.before[CROSS] : middle;

    if (pass->T == 0) { /* a source is read, or was read before */
        if (crosses && pass->extent.T[self->shape.source_stream] > 0)
            cross_keep(self, pass, &kept, activations->item[self->shape.source_item].data);
        pass->scratch->used_bytes = mark;
        return;
    }
    enter(self, pass, &kept, &work, h);
    keys_gather(self, pass);
    forward_attention(self, pass, &kept, &work, h, first, crosses ? CROSS : MLP);
    if (crosses)
        cross_forward(self, pass, &kept, &work, activations->item[self->shape.source_item].data,
                      first, middle);
    forward_mlp(self, pass, &kept, &work, middle, h);
    pass->scratch->used_bytes = mark;
}

void layer_open_residual(const layer *self, const bp_pass *pass, const saved *kept,
                         const bp_operand *dbranch, const bp_bias_gradient *bias, const float *dout,
                         branch_kind branch)
{
    const bp_nn *nn = self->block.nn;
    bp_rng_key key = layer_mask_key(self, pass, MASKS[branch]);
    bp_operand own = bp_nn_own(nn, pass, dbranch);
    int64_t first = bp_nn_first_row(nn, pass) * self->shape.C;

    if (self->bottleneck[branch]) {
        size_t mark = pass->scratch->used_bytes;
        float *dx = bp_arena_floats(pass->scratch, own.rows * self->shape.C);
        bp_operand to = bp_operand_floats(dx, own.rows, self->shape.C);

        BP_ASSERT(!bias); /* the branch's own parameters are frozen */
        bp_dropout_backward_operand(&to, NULL, dout, layer_dropout(self, pass), &key, first);
        bp_bottleneck_backward(self->bottleneck[branch], pass->scratch, dx, own.rows,
                               &kept->bottled[branch]);
        bp_operand_fill(&own, dx);
        pass->scratch->used_bytes = mark;
    } else {
        bp_dropout_backward_operand(&own, bias, dout, layer_dropout(self, pass), &key, first);
    }
    bp_nn_gather(nn, pass, dbranch);
}

/* What a branch reads that has no norm before it: the layer's input, or the norm behind the branch
 * before it. */
static void fill_read(const layer *self, const bp_operand *to, branch_kind branch,
                      const saved *kept)
{
    branch_kind last = branch == MLP && self->shape.crosses ? CROSS : ATTENTION;
    bp_norm norm = layer_norm_of(self, last, kept);

    if (branch == ATTENTION)
        bp_operand_fill(to, kept->entered);
    else
        bp_layer_norm_forward(to, NULL, &norm, &(bp_residual){.base = kept->before[last]});
}

void layer_open_norm(const layer *self, const bp_pass *pass, branch_kind branch, const saved *kept,
                     const norm_work *work, float *dh, float *dy)
{
    int64_t rows = bp_nn_rows(self->block.nn, pass).count, C = self->shape.C;
    bp_norm norm = layer_norm_of(self, branch, kept);
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
    bp_norm norm = layer_norm_of(self, branch, kept);
    bp_norm_gradients to = {dh, self->gain[branch]->gradient, layer_gradient_of(self->bias[branch]),
                            false};

    bp_nn_sum(nn, pass, work->dnormed, C);
    if (self->shape.post_norm) {
        bp_add(dh, work->dnormed + own.first * C, own.count * C);
        fill_read(self, &normed, branch, kept);
    } else {
        bp_layer_norm_backward(&to, &normed, work->dnormed + own.first * C, kept->before[branch],
                               &norm, own.count, C, work->sums);
    }
    bp_nn_gather(nn, pass, &work->normed);
}

/* dh += what goes through the MLP, and attention, of the gradient dout of what they gave: dh
 * itself, unless the branches are parallel. With post_norm dh goes through the norm first, for
 * which `own` is scratch. */
static void backward_mlp(layer *self, bp_pass *pass, const saved *kept, const float *dout,
                         float *dh, float *own)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    mlp_work work = layer_alloc_mlp(self, pass->scratch, pass, dout);
    bp_bias_gradient down = {layer_gradient_of(self->down_bias), work.norm.sums},
                     up = {layer_gradient_of(self->up_bias), work.norm.sums};
    bp_activation_rows rows = {&work.active,      &kept->up,    &work.dup,
                               layer_wanted(&up), work.dactive, self->shape.activation};

    if (self->shape.post_norm)
        layer_open_norm(self, pass, MLP, kept, &work.norm, dh, own);
    layer_open_residual(self, pass, kept, &work.dbranch, layer_wanted(&down), dout, MLP);
    if (layer_is_gated(self)) {
        bp_linear_backward_input_operand(gemm, work.dactive, &work.dbranch, self->down);
        bp_gated_backward(rows.kind, &work.dup, &work.active, work.dactive, &kept->up);
    } else {
        bp_linear_activation_backward(gemm, &rows, &work.dbranch, self->down);
    }
    layer_backward_weight(self, pass, PRODUCT_DOWN, self->down_weight, 1, &work.dbranch,
                          &work.active);
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dup, self->up);
    layer_backward_norm(self, pass, MLP, kept, &work.norm, dh);
    layer_backward_weight(self, pass, PRODUCT_UP, self->up_weight, layer_is_gated(self) ? 2 : 1,
                          &work.dup, &work.norm.normed);
    pass->scratch->used_bytes = mark;
}

static void backward_attention(layer *self, bp_pass *pass, const saved *kept, const float *dout,
                               float *dh, float *own)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    attention_work work =
        layer_alloc_attention_backward(self, pass->scratch, pass, dout, kept->attended);
    bp_rng_key key = layer_mask_key(self, pass, MASK_ATTENTION);
    bp_attention_shape shape = layer_attention_shape(self, pass, false, &key);
    bp_bias_gradient out = {layer_gradient_of(self->out_bias), work.norm.sums},
                     qkv = {layer_gradient_of(self->q_bias), work.norm.sums};

    if (self->shape.post_norm)
        layer_open_norm(self, pass, ATTENTION, kept, &work.norm, dh, own);
    layer_open_residual(self, pass, kept, &work.dbranch, layer_wanted(&out), dout, ATTENTION);
    bp_operand_fill(&work.attended, kept->attended);
    bp_linear_backward_input_operand(gemm, work.dattended, &work.dbranch, self->out);
    layer_backward_weight(self, pass, PRODUCT_OUT, self->out_weight, 1, &work.dbranch,
                          &work.attended);
    bp_attention_input in = bp_attention_of_groups(kept->qkv, shape.H, self->Gl, shape.D);
    bp_attention_gradients to_qkv = {work.dqkv, work.dqkv + self->Cl,
                                     work.dqkv + self->Cl + self->Gl * self->D, work.dscore_bias};
    set_bias(self, &shape, work.score_bias);
    bp_attention_backward(gemm, &to_qkv, work.dattended, kept->attended, kept->lse, &in, &shape,
                          work.scratch);
    if (self->shape.relative && self->shape.relative->gradient) {
        bp_relative by = layer_relative(self);

        bp_relative_gradient(self->shape.relative->gradient, work.dscore_bias, &by, &shape);
    }
    turn(self, pass, work.dqkv, true);
    if (self->repeats && qkv.sums) {
        qkv.sums = work.dbias;
        bp_zero(work.dbias, layer_qkv_columns(self));
    }
    bp_operand_fill_sums(&work.dqkv_operand, layer_wanted(&qkv), work.dqkv);
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dqkv_operand, self->qkv);
    layer_backward_norm(self, pass, ATTENTION, kept, &work.norm, dh);
    if (self->repeats && self->q_weight->gradient)
        keys_backward(self, pass, &work.dqkv_operand, &work.norm.normed, qkv.sums);
    else
        layer_backward_weight(self, pass, PRODUCT_QKV, self->q_weight, 3, &work.dqkv_operand,
                              &work.norm.normed);
    pass->scratch->used_bytes = mark;
}

static void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                           void *memory)
{
    layer *self = (layer *)block;
    bp_arena keep = {.base = memory, .size_bytes = SIZE_MAX};
    saved kept = layer_alloc_saved(self, &keep, pass);

    size_t mark = pass->scratch->used_bytes;
    float *dh = activations->item[self->shape.item].data;
    const float *dout = dh;
    int64_t floats = bp_nn_rows(block->nn, pass).count * self->shape.C;
    float *own = self->shape.parallel || self->shape.post_norm
                     ? bp_arena_floats(pass->scratch, floats)
                     : NULL;

    if (self->shape.parallel)
        dout = memcpy(own, dh, (size_t)floats * sizeof *own);
    backward_mlp(self, pass, &kept, dh, dh, own);
    if (self->shape.crosses)
        cross_backward(self, pass, &kept, dh, own, activations->item[self->shape.source_item].data);
    backward_attention(self, pass, &kept, dout, dh, own);
    pass->scratch->used_bytes = mark;
}

static void layer_free(bp_block *block)
{
    layer *self = (layer *)block;

    bp_weight_free(&self->qkv);
    bp_weight_free(&self->out);
    bp_weight_free(&self->up);
    bp_weight_free(&self->down);
    cross_free(self);
    keys_free(self);
    layer_free_adapted(self);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "transformer_layer",
    .cache = layer_cache,
    .saved_bytes = layer_saved_bytes,
    .scratch_bytes = layer_scratch_bytes,
    .product_bytes = layer_product_bytes,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .adapt = layer_adapt,
    .free = layer_free,
};

/* Which key heads this rank's heads read. */
static void share_keys(layer *self)
{
    int64_t group = self->shape.H / self->shape.G;

    self->first_key = self->first_head / group;
    self->Gl = (self->first_head + self->Hl - 1) / group - self->first_key + 1;
    self->repeats = self->shape.G % self->block.nn->tensors != 0;
}

/* Is it one of the weights of q, k and v (the first three) to which keys_backward adds? */
static bool is_added(const layer *self, int k)
{
    return self->repeats && k < 3;
}

void bp_transformer_layer_new(bp_block **out, const bp_nn *nn, const bp_layer_shape *shape,
                              bp_group *split, bp_group *whole)
{
    layer *self = bp_alloc("nn.layer", 1, sizeof *self);

    *out = NULL;
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->shape.G = shape->G > 0 ? shape->G : shape->H;
    self->shape.epsilon = shape->epsilon > 0 ? shape->epsilon : EPSILON;
    BP_ASSERT(shape->D > 0 || shape->C % shape->H == 0);
    BP_ASSERT(shape->H % nn->tensors == 0 && shape->F % nn->tensors == 0 &&
              shape->H % self->shape.G == 0 && !(shape->parallel && shape->crosses) &&
              !(shape->post_norm && shape->parallel));
    BP_ASSERT(!layer_is_gated(self) || shape->no_bias);
    if (shape->relative)
        shape->relative->values_read = true;
    self->D = shape->D > 0 ? shape->D : shape->C / shape->H;
    self->Hl = shape->H / nn->tensors;
    self->Cl = self->Hl * self->D;
    self->Fl = shape->F / nn->tensors;
    self->first_head = self->Hl * nn->tensor_at;
    share_keys(self);
    self->block.stream = shape->stream;
    layer_add_params(self, split, whole);
    for (int k = 0; k < split->count; k++)
        split->params[k].product_first = split->params[k].dims == 2 && !is_added(self, k);
    *out = &self->block;
}
