/* A pre-norm Transformer layer, split over tensor ranks as Megatron-LM does it, with sequence
 * parallelism between its products. */
#include "base/err.h"
#include "nn/transformer_priv.h"

#include <math.h>
#include <stdio.h>

#define EPSILON 1e-5F /* of the layer norms, as GPT-2's */

static saved alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T, own = bp_nn_rows(self->block.nn, pass).count;
    saved kept = {0};

    kept.qkv = bp_arena_floats(arena, rows * layer_qkv_columns(self));
    kept.attended = bp_arena_floats(arena, rows * self->Cl);
    kept.lse = bp_arena_floats(arena, rows * self->Hl);
    if (self->shape.crosses)
        cross_alloc_saved(self, arena, pass, &kept);
    if (!pass->training)
        return kept;
    for (int k = 0; k < BRANCHES; k++) {
        if (k == CROSS && !self->shape.crosses)
            continue;
        kept.before[k] = bp_arena_floats(arena, own * self->shape.C);
        kept.mean[k] = bp_arena_floats(arena, own);
        kept.rstd[k] = bp_arena_floats(arena, own);
    }
    kept.up = bp_operand_alloc(arena, self->block.nn->gemm, rows, layer_up_columns(self));
    return kept;
}

static size_t layer_saved(const bp_block *block, const bp_extent *most)
{
    bp_pass pass = bp_pass_planned(block, most, true);
    bp_arena count = {0};

    alloc_saved((const layer *)block, &count, &pass);
    return count.used_bytes;
}

bp_pass layer_source_pass(const layer *self, const bp_pass *pass)
{
    bp_pass source = *pass;

    source.T = pass->extent.T[self->shape.source_stream];
    return source;
}

bp_attention_shape layer_attention_shape(const layer *self, const bp_pass *pass, bool cross,
                                         const bp_rng_key *key)
{
    int keys_of = cross ? self->shape.source_stream : self->block.stream;

    return (bp_attention_shape){
        .B = pass->B,
        .T = pass->T,
        .K = cross ? pass->extent.T[keys_of] : 0,
        .lengths = pass->batch.stream[keys_of].lengths,
        .H = self->Hl,
        .D = self->D,
        .key_heads = cross ? 0 : self->Gl,
        .causal = !cross && !self->shape.sees_all,
        .window = cross ? 0 : self->shape.window,
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

void *layer_alloc_attention(const layer *self, bp_arena *arena, const bp_pass *pass, bool cross)
{
    bp_attention_shape shape = layer_attention_shape(self, pass, cross, NULL);
    size_t bytes = bp_attention_scratch_bytes(bp_gemm_precision(self->block.nn->gemm), &shape);

    return bp_arena_floats(arena, (int64_t)(bytes / sizeof(float)));
}

static forward_work alloc_forward(const layer *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T;

    return (forward_work){.normed =
                              bp_operand_alloc(arena, self->block.nn->gemm, rows, self->shape.C),
                          .branch = bp_arena_floats(arena, rows * self->shape.C)};
}

/* Scratch of attention's forward pass, beside forward_work; and of the MLP's. */
typedef struct attention_forward_work {
    bp_operand attended;
    void *scratch;
} attention_forward_work;

static attention_forward_work alloc_attention_forward(const layer *self, bp_arena *arena,
                                                      const bp_pass *pass, const saved *kept)
{
    attention_forward_work work = {.attended =
                                       bp_operand_over(arena, self->block.nn->gemm, kept->attended,
                                                       pass->B * pass->T, self->Cl)};

    work.scratch = layer_alloc_attention(self, arena, pass, false);
    return work;
}

/* What the product behind the activation takes: GELU may go without. */
static int64_t up_floats(const layer *self, int64_t rows)
{
    return self->shape.gated
               ? rows * 2 * self->Fl
               : bp_linear_gelu_floats(self->block.nn->gemm, rows, self->shape.C, self->Fl);
}

typedef struct mlp_forward_work {
    bp_operand active;
    float *up; /* up_floats: where it is kept, if that holds floats */
} mlp_forward_work;

static mlp_forward_work alloc_mlp_forward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                          const saved *kept)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    mlp_forward_work work = {.active = bp_operand_alloc(arena, gemm, rows, self->Fl)};

    if (kept->up.data && kept->up.form != BP_OPERAND_BF16)
        work.up = kept->up.data;
    else
        work.up = bp_arena_floats(arena, up_floats(self, rows));
    return work;
}

