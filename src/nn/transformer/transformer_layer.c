/* A Transformer layer, split over tensor ranks as Megatron-LM does it, with sequence parallelism
 * between its products. transformer_backward.c has its gradients. Called by
 * models/seq2seq/seq2seq.c, models/stack/stack.c and models/stack/transformer.c. */
#include "base/err.h"
#include "nn/transformer/transformer_priv.h"

#define EPSILON 1e-5F /* of the layer norms, as GPT-2's */

static bp_err bind_mlp(layer *self)
{
    int64_t C = self->shape.C;
    bp_err err = layer_bind_product(self, PRODUCT_UP, &self->up, self->up_weight->value,
                                    layer_up_columns(self), C);

    return err == BP_OK ? layer_bind_product(self, PRODUCT_DOWN, &self->down,
                                             self->down_weight->value, C, self->Fl)
                        : err;
}

static bp_err bind_attention(layer *self)
{
    int64_t C = self->shape.C;
    float *qkv = self->repeats ? keys_join(self) : self->q_weight->value;
    bp_err err = layer_bind_product(self, PRODUCT_QKV, &self->qkv, qkv, layer_qkv_columns(self), C);

    return err == BP_OK ? layer_bind_product(self, PRODUCT_OUT, &self->out, self->out_weight->value,
                                             C, self->Cl)
                        : err;
}

static bp_err layer_bind(bp_block *block)
{
    layer *self = (layer *)block;
    bp_err err = layer_attends(self) ? bind_attention(self) : BP_OK;

    if (err == BP_OK)
        err = self->experts ? experts_bind(self) : bind_mlp(self);
    if (err == BP_OK && self->shape.crosses)
        err = cross_bind(self);
    if (err == BP_OK)
        err = apart_bind(self);
    if (err == BP_OK)
        err = layer_bind_bottlenecks(self);
    return err;
}

static void layer_refresh(bp_block *block)
{
    layer *self = (layer *)block;

    layer_refresh_adapted(self);
    self->stale = self->repeats;
    if (!self->repeats && self->qkv)
        bp_weight_refresh(self->qkv);
    if (self->out)
        bp_weight_refresh(self->out);
    if (self->experts) {
        experts_refresh(self);
    } else {
        bp_weight_refresh(self->up);
        bp_weight_refresh(self->down);
    }
    if (self->shape.crosses)
        cross_refresh(self);
    apart_refresh(self);
}

static bool layer_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need)
{
    const layer *self = (const layer *)block;
    bp_cached_shape shape;

    if (!layer_attends(self))
        return true;
    if (self->shape.sees_all) /* a source's layer ends once the source is read */
        return need->source_capacity > 0 && block->stream > 0;
    shape = layer_cached_shape(self, slots, capacity);
    need->kept_bytes = (size_t)bp_cached_floats(&shape) * sizeof(float);
    need->scratch_bytes = bp_cached_scratch_bytes(&shape);
    if (layer_has_score_bias(self))
        need->scratch_bytes += (size_t)(self->Hl * capacity) * sizeof(float);
    if (self->shape.crosses)
        cross_cache(self, need);
    return !self->shape.crosses || need->source_capacity > 0;
}

static void attend_cached(const layer *self, const bp_continuation *rest, const saved *kept)
{
    bp_cached_shape shape = layer_cached_shape(self, rest->slots, rest->capacity);

    if (layer_has_score_bias(self)) {
        float *bias = (float *)rest->scratch + bp_cached_scratch_bytes(&shape) / sizeof(float);
        bp_relative by = layer_relative(self);
        int64_t end = 0;

        for (int64_t r = 0; r < rest->rows.count; r++)
            end = rest->rows.positions[r] >= end ? rest->rows.positions[r] + 1 : end;
        if (self->shape.alibi)
            bp_alibi_fill_cached(bias, self->first_head, self->shape.H, self->Hl, rest->capacity,
                                 end);
        else
            bp_relative_fill_cached(bias, self->shape.relative->value, &by, self->Hl,
                                    rest->capacity, end);
        shape.bias = bias;
    }
    bp_attention_cached(kept->attended.data, rest->cache, kept->qkv.data, &rest->rows, &shape,
                        rest->scratch);
}

