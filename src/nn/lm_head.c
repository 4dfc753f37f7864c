#include "base/err.h"
#include "math/kernels.h"
#include "mesh/collective.h"
#include "nn/layers.h"

#include <math.h>
#include <string.h>

#define EPSILON        1e-5F
#define CHUNK_BYTES    (64LL << 20) /* of logits held at once */
#define CHUNK_ROWS_MIN 64
#define CHUNK_ROWS_MAX 1024

typedef struct head {
    bp_block block;
    bp_param *wte, *gain, *bias;
    bp_weight *vocabulary; /* wte as a linear map; NULL where this rank has no row of it */
} head;

/* Memory of one chunk of rows. */
typedef struct chunk {
    int64_t rows;
    float *logits; /* [rows][V here] */
    float *max;    /* [rows] */
    double *sums;  /* [2][rows]: of exp(logit - max), and the target's logit */
    float *weight; /* [rows] */
} chunk;

static int64_t chunk_rows(const head *self, int64_t rows)
{
    int64_t tensors = self->block.nn->tensors; /* the largest share: equal on all tensor ranks */
    int64_t V = (self->wte->shape[0] + tensors - 1) / tensors;
    int64_t n = CHUNK_BYTES / (V * (int64_t)sizeof(float)) / 16 * 16;

    n = n < CHUNK_ROWS_MIN ? CHUNK_ROWS_MIN : n > CHUNK_ROWS_MAX ? CHUNK_ROWS_MAX : n;
    return n < rows ? n : rows;
}

static chunk carve_chunk(const head *self, bp_arena *arena, int64_t rows)
{
    chunk c = {.rows = chunk_rows(self, rows)};

    c.logits = bp_carve(arena, c.rows * self->wte->extent[0]);
    c.max = bp_carve(arena, c.rows);
    c.sums = (double *)(void *)bp_carve(arena, 2 * 2 * c.rows);
    c.weight = bp_carve(arena, c.rows);
    return c;
}

static size_t head_saved(const bp_block *block, int64_t B, int64_t T)
{
    const head *self = (const head *)block;

    return bp_arena_bytes(B * T * self->wte->shape[1], sizeof(float));
}

static size_t head_scratch(const bp_block *block, int64_t B, int64_t T, bool training)
{
    const head *self = (const head *)block;
    int64_t rows = B * T, C = self->wte->shape[1];
    bp_arena count = {0};

    bp_carve(&count, rows * C); /* normed */
    bp_carve(&count, rows);     /* mean, rstd */
    bp_carve(&count, rows);
    bp_carve(&count, rows); /* row by row -logprob */
    carve_chunk(self, &count, rows);
    if (training) {
        bp_carve(&count, rows * C); /* gradient of normed */
        bp_carve(&count, rows * C); /* sum over tensor ranks */
        bp_carve(&count, bp_layer_norm_scratch(rows, C));
    }
    return count.used_bytes;
}

static bp_product_bytes head_products(const bp_block *block, int64_t B, int64_t T)
{
    const head *self = (const head *)block;
    bp_product_bytes bytes = {0};

    if (self->wte->extent[0] > 0)
        bp_product_bytes_add(&bytes, block->nn, chunk_rows(self, B * T), self->wte->extent[0],
                             self->wte->shape[1]);
    return bytes;
}

static bp_err head_bind(bp_block *block)
{
    head *self = (head *)block;

    if (self->wte->extent[0] == 0)
        return BP_OK;
    return bp_weight_new(&self->vocabulary, block->nn->gemm, self->wte->value, self->wte->extent[0],
                         self->wte->shape[1]);
}

static void head_refresh(bp_block *block)
{
    head *self = (head *)block;

    if (self->vocabulary)
        bp_weight_refresh(self->vocabulary);
}

/* Logits of this rank's part of the vocabulary, and the softmax statistics of the whole of it. */
static void chunk_forward(const head *self, chunk *c, const float *normed, const int32_t *targets,
                          int64_t rows)
{
    const bp_nn *nn = self->block.nn;
    int64_t V = self->wte->extent[0];

    if (V > 0)
        bp_linear_forward(nn->gemm, c->logits, normed, self->vocabulary, NULL, rows);
    bp_softmax_row_max(c->max, c->logits, rows, V);
    bp_all_max(c->max, rows, nn->tensor);
    bp_softmax_row_sum(c->sums, c->sums + rows, c->logits, c->max, targets, rows, V,
                       self->wte->offset[0]);
    bp_all_sum_double(c->sums, 2 * rows, nn->tensor);
}

/* Writes each row's log-probability (NaN where there is no target) and adds the loss in row order.
 */