/* Scratch of the MLP's backward pass. */
typedef struct mlp_work {
    bp_operand dbranch, active, dup;
    float *dactive; /* bp_linear_gelu_floats, where dup may lie over it; gated [rows][Fl] */
    norm_work norm;
} mlp_work;

norm_work layer_alloc_norm(const layer *self, bp_arena *arena, int64_t rows, int64_t columns)
{
    int64_t C = self->shape.C, norm = bp_layer_norm_scratch(rows, C),
            bias = bp_bias_scratch(rows, columns > C ? columns : C);

    return (norm_work){.normed = bp_operand_alloc(arena, self->block.nn->gemm, rows, C),
                       .dnormed = bp_arena_floats(arena, rows * C),
                       .sums = bp_arena_floats(arena, norm > bias ? norm : bias)};
}

bp_operand layer_alloc_dbranch(const layer *self, bp_arena *arena, const bp_pass *pass,
                               const float *dh)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    bool over = layer_dropout(self, pass) == 0 && bp_nn_rows(self->block.nn, pass).count == rows;

    return over ? bp_operand_over(arena, gemm, dh, rows, self->shape.C)
                : bp_operand_alloc(arena, gemm, rows, self->shape.C);
}

static mlp_work alloc_mlp(const layer *self, bp_arena *arena, const bp_pass *pass, const float *dh)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    mlp_work work = {.dbranch = layer_alloc_dbranch(self, arena, pass, dh)};

    if (self->shape.gated) {
        work.dactive = bp_arena_floats(arena, rows * self->Fl);
        work.dup = bp_operand_alloc(arena, gemm, rows, 2 * self->Fl);
    } else {
        work.dactive = bp_arena_floats(arena, up_floats(self, rows));
        work.dup = bp_operand_over(arena, gemm, work.dactive, rows, self->Fl);
    }
    work.active = bp_operand_alloc(arena, gemm, rows, self->Fl);
    work.norm = layer_alloc_norm(self, arena, rows, layer_up_columns(self));
    return work;
}

/* Scratch of attention's backward pass. */
typedef struct attention_work {
    bp_operand dbranch, attended, dqkv_operand;
    float *dattended; /* [rows][Cl] */
    float *dqkv;      /* as saved.qkv; its operand may lie over it */
    norm_work norm;
    void *scratch;
} attention_work;

static attention_work alloc_attention_backward(const layer *self, bp_arena *arena,
                                               const bp_pass *pass, const float *dh,
                                               const float *attended)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T, Cl = self->Cl, columns = layer_qkv_columns(self);
    attention_work work = {.dbranch = layer_alloc_dbranch(self, arena, pass, dh)};

    work.attended = bp_operand_over(arena, gemm, attended, rows, Cl);
    work.dattended = bp_arena_floats(arena, rows * Cl);
    work.dqkv = bp_arena_floats(arena, rows * columns);
    work.dqkv_operand = bp_operand_over(arena, gemm, work.dqkv, rows, columns);
    work.norm = layer_alloc_norm(self, arena, rows, columns);
    work.scratch = layer_alloc_attention(self, arena, pass, false);
    return work;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t layer_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const layer *self = (const layer *)block;
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0}, mlp = {0}, attention = {0};
    saved kept = {0};
    size_t branch,
        sum = bp_arena_bytes(bp_nn_sum_floats(block->nn, &pass, self->shape.C), sizeof(float));

    pass.dropout = true; /* it takes the most */
    if (!training)
        alloc_saved(self, &count, &pass);
    alloc_forward(self, &count, &pass);
    alloc_attention_forward(self, &attention, &pass, &kept);
    alloc_mlp_forward(self, &mlp, &pass, &kept);
    branch = larger(attention.used_bytes, mlp.used_bytes);
    if (self->shape.crosses)
        branch = larger(branch, cross_scratch(self, &pass, false));
    count.used_bytes += branch;
    if (training) {
        mlp = attention = (bp_arena){0};
        alloc_mlp(self, &mlp, &pass, NULL);
        alloc_attention_backward(self, &attention, &pass, NULL, NULL);
        branch = larger(attention.used_bytes, mlp.used_bytes);
        if (self->shape.crosses)
            branch = larger(branch, cross_scratch(self, &pass, true));
        count.used_bytes = larger(count.used_bytes, branch);
    }
    return count.used_bytes + sum;
}

