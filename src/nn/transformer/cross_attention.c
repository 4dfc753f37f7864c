/* The branch of a Transformer layer that attends to another stream: queries from its own rows,
 * keys and values from the source, which is unchanged. Heads are split over tensor ranks as those
 * of self-attention. Source: Vaswani et al. 2017, section 3.2.3. */
#include "base/err.h"
#include "nn/transformer/transformer_priv.h"

#include <stdio.h>
#include <string.h>

static bp_param *add_vector(layer *self, bp_group *group, const char *what, bp_init init)
{
    char name[BP_PARAM_NAME], part[32];

    snprintf(part, sizeof part, "cross.%s", what);
    return bp_group_add_vector(group, layer_param_name(name, self, part), self->shape.C, init);
}

void cross_add_params(layer *self, bp_group *split, bp_group *whole)
{
    static const char *const NAMES[3] = {"q", "k", "v"};
    int64_t C = self->shape.C, all = self->shape.H * self->D,
            first = self->block.nn->tensor_rank * self->Cl;
    bool rms = self->shape.rms, biases = !self->shape.no_bias;
    char name[BP_PARAM_NAME], part[32];
    bp_param *weights[3], *own[3] = {NULL};

    for (int k = 0; k < 3; k++) {
        snprintf(part, sizeof part, "cross.%s.weight", NAMES[k]);
        weights[k] =
            bp_group_add_matrix_part(split, layer_param_name(name, self, part), all, C,
                                     k == 0 ? layer_query_std(self) : INIT_STD, 0, first, self->Cl);
    }
    for (int k = 0; k < 3 && biases; k++) {
        snprintf(part, sizeof part, "cross.%s.bias", NAMES[k]);
        own[k] = bp_group_add_vector_part(split, layer_param_name(name, self, part), all, first,
                                          self->Cl);
    }
    self->cross_q_weight = weights[0];
    self->cross_k_weight = weights[1];
    self->cross_q_bias = own[0];
    self->cross_k_bias = own[1];
    self->cross_out_weight =
        bp_group_add_matrix_part(split, layer_param_name(name, self, "cross.out.weight"), C, all,
                                 layer_residual_std(self), 1, first, self->Cl);
    self->cross_out_bias = biases ? add_vector(self, whole, "out.bias", BP_INIT_ZERO) : NULL;
    self->gain[CROSS] = add_vector(self, whole, "ln.gain", BP_INIT_ONE);
    self->bias[CROSS] = rms ? NULL : add_vector(self, whole, "ln.bias", BP_INIT_ZERO);
}

void cross_alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass, saved *kept)
{
    bp_pass source = layer_source_pass(self, pass);
    int64_t rows = pass->B * pass->T, source_rows = source.B * source.T;

    kept->cross_q = bp_arena_floats(arena, rows * self->Cl);
    kept->cross_kv = bp_arena_floats(arena, source_rows * 2 * self->Cl);
    kept->cross_attended = bp_arena_floats(arena, rows * self->Cl);
    kept->cross_lse = bp_arena_floats(arena, rows * self->Hl);
    if (pass->training)
        kept->source =
            bp_arena_floats(arena, bp_nn_rows(self->block.nn, &source).count * self->shape.C);
}

void cross_repeat(const layer *self, const bp_pass *some, const saved *to, const saved *from,
                  int64_t times)
{
    bp_pass source = layer_source_pass(self, some);
    int64_t rows = some->B * some->T, source_rows = source.B * source.T;

    bp_repeat_floats(to->cross_q, from->cross_q, rows * self->Cl, times);
    bp_repeat_floats(to->cross_kv, from->cross_kv, source_rows * 2 * self->Cl, times);
    bp_repeat_floats(to->cross_attended, from->cross_attended, rows * self->Cl, times);
    bp_repeat_floats(to->cross_lse, from->cross_lse, rows * self->Hl, times);
    bp_repeat_floats(to->source, from->source,
                     bp_nn_rows(self->block.nn, &source).count * self->shape.C, times);
}

/* Scratch of the forward pass, in addition to forward_work. */
typedef struct cross_work {
    bp_operand source; /* [source rows][C] */
    bp_operand attended;
    void *scratch;
} cross_work;

