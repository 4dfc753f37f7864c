/* Low-rank adaptation of weights: merging, and the gradients of A and B. Called by
 * models/shape/adapter.c and nn/transformer/transformer_adapter.c. */
#include "base/err.h"
#include "nn/core/adapter.h"
#include "nn/core/block.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct bp_lora {
    bp_lora_product product;
    int64_t rank, all; /* of one weight, of all together */
    float scale;
    bp_param *a[3], *b[3]; /* the A's are contiguous: [all][ins] */
    bp_gemm *gemm;
    const float *base;
    float *merged; /* [outs][ins]; NULL if merged into the base */
    float *joined; /* [outs][all] scale B of each weight, 0 elsewhere: u = dy joined */
    bp_weight *down, *up;
};

void bp_lora_merge(float *w, const float *a, const float *b, float scale, int64_t outs,
                   int64_t rank, int64_t ins)
{
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < outs; o++)
        for (int64_t k = 0; k < rank; k++) {
            float factor = scale * b[o * rank + k];
            const float *from = a + k * ins;
            float *to = w + o * ins;

#pragma omp simd
            for (int64_t i = 0; i < ins; i++)
                to[i] += factor * from[i];
        }
}

/* "h.0.attn.q.lora_a" of "h.0.attn.q.weight". */
static const char *name_part(char name[BP_PARAM_NAME], const bp_param *weight, const char *part)
{
    int stem = (int)(strlen(weight->name) - strlen(".weight"));

    (void)snprintf(name, BP_PARAM_NAME, "%.*s.%s", stem, weight->name, part);
    return name;
}

static void add_a(bp_lora *self, int k, bp_group *group)
{
    const bp_param *w = self->product.weight[k];
    float std = 1 / sqrtf((float)w->shape[1]);
    char name[BP_PARAM_NAME];

    self->a[k] = bp_group_add_matrix_part(group, name_part(name, w, "lora_a"), self->rank,
                                          w->shape[1], std, 1, w->offset[1], w->extent[1]);
    self->a[k]->product_first = true;
}

static void add_b(bp_lora *self, int k, bp_group *group)
{
    const bp_param *w = self->product.weight[k];
    char name[BP_PARAM_NAME];

    self->b[k] = bp_group_add_matrix_part(group, name_part(name, w, "lora_b"), w->shape[0],
                                          self->rank, 0, 0, w->offset[0], w->extent[0]);
    self->b[k]->init = BP_INIT_ZERO;
}

bp_lora *bp_lora_new(const bp_adapter *adapter, const bp_lora_product *product, bp_group *split,
                     bp_group *partial)
{
    bp_lora *self = bp_alloc("nn.adapter", 1, sizeof *self);

    self->product = *product;
    self->rank = adapter->rank;
    self->all = product->count * adapter->rank;
    self->scale = (float)(adapter->scale / (double)adapter->rank);
    for (int k = 0; k < product->count; k++)
        add_a(self, k, product->row_split ? split : partial);
    for (int k = 0; k < product->count; k++)
        add_b(self, k, product->row_split ? partial : split);
    return self;
}

void bp_lora_free(bp_lora **lora)
{
    bp_lora *self = *lora;

    if (!self)
        return;
    bp_weight_free(&self->down);
    bp_weight_free(&self->up);
    bp_free(self->merged);
    bp_free(self->joined);
    bp_free(self);
    *lora = NULL;
}

static bp_err bind_for_training(bp_lora *self)
{
    const bp_lora_product *p = &self->product;
    bp_err err;

    self->merged = bp_try_alloc("nn.adapter", p->outs * p->ins, sizeof *self->merged);
    self->joined = bp_try_alloc("nn.adapter", p->outs * self->all, sizeof *self->joined);
    if (!self->merged || !self->joined)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at adapted weights of %lld x %lld; use more tensor or "
                       "pipeline ranks",
                       (long long)p->outs, (long long)p->ins);
    memset(self->joined, 0, (size_t)(p->outs * self->all) * sizeof *self->joined);
    err = bp_weight_new(&self->down, self->gemm, self->a[0]->value, self->all, p->ins);
    return err == BP_OK ? bp_weight_new(&self->up, self->gemm, self->joined, p->outs, self->all)
                        : err;
}

