/* A Transformer layer backward: gradients of its branches, from the last one to the first.
 * transformer_layer.c goes forward. */
#include "nn/transformer/transformer_priv.h"

#include <string.h>

/* dh += the gradients through the MLP, and attention, of dout, the gradient of their outputs: dh
 * itself, unless the branches are parallel. With post_norm dh goes through the norm first, with
 * `own` as scratch. */
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
    bp_rng_key key = layer_dropout_key(self, pass, DROPOUT_ATTENTION);
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
    apart_forward(self, &shape, &work.apart);
    apart_give(self, &to_qkv, &work.apart);
    bp_attention_backward(gemm, &to_qkv, &work.dattended, &kept->attended, kept->lse, &in, &shape,
                          work.scratch);
    if (self->shape.relative && self->shape.relative->gradient) {
        bp_relative by = layer_relative(self);

        bp_relative_gradient(self->shape.relative->gradient, work.dscore_bias, &by, &shape);
    }
    layer_rotate(self, pass, work.dqkv.data, true);
    query_clip_backward(self, work.dqkv.data, pass->B * pass->T, kept->clipped);
    query_backward(self, pass, work.dqkv.data, kept, &work.queries);
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
    apart_backward(self, pass, &work.apart);
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
    balance_begin(self, pass, &kept, activations);
    if (self->experts)
        experts_backward(self, pass, &kept, dh, dh,
                         self->shape.experts.balance > 0
                             ? activations->item[self->shape.experts.balance].data
                             : NULL);
    else
        backward_mlp(self, pass, &kept, dh, dh, own);
    if (self->shape.crosses)
        cross_backward(self, pass, &kept, dh, own, activations->item[self->shape.source_item].data);
    if (layer_attends(self))
        backward_attention(self, pass, &kept, dout, dh, own);
    pass->scratch->used_bytes = mark;
}