static bp_product_bytes layer_products(const bp_block *block, const bp_extent *most)
{
    const layer *self = (const layer *)block;
    int64_t rows = most->B * most->T[block->stream], C = self->shape.C;
    bp_product_bytes bytes = {0};

    bp_product_bytes_add(&bytes, block->nn, rows, layer_qkv_columns(self), C);
    bp_product_bytes_add(&bytes, block->nn, rows, C, self->Cl);
    bp_product_bytes_add(&bytes, block->nn, rows, layer_up_columns(self), C);
    bp_product_bytes_add(&bytes, block->nn, rows, C, self->Fl);
    if (self->shape.crosses)
        cross_add_products(self, most, &bytes);
    return bytes;
}

static bp_err layer_bind(bp_block *block)
{
    layer *self = (layer *)block;
    bp_gemm *gemm = block->nn->gemm;
    bp_err err = bp_weight_new(&self->qkv, gemm, self->q_weight->value, layer_qkv_columns(self),
                               self->shape.C);

    if (err == BP_OK)
        err = bp_weight_new(&self->out, gemm, self->out_weight->value, self->shape.C, self->Cl);
    if (err == BP_OK)
        err = bp_weight_new(&self->up, gemm, self->up_weight->value, layer_up_columns(self),
                            self->shape.C);
    if (err == BP_OK)
        err = bp_weight_new(&self->down, gemm, self->down_weight->value, self->shape.C, self->Fl);
    if (err == BP_OK && self->shape.crosses)
        err = cross_bind(self);
    return err;
}

static void layer_refresh(bp_block *block)
{
    layer *self = (layer *)block;

    bp_weight_refresh(self->qkv);
    bp_weight_refresh(self->out);
    bp_weight_refresh(self->up);
    bp_weight_refresh(self->down);
    if (self->shape.crosses)
        cross_refresh(self);
}

/* A branch, summed over tensor ranks, as the residual stream takes it in. */
static bp_residual residual_of(layer *self, bp_pass *pass, const float *base, float *branch,
                               const bp_rng_key *key)
{
    int64_t C = self->shape.C;
    const bp_nn *nn = self->block.nn;

    bp_nn_sum(nn, pass, branch, C);
    return (bp_residual){.base = base,
                         .branch = branch + bp_nn_rows(nn, pass).first * C,
                         .dropout = layer_dropout(self, pass),
                         .key = key,
                         .first = bp_nn_first_row(nn, pass) * C};
}

static const float *value_of(const bp_param *param)
{
    return param ? param->value : NULL;
}

static float *gradient_of(const bp_param *param)
{
    return param ? param->gradient : NULL;
}

const float *layer_bias_once(const layer *self, const bp_param *bias)
{
    return bias && self->block.nn->tensor_at == 0 ? bias->value : NULL;
}

bp_norm layer_norm_of(const layer *self, branch_kind branch, const saved *kept)
{
    return (bp_norm){self->gain[branch]->value, value_of(self->bias[branch]), self->shape.epsilon,
                     kept->mean[branch], kept->rstd[branch]};
}

