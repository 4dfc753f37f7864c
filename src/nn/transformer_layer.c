/* A pre-norm Transformer layer, split over tensor ranks as Megatron-LM does it, with sequence
 * parallelism between its products. */
#include "base/err.h"
#include "math/attention/attention.h"
#include "math/kernels/kernels.h"
#include "nn/layers.h"

#include <math.h>
#include <stdio.h>

#define EPSILON  1e-5F /* of the layer norms, as GPT-2's */
#define INIT_STD 0.02F

typedef struct layer {
    bp_block block;
    bp_layer_shape shape;
    int64_t Cl, Hl, Fl; /* this tensor rank's share of the width, the heads and the inner width */
    int64_t first_head;
    bp_param *q_weight, *q_bias, *out_weight, *out_bias, *up_weight, *up_bias, *down_weight,
        *down_bias;
    bp_param *ln1_gain, *ln1_bias, *ln2_gain, *ln2_bias;
    bp_weight *qkv, *out, *up, *down; /* q, k and v lie one after another: one product */
} layer;

/* What forward leaves for backward: of all rows, rows = B * T, or of this rank's own (bp_nn_rows).
 * Norms' outputs and GELU's are computed again. Without training the residual stream stays where it
 * is, and the rest is left out. */
typedef struct saved {
    float *x;                             /* [own rows][C] the layer's input */
    float *mean1, *rstd1, *mean2, *rstd2; /* [own rows] */
    float *qkv;                           /* [rows][3][Hl][D] */
    float *attended;                      /* [rows][Cl] */
    float *lse;                           /* [B][Hl][T] */
    float *middle;                        /* [own rows][C] after attention's residual */
    bp_operand up;                        /* [rows][Fl] before GELU */
} saved;

static saved alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T, own = bp_nn_rows(self->block.nn, pass).count;
    saved kept = {0};

    kept.qkv = bp_arena_floats(arena, rows * 3 * self->Cl);
    kept.attended = bp_arena_floats(arena, rows * self->Cl);
    kept.lse = bp_arena_floats(arena, rows * self->Hl);
    if (!pass->training)
        return kept;
    kept.x = bp_arena_floats(arena, own * self->shape.C);
    kept.mean1 = bp_arena_floats(arena, own);
    kept.rstd1 = bp_arena_floats(arena, own);
    kept.mean2 = bp_arena_floats(arena, own);
    kept.rstd2 = bp_arena_floats(arena, own);
    kept.middle = bp_arena_floats(arena, own * self->shape.C);
    kept.up = bp_operand_alloc(arena, self->block.nn->gemm, rows, self->Fl);
    return kept;
}

static size_t layer_saved(const bp_block *block, const bp_extent *most)
{
    bp_pass pass = bp_pass_planned(block, most, true);
    bp_arena count = {0};

    alloc_saved((const layer *)block, &count, &pass);
    return count.used_bytes;
}

static bp_attention_shape attention_shape(const layer *self, const bp_pass *pass,
                                          const bp_rng_key *key)
{
    const bp_nn *nn = self->block.nn;

    return (bp_attention_shape){
        .B = pass->B,
        .T = pass->T,
        .H = self->Hl,
        .D = self->shape.C / self->shape.H,
        .causal = true,
        .dropout = pass->dropout ? nn->dropout : 0,
        .key = key,
        .first_sequence = pass->first_slot,
        .first_head = self->first_head,
        .all_heads = self->shape.H,
    };
}

/* Four masks a layer: attention weights, attention's residual, the MLP's residual, one in reserve.
 */
static bp_rng_key mask_key(const layer *self, const bp_pass *pass, int which)
{
    return bp_mask_key(self->block.nn, pass, 4 * self->shape.number + 1 + which);
}

static float dropout_of(const layer *self, const bp_pass *pass)
{
    return pass->dropout ? self->block.nn->dropout : 0;
}