/* h = x + attention's branch, and work->normed = the norm of it that `next` reads */
static void forward_attention(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                              const float *x, float *h, branch_kind next)
{
    bp_gemm *gemm = self->block.nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    attention_forward_work own = layer_alloc_attention_forward(self, pass->scratch, pass, kept);
    bp_rng_key key = layer_dropout_key(self, pass, DROPOUT_ATTENTION);
    bp_attention_shape shape = layer_attention_shape(self, pass, false, &key);
    bp_attention_input in = bp_attention_of_groups(&kept->qkv, shape.H, self->Gl, shape.D);

    layer_set_bias(self, &shape, own.bias);
    apart_forward(self, &shape, &own.apart);
    bp_linear_forward_into(gemm, &kept->qkv, &work->normed, self->qkv, layer_qkv_bias(self));
    query_forward(self, pass, kept->qkv.data, kept, &own.queries);
    query_clip(self, kept->qkv.data, pass->B * pass->T, kept->clipped);
    layer_rotate(self, pass, kept->qkv.data, false);
    if (pass->continuation && !self->shape.sees_all)
        attend_cached(self, pass->continuation, kept);
    else
        bp_attention_forward(gemm, &kept->attended, kept->lse, &in, &shape, own.scratch);
    if (!pass->continuation)
        bp_probe_attention(pass, "attention", &in, kept->lse, &shape);
    if (own.attended.data != kept->attended.data)
        bp_operand_fill(&own.attended, kept->attended.data);
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
    bp_activation_rows rows = {.y = &own.active, .x = &own.up, .kind = self->shape.activation};

    if (layer_is_gated(self)) {
        bp_operand up = bp_operand_unrounded(&own.up);

        bp_linear_forward_into(gemm, &up, &work->normed, self->up, layer_value_of(self->up_bias));
        bp_gated_forward(rows.kind, &own.active, &own.up);
    } else {
        bp_linear_activation_forward(gemm, &rows, &work->normed, self->up,
                                     layer_value_of(self->up_bias));
    }
    bp_probe_coefficients(pass, &own.active, self->block.nn->tensor_rank * self->Fl);
    bp_linear_forward_operand(gemm, work->branch, &own.active, self->down,
                              layer_bias_once(self, self->down_bias));
    pass->scratch->used_bytes = mark;
    layer_end(self, pass, kept, work, base, h);
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
    layer_enter(self, pass, &kept, &work, h);
    if (layer_attends(self)) {
        keys_gather(self, pass);
        forward_attention(self, pass, &kept, &work, h, first, crosses ? CROSS : MLP);
    } else {
        middle = h;
    }
    if (crosses)
        cross_forward(self, pass, &kept, &work, activations->item[self->shape.source_item].data,
                      first, middle);
    if (self->experts) {
        experts_forward(self, pass, &kept, &work.normed, work.branch);
        layer_end(self, pass, &kept, &work, middle, h);
    } else {
        forward_mlp(self, pass, &kept, &work, middle, h);
    }
    balance_forward(self, pass, &kept, activations);
    pass->scratch->used_bytes = mark;
}

static void layer_free(bp_block *block)
{
    layer *self = (layer *)block;

    bp_weight_free(&self->qkv);
    bp_weight_free(&self->out);
    bp_weight_free(&self->up);
    bp_weight_free(&self->down);
    experts_free(self);
    cross_free(self);
    apart_free(self);
    keys_free(self);
    layer_free_adapted(self);
    bp_free(self);
}

static void layer_assist(bp_block *block, bp_arena *scratch)
{
    layer *self = (layer *)block;

    if (self->experts && experts_travel(self))
        experts_assist(self, scratch);
}

static const bp_block_ops OPS = {
    .kind = "transformer_layer",
    .assist = layer_assist,
    .cache = layer_cache,
    .saved_bytes = layer_saved_bytes,
    .scratch_bytes = layer_scratch_bytes,
    .product_bytes = layer_product_bytes,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .repeat = layer_repeat,
    .adapt = layer_adapt,
    .free = layer_free,
};

/* Which key heads this rank's heads read. */
static void share_keys(layer *self)
{
    if (!layer_attends(self))
        return;
    int64_t group = self->shape.H / self->shape.G;

    self->first_key = self->first_head / group;
    self->Gl = (self->first_head + self->Hl - 1) / group - self->first_key + 1;
    self->repeats = self->shape.G % self->block.nn->tensor_ranks != 0;
}