void layer_join(layer *self, bp_pass *pass, const saved *kept, forward_work *work, int mask,
                const float *base, float *h, branch_kind next)
{
    bp_rng_key key = layer_mask_key(self, pass, mask);
    bp_norm norm = layer_norm_of(self, next, kept);
    bp_operand normed = bp_nn_own(self->block.nn, pass, &work->normed);
    bp_residual sum = residual_of(self, pass, base, work->branch, &key);

    bp_layer_norm_forward(&normed, h, &norm, &sum);
    bp_nn_gather(self->block.nn, pass, &work->normed);
}

/* work->normed = the first norm of x */
static void enter(layer *self, bp_pass *pass, const saved *kept, forward_work *work, const float *x)
{
    bp_norm norm = layer_norm_of(self, ATTENTION, kept);
    bp_operand normed = bp_nn_own(self->block.nn, pass, &work->normed);

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
                             .D = self->D,
                             .window = self->shape.window,
                             .slots = slots,
                             .room = room};
}

static bool layer_cache(const bp_block *block, int64_t slots, int64_t room, bp_cache_need *need)
{
    const layer *self = (const layer *)block;
    bp_cached_shape shape = cached_shape(self, slots, room);

    *need = (bp_cache_need){(size_t)bp_cached_floats(&shape) * sizeof(float),
                            bp_cached_scratch_bytes(&shape)};
    return !self->shape.crosses && !self->shape.sees_all;
}

static void attend_cached(const layer *self, const bp_continuation *rest, const saved *kept)
{
    bp_cached_shape shape = cached_shape(self, rest->slots, rest->room);

    bp_attention_cached(kept->attended, rest->cache, kept->qkv, &rest->rows, &shape, rest->scratch);
}

/* h = x + attention's branch, and work->normed = the norm of it that `next` reads */
static void forward_attention(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                              const float *x, float *h, branch_kind next)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    attention_forward_work own = alloc_attention_forward(self, pass->scratch, pass, kept);
    bp_rng_key key = layer_mask_key(self, pass, MASK_ATTENTION);
    bp_attention_shape shape = layer_attention_shape(self, pass, false, &key);
    bp_attention_input in = bp_attention_of_groups(kept->qkv, shape.H, self->Gl, shape.D);

    bp_linear_forward_operand(gemm, kept->qkv, &work->normed, self->qkv, value_of(self->q_bias));
    turn(self, pass, kept->qkv, false);
    if (pass->continuation)
        attend_cached(self, pass->continuation, kept);
    else
        bp_attention_forward(gemm, kept->attended, kept->lse, &in, &shape, own.scratch);
    bp_operand_fill(&own.attended, kept->attended);
    bp_linear_forward_operand(gemm, work->branch, &own.attended, self->out,
                              layer_bias_once(self, self->out_bias));
    pass->scratch->used_bytes = mark;
    layer_join(self, pass, kept, work, MASK_ATTENTION_SUM, x, h, next);
}

/* h = base + the MLP's branch */
static void forward_mlp(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                        const float *base, float *h)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    mlp_forward_work own = alloc_mlp_forward(self, pass->scratch, pass, kept);
    bp_rng_key key = layer_mask_key(self, pass, MASK_MLP_SUM);
    bp_gelu_rows gelu = {
        .y = &own.active, .kept = kept->up.data ? &kept->up : NULL, .sums = own.up};

    if (self->shape.gated) {
        bp_linear_forward_operand(gemm, own.up, &work->normed, self->up, value_of(self->up_bias));
        bp_swiglu_forward(&own.active, gelu.kept, own.up);
    } else {
        bp_linear_gelu_forward(gemm, &gelu, &work->normed, self->up, value_of(self->up_bias));
    }
    bp_linear_forward_operand(gemm, work->branch, &own.active, self->down,
                              layer_bias_once(self, self->down_bias));
    pass->scratch->used_bytes = mark;
    bp_residual sum = residual_of(self, pass, base, work->branch, &key);
    bp_add_dropout(h, sum.base, sum.branch, bp_nn_rows(self->block.nn, pass).count * self->shape.C,
                   sum.dropout, &key, sum.first);
}