static void *alloc_attention(const layer *self, bp_arena *arena, const bp_pass *pass)
{
    bp_attention_shape shape = attention_shape(self, pass, NULL);
    size_t bytes = bp_attention_scratch_bytes(bp_gemm_precision(self->block.nn->gemm), &shape);

    return bp_arena_floats(arena, (int64_t)(bytes / sizeof(float)));
}

/* Scratch of the forward pass. */
typedef struct forward_work {
    bp_operand normed; /* [rows][C] of either norm */
    float *branch;     /* [rows][C] what is added to the residual stream */
    bp_operand attended, active;
    float *up;       /* bp_linear_gelu_floats: where it is kept, if that holds floats */
    void *attention; /* lies over what the MLP needs */
} forward_work;

static forward_work alloc_forward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                  const saved *kept)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    forward_work work = {.normed = bp_operand_alloc(arena, gemm, rows, self->shape.C),
                         .branch = bp_arena_floats(arena, rows * self->shape.C)};
    size_t mark = arena->used_bytes, used;

    work.attended = bp_operand_over(arena, gemm, kept->attended, rows, self->Cl);
    work.attention = alloc_attention(self, arena, pass);
    used = arena->used_bytes;
    arena->used_bytes = mark;
    work.active = bp_operand_alloc(arena, gemm, rows, self->Fl);
    work.up =
        kept->up.data && kept->up.form != BP_OPERAND_BF16
            ? kept->up.data
            : bp_arena_floats(arena, bp_linear_gelu_floats(gemm, rows, self->shape.C, self->Fl));
    arena->used_bytes = used > arena->used_bytes ? used : arena->used_bytes;
    return work;
}

/* Scratch of a norm's backward pass. */
typedef struct norm_work {
    bp_operand normed; /* [rows][C] its output, made again */
    float *dnormed;    /* [rows][C] */
    float *sums;       /* also of the biases of the same half of the layer */
} norm_work;

/* Scratch of the MLP's backward pass. */
typedef struct mlp_work {
    bp_operand dbranch, active, dup;
    float *dactive; /* bp_linear_gelu_floats; dup may lie over it */
    norm_work norm;
} mlp_work;

/* `columns`: of the widest bias besides those of C. */
static norm_work alloc_norm(const layer *self, bp_arena *arena, int64_t rows, int64_t columns)
{
    int64_t C = self->shape.C, norm = bp_layer_norm_scratch(rows, C),
            bias = bp_bias_scratch(rows, columns > C ? columns : C);

    return (norm_work){.normed = bp_operand_alloc(arena, self->block.nn->gemm, rows, C),
                       .dnormed = bp_arena_floats(arena, rows * C),
                       .sums = bp_arena_floats(arena, norm > bias ? norm : bias)};
}

/* The operand of a branch's gradient: dh itself where it is of all rows and nothing is dropped or
 * rounded. */
static bp_operand alloc_dbranch(const layer *self, bp_arena *arena, const bp_pass *pass,
                                const float *dh)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    bool over = dropout_of(self, pass) == 0 && bp_nn_rows(self->block.nn, pass).count == rows;

    return over ? bp_operand_over(arena, gemm, dh, rows, self->shape.C)
                : bp_operand_alloc(arena, gemm, rows, self->shape.C);
}

static mlp_work alloc_mlp(const layer *self, bp_arena *arena, const bp_pass *pass, const float *dh)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    mlp_work work = {.dbranch = alloc_dbranch(self, arena, pass, dh)};

    work.dactive =
        bp_arena_floats(arena, bp_linear_gelu_floats(gemm, rows, self->shape.C, self->Fl));
    work.dup = bp_operand_over(arena, gemm, work.dactive, rows, self->Fl);
    work.active = bp_operand_alloc(arena, gemm, rows, self->Fl);
    work.norm = alloc_norm(self, arena, rows, self->Fl);
    return work;
}