static cross_work alloc_forward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                const saved *kept)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    bp_pass source = layer_source_pass(self, pass);
    cross_work work = {
        .source = bp_operand_alloc(arena, gemm, source.B * source.T, self->shape.C),
        .attended = bp_operand_over(arena, gemm, kept->cross_attended, pass->B * pass->T, self->Cl),
    };

    work.scratch = layer_alloc_attention(self, arena, pass, true);
    return work;
}

/* Scratch of the backward pass. */
typedef struct backward_work {
    bp_operand dbranch, attended, dq_operand, dkv_operand, source;
    float *dattended;      /* [rows][Cl] */
    float *dq, *dkv;       /* [rows][Hl][D], [source rows][2][Hl][D] */
    float *dsource, *sums; /* [source rows][C]; of the biases of keys and values */
    norm_work norm;
    void *scratch;
} backward_work;

static backward_work alloc_backward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                    const float *dh, const float *attended)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    bp_pass source = layer_source_pass(self, pass);
    int64_t rows = pass->B * pass->T, source_rows = source.B * source.T, Cl = self->Cl;
    backward_work work = {.dbranch = layer_alloc_dbranch(self, arena, pass, dh)};

    work.attended = bp_operand_over(arena, gemm, attended, rows, Cl);
    work.dattended = bp_arena_floats(arena, rows * Cl);
    work.dq = bp_arena_floats(arena, rows * Cl);
    work.dkv = bp_arena_floats(arena, source_rows * 2 * Cl);
    work.dq_operand = bp_operand_over(arena, gemm, work.dq, rows, Cl);
    work.dkv_operand = bp_operand_over(arena, gemm, work.dkv, source_rows, 2 * Cl);
    work.source = bp_operand_alloc(arena, gemm, source_rows, self->shape.C);
    work.dsource = bp_arena_floats(arena, source_rows * self->shape.C);
    work.sums = bp_arena_floats(arena, bp_bias_scratch(source_rows, 2 * Cl));
    work.norm = layer_alloc_norm(self, arena, rows, Cl);
    work.scratch = layer_alloc_attention(self, arena, pass, true);
    return work;
}

size_t cross_scratch(const layer *self, const bp_pass *pass, bool training)
{
    bp_pass source = layer_source_pass(self, pass);
    saved kept = {0};
    bp_arena count = {0};

    if (!training) {
        alloc_forward(self, &count, pass, &kept);
        return count.used_bytes;
    }
    alloc_backward(self, &count, pass, NULL, NULL);
    bp_arena_floats(&count, bp_nn_sum_floats(self->block.nn, &source, self->shape.C));
    return count.used_bytes;
}

void cross_add_products(const layer *self, const bp_extent *most, bp_product_bytes *bytes)
{
    const bp_nn *nn = self->block.nn;
    int64_t rows = most->B * most->T[self->block.stream], C = self->shape.C,
            source_rows = most->B * most->T[self->shape.source_stream];

    bp_product_bytes_add(bytes, nn, rows, self->Cl, C);
    bp_product_bytes_add(bytes, nn, source_rows, 2 * self->Cl, C);
    bp_product_bytes_add(bytes, nn, rows, C, self->Cl);
}

bp_err cross_bind(layer *self)
{
    int64_t C = self->shape.C, Cl = self->Cl;
    bp_err err = layer_bind_product(self, PRODUCT_CROSS_Q, &self->cross_q,
                                    self->cross_q_weight->value, Cl, C);

    if (err == BP_OK)
        err = layer_bind_product(self, PRODUCT_CROSS_KV, &self->cross_kv,
                                 self->cross_k_weight->value, 2 * Cl, C);
    if (err == BP_OK)
        err = layer_bind_product(self, PRODUCT_CROSS_OUT, &self->cross_out,
                                 self->cross_out_weight->value, C, Cl);
    return err;
}

void cross_refresh(layer *self)
{
    bp_weight_refresh(self->cross_q);
    bp_weight_refresh(self->cross_kv);
    bp_weight_refresh(self->cross_out);
}

