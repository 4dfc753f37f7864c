/* An operation on each row by itself: a product with an activation, a norm, dropout. Tensor ranks
 * hold all of its parameters and share the rows out, or do all rows alike. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "nn/core/layers.h"

#include <stdio.h>
#include <string.h>

#define INIT_STD 0.02F

typedef struct row_layer {
    bp_block block;
    bp_row_shape shape;
    bp_param *weight, *bias; /* NULL without a product */
    bp_param *gain, *shift;
    bp_weight *map;
} row_layer;

/* Saved by forward for backward, for this rank's N rows. */
typedef struct states {
    float *x;        /* [N][I] what the product reads */
    bp_operand sums; /* [N][O] what the activation reads */
    float *before;   /* [N][O] what the norm reads */
    float *mean, *rstd;
} states;

static const row_layer *layer_of(const bp_block *block)
{
    return (const row_layer *)block;
}

static int64_t rows_of(const bp_block *block, const bp_pass *pass)
{
    return bp_nn_rows(block->nn, pass).count;
}

static states alloc_saved(const row_layer *self, bp_arena *arena, int64_t N)
{
    states kept = {0};

    if (self->shape.has_product) {
        kept.x = bp_arena_floats(arena, N * self->shape.I);
        kept.sums = bp_operand_alloc(arena, self->block.nn->gemm, N, self->shape.O);
    }
    kept.before = bp_arena_floats(arena, N * self->shape.O);
    if (!self->shape.no_norm) {
        kept.mean = bp_arena_floats(arena, N);
        kept.rstd = bp_arena_floats(arena, N);
    }
    return kept;
}

/* Scratch of the product, forward and backward. */
typedef struct product_work {
    bp_operand x;  /* [N][I] */
    bp_operand y;  /* [N][O] in backward: the activation's output, not read, */
    bp_operand dy; /* and its input's gradient */
    float *biases;
} product_work;

static product_work alloc_product(const row_layer *self, bp_arena *arena, int64_t N, bool backward)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    product_work work = {.x = bp_operand_alloc(arena, gemm, N, self->shape.I)};

    if (!backward)
        return work;
    work.y = bp_operand_alloc(arena, gemm, N, self->shape.O);
    work.dy = bp_operand_alloc(arena, gemm, N, self->shape.O);
    work.biases = bp_arena_floats(arena, bp_bias_scratch(N, self->shape.O));
    return work;
}

/* Scratch of the norm's backward pass. */
typedef struct norm_work {
    float *dy, *dx; /* [N][O]; dx with a product */
    float *sums;
} norm_work;

static norm_work alloc_norm(const row_layer *self, bp_arena *arena, int64_t N)
{
    int64_t O = self->shape.O;

    return (norm_work){.dy = bp_arena_floats(arena, N * O),
                       .dx = self->shape.has_product ? bp_arena_floats(arena, N * O) : NULL,
                       .sums = bp_arena_floats(arena, bp_layer_norm_scratch(N, O))};
}

static size_t row_saved(const bp_block *block, const bp_extent *most)
{
    bp_pass pass = bp_pass_planned(block, most, true);
    bp_arena count = {0};

    alloc_saved(layer_of(block), &count, rows_of(block, &pass));
    return count.used_bytes;
}

static size_t row_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const row_layer *self = layer_of(block);
    bp_pass pass = bp_pass_planned(block, most, training);
    int64_t N = rows_of(block, &pass);
    bp_arena forward = {0}, backward = {0};

    if (!training)
        alloc_saved(self, &forward, N);
    if (self->shape.has_product)
        alloc_product(self, &forward, N, false);
    if (!training)
        return forward.used_bytes;
    alloc_norm(self, &backward, N);
    if (self->shape.has_product)
        alloc_product(self, &backward, N, true);
    return forward.used_bytes > backward.used_bytes ? forward.used_bytes : backward.used_bytes;
}

static bp_product_bytes row_products(const bp_block *block, const bp_extent *most)
{
    const row_layer *self = layer_of(block);
    bp_product_bytes bytes = {0};

    if (self->shape.has_product)
        bp_product_bytes_add(&bytes, block->nn, most->B * most->T[block->stream], self->shape.O,
                             self->shape.I);
    return bytes;
}