/* Scratch of attention's backward pass. */
typedef struct attention_work {
    bp_operand dbranch, attended, dqkv_operand;
    float *dattended; /* [rows][Cl] */
    float *dqkv;      /* [rows][3][Hl][D]; its operand may lie over it */
    norm_work norm;
    void *scratch;
} attention_work;

static attention_work alloc_attention_backward(const layer *self, bp_arena *arena,
                                               const bp_pass *pass, const float *dh,
                                               const float *attended)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T, Cl = self->Cl;
    attention_work work = {.dbranch = alloc_dbranch(self, arena, pass, dh)};

    work.attended = bp_operand_over(arena, gemm, attended, rows, Cl);
    work.dattended = bp_arena_floats(arena, rows * Cl);
    work.dqkv = bp_arena_floats(arena, rows * 3 * Cl);
    work.dqkv_operand = bp_operand_over(arena, gemm, work.dqkv, rows, 3 * Cl);
    work.norm = alloc_norm(self, arena, rows, 3 * Cl);
    work.scratch = alloc_attention(self, arena, pass);
    return work;
}

static size_t layer_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const layer *self = (const layer *)block;
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0}, mlp = {0}, attention = {0};
    saved kept = {0};
    size_t bytes,
        sum = bp_arena_bytes(bp_nn_sum_floats(block->nn, &pass, self->shape.C), sizeof(float));

    pass.dropout = true; /* it takes the most */
    if (!training)
        alloc_saved(self, &count, &pass);
    alloc_forward(self, &count, &pass, &kept);
    bytes = count.used_bytes;
    if (training) {
        alloc_mlp(self, &mlp, &pass, NULL);
        alloc_attention_backward(self, &attention, &pass, NULL, NULL);
        bytes = mlp.used_bytes > bytes ? mlp.used_bytes : bytes;
        bytes = attention.used_bytes > bytes ? attention.used_bytes : bytes;
    }
    return bytes + sum;
}

static bp_product_bytes layer_products(const bp_block *block, const bp_extent *most)
{
    const layer *self = (const layer *)block;
    int64_t rows = most->B * most->T[block->stream], C = self->shape.C;
    bp_product_bytes bytes = {0};

    bp_product_bytes_add(&bytes, block->nn, rows, 3 * self->Cl, C);
    bp_product_bytes_add(&bytes, block->nn, rows, C, self->Cl);
    bp_product_bytes_add(&bytes, block->nn, rows, self->Fl, C);
    bp_product_bytes_add(&bytes, block->nn, rows, C, self->Fl);
    return bytes;
}

static bp_err layer_bind(bp_block *block)
{
    layer *self = (layer *)block;
    bp_gemm *gemm = block->nn->gemm;
    bp_err err =
        bp_weight_new(&self->qkv, gemm, self->q_weight->value, 3 * self->Cl, self->shape.C);

    if (err == BP_OK)
        err = bp_weight_new(&self->out, gemm, self->out_weight->value, self->shape.C, self->Cl);
    if (err == BP_OK)
        err = bp_weight_new(&self->up, gemm, self->up_weight->value, self->Fl, self->shape.C);
    if (err == BP_OK)
        err = bp_weight_new(&self->down, gemm, self->down_weight->value, self->shape.C, self->Fl);
    return err;
}

static void layer_refresh(bp_block *block)
{
    layer *self = (layer *)block;

    bp_weight_refresh(self->qkv);
    bp_weight_refresh(self->out);
    bp_weight_refresh(self->up);
    bp_weight_refresh(self->down);
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
                         .dropout = dropout_of(self, pass),
                         .key = key,
                         .first = bp_nn_first_row(nn, pass) * C};
}

/* A bias after a row split belongs to the sum: one rank adds it. */
static const float *bias_once(const layer *self, const bp_param *bias)
{
    return self->block.nn->tensor_at == 0 ? bias->value : NULL;
}

static bp_norm norm_of(const bp_param *gain, const bp_param *bias, float *mean, float *rstd)
{
    return (bp_norm){gain->value, bias->value, EPSILON, mean, rstd};
}

