#include "base/err.h"
#include "math/attention.h"
#include "math/kernels.h"
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

/* What forward leaves for backward. Norms' outputs and GELU's are computed again. */
typedef struct saved {
    float *x;                             /* [rows][C] the layer's input */
    float *mean1, *rstd1, *mean2, *rstd2; /* [rows] */
    float *qkv;                           /* [rows][3][Hl][D] */
    float *attended;                      /* [rows][Cl] */
    float *lse;                           /* [B][Hl][T] */
    float *middle;                        /* [rows][C] after attention's residual */
    float *up;                            /* [rows][Fl] before GELU */
} saved;

static saved carve_saved(const layer *self, bp_arena *arena, int64_t B, int64_t T)
{
    int64_t rows = B * T;
    saved kept;

    kept.x = bp_carve(arena, rows * self->shape.C);
    kept.mean1 = bp_carve(arena, rows);
    kept.rstd1 = bp_carve(arena, rows);
    kept.mean2 = bp_carve(arena, rows);
    kept.rstd2 = bp_carve(arena, rows);
    kept.qkv = bp_carve(arena, rows * 3 * self->Cl);
    kept.attended = bp_carve(arena, rows * self->Cl);
    kept.lse = bp_carve(arena, rows * self->Hl);
    kept.middle = bp_carve(arena, rows * self->shape.C);
    kept.up = bp_carve(arena, rows * self->Fl);
    return kept;
}

static size_t layer_saved(const bp_block *block, int64_t B, int64_t T)
{
    bp_arena count = {0};

    carve_saved((const layer *)block, &count, B, T);
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

static size_t layer_scratch(const bp_block *block, int64_t B, int64_t T, bool training)
{
    const layer *self = (const layer *)block;
    int64_t rows = B * T, C = self->shape.C;
    bp_pass pass = {.B = B, .T = T, .training = training, .dropout = true}; /* the most */
    bp_attention_shape shape = attention_shape(self, &pass, NULL);
    size_t attention = bp_attention_scratch_bytes(bp_gemm_precision(block->nn->gemm), &shape);
    bp_arena count = {0};

    bp_carve(&count, rows * C); /* normed */
    bp_carve(&count, rows * C); /* branch, or its gradient */
    bp_carve(&count, rows * C); /* sum over tensor ranks */
    bp_carve(&count, rows * self->Fl);
    if (training) {
        bp_carve(&count, rows * self->Fl);
        bp_carve(&count, rows * 3 * self->Cl);
        bp_carve(&count, rows * self->Cl);
        bp_carve(&count, bp_layer_norm_scratch(rows, C));
    } else {
        count.used_bytes += layer_saved(block, B, T);
    }
    return count.used_bytes + bp_arena_bytes((int64_t)attention, 1);
}

static bp_product_bytes layer_products(const bp_block *block, int64_t B, int64_t T)
{
    const layer *self = (const layer *)block;
    int64_t rows = B * T, C = self->shape.C;
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

/* h = base + dropout(branch summed over tensor ranks) */
static void close_residual(layer *self, bp_pass *pass, float *h, const float *base, float *branch,
                           int which)
{
    const bp_nn *nn = self->block.nn;
    int64_t n = pass->B * pass->T * self->shape.C;
    bp_rng_key key = mask_key(self, pass, which);

    bp_nn_sum(nn, pass, branch, n);
    bp_add_dropout(h, base, branch, n, pass->dropout ? nn->dropout : 0, &key,
                   pass->first_slot * pass->T * self->shape.C);
}

/* A bias after a row split belongs to the sum: one rank adds it. */
static const float *bias_once(const layer *self, const bp_param *bias)
{
    return self->block.nn->tensor_at == 0 ? bias->value : NULL;
}

static void forward_attention(layer *self, bp_pass *pass, const saved *kept, float *h)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_arena *scratch = pass->scratch;
    int64_t rows = pass->B * pass->T, C = self->shape.C;
    size_t mark = scratch->used_bytes;
    float *normed = bp_carve(scratch, rows * C), *branch = bp_carve(scratch, rows * C);
    bp_rng_key key = mask_key(self, pass, 0);
    bp_attention_shape shape = attention_shape(self, pass, &key);
    void *work = bp_arena_take(
        scratch, (int64_t)bp_attention_scratch_bytes(bp_gemm_precision(gemm), &shape), 1);

    bp_layer_norm_forward(normed, kept->mean1, kept->rstd1, kept->x, self->ln1_gain->value,
                          self->ln1_bias->value, rows, C, EPSILON);
    bp_linear_forward(gemm, kept->qkv, normed, self->qkv, self->q_bias->value, rows);
    bp_attention_forward(gemm, kept->attended, kept->lse, kept->qkv, &shape, work);
    bp_linear_forward(gemm, branch, kept->attended, self->out, bias_once(self, self->out_bias),
                      rows);
    close_residual(self, pass, h, kept->x, branch, 1);
    scratch->used_bytes = mark;
}

static void forward_mlp(layer *self, bp_pass *pass, const saved *kept, float *h)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_arena *scratch = pass->scratch;
    int64_t rows = pass->B * pass->T, C = self->shape.C;
    size_t mark = scratch->used_bytes;
    float *normed = bp_carve(scratch, rows * C), *branch = bp_carve(scratch, rows * C);
    float *active = bp_carve(scratch, rows * self->Fl);

    bp_layer_norm_forward(normed, kept->mean2, kept->rstd2, kept->middle, self->ln2_gain->value,
                          self->ln2_bias->value, rows, C, EPSILON);
    bp_linear_forward(gemm, kept->up, normed, self->up, self->up_bias->value, rows);
    bp_gelu_forward(active, kept->up, rows * self->Fl);
    bp_linear_forward(gemm, branch, active, self->down, bias_once(self, self->down_bias), rows);
    close_residual(self, pass, h, kept->middle, branch, 2);
    scratch->used_bytes = mark;
}

