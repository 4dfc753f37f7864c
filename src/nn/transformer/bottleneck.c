/* Bottleneck adapters. Called by transformer_branch.c after attention and the MLP; made by
 * transformer_adapter.c. */
#include "nn/transformer/bottleneck.h"

#include "math/kernels/kernels.h"

#include <stdio.h>
#include <string.h>

#define INIT_STD 1e-2F /* Houlsby et al. 2019, section 3.6: no larger one */

struct bp_bottleneck {
    const bp_nn *nn;
    int64_t C, rank;
    bp_param *down, *down_bias, *up, *up_bias;
    bp_weight *down_map, *up_map;
};

static bp_param *add(bp_group *group, const char *name, const char *part, int64_t outs, int64_t ins)
{
    char full[BP_PARAM_NAME];

    (void)snprintf(full, sizeof full, "%s.%s", name, part);
    return ins > 0 ? bp_group_add_matrix(group, full, outs, ins, INIT_STD)
                   : bp_group_add_vector(group, full, outs, BP_INIT_ZERO);
}

bp_bottleneck *bp_bottleneck_new(const bp_nn *nn, int64_t C, int64_t rank, const char *name,
                                 bp_group *whole)
{
    bp_bottleneck *self = bp_alloc("nn.adapter", 1, sizeof *self);

    self->nn = nn;
    self->C = C;
    self->rank = rank;
    self->down = add(whole, name, "down.weight", rank, C);
    self->down_bias = add(whole, name, "down.bias", rank, 0);
    self->up = add(whole, name, "up.weight", C, rank);
    self->up_bias = add(whole, name, "up.bias", C, 0);
    return self;
}

void bp_bottleneck_free(bp_bottleneck **bottleneck)
{
    bp_bottleneck *self = *bottleneck;

    if (!self)
        return;
    bp_weight_free(&self->down_map);
    bp_weight_free(&self->up_map);
    bp_free(self);
    *bottleneck = NULL;
}

bp_err bp_bottleneck_bind(bp_bottleneck *self)
{
    bp_gemm *gemm = self->nn->gemm;
    bp_err err = bp_weight_new(&self->down_map, gemm, self->down->value, self->rank, self->C);

    return err == BP_OK ? bp_weight_new(&self->up_map, gemm, self->up->value, self->C, self->rank)
                        : err;
}

void bp_bottleneck_refresh(bp_bottleneck *self)
{
    bp_weight_refresh(self->down_map);
    bp_weight_refresh(self->up_map);
}

bp_bottleneck_rows bp_bottleneck_alloc(const bp_bottleneck *self, bp_arena *arena, int64_t rows)
{
    bp_bottleneck_rows kept = {.x = bp_arena_floats(arena, rows * self->C)};

    kept.pre = bp_arena_floats(arena, rows * self->rank);
    return kept;
}

void bp_bottleneck_repeat(const bp_bottleneck *self, const bp_bottleneck_rows *to,
                          const bp_bottleneck_rows *from, int64_t rows, int64_t times)
{
    bp_repeat_floats(to->x, from->x, rows * self->C, times);
    bp_repeat_floats(to->pre, from->pre, rows * self->rank, times);
}

typedef struct work {
    float *change;       /* [rows][C] what is added */
    float *units, *more; /* [rows][rank] */
} work;

static work alloc_work(const bp_bottleneck *self, bp_arena *arena, int64_t rows)
{
    work w = {.change = bp_arena_floats(arena, rows * self->C)};

    w.units = bp_arena_floats(arena, rows * self->rank);
    w.more = bp_arena_floats(arena, rows * self->rank);
    return w;
}

void bp_bottleneck_forward(const bp_bottleneck *self, bp_arena *scratch, float *x, int64_t rows,
                           const bp_bottleneck_rows *kept)
{
    bp_gemm *gemm = self->nn->gemm;
    size_t mark = scratch->used_bytes;
    work w = alloc_work(self, scratch, rows);
    float *pre = kept->x ? kept->pre : w.more;
    bp_operand units = bp_operand_floats(w.units, rows, self->rank),
               sums = bp_operand_floats(pre, rows, self->rank);

    bp_linear_forward(gemm, pre, x, self->down_map, self->down_bias->value, rows);
    bp_activation_forward(BP_GELU_EXACT, &units, &sums);
    bp_linear_forward(gemm, w.change, w.units, self->up_map, self->up_bias->value, rows);
    if (kept->x)
        memcpy(kept->x, x, (size_t)(rows * self->C) * sizeof *x);
    bp_add(x, w.change, rows * self->C);
    scratch->used_bytes = mark;
}

void bp_bottleneck_backward(const bp_bottleneck *self, bp_arena *scratch, float *dx, int64_t rows,
                            const bp_bottleneck_rows *kept)
{
    bp_gemm *gemm = self->nn->gemm;
    size_t mark = scratch->used_bytes;
    work w = alloc_work(self, scratch, rows);
    bp_operand units = bp_operand_floats(w.units, rows, self->rank),
               dunits = bp_operand_floats(w.more, rows, self->rank),
               pre = bp_operand_floats(kept->pre, rows, self->rank);

    bp_activation_forward(BP_GELU_EXACT, &units, &pre);
    bp_linear_backward(&(bp_linear_gradients){w.more, self->up->gradient, self->up_bias->gradient},
                       gemm, dx, w.units, self->up_map, rows);
    bp_activation_backward(BP_GELU_EXACT, &dunits, &units, NULL, &dunits, &pre);
    bp_linear_backward(
        &(bp_linear_gradients){w.change, self->down->gradient, self->down_bias->gradient}, gemm,
        w.more, kept->x, self->down_map, rows);
    bp_add(dx, w.change, rows * self->C);
    scratch->used_bytes = mark;
}

size_t bp_bottleneck_scratch_bytes(const bp_bottleneck *self, int64_t rows)
{
    bp_arena count = {0};

    alloc_work(self, &count, rows);
    return count.used_bytes;
}

void bp_bottleneck_add_products(const bp_bottleneck *self, int64_t rows, bp_product_bytes *bytes)
{
    bp_product_bytes_add(bytes, self->nn, rows, self->rank, self->C);
    bp_product_bytes_add(bytes, self->nn, rows, self->C, self->rank);
}
