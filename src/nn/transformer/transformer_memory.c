/* Memory of a Transformer layer: what it keeps from forward to backward, and its scratch. One
 * function lays each out and measures it. Called by transformer_backward.c and
 * transformer_layer.c. */
#include "nn/transformer/transformer_priv.h"

/* A layer that sees all positions of its own text can't continue texts. */
static bool may_continue(const layer *self)
{
    return !self->shape.sees_all || self->block.stream != 0;
}

/* The type of attention's inputs and outputs: bf16, rounded once by their producer, or float32. A
 * plan without training also covers decoding, whose cache is float32. */
static bp_operand alloc_rows(const layer *self, bp_arena *arena, const bp_pass *pass, bool halves,
                             int64_t columns)
{
    bp_attention_shape shape = layer_attention_shape(self, pass, false, NULL);
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;

    bool may = halves && bp_attention_takes_halves(gemm, &shape) && !pass->continuation;
    if (may && (pass->training || arena->base || !may_continue(self)))
        return bp_operand_alloc_apart(arena, gemm, rows, columns);
    if (may) { /* a plan, of the larger one */
        bp_arena apart = {0};

        (void)bp_operand_alloc_apart(&apart, gemm, rows, columns);
        if (apart.used_bytes > bp_arena_bytes(rows * columns, sizeof(float)))
            arena->used_bytes += apart.used_bytes - bp_arena_bytes(rows * columns, sizeof(float));
    }
    return bp_operand_floats(bp_arena_floats(arena, rows * columns), rows, columns);
}

/* An operand that may be the rows themselves. */
static bp_operand operand_of(const layer *self, bp_arena *arena, const bp_operand *x)
{
    if (x->form == BP_OPERAND_BF16)
        return *x;
    return bp_operand_over(arena, self->block.nn->gemm, x->data, x->rows, x->columns);
}

/* Queries and keys change in place, which floats can. */
static bool turns(const layer *self)
{
    return self->shape.rotary || self->shape.query_norm != BP_QUERY_NORM_NONE ||
           self->shape.clip > 0;
}

saved layer_alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T, own = bp_nn_rows(self->block.nn, pass).count;
    saved kept = {0};

    if (layer_attends(self)) {
        kept.qkv = alloc_rows(self, arena, pass, !turns(self), layer_qkv_columns(self));
        kept.attended = alloc_rows(self, arena, pass, true, self->Cl);
        kept.lse = bp_arena_floats(arena, rows * self->Hl);
    }
    if (self->shape.crosses)
        cross_alloc_saved(self, arena, pass, &kept);
    if (self->experts)
        kept.routes = router_alloc(self, arena, rows);
    if (!pass->training)
        return kept;
    query_alloc_saved(self, arena, pass, &kept);
    if (self->shape.clip > 0)
        kept.clipped = (uint8_t *)(void *)bp_arena_floats(
            arena, (rows * layer_qkv_columns(self) + 3) / (int64_t)sizeof(float));
    if (self->shape.experts.balance > 0 && self->shape.experts.ends)
        kept.balance = bp_arena_floats(arena, self->shape.experts.most);
    for (int k = 0; k < BRANCHES; k++) {
        if ((k == CROSS && !self->shape.crosses) || (k == ATTENTION && !layer_attends(self)))
            continue;
        kept.before[k] = k == MLP && self->shape.parallel
                             ? kept.before[ATTENTION]
                             : bp_arena_floats(arena, own * self->shape.C);
        kept.mean[k] = bp_arena_floats(arena, own);
        kept.rstd[k] = bp_arena_floats(arena, own);
    }
    for (int k = 0; k < BRANCHES; k++)
        if (self->closing_gain[k]) {
            kept.closed[k] = bp_arena_floats(arena, own * self->shape.C);
            kept.closed_mean[k] = bp_arena_floats(arena, own);
            kept.closed_rstd[k] = bp_arena_floats(arena, own);
        }
    if (self->shape.post_norm)
        kept.entered = bp_arena_floats(arena, own * self->shape.C);
    else if (layer_attends(self) && !self->gain[ATTENTION])
        kept.entered = kept.before[ATTENTION];
    if (!self->experts || !experts_travel(self)) /* other ranks' rows have no bound */
        kept.up = bp_operand_alloc_apart(arena, self->block.nn->gemm,
                                         self->experts ? rows * self->shape.experts.chosen : rows,
                                         layer_up_columns(self));
    for (int k = 0; k < BRANCHES; k++)
        if (self->bottleneck[k])
            kept.bottled[k] = bp_bottleneck_alloc(self->bottleneck[k], arena, own);
    return kept;
}