static bp_err row_bind(bp_block *block)
{
    row_layer *self = (row_layer *)block;

    if (!self->shape.has_product)
        return BP_OK;
    return bp_weight_new(&self->map, block->nn->gemm, self->weight->value, self->shape.O,
                         self->shape.I);
}

static void row_refresh(bp_block *block)
{
    row_layer *self = (row_layer *)block;

    if (self->map)
        bp_weight_refresh(self->map);
}

static bp_norm norm_of(const row_layer *self, const states *kept)
{
    return (bp_norm){bp_param_gain(self->gain),
                     self->shift ? self->shift->value : NULL,
                     self->shape.epsilon,
                     kept->mean,
                     kept->rstd,
                     self->shape.no_norm_bias};
}

static bool drops(const row_layer *self, const bp_pass *pass)
{
    return pass->dropout && self->block.nn->dropout > 0 &&
           self->shape.dropout_stream != BP_NO_DROPOUT;
}

/* kept->before = f(weight x + bias) */
static void forward_product(const row_layer *self, bp_pass *pass, const states *kept,
                            const float *x, int64_t N)
{
    size_t mark = pass->scratch->used_bytes;
    product_work work = alloc_product(self, pass->scratch, N, false);
    bp_operand y = bp_operand_floats(kept->before, N, self->shape.O);

    memcpy(kept->x, x, (size_t)(N * self->shape.I) * sizeof *x);
    bp_operand_fill(&work.x, x);
    bp_linear_forward_into(self->block.nn->gemm, self->shape.linear ? &y : &kept->sums, &work.x,
                           self->map, self->bias ? self->bias->value : NULL);
    if (!self->shape.linear)
        bp_activation_forward(self->shape.activation, &y, &kept->sums);
    pass->scratch->used_bytes = mark;
}

static void row_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const row_layer *self = layer_of(block);
    int64_t N = rows_of(block, pass), O = self->shape.O;
    float *rows = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena keep = {.base = saved, .size_bytes = SIZE_MAX};
    states kept = alloc_saved(self, saved ? &keep : pass->scratch, N);
    bp_operand y = bp_operand_floats(rows, N, O);

    if (self->shape.has_product)
        forward_product(self, pass, &kept, rows, N);
    else
        memcpy(kept.before, rows, (size_t)(N * O) * sizeof *rows);
    if (self->shape.no_norm) {
        memcpy(rows, kept.before, (size_t)(N * O) * sizeof *rows);
    } else {
        bp_norm norm = norm_of(self, &kept);
        bp_layer_norm_forward(&y, NULL, &norm, &(bp_residual){.base = kept.before});
    }
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(block->nn, pass, self->shape.dropout_stream);
        bp_add_dropout(rows, NULL, rows, N * O, block->nn->dropout, &key,
                       bp_nn_first_row(block->nn, pass) * O);
    }
    if (self->shape.scale > 0)
        bp_scale(rows, self->shape.scale, N * O);
    pass->scratch->used_bytes = mark;
}

/* dx of the input rows, from the gradient `dy` of the norm's input. */
static void backward_product(const row_layer *self, bp_pass *pass, const states *kept,
                             const float *dy, float *dx)
{
    bp_gemm *gemm = self->block.nn->gemm;
    product_work work = alloc_product(self, pass->scratch, kept->sums.rows, true);
    bp_bias_gradient bias = {self->bias ? self->bias->gradient : NULL, work.biases};

    const bp_bias_gradient *wanted = bias.sums ? &bias : NULL;
    const bp_operand from = bp_operand_floats((float *)dy, kept->sums.rows, self->shape.O);

    if (self->shape.linear)
        bp_operand_fill_sums(&work.dy, wanted, dy);
    else
        bp_activation_backward(self->shape.activation, &work.dy, &work.y, wanted, &from,
                               &kept->sums);
    bp_linear_backward_input_operand(gemm, dx, &work.dy, self->map);
    bp_operand_fill(&work.x, kept->x);
    bp_nn_backward_weight(self->block.nn, self->weight, 1, &work.dy, &work.x);
}