static void chunk_loss(bp_pass *pass, const chunk *c, int64_t first, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        double logprob = c->sums[rows + r] - (double)c->max[r] - log(c->sums[r]);
        bool scored = pass->targets[first + r] >= 0;

        if (scored) {
            pass->loss_sum -= logprob;
            pass->loss_count++;
        }
        if (pass->logprob)
            pass->logprob[first + r] = scored ? (float)logprob : NAN;
    }
}

static void evaluate(head *self, bp_pass *pass, const float *hidden)
{
    int64_t rows = pass->B * pass->T, C = self->wte->shape[1];
    float *normed = bp_carve(pass->scratch, rows * C);
    chunk c = carve_chunk(self, pass->scratch, rows);

    bp_layer_norm_forward(normed, NULL, NULL, hidden, self->gain->value, self->bias->value, rows, C,
                          EPSILON);
    for (int64_t first = 0; first < rows; first += c.rows) {
        int64_t n = first + c.rows < rows ? c.rows : rows - first;
        chunk_forward(self, &c, normed + first * C, pass->targets + first, n);
        chunk_loss(pass, &c, first, n);
    }
}

static void head_forward(bp_block *block, bp_pass *pass, bp_packet *packet, void *saved)
{
    head *self = (head *)block;
    size_t mark = pass->scratch->used_bytes;

    if (pass->training)
        memcpy(saved, packet->item[0].data,
               (size_t)(pass->B * pass->T * self->wte->shape[1]) * sizeof(float));
    else
        evaluate(self, pass, packet->item[0].data);
    pass->scratch->used_bytes = mark;
}

/* dnormed of one chunk, and its part of the vocabulary's gradient. */
static void chunk_backward(const head *self, bp_pass *pass, chunk *c, float *dnormed,
                           const float *normed, int64_t first, int64_t rows)
{
    const bp_nn *nn = self->block.nn;
    int64_t V = self->wte->extent[0], C = self->wte->shape[1];
    const int32_t *targets = pass->targets + first;

    if (V == 0) {
        bp_zero(dnormed, rows * C);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        c->weight[r] = targets[r] >= 0 ? pass->loss_weight : 0;
    bp_softmax_gradient(c->logits, c->max, c->sums, targets, c->weight, rows, V,
                        self->wte->offset[0]);
    bp_linear_backward(&(bp_linear_gradients){.dx = dnormed, .dw = self->wte->gradient}, nn->gemm,
                       c->logits, normed, self->vocabulary, rows);
}

static void head_backward(bp_block *block, bp_pass *pass, bp_packet *packet, void *saved)
{
    head *self = (head *)block;
    bp_arena *scratch = pass->scratch;
    size_t mark = scratch->used_bytes;
    int64_t rows = pass->B * pass->T, C = self->wte->shape[1];
    const float *hidden = saved;
    float *dhidden = packet->item[0].data;
    float *normed = bp_carve(scratch, rows * C), *dnormed = bp_carve(scratch, rows * C);
    float *mean = bp_carve(scratch, rows), *rstd = bp_carve(scratch, rows);
    chunk c = carve_chunk(self, scratch, rows);

    bp_layer_norm_forward(normed, mean, rstd, hidden, self->gain->value, self->bias->value, rows, C,
                          EPSILON);
    for (int64_t first = 0; first < rows; first += c.rows) {
        int64_t n = first + c.rows < rows ? c.rows : rows - first;
        chunk_forward(self, &c, normed + first * C, pass->targets + first, n);
        chunk_loss(pass, &c, first, n);
        chunk_backward(self, pass, &c, dnormed + first * C, normed + first * C, first, n);
    }
    bp_nn_sum(block->nn, pass, dnormed, rows * C);
    bp_zero(dhidden, rows * C);
    bp_layer_norm_backward(dhidden, self->gain->gradient, self->bias->gradient, dnormed, hidden,
                           self->gain->value, mean, rstd, rows, C,
                           bp_carve(scratch, bp_layer_norm_scratch(rows, C)));
    scratch->used_bytes = mark;
}

static void head_free(bp_block *block)
{
    head *self = (head *)block;

    bp_weight_free(&self->vocabulary);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "lm_head",
    .saved_bytes = head_saved,
    .scratch_bytes = head_scratch,
    .product_bytes = head_products,
    .bind = head_bind,
    .refresh = head_refresh,
    .forward = head_forward,
    .backward = head_backward,
    .free = head_free,
};

bp_err bp_lm_head_new(bp_block **out, const bp_nn *nn, bp_param *wte, bp_group *whole)
{
    head *self = bp_alloc("nn.head", 1, sizeof *self);

    *out = NULL;
    if (!self)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "memory is short: at the head; use more ranks or a smaller model");
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->wte = wte;
    self->gain = bp_group_add_vector(whole, "ln_f.gain", wte->shape[1], BP_INIT_ONE);
    self->bias = bp_group_add_vector(whole, "ln_f.bias", wte->shape[1], BP_INIT_ZERO);
    *out = &self->block;
    return BP_OK;
}