/* Is it one of the weights of q, k and v (the first three) to which keys_backward adds? */
static bool is_added(const layer *self, int k)
{
    return self->repeats && k < 3;
}

/* Sizes and parameters. */
static void begin(layer *self, const bp_nn *nn, const bp_layer_shape *shape, bp_group *split,
                  bp_group *whole)
{
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->block.stream = shape->stream;
    self->shape = *shape;
    self->shape.G = shape->G > 0 ? shape->G : shape->H;
    self->shape.epsilon = shape->epsilon > 0 ? shape->epsilon : EPSILON;
    self->D = shape->D > 0 ? shape->D : shape->C / (shape->H > 0 ? shape->H : 1);
    self->Hl = shape->H / nn->tensor_ranks;
    self->Cl = self->Hl * self->D;
    self->Fl = shape->F / nn->tensor_ranks;
    self->first_head = self->Hl * nn->tensor_rank;
    share_keys(self);
    layer_add_params(self, split, whole);
}

void bp_transformer_layer_new(bp_block **out, const bp_nn *nn, const bp_layer_shape *shape,
                              bp_group *split, bp_group *whole)
{
    layer *self = bp_alloc("nn.layer", 1, sizeof *self);

    *out = NULL;
    BP_ASSERT(shape->D > 0 || shape->H == 0 || shape->C % shape->H == 0);
    BP_ASSERT(shape->H > 0 ||
              !(shape->crosses || shape->parallel || shape->post_norm || shape->closing_norms));
    BP_ASSERT(shape->H % nn->tensor_ranks == 0 && shape->F % nn->tensor_ranks == 0 &&
              (shape->G == 0 || shape->H % shape->G == 0));
    BP_ASSERT(!(shape->parallel && (shape->crosses || shape->post_norm || shape->closing_only)) &&
              (shape->closing_norms || !shape->closing_only) &&
              (shape->parallel || !shape->one_norm) &&
              !(shape->alibi && (shape->relative || shape->sees_all || shape->crosses)) &&
              !(shape->closing_norms && (shape->crosses || shape->post_norm)));
    BP_ASSERT(!(shape->no_first_norm && (shape->parallel || shape->post_norm)) &&
              !(shape->no_norm_bias && shape->crosses));
    BP_ASSERT(!shape->apart.table ||
              (shape->sees_all && !shape->crosses && !shape->entmax && shape->score_cap == 0 &&
               !shape->no_bias && (shape->G == 0 || shape->G == shape->H)));
    if (shape->relative)
        shape->relative->values_read = true;
    begin(self, nn, shape, split, whole);
    BP_ASSERT(!layer_is_gated(self) || shape->no_bias);
    BP_ASSERT(!self->experts || (layer_is_gated(self) && !shape->post_norm && !shape->crosses &&
                                 shape->experts.chosen <= shape->experts.count));
    for (int k = 0; k < split->count; k++)
        split->params[k].product_first = split->params[k].dims == 2 && !is_added(self, k);
    for (int k = 0; self->experts && k < shape->experts.weights->count; k++)
        shape->experts.weights->params[k].product_first = true;
    *out = &self->block;
}

int64_t bp_transformer_layer_products(const bp_layer_shape *shape)
{
    const bp_nn one = {.tensor = MPI_COMM_NULL, .tensor_ranks = 1};
    bp_group split = {0}, whole = {0}, queries = {0}, experts = {0};
    bp_layer_shape counted = *shape;
    layer self = {0};
    int64_t entries = 0;

    counted.query_group = counted.experts.router = &queries;
    counted.experts.weights = &experts;
    if (shape->experts.count > 0)
        counted.experts.count = shape->experts.chosen; /* what a row goes through */
    begin(&self, &one, &counted, &split, &whole);
    for (int k = 0; k < split.count; k++)
        entries += split.params[k].dims == 2 ? bp_param_floats(&split.params[k]) : 0;
    for (int k = 0; k < experts.count; k++)
        entries += bp_param_floats(&experts.params[k]);
    entries += shape->experts.count * shape->C;
    bp_free(self.experts);
    bp_group_clear(&split);
    bp_group_clear(&whole);
    bp_group_clear(&queries);
    bp_group_clear(&experts);
    return entries;
}