/* h = x + attention's branch, and work->normed = the second norm of it */
static void forward_attention(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                              const float *x, float *h)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_rng_key key = mask_key(self, pass, 0), residual_key = mask_key(self, pass, 1);
    bp_attention_shape shape = attention_shape(self, pass, &key);
    bp_norm norm1 = norm_of(self->ln1_gain, self->ln1_bias, kept->mean1, kept->rstd1),
            norm2 = norm_of(self->ln2_gain, self->ln2_bias, kept->mean2, kept->rstd2);
    bp_operand normed = bp_nn_own(self->block.nn, pass, &work->normed);

    bp_layer_norm_forward(&normed, kept->x, &norm1, &(bp_residual){.base = x});
    bp_nn_gather(self->block.nn, pass, &work->normed);
    bp_linear_forward_operand(gemm, kept->qkv, &work->normed, self->qkv, self->q_bias->value);
    bp_attention_input in = bp_attention_of_qkv(kept->qkv, shape.H, shape.D);
    bp_attention_forward(gemm, kept->attended, kept->lse, &in, &shape, work->attention);
    bp_operand_fill(&work->attended, kept->attended);
    bp_linear_forward_operand(gemm, work->branch, &work->attended, self->out,
                              bias_once(self, self->out_bias));
    bp_residual sum = residual_of(self, pass, x, work->branch, &residual_key);
    bp_layer_norm_forward(&normed, h, &norm2, &sum);
    bp_nn_gather(self->block.nn, pass, &work->normed);
}

/* h = middle + the MLP's branch */
static void forward_mlp(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                        const float *middle, float *h)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_rng_key key = mask_key(self, pass, 2);
    bp_gelu_rows gelu = {
        .y = &work->active, .kept = kept->up.data ? &kept->up : NULL, .sums = work->up};

    bp_linear_gelu_forward(gemm, &gelu, &work->normed, self->up, self->up_bias->value);
    bp_linear_forward_operand(gemm, work->branch, &work->active, self->down,
                              bias_once(self, self->down_bias));
    bp_residual sum = residual_of(self, pass, middle, work->branch, &key);
    bp_add_dropout(h, sum.base, sum.branch, bp_nn_rows(self->block.nn, pass).count * self->shape.C,
                   sum.dropout, &key, sum.first);
}

static void layer_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *memory)
{
    layer *self = (layer *)block;
    bp_arena keep = {.base = memory, .size_bytes = SIZE_MAX};
    size_t mark = pass->scratch->used_bytes;
    float *h = activations->item[0].data;
    saved kept = alloc_saved(self, memory ? &keep : pass->scratch, pass);
    forward_work work = alloc_forward(self, pass->scratch, pass, &kept);
    float *middle = pass->training ? kept.middle : h;

    forward_attention(self, pass, &kept, &work, h, middle);
    forward_mlp(self, pass, &kept, &work, middle, h);
    pass->scratch->used_bytes = mark;
}

/* The gradient of a branch before its dropout, and its bias's. */
static void open_residual(const layer *self, const bp_pass *pass, const bp_operand *dbranch,
                          const bp_bias_gradient *bias, const float *dh, int which)
{
    const bp_nn *nn = self->block.nn;
    bp_rng_key key = mask_key(self, pass, which);
    bp_operand own = bp_nn_own(nn, pass, dbranch);

    bp_dropout_backward_operand(&own, bias, dh, dropout_of(self, pass), &key,
                                bp_nn_first_row(nn, pass) * self->shape.C);
    bp_nn_gather(nn, pass, dbranch);
}