void cross_free(layer *self)
{
    bp_weight_free(&self->cross_q);
    bp_weight_free(&self->cross_kv);
    bp_weight_free(&self->cross_out);
}

/* All rows of the source; this rank may have only a share. */
static void gather_source(const layer *self, const bp_pass *pass, const bp_operand *all,
                          const float *own)
{
    const bp_nn *nn = self->block.nn;
    bp_pass source = layer_source_pass(self, pass);
    bp_operand part = bp_nn_own(nn, &source, all);

    bp_operand_fill(&part, own);
    bp_nn_gather(nn, &source, all);
}

/* ---- decoding: a source's keys and values are computed once ---- */

static bp_cached_shape cached_shape(const layer *self, int64_t sources, int64_t capacity)
{
    return (bp_cached_shape){.H = self->Hl,
                             .key_heads = self->Hl,
                             .D = self->D,
                             .entmax = self->shape.entmax,
                             .scale = self->shape.unscaled ? 1 : self->shape.scale,
                             .cap = self->shape.score_cap,
                             .slots = sources,
                             .capacity = capacity,
                             .stored = true};
}

void cross_cache(const layer *self, bp_cache_need *need)
{
    bp_cached_shape shape = cached_shape(self, need->sources, need->source_capacity);
    size_t scratch = bp_cached_scratch_bytes(&shape);

    need->kept_bytes += (size_t)bp_cached_floats(&shape) * sizeof(float);
    need->scratch_bytes = scratch > need->scratch_bytes ? scratch : need->scratch_bytes;
}

static float *cached_keys(const layer *self, const bp_continuation *rest)
{
    return rest->cache + layer_cached_floats(self, rest->slots, rest->capacity);
}

void cross_keep(layer *self, bp_pass *pass, const saved *kept, const float *source)
{
    const bp_continuation *rest = pass->continuation;
    cross_work own = alloc_forward(self, pass->scratch, pass, kept);
    int64_t S = pass->extent.T[self->shape.source_stream], heads = self->Hl, D = self->D;
    float *cache = cached_keys(self, rest);

    BP_ASSERT(S <= rest->source_capacity && rest->source < rest->sources);
    gather_source(self, pass, &own.source, source);
    bp_linear_forward_operand(self->block.nn->gemm, kept->cross_kv, &own.source, self->cross_kv,
                              layer_value_of(self->cross_k_bias));
    for (int64_t s = 0; s < S; s++)
        for (int64_t k = 0; k < 2 * heads; k++) { /* keys' heads, then values' */
            int64_t place = k / heads * rest->sources + rest->source;

            memcpy(cache + ((place * heads + k % heads) * rest->source_capacity + s) * D,
                   kept->cross_kv + (s * 2 * heads + k) * D, (size_t)D * sizeof *cache);
        }
}

static void attend_cached(const layer *self, const bp_continuation *rest, const saved *kept)
{
    bp_cached_shape shape = cached_shape(self, rest->sources, rest->source_capacity);

    bp_attention_cached(kept->cross_attended, cached_keys(self, rest), kept->cross_q,
                        &rest->source_rows, &shape, rest->scratch);
}

/* attended = attention of the queries to the source. */
static void attend_source(layer *self, bp_pass *pass, const saved *kept, const cross_work *own,
                          const float *source)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_pass of_source = layer_source_pass(self, pass);
    bp_rng_key key = layer_dropout_key(self, pass, DROPOUT_CROSS);
    bp_attention_shape shape = layer_attention_shape(self, pass, true, &key);
    bp_attention_input in = bp_attention_of_q_kv(kept->cross_q, kept->cross_kv, shape.H, shape.D);

    if (kept->source)
        memcpy(kept->source, source,
               (size_t)(bp_nn_rows(self->block.nn, &of_source).count * self->shape.C) *
                   sizeof *source);
    gather_source(self, pass, &own->source, source);
    bp_linear_forward_operand(gemm, kept->cross_kv, &own->source, self->cross_kv,
                              layer_value_of(self->cross_k_bias));
    bp_operand attended = bp_operand_floats(kept->cross_attended, pass->B * pass->T, self->Cl);
    bp_attention_forward(gemm, &attended, kept->cross_lse, &in, &shape, own->scratch);
    bp_probe_attention(pass, "cross_attention", &in, kept->cross_lse, &shape);
}