static void copy(float *to, const float *from, int64_t n)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void layer_forward(bp_block *block, bp_pass *pass, bp_packet *packet, void *memory)
{
    layer *self = (layer *)block;
    bp_arena keep = {.base = memory, .size_bytes = SIZE_MAX};
    size_t mark = pass->scratch->used_bytes;
    float *h = packet->item[0].data;
    int64_t n = pass->B * pass->T * self->shape.C;
    saved kept = carve_saved(self, memory ? &keep : pass->scratch, pass->B, pass->T);

    copy(kept.x, h, n);
    forward_attention(self, pass, &kept, h);
    copy(kept.middle, h, n);
    forward_mlp(self, pass, &kept, h);
    pass->scratch->used_bytes = mark;
}

/* The gradient of a branch before its dropout: dh itself where nothing is dropped. */
static const float *open_residual(layer *self, bp_pass *pass, float *branch, const float *dh,
                                  int which)
{
    const bp_nn *nn = self->block.nn;
    bp_rng_key key = mask_key(self, pass, which);

    if (!pass->dropout || nn->dropout <= 0)
        return dh;
    bp_dropout_backward(branch, dh, pass->B * pass->T * self->shape.C, nn->dropout, &key,
                        pass->first_slot * pass->T * self->shape.C);
    return branch;
}