static void layer_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *memory)
{
    layer *self = (layer *)block;
    bp_arena keep = {.base = memory, .size_bytes = SIZE_MAX};
    size_t mark = pass->scratch->used_bytes;
    float *h = activations->item[self->shape.item].data;
    saved kept = alloc_saved(self, memory ? &keep : pass->scratch, pass);
    forward_work work = alloc_forward(self, pass->scratch, pass);
    bool crosses = self->shape.crosses;
    float *middle = pass->training ? kept.before[MLP] : h,
          *first = crosses && pass->training ? kept.before[CROSS] : middle;

    enter(self, pass, &kept, &work, h);
    forward_attention(self, pass, &kept, &work, h, first, crosses ? CROSS : MLP);
    if (crosses)
        cross_forward(self, pass, &kept, &work, activations->item[self->shape.source_item].data,
                      first, middle);
    forward_mlp(self, pass, &kept, &work, middle, h);
    pass->scratch->used_bytes = mark;
}

void layer_open_residual(const layer *self, const bp_pass *pass, const bp_operand *dbranch,
                         const bp_bias_gradient *bias, const float *dh, int mask)
{
    const bp_nn *nn = self->block.nn;
    bp_rng_key key = layer_mask_key(self, pass, mask);
    bp_operand own = bp_nn_own(nn, pass, dbranch);

    bp_dropout_backward_operand(&own, bias, dh, layer_dropout(self, pass), &key,
                                bp_nn_first_row(nn, pass) * self->shape.C);
    bp_nn_gather(nn, pass, dbranch);
}

void layer_backward_norm(const layer *self, bp_pass *pass, branch_kind branch, const saved *kept,
                         const norm_work *work, float *dh)
{
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);
    int64_t C = self->shape.C;
    bp_operand normed = bp_nn_own(nn, pass, &work->normed);
    bp_norm norm = layer_norm_of(self, branch, kept);
    bp_norm_gradients to = {dh, self->gain[branch]->gradient, gradient_of(self->bias[branch]),
                            false};

    bp_nn_sum(nn, pass, work->dnormed, C);
    bp_layer_norm_backward(&to, &normed, work->dnormed + own.first * C, kept->before[branch], &norm,
                           own.count, C, work->sums);
    bp_nn_gather(nn, pass, &work->normed);
}

/* NULL where there is no such bias. */
static const bp_bias_gradient *wanted(const bp_bias_gradient *bias)
{
    return bias->sums ? bias : NULL;
}

static void backward_mlp(layer *self, bp_pass *pass, const saved *kept, float *dh)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    mlp_work work = alloc_mlp(self, pass->scratch, pass, dh);
    bp_bias_gradient down = {gradient_of(self->down_bias), work.norm.sums},
                     up = {gradient_of(self->up_bias), work.norm.sums};
    bp_gelu_rows gelu = {&work.active, &kept->up, &work.dup, wanted(&up), work.dactive};

    layer_open_residual(self, pass, &work.dbranch, wanted(&down), dh, MASK_MLP_SUM);
    if (self->shape.gated) {
        bp_linear_backward_input_operand(gemm, work.dactive, &work.dbranch, self->down);
        bp_swiglu_backward(&work.dup, &work.active, work.dactive, &kept->up);
    } else {
        bp_linear_gelu_backward(gemm, &gelu, &work.dbranch, self->down);
    }
    bp_linear_backward_weight_operand(gemm, self->down_weight->gradient, &work.dbranch,
                                      &work.active, bp_params_take_fresh(self->down_weight, 1));
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dup, self->up);
    layer_backward_norm(self, pass, MLP, kept, &work.norm, dh);
    bp_linear_backward_weight_operand(
        gemm, self->up_weight->gradient, &work.dup, &work.norm.normed,
        bp_params_take_fresh(self->up_weight, self->shape.gated ? 2 : 1));
    pass->scratch->used_bytes = mark;
}