bp_err bp_lora_bind(bp_lora *self, bp_gemm *gemm, float *base, const float **values)
{
    const bp_lora_product *p = &self->product;
    bp_err err = BP_OK;

    self->gemm = gemm;
    self->base = base;
    if (!bp_gemm_is_forward_only(gemm))
        err = bind_for_training(self);
    else
        for (int k = 0; k < p->count; k++)
            bp_lora_merge(p->weight[k]->value, self->a[k]->value, self->b[k]->value, self->scale,
                          p->weight[k]->extent[0], self->rank, p->ins);
    *values = self->merged ? self->merged : base;
    return err;
}

void bp_lora_refresh(bp_lora *self)
{
    const bp_lora_product *p = &self->product;

    if (!self->merged)
        return;
    memcpy(self->merged, self->base, (size_t)(p->outs * p->ins) * sizeof *self->merged);
    for (int k = 0; k < p->count; k++) {
        int64_t outs = p->weight[k]->extent[0];

        bp_lora_merge(self->merged + p->first[k] * p->ins, self->a[k]->value, self->b[k]->value,
                      self->scale, outs, self->rank, p->ins);
        for (int64_t o = 0; o < outs; o++)
            for (int64_t r = 0; r < self->rank; r++)
                self->joined[(p->first[k] + o) * self->all + k * self->rank + r] =
                    self->scale * self->b[k]->value[o * self->rank + r];
    }
    bp_weight_refresh(self->down);
    bp_weight_refresh(self->up);
}

/* Scratch of the backward pass. */
typedef struct lora_work {
    float *t, *u;    /* [rows][all]: A x, and its gradient */
    bp_operand with; /* one of them */
    float *db;       /* [outs][all] */
} lora_work;

static lora_work alloc_work(const bp_lora *self, bp_arena *arena, const bp_gemm *gemm, int64_t rows)
{
    lora_work work = {.t = bp_arena_floats(arena, rows * self->all)};

    work.u = bp_arena_floats(arena, rows * self->all);
    work.with = bp_operand_alloc(arena, gemm, rows, self->all);
    work.db = bp_arena_floats(arena, self->product.outs * self->all);
    return work;
}

/* The blocks of db that belong to a weight's own A. */
static void add_db(const bp_lora *self, const float *db)
{
    for (int k = 0; k < self->product.count; k++)
        for (int64_t o = 0; o < self->b[k]->extent[0]; o++)
            for (int64_t r = 0; r < self->rank; r++)
                self->b[k]->gradient[o * self->rank + r] +=
                    self->scale * db[(self->product.first[k] + o) * self->all + k * self->rank + r];
}

void bp_lora_backward(bp_lora *self, bp_arena *scratch, const bp_operand *dy, const bp_operand *x)
{
    size_t mark = scratch->used_bytes;
    lora_work work = alloc_work(self, scratch, self->gemm, dy->rows);

    if (!self->b[0]->gradient) { /* only the input's gradient is needed, from the sum of both */
        scratch->used_bytes = mark;
        return;
    }
    bp_linear_forward_operand(self->gemm, work.t, x, self->down, NULL);
    bp_operand_fill(&work.with, work.t);
    bp_linear_backward_weight_operand(self->gemm, work.db, dy, &work.with, true);
    add_db(self, work.db);
    bp_linear_backward_input_operand(self->gemm, work.u, dy, self->up);
    bp_operand_fill(&work.with, work.u);
    bp_linear_backward_weight_operand(self->gemm, self->a[0]->gradient, &work.with, x,
                                      bp_params_take_fresh(self->a[0], self->product.count));
    scratch->used_bytes = mark;
}

size_t bp_lora_scratch_bytes(const bp_lora *self, const bp_gemm *gemm, int64_t rows)
{
    bp_arena count = {0};

    alloc_work(self, &count, gemm, rows);
    return count.used_bytes;
}

size_t bp_lora_copy_bytes(const bp_lora *self, const bp_gemm *gemm)
{
    const bp_lora_product *p = &self->product;

    if (bp_gemm_is_forward_only(gemm))
        return 0;
    return (size_t)(p->outs * (p->ins + self->all)) * sizeof(float) +
           bp_weight_copy_bytes(gemm, self->all, p->ins) +
           bp_weight_copy_bytes(gemm, p->outs, self->all);
}

size_t bp_lora_product_scratch(const bp_lora *self, const bp_gemm *gemm, int64_t rows)
{
    size_t down = bp_linear_scratch_bytes(gemm, rows, self->all, self->product.ins),
           up = bp_linear_scratch_bytes(gemm, rows, self->product.outs, self->all);

    return down > up ? down : up;
}