/* Back through a norm of x, its output's gradient being summed over tensor ranks first. */
static void backward_norm(const layer *self, bp_pass *pass, const bp_norm_gradients *to,
                          const norm_work *work, const float *x, const bp_norm *norm)
{
    const bp_nn *nn = self->block.nn;
    bp_row_range own = bp_nn_rows(nn, pass);
    int64_t C = self->shape.C;
    bp_operand normed = bp_nn_own(nn, pass, &work->normed);

    bp_nn_sum(nn, pass, work->dnormed, C);
    bp_layer_norm_backward(to, &normed, work->dnormed + own.first * C, x, norm, own.count, C,
                           work->sums);
    bp_nn_gather(nn, pass, &work->normed);
}

static void backward_mlp(layer *self, bp_pass *pass, const saved *kept, float *dh)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    mlp_work work = alloc_mlp(self, pass->scratch, pass, dh);
    bp_norm norm = norm_of(self->ln2_gain, self->ln2_bias, kept->mean2, kept->rstd2);
    bp_norm_gradients to = {dh, self->ln2_gain->gradient, self->ln2_bias->gradient, false};
    bp_bias_gradient down = {self->down_bias->gradient, work.norm.sums},
                     up = {self->up_bias->gradient, work.norm.sums};
    bp_gelu_rows gelu = {&work.active, &kept->up, &work.dup, &up, work.dactive};

    open_residual(self, pass, &work.dbranch, &down, dh, 2);
    bp_linear_gelu_backward(gemm, &gelu, &work.dbranch, self->down);
    bp_linear_backward_weight_operand(gemm, self->down_weight->gradient, &work.dbranch,
                                      &work.active, bp_params_take_fresh(self->down_weight, 1));
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dup, self->up);
    backward_norm(self, pass, &to, &work.norm, kept->middle, &norm);
    bp_linear_backward_weight_operand(gemm, self->up_weight->gradient, &work.dup, &work.norm.normed,
                                      bp_params_take_fresh(self->up_weight, 1));
    pass->scratch->used_bytes = mark;
}

static void backward_attention(layer *self, bp_pass *pass, const saved *kept, float *dh)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    attention_work work = alloc_attention_backward(self, pass->scratch, pass, dh, kept->attended);
    bp_rng_key key = mask_key(self, pass, 0);
    bp_attention_shape shape = attention_shape(self, pass, &key);
    bp_norm norm = norm_of(self->ln1_gain, self->ln1_bias, kept->mean1, kept->rstd1);
    bp_norm_gradients to = {dh, self->ln1_gain->gradient, self->ln1_bias->gradient, false};
    bp_bias_gradient out = {self->out_bias->gradient, work.norm.sums},
                     qkv = {self->q_bias->gradient, work.norm.sums};

    open_residual(self, pass, &work.dbranch, &out, dh, 1);
    bp_operand_fill(&work.attended, kept->attended);
    bp_linear_backward_input_operand(gemm, work.dattended, &work.dbranch, self->out);
    bp_linear_backward_weight_operand(gemm, self->out_weight->gradient, &work.dbranch,
                                      &work.attended, bp_params_take_fresh(self->out_weight, 1));
    bp_attention_input in = bp_attention_of_qkv(kept->qkv, shape.H, shape.D);
    bp_attention_gradients to_qkv = {work.dqkv, work.dqkv + self->Cl, work.dqkv + 2 * self->Cl};
    bp_attention_backward(gemm, &to_qkv, work.dattended, kept->attended, kept->lse, &in, &shape,
                          work.scratch);
    bp_operand_fill_sums(&work.dqkv_operand, &qkv, work.dqkv);
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dqkv_operand, self->qkv);
    backward_norm(self, pass, &to, &work.norm, kept->x, &norm);
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

    backward_mlp(self, pass, &kept, activations->item[0].data);
    backward_attention(self, pass, &kept, activations->item[0].data);
}

static void layer_free(bp_block *block)
{
    layer *self = (layer *)block;

    bp_weight_free(&self->qkv);
    bp_weight_free(&self->out);
    bp_weight_free(&self->up);
    bp_weight_free(&self->down);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "transformer_layer",
    .saved_bytes = layer_saved,
    .scratch_bytes = layer_scratch,
    .product_bytes = layer_products,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .free = layer_free,
};