/* The gradient of the norm's input, from that of its output, work->dy. */
static const float *backward_norm(const row_layer *self, const states *kept, norm_work *work,
                                  float *rows, int64_t N)
{
    bp_norm norm = norm_of(self, kept);
    bp_norm_gradients to = {work->dx ? work->dx : rows, self->gain->gradient,
                            self->shift ? self->shift->gradient : NULL, true};

    bp_layer_norm_backward(&to, NULL, work->dy, kept->before, &norm, N, self->shape.O, work->sums);
    return work->dx;
}

static void row_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const row_layer *self = layer_of(block);
    int64_t N = rows_of(block, pass), O = self->shape.O;
    float *rows = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena keep = {.base = saved, .size_bytes = SIZE_MAX};
    states kept = alloc_saved(self, &keep, N);
    norm_work work = alloc_norm(self, pass->scratch, N);

    memcpy(work.dy, rows, (size_t)(N * O) * sizeof *rows);
    if (self->shape.scale > 0)
        bp_scale(work.dy, self->shape.scale, N * O);
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(block->nn, pass, self->shape.dropout_stream);
        bp_dropout_backward(work.dy, work.dy, N * O, block->nn->dropout, &key,
                            bp_nn_first_row(block->nn, pass) * O);
    }
    const float *dx = work.dy;
    if (!self->shape.no_norm)
        dx = backward_norm(self, &kept, &work, rows, N);
    if (self->shape.has_product)
        backward_product(self, pass, &kept, dx, rows);
    pass->scratch->used_bytes = mark;
}

static bool row_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                       void *from)
{
    const row_layer *self = layer_of(block);
    bp_pass pass = bp_pass_planned(block, some, true);
    int64_t N = rows_of(block, &pass), times = all->B / some->B;
    bp_arena had = {.base = from, .size_bytes = SIZE_MAX},
             has = {.base = to, .size_bytes = SIZE_MAX};
    states kept = alloc_saved(self, &had, N), all_kept = alloc_saved(self, &has, N * times);

    bp_repeat_floats(all_kept.x, kept.x, N * self->shape.I, times);
    bp_repeat_rows(&all_kept.sums, &kept.sums, times);
    bp_repeat_floats(all_kept.before, kept.before, N * self->shape.O, times);
    bp_repeat_floats(all_kept.mean, kept.mean, N, times);
    bp_repeat_floats(all_kept.rstd, kept.rstd, N, times);
    return true;
}

static void row_free(bp_block *block)
{
    bp_weight_free(&((row_layer *)block)->map);
    bp_free(block);
}

static bool row_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need)
{
    (void)block, (void)slots, (void)capacity, (void)need;
    return true;
}

static const bp_block_ops OPS = {
    .kind = "row_layer",
    .cache = row_cache,
    .saved_bytes = row_saved,
    .scratch_bytes = row_scratch,
    .product_bytes = row_products,
    .bind = row_bind,
    .refresh = row_refresh,
    .forward = row_forward,
    .backward = row_backward,
    .repeat = row_repeat,
    .free = row_free,
};

void bp_row_layer_new(bp_block **out, const bp_nn *nn, const bp_row_shape *shape, bp_group *group)
{
    row_layer *self = bp_alloc("nn.layer", 1, sizeof *self);
    char name[BP_PARAM_NAME];

    BP_ASSERT(shape->has_product || (shape->I == shape->O && !shape->no_norm));
    *out = &self->block;
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->block.stream = shape->stream;
    self->shape = *shape;
    if (shape->has_product) {
        snprintf(name, sizeof name, "%s.weight", shape->name);
        self->weight = bp_group_add_matrix(group, name, shape->O, shape->I, INIT_STD);
        self->weight->product_first = true;
        snprintf(name, sizeof name, "%s.bias", shape->name);
        self->bias =
            shape->no_bias ? NULL : bp_group_add_vector(group, name, shape->O, BP_INIT_ZERO);
    }
    self->gain = shape->gain;
    self->shift = shape->shift;
    if (shape->no_norm || shape->gain)
        return;
    snprintf(name, sizeof name, "%s.ln.gain", shape->name);
    self->gain = bp_group_add_vector(group, name, shape->O, BP_INIT_ONE);
    if (shape->rms || shape->no_norm_bias)
        return;
    snprintf(name, sizeof name, "%s.ln.bias", shape->name);
    self->shift = bp_group_add_vector(group, name, shape->O, BP_INIT_ZERO);
}
