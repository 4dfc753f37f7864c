/* A Transformer layer backward: gradients of its branches, from the last one to the first.
 * transformer_layer.c goes forward. */
#include "nn/transformer_priv.h"

#include <string.h>

/* dx = the gradient before a closing norm, of what it was after it. */
static void open_closing(const layer *self, const bp_pass *pass, branch_kind branch,
                         const saved *kept, float *dx, int64_t rows)
{
    size_t mark = pass->scratch->used_bytes;
    int64_t C = self->shape.C;
    closing_work work = layer_alloc_closing(self, pass->scratch, rows);
    bp_norm norm = layer_closing_norm(self, branch, kept);
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
    bp_rng_key key = layer_sum_key(self, pass, branch);
    bp_operand own = bp_nn_own(nn, pass, dbranch);
    int64_t C = self->shape.C, first = bp_nn_first_row(nn, pass) * C;

    if (self->bottleneck[branch] || self->closing_gain[branch]) {
        size_t mark = pass->scratch->used_bytes;
        float *dx = bp_arena_floats(pass->scratch, own.rows * C);
        bp_operand to = bp_operand_floats(dx, own.rows, C);

        bp_dropout_backward_operand(&to, NULL, dout, layer_dropout(self, pass), &key, first);
        if (self->closing_gain[branch])
            open_closing(self, pass, branch, kept, dx, own.rows);
        if (self->bottleneck[branch])
            bp_bottleneck_backward(self->bottleneck[branch], pass->scratch, dx, own.rows,
                                   &kept->bottled[branch]);
        bp_operand_fill_sums(&own, bias, dx);
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
    bp_activation_rows rows = {&work.active, &kept->up, &work.dup, layer_wanted(&up),
                               self->shape.activation};

    if (self->shape.post_norm)
        layer_open_norm(self, pass, MLP, kept, &work.norm, dh, own);
    layer_open_residual(self, pass, kept, &work.dbranch, layer_wanted(&down), dout, MLP);
    if (layer_is_gated(self)) {
        bp_operand dactive = bp_operand_unrounded(&work.dactive);

        bp_linear_backward_input_into(gemm, &dactive, &work.dbranch, self->down);
        bp_gated_backward(rows.kind, &work.dup, &work.active, &work.dactive, &kept->up);
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
    attention_work work = layer_alloc_attention_backward(self, pass->scratch, pass, dout, kept);
    bp_rng_key key = layer_mask_key(self, pass, MASK_ATTENTION);
    bp_attention_shape shape = layer_attention_shape(self, pass, false, &key);
    bp_bias_gradient out = {layer_gradient_of(self->out_bias), work.norm.sums},
                     qkv = {layer_gradient_of(self->q_bias), work.norm.sums};

    if (self->shape.post_norm)
        layer_open_norm(self, pass, ATTENTION, kept, &work.norm, dh, own);
    layer_open_residual(self, pass, kept, &work.dbranch, layer_wanted(&out), dout, ATTENTION);
    if (work.attended.data != kept->attended.data)
        bp_operand_fill(&work.attended, kept->attended.data);
    bp_linear_backward_input_into(gemm, &work.dattended, &work.dbranch, self->out);
    layer_backward_weight(self, pass, PRODUCT_OUT, self->out_weight, 1, &work.dbranch,
                          &work.attended);
    bp_attention_input in = bp_attention_of_groups(&kept->qkv, shape.H, self->Gl, shape.D),
                       to = bp_attention_of_groups(&work.dqkv, shape.H, self->Gl, shape.D);
    bp_attention_gradients to_qkv = bp_attention_gradients_as(&to);
    to_qkv.dbias = work.dscore_bias;
    layer_set_bias(self, &shape, work.score_bias);
    bp_attention_backward(gemm, &to_qkv, &work.dattended, &kept->attended, kept->lse, &in, &shape,
                          work.scratch);
    if (self->shape.relative && self->shape.relative->gradient) {
        bp_relative by = layer_relative(self);

        bp_relative_gradient(self->shape.relative->gradient, work.dscore_bias, &by, &shape);
    }
    layer_rotate(self, pass, work.dqkv.data, true);
    if (self->repeats && qkv.sums) {
        qkv.sums = work.dbias;
        bp_zero(work.dbias, layer_qkv_columns(self));
    }
    if (work.dqkv.form == BP_OPERAND_BF16)
        bp_operand_sums(layer_wanted(&qkv), &work.dqkv);
    else
        bp_operand_fill_sums(&work.dqkv_operand, layer_wanted(&qkv), work.dqkv.data);
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dqkv_operand, self->qkv);
    layer_backward_norm(self, pass, ATTENTION, kept, &work.norm, dh);
    if (self->repeats && self->q_weight->gradient)
        keys_backward(self, pass, &work.dqkv_operand, &work.norm.normed, qkv.sums);
    else
        layer_backward_weight(self, pass, PRODUCT_QKV, self->q_weight, 3, &work.dqkv_operand,
                              &work.norm.normed);
    pass->scratch->used_bytes = mark;
}

void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *memory)
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