static void backward_attention(layer *self, bp_pass *pass, const saved *kept, float *dh)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    attention_work work = alloc_attention_backward(self, pass->scratch, pass, dh, kept->attended);
    bp_rng_key key = layer_mask_key(self, pass, MASK_ATTENTION);
    bp_attention_shape shape = layer_attention_shape(self, pass, false, &key);
    bp_bias_gradient out = {gradient_of(self->out_bias), work.norm.sums},
                     qkv = {gradient_of(self->q_bias), work.norm.sums};

    layer_open_residual(self, pass, &work.dbranch, wanted(&out), dh, MASK_ATTENTION_SUM);
    bp_operand_fill(&work.attended, kept->attended);
    bp_linear_backward_input_operand(gemm, work.dattended, &work.dbranch, self->out);
    bp_linear_backward_weight_operand(gemm, self->out_weight->gradient, &work.dbranch,
                                      &work.attended, bp_params_take_fresh(self->out_weight, 1));
    bp_attention_input in = bp_attention_of_groups(kept->qkv, shape.H, self->Gl, shape.D);
    bp_attention_gradients to_qkv = {work.dqkv, work.dqkv + self->Cl,
                                     work.dqkv + self->Cl + self->Gl * self->D};
    bp_attention_backward(gemm, &to_qkv, work.dattended, kept->attended, kept->lse, &in, &shape,
                          work.scratch);
    turn(self, pass, work.dqkv, true);
    bp_operand_fill_sums(&work.dqkv_operand, wanted(&qkv), work.dqkv);
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dqkv_operand, self->qkv);
    layer_backward_norm(self, pass, ATTENTION, kept, &work.norm, dh);
    bp_linear_backward_weight_operand(gemm, self->q_weight->gradient, &work.dqkv_operand,
                                      &work.norm.normed, bp_params_take_fresh(self->q_weight, 3));
    pass->scratch->used_bytes = mark;
}

static void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                           void *memory)
{
    layer *self = (layer *)block;
    bp_arena keep = {.base = memory, .size_bytes = SIZE_MAX};
    saved kept = alloc_saved(self, &keep, pass);

    float *dh = activations->item[self->shape.item].data;

    backward_mlp(self, pass, &kept, dh);
    if (self->shape.crosses)
        cross_backward(self, pass, &kept, dh, activations->item[self->shape.source_item].data);
    backward_attention(self, pass, &kept, dh);
}

static void layer_free(bp_block *block)
{
    layer *self = (layer *)block;

    bp_weight_free(&self->qkv);
    bp_weight_free(&self->out);
    bp_weight_free(&self->up);
    bp_weight_free(&self->down);
    cross_free(self);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "transformer_layer",
    .cache = layer_cache,
    .saved_bytes = layer_saved,
    .scratch_bytes = layer_scratch,
    .product_bytes = layer_products,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .free = layer_free,
};

const char *layer_param_name(char *buffer, const layer *self, const char *part)
{
    snprintf(buffer, BP_PARAM_NAME, "%s.%lld.%s", self->shape.stack, (long long)self->shape.number,
             part);
    return buffer;
}

/* Attention's: q, k and v are logical tensors of their own; their slabs lie in a row so that one
 * product makes all three. */
static void add_attention_params(layer *self, bp_group *group)
{
    static const char *const NAMES[3] = {"q", "k", "v"};
    int64_t C = self->shape.C, at = self->block.nn->tensor_at, tensors = self->block.nn->tensors;
    float residual_std = INIT_STD / sqrtf(2.0F * (float)self->shape.layers);
    char name[BP_PARAM_NAME], part[32];

    for (int k = 0; k < 3; k++) {
        int64_t rows = (k == 0 ? self->Hl : self->Gl) * self->D;

        snprintf(part, sizeof part, "attn.%s.weight", NAMES[k]);
        bp_param *p = bp_group_add_matrix_part(group, layer_param_name(name, self, part),
                                               tensors * rows, C, INIT_STD, 0, at * rows, rows);
        if (k == 0)
            self->q_weight = p;
    }
    for (int k = 0; k < 3 && (!self->shape.no_bias || self->shape.qkv_bias); k++) {
        int64_t rows = (k == 0 ? self->Hl : self->Gl) * self->D;

        snprintf(part, sizeof part, "attn.%s.bias", NAMES[k]);
        bp_param *p = bp_group_add_vector_part(group, layer_param_name(name, self, part),
                                               tensors * rows, at * rows, rows);
        if (k == 0)
            self->q_bias = p;
    }
    self->out_weight =
        bp_group_add_matrix_part(group, layer_param_name(name, self, "attn.out.weight"), C,
                                 tensors * self->Cl, residual_std, 1, at * self->Cl, self->Cl);
}