void cross_forward(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                   const float *source, const float *base, float *h)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    cross_work own = alloc_forward(self, pass->scratch, pass, kept);

    bp_linear_forward_operand(gemm, kept->cross_q, &work->normed, self->cross_q,
                              layer_value_of(self->cross_q_bias));
    if (pass->continuation)
        attend_cached(self, pass->continuation, kept);
    else
        attend_source(self, pass, kept, &own, source);
    bp_operand_fill(&own.attended, kept->cross_attended);
    bp_linear_forward_operand(gemm, work->branch, &own.attended, self->cross_out,
                              layer_bias_once(self, self->cross_out_bias));
    pass->scratch->used_bytes = mark;
    layer_join(self, pass, kept, work, CROSS, base, h, MLP);
}

/* dsource += the gradient through keys and values. */
static void backward_source(layer *self, bp_pass *pass, const saved *kept, backward_work *work,
                            float *dsource)
{
    const bp_nn *nn = self->block.nn;
    bp_pass source = layer_source_pass(self, pass);
    bp_row_range own = bp_nn_rows(nn, &source);
    int64_t C = self->shape.C;
    bp_bias_gradient kv = {layer_gradient_of(self->cross_k_bias), work->sums};

    bp_operand_fill_sums(&work->dkv_operand, layer_wanted(&kv), work->dkv);
    gather_source(self, pass, &work->source, kept->source);
    layer_backward_weight(self, pass, PRODUCT_CROSS_KV, self->cross_k_weight, 2, &work->dkv_operand,
                          &work->source);
    bp_linear_backward_input_operand(nn->gemm, work->dsource, &work->dkv_operand, self->cross_kv);
    bp_nn_sum(nn, &source, work->dsource, C);
    bp_add(dsource, work->dsource + own.first * C, own.count * C);
}

void cross_backward(layer *self, bp_pass *pass, const saved *kept, float *dh, float *own,
                    float *dsource)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    backward_work work = alloc_backward(self, pass->scratch, pass, dh, kept->cross_attended);
    bp_rng_key key = layer_dropout_key(self, pass, DROPOUT_CROSS);
    bp_attention_shape shape = layer_attention_shape(self, pass, true, &key);
    bp_attention_input in = bp_attention_of_q_kv(kept->cross_q, kept->cross_kv, shape.H, shape.D);
    bp_attention_gradients to = {.dq = work.dq, .dk = work.dkv, .dv = work.dkv + self->Cl};
    bp_bias_gradient out = {layer_gradient_of(self->cross_out_bias), work.norm.sums},
                     q = {layer_gradient_of(self->cross_q_bias), work.norm.sums};

    if (self->shape.post_norm)
        layer_open_norm(self, pass, CROSS, kept, &work.norm, dh, own);
    layer_open_residual(self, pass, kept, &work.dbranch, layer_wanted(&out), dh, CROSS);
    bp_operand_fill(&work.attended, kept->cross_attended);
    bp_linear_backward_input_operand(gemm, work.dattended, &work.dbranch, self->cross_out);
    layer_backward_weight(self, pass, PRODUCT_CROSS_OUT, self->cross_out_weight, 1, &work.dbranch,
                          &work.attended);
    bp_operand attended = bp_operand_floats(kept->cross_attended, pass->B * pass->T, self->Cl),
               dattended = bp_operand_floats(work.dattended, attended.rows, self->Cl);
    bp_attention_backward(gemm, &to, &dattended, &attended, kept->cross_lse, &in, &shape,
                          work.scratch);
    bp_operand_fill_sums(&work.dq_operand, layer_wanted(&q), work.dq);
    bp_linear_backward_input_operand(gemm, work.norm.dnormed, &work.dq_operand, self->cross_q);
    layer_backward_norm(self, pass, CROSS, kept, &work.norm, dh);
    layer_backward_weight(self, pass, PRODUCT_CROSS_Q, self->cross_q_weight, 1, &work.dq_operand,
                          &work.norm.normed);
    backward_source(self, pass, kept, &work, dsource);
    pass->scratch->used_bytes = mark;
}