size_t layer_saved_bytes(const bp_block *block, const bp_extent *most)
{
    bp_pass pass = bp_pass_planned(block, most, true);
    bp_arena count = {0};

    layer_alloc_saved((const layer *)block, &count, &pass);
    return count.used_bytes;
}

/* `count` rows of biases of scores per head; NULL without biases. */
static float *alloc_bias(const layer *self, bp_arena *arena, const bp_pass *pass, int64_t count)
{
    bp_attention_shape shape = layer_attention_shape(self, pass, false, NULL);

    return layer_has_score_bias(self)
               ? bp_arena_floats(arena, count * self->Hl * bp_bias_floats(&shape))
               : NULL;
}

forward_work layer_alloc_forward(const layer *self, bp_arena *arena, const bp_pass *pass)
{
    int64_t rows = pass->B * pass->T;

    return (forward_work){.normed =
                              bp_operand_alloc(arena, self->block.nn->gemm, rows, self->shape.C),
                          .branch = bp_arena_floats(arena, rows * self->shape.C)};
}

attention_forward_work layer_alloc_attention_forward(const layer *self, bp_arena *arena,
                                                     const bp_pass *pass, const saved *kept)
{
    attention_forward_work work = {.attended = operand_of(self, arena, &kept->attended)};

    work.bias = alloc_bias(self, arena, pass, 1);
    work.queries = query_alloc(self, arena, pass, false);
    work.apart = apart_alloc(self, arena, pass, false);
    work.scratch = layer_alloc_attention(self, arena, pass, false);
    return work;
}

mlp_forward_work layer_alloc_mlp_forward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                         const saved *kept)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    mlp_forward_work work = {.active = bp_operand_alloc_apart(arena, gemm, rows, self->Fl)};

    if (kept->up.rows > 0)
        work.up = kept->up;
    else if (layer_is_gated(self))
        work.up = bp_operand_alloc_apart(arena, gemm, rows, 2 * self->Fl);
    else
        work.up = bp_linear_activation_alloc(arena, gemm, rows, self->shape.C, self->Fl);
    return work;
}

mlp_work layer_alloc_mlp(const layer *self, bp_arena *arena, const bp_pass *pass, const float *dout)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t rows = pass->B * pass->T;
    mlp_work work = {.dbranch = layer_alloc_dbranch(self, arena, pass, dout)};

    if (layer_is_gated(self))
        work.dactive = bp_operand_alloc_apart(arena, gemm, rows, self->Fl);
    work.dup = bp_operand_alloc_apart(arena, gemm, rows, layer_up_columns(self));
    work.active = bp_operand_alloc_apart(arena, gemm, rows, self->Fl);
    work.norm = layer_alloc_norm(self, arena, rows, layer_up_columns(self));
    return work;
}