static const char *name_of(char *buffer, const layer *self, const char *part)
{
    snprintf(buffer, BP_PARAM_NAME, "h.%lld.%s", (long long)self->shape.number, part);
    return buffer;
}

/* q, k and v are logical tensors of their own; their slabs lie in a row so that one product makes
 * all three. */
static void add_split_params(layer *self, bp_group *group)
{
    static const char *const QKV[3] = {"q", "k", "v"};
    int64_t C = self->shape.C, F = self->shape.F, at = self->block.nn->tensor_at;
    float residual_std = INIT_STD / sqrtf(2.0F * (float)self->shape.layers);
    char name[BP_PARAM_NAME], part[32];

    for (int k = 0; k < 3; k++) {
        snprintf(part, sizeof part, "attn.%s.weight", QKV[k]);
        bp_param *p = bp_group_add_matrix_part(group, name_of(name, self, part), C, C, INIT_STD, 0,
                                               at * self->Cl, self->Cl);
        if (k == 0)
            self->q_weight = p;
    }
    for (int k = 0; k < 3; k++) {
        snprintf(part, sizeof part, "attn.%s.bias", QKV[k]);
        bp_param *p =
            bp_group_add_vector_part(group, name_of(name, self, part), C, at * self->Cl, self->Cl);
        if (k == 0)
            self->q_bias = p;
    }
    self->out_weight = bp_group_add_matrix_part(group, name_of(name, self, "attn.out.weight"), C, C,
                                                residual_std, 1, at * self->Cl, self->Cl);
    self->up_weight = bp_group_add_matrix_part(group, name_of(name, self, "mlp.up.weight"), F, C,
                                               INIT_STD, 0, at * self->Fl, self->Fl);
    self->up_bias = bp_group_add_vector_part(group, name_of(name, self, "mlp.up.bias"), F,
                                             at * self->Fl, self->Fl);
    self->down_weight = bp_group_add_matrix_part(group, name_of(name, self, "mlp.down.weight"), C,
                                                 F, residual_std, 1, at * self->Fl, self->Fl);
    for (int k = 0; k < group->count; k++)
        group->params[k].product_first = group->params[k].dims == 2;
}

static void add_whole_params(layer *self, bp_group *group)
{
    int64_t C = self->shape.C;
    char name[BP_PARAM_NAME];

    self->ln1_gain = bp_group_add_vector(group, name_of(name, self, "ln1.gain"), C, BP_INIT_ONE);
    self->ln1_bias = bp_group_add_vector(group, name_of(name, self, "ln1.bias"), C, BP_INIT_ZERO);
    self->out_bias =
        bp_group_add_vector(group, name_of(name, self, "attn.out.bias"), C, BP_INIT_ZERO);
    self->ln2_gain = bp_group_add_vector(group, name_of(name, self, "ln2.gain"), C, BP_INIT_ONE);
    self->ln2_bias = bp_group_add_vector(group, name_of(name, self, "ln2.bias"), C, BP_INIT_ZERO);
    self->down_bias =
        bp_group_add_vector(group, name_of(name, self, "mlp.down.bias"), C, BP_INIT_ZERO);
}

void bp_transformer_layer_new(bp_block **out, const bp_nn *nn, const bp_layer_shape *shape,
                              bp_group *split, bp_group *whole)
{
    layer *self = bp_alloc("nn.layer", 1, sizeof *self);

    *out = NULL;
    BP_ASSERT(shape->C % shape->H == 0 && shape->H % nn->tensors == 0 &&
              shape->F % nn->tensors == 0);
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->Cl = shape->C / nn->tensors;
    self->Hl = shape->H / nn->tensors;
    self->Fl = shape->F / nn->tensors;
    self->first_head = self->Hl * nn->tensor_at;
    add_split_params(self, split);
    add_whole_params(self, whole);
    *out = &self->block;
}