static void backward_mlp(layer *self, bp_pass *pass, const saved *kept, float *dh)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_arena *scratch = pass->scratch;
    int64_t rows = pass->B * pass->T, C = self->shape.C, Fl = self->Fl;
    size_t mark = scratch->used_bytes;
    float *normed = bp_carve(scratch, rows * C), *branch = bp_carve(scratch, rows * C);
    float *active = bp_carve(scratch, rows * Fl), *dup = bp_carve(scratch, rows * Fl);
    const float *dbranch = open_residual(self, pass, branch, dh, 2);

    bp_gelu_forward(active, kept->up, rows * Fl);
    bp_linear_backward(
        &(bp_linear_gradients){dup, self->down_weight->gradient, self->down_bias->gradient}, gemm,
        dbranch, active, self->down, rows);
    bp_gelu_backward(dup, dup, kept->up, rows * Fl);
    bp_layer_norm_forward(normed, NULL, NULL, kept->middle, self->ln2_gain->value,
                          self->ln2_bias->value, rows, C, EPSILON);
    bp_linear_backward(
        &(bp_linear_gradients){branch, self->up_weight->gradient, self->up_bias->gradient}, gemm,
        dup, normed, self->up, rows);
    bp_nn_sum(self->block.nn, pass, branch, rows * C);
    bp_layer_norm_backward(dh, self->ln2_gain->gradient, self->ln2_bias->gradient, branch,
                           kept->middle, self->ln2_gain->value, kept->mean2, kept->rstd2, rows, C,
                           bp_carve(scratch, bp_layer_norm_scratch(rows, C)));
    scratch->used_bytes = mark;
}

static void backward_attention(layer *self, bp_pass *pass, const saved *kept, float *dh)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_arena *scratch = pass->scratch;
    int64_t rows = pass->B * pass->T, C = self->shape.C, Cl = self->Cl;
    size_t mark = scratch->used_bytes;
    float *normed = bp_carve(scratch, rows * C), *branch = bp_carve(scratch, rows * C);
    float *dqkv = bp_carve(scratch, rows * 3 * Cl), *dattended = bp_carve(scratch, rows * Cl);
    bp_rng_key key = mask_key(self, pass, 0);
    bp_attention_shape shape = attention_shape(self, pass, &key);
    void *work = bp_arena_take(
        scratch, (int64_t)bp_attention_scratch_bytes(bp_gemm_precision(gemm), &shape), 1);
    const float *dbranch = open_residual(self, pass, branch, dh, 1);

    bp_linear_backward(
        &(bp_linear_gradients){dattended, self->out_weight->gradient, self->out_bias->gradient},
        gemm, dbranch, kept->attended, self->out, rows);
    bp_attention_backward(gemm, dqkv, dattended, kept->attended, kept->lse, kept->qkv, &shape,
                          work);
    bp_layer_norm_forward(normed, NULL, NULL, kept->x, self->ln1_gain->value, self->ln1_bias->value,
                          rows, C, EPSILON);
    bp_linear_backward(
        &(bp_linear_gradients){branch, self->q_weight->gradient, self->q_bias->gradient}, gemm,
        dqkv, normed, self->qkv, rows);
    bp_nn_sum(self->block.nn, pass, branch, rows * C);
    bp_layer_norm_backward(dh, self->ln1_gain->gradient, self->ln1_bias->gradient, branch, kept->x,
                           self->ln1_gain->value, kept->mean1, kept->rstd1, rows, C,
                           bp_carve(scratch, bp_layer_norm_scratch(rows, C)));
    scratch->used_bytes = mark;
}

static void layer_backward(bp_block *block, bp_pass *pass, bp_packet *packet, void *memory)
{
    layer *self = (layer *)block;
    bp_arena keep = {.base = memory, .size_bytes = SIZE_MAX};
    saved kept = carve_saved(self, &keep, pass->B, pass->T);

    backward_mlp(self, pass, &kept, packet->item[0].data);
    backward_attention(self, pass, &kept, packet->item[0].data);
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

bp_err bp_transformer_layer_new(bp_block **out, const bp_nn *nn, const bp_layer_shape *shape,
                                bp_group *split, bp_group *whole)
{
    layer *self = bp_alloc("nn.layer", 1, sizeof *self);

    *out = NULL;
    if (!self)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "memory is short: at layer %lld; use more ranks or a smaller model",
                       (long long)shape->number);
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
    return BP_OK;
}