attention_work layer_alloc_attention_backward(const layer *self, bp_arena *arena,
                                              const bp_pass *pass, const float *dout,
                                              const saved *kept)
{
    int64_t rows = pass->B * pass->T, columns = layer_qkv_columns(self);
    attention_work work = {.dbranch = layer_alloc_dbranch(self, arena, pass, dout)};

    work.attended = operand_of(self, arena, &kept->attended);
    work.dattended = alloc_rows(self, arena, pass, true, self->Cl);
    work.dqkv = alloc_rows(self, arena, pass, !turns(self), columns);
    work.dqkv_operand = operand_of(self, arena, &work.dqkv);
    work.dbias = self->repeats ? bp_arena_floats(arena, columns) : NULL;
    work.score_bias = alloc_bias(self, arena, pass, 1);
    if (self->shape.relative) /* ALiBi learns nothing */
        work.dscore_bias = alloc_bias(self, arena, pass, pass->B);
    work.queries = query_alloc(self, arena, pass, true);
    work.apart = apart_alloc(self, arena, pass, true);
    work.norm = layer_alloc_norm(self, arena, rows, columns);
    work.scratch = layer_alloc_attention(self, arena, pass, false);
    return work;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A branch's gradient on own rows, if it has a closing norm or a scale, and the closing norm's
 * sums. */
static size_t closing_scratch(const layer *self, int64_t own)
{
    bp_arena count = {0};

    if (self->closing_gain[MLP] || self->shape.branch_scale > 0)
        bp_arena_floats(&count, own * self->shape.C);
    if (self->closing_gain[MLP])
        layer_alloc_closing(self, &count, own);
    return count.used_bytes;
}

/* For the widest product that an adapter changes. */
static int64_t adapted_rows(const layer *self, int64_t B, const int64_t *T)
{
    int64_t own = B * T[self->block.stream],
            source = self->shape.crosses ? B * T[self->shape.source_stream] : 0;

    return own > source ? own : source;
}

size_t layer_scratch_bytes(const bp_block *block, const bp_extent *most, bool training)
{
    const layer *self = (const layer *)block;
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena count = {0}, mlp = {0}, attention = {0}, own = {0};
    saved kept = {0};
    bp_arena uncounted = {0};
    size_t branch,
        sum = bp_arena_bytes(bp_nn_sum_floats(block->nn, &pass, self->shape.C), sizeof(float));

    pass.dropout = true; /* it takes the most */
    kept = layer_alloc_saved(self, training ? &uncounted : &count, &pass);
    kept.up = (bp_operand){0}; /* a pass without training has scratch for it */
    layer_alloc_forward(self, &count, &pass);
    if (layer_attends(self))
        layer_alloc_attention_forward(self, &attention, &pass, &kept);
    if (self->experts)
        experts_plan(self, &mlp, &pass, &kept, false);
    else
        layer_alloc_mlp_forward(self, &mlp, &pass, &kept);
    branch = larger(attention.used_bytes, mlp.used_bytes);
    branch = larger(branch, keys_scratch(self, false));
    branch = larger(branch, layer_bottled_scratch(self, pass.B * pass.T));
    if (self->shape.crosses)
        branch = larger(branch, cross_scratch(self, &pass, false));
    count.used_bytes += branch;
    if (training) {
        mlp = attention = (bp_arena){0};
        if (self->experts)
            experts_plan(self, &mlp, &pass, &kept, true);
        else
            layer_alloc_mlp(self, &mlp, &pass, NULL);
        if (layer_attends(self))
            layer_alloc_attention_backward(self, &attention, &pass, NULL, &kept);
        if (self->shape.parallel || self->shape.post_norm)
            bp_arena_floats(&own, bp_nn_rows(block->nn, &pass).count * self->shape.C);
        branch = larger(attention.used_bytes + keys_scratch(self, true), mlp.used_bytes) +
                 own.used_bytes;
        if (self->shape.crosses)
            branch = larger(branch, cross_scratch(self, &pass, true) + own.used_bytes);
        branch += closing_scratch(self, bp_nn_rows(block->nn, &pass).count);
        branch += layer_adapted_scratch(self, adapted_rows(self, most->B, most->T));
        count.used_bytes = larger(count.used_bytes, branch);
    }
    return count.used_bytes + sum;
}

bp_product_bytes layer_product_bytes(const bp_block *block, const bp_extent *most)
{
    const layer *self = (const layer *)block;
    int64_t rows = most->B * most->T[block->stream], C = self->shape.C;
    bp_product_bytes bytes = {0};

    if (layer_attends(self)) {
        bp_product_bytes_add_operands(&bytes, block->nn, rows, layer_qkv_columns(self), C);
        bp_product_bytes_add_operands(&bytes, block->nn, rows, C, self->Cl);
    }
    if (self->experts) {
        experts_add_products(self, rows, &bytes);
    } else {
        bp_product_bytes_add_operands(&bytes, block->nn, rows, layer_up_columns(self), C);
        bp_product_bytes_add_operands(&bytes, block->nn, rows, C, self->Fl);
    }
    for (int k = 0; k < 2 && self->shape.apart.table; k++)
        bp_product_bytes_add(&bytes, block->nn, self->shape.apart.rows, self->Cl, C);
    bytes.copies += keys_joined_bytes(self);
    layer_add_adapted(self, adapted_rows(self, most->B, most->T), &bytes);
    if (self->shape.crosses)
        cross_add_products(self, most, &bytes);
    return bytes;
}