/* The MLP's: the gate lies before up, so that one product makes both. */
static void add_mlp_params(layer *self, bp_group *group)
{
    int64_t C = self->shape.C, F = self->shape.F, at = self->block.nn->tensor_at;
    float residual_std = INIT_STD / sqrtf(2.0F * (float)self->shape.layers);
    char name[BP_PARAM_NAME];

    if (self->shape.gated)
        self->up_weight =
            bp_group_add_matrix_part(group, layer_param_name(name, self, "mlp.gate.weight"), F, C,
                                     INIT_STD, 0, at * self->Fl, self->Fl);
    bp_param *up = bp_group_add_matrix_part(group, layer_param_name(name, self, "mlp.up.weight"), F,
                                            C, INIT_STD, 0, at * self->Fl, self->Fl);
    if (!self->shape.gated)
        self->up_weight = up;
    if (!self->shape.no_bias)
        self->up_bias = bp_group_add_vector_part(group, layer_param_name(name, self, "mlp.up.bias"),
                                                 F, at * self->Fl, self->Fl);
    self->down_weight =
        bp_group_add_matrix_part(group, layer_param_name(name, self, "mlp.down.weight"), C, F,
                                 residual_std, 1, at * self->Fl, self->Fl);
}

static bp_param *add_vector(layer *self, bp_group *group, const char *part, bp_init init)
{
    char name[BP_PARAM_NAME];

    return bp_group_add_vector(group, layer_param_name(name, self, part), self->shape.C, init);
}

static void add_whole_params(layer *self, bp_group *group)
{
    bool rms = self->shape.rms, biases = !self->shape.no_bias;

    self->gain[ATTENTION] = add_vector(self, group, "ln1.gain", BP_INIT_ONE);
    self->bias[ATTENTION] = rms ? NULL : add_vector(self, group, "ln1.bias", BP_INIT_ZERO);
    self->out_bias = biases ? add_vector(self, group, "attn.out.bias", BP_INIT_ZERO) : NULL;
    self->gain[MLP] = add_vector(self, group, "ln2.gain", BP_INIT_ONE);
    self->bias[MLP] = rms ? NULL : add_vector(self, group, "ln2.bias", BP_INIT_ZERO);
    self->down_bias = biases ? add_vector(self, group, "mlp.down.bias", BP_INIT_ZERO) : NULL;
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
    BP_ASSERT(shape->H % nn->tensors == 0 && self->shape.G % nn->tensors == 0 &&
              shape->F % nn->tensors == 0 && shape->H % self->shape.G == 0);
    BP_ASSERT(!shape->gated || shape->no_bias);
    self->D = shape->D > 0 ? shape->D : shape->C / shape->H;
    self->Hl = shape->H / nn->tensors;
    self->Gl = self->shape.G / nn->tensors;
    self->Cl = self->Hl * self->D;
    self->Fl = shape->F / nn->tensors;
    self->first_head = self->Hl * nn->tensor_at;
    self->block.stream = shape->stream;
    add_attention_params(self, split);
    add_mlp_params(self, split);
    add_whole_params(self, whole);
    if (shape->crosses)
        cross_add_params(self, split, whole);
    for (int k = 0; k < split->count; k++)
        split->params[k].product_first = split->params[k].dims == 2;
    *out = &self->block;
}
