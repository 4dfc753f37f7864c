/* The softmax of a target and some sampled outcomes: the samples of a step, with contiguous copies
 * of their rows of the vocabulary, and the rows of targets one by one. Called by lm_head_chunk.c
 * and lm_head_backward.c in training. */
#include "nn/heads/sampled_softmax_priv.h"

#include "base/err.h"
#include <math.h>
#include <string.h>

#define COLUMN_UNIT 16
#define ABSENT      (-1e30F) /* a logit whose exp is 0 */

struct sampled_softmax {
    const bp_nn *nn;
    const bp_param *wte, *bias;
    int64_t samples, columns;
    int64_t step;      /* of the samples; -1 if there are no samples */
    int64_t here;      /* samples with rows on this tensor rank */
    double tries;      /* draws until all were different */
    uint8_t *drawn;    /* [V] */
    int32_t *ids;      /* [here] ascending */
    float *values;     /* [columns][C]; rows from `here` on are 0 */
    float *correction; /* [columns] bias less log of the expected count; ABSENT from `here` on */
    bp_weight *map;    /* of values */
};

sampled_softmax *sampled_softmax_new(const bp_nn *nn, const bp_param *wte, const bp_param *bias)
{
    sampled_softmax *self;

    if (nn->softmax_samples == 0 || nn->softmax_samples >= wte->shape[0])
        return NULL;
    self = bp_alloc("nn.sampled", 1, sizeof *self);
    *self = (sampled_softmax){.nn = nn,
                              .wte = wte,
                              .bias = bias,
                              .samples = nn->softmax_samples,
                              .columns =
                                  (nn->softmax_samples + COLUMN_UNIT) / COLUMN_UNIT * COLUMN_UNIT,
                              .step = -1};
    return self;
}

void sampled_softmax_free(sampled_softmax **self)
{
    if (*self) {
        bp_weight_free(&(*self)->map);
        bp_free((*self)->drawn);
        bp_free((*self)->ids);
        bp_free((*self)->values);
        bp_free((*self)->correction);
    }
    bp_free(*self);
    *self = NULL;
}

bp_err sampled_softmax_bind(sampled_softmax *self)
{
    int64_t C = self->wte->shape[1];

    self->drawn = bp_try_alloc("nn.sampled", self->wte->shape[0], sizeof *self->drawn);
    self->ids = bp_try_alloc("nn.sampled", self->samples, sizeof *self->ids);
    self->values = bp_try_alloc("nn.sampled", self->columns * C, sizeof *self->values);
    self->correction = bp_try_alloc("nn.sampled", self->columns, sizeof *self->correction);
    if (!self->drawn || !self->ids || !self->values || !self->correction)
        return bp_fail_memory("the rows of sampled outcomes", self->columns * C, sizeof(float));
    return bp_weight_new(&self->map, self->nn->gemm, self->values, self->columns, C);
}

void sampled_softmax_products(const sampled_softmax *self, bp_product_bytes *bytes, int64_t rows)
{
    int64_t C = self->wte->shape[1];

    bp_product_bytes_add(bytes, self->nn, rows, self->columns, C);
    bytes->copies += (size_t)(self->columns * (C + 1)) * sizeof(float) +
                     (size_t)self->samples * sizeof *self->ids + (size_t)self->wte->shape[0];
}

void sampled_softmax_refresh(sampled_softmax *self)
{
    self->step = -1;
}

int64_t sampled_softmax_columns(const sampled_softmax *self)
{
    return self->columns;
}

/* ---- the samples of a step ---- */

static double log_expected(const sampled_softmax *self, int64_t id)
{
    int64_t V = self->wte->shape[0], k = (id + 1) % V;
    double p = log((double)(k + 2) / (double)(k + 1)) / log((double)V + 1);

    return log(-expm1(self->tries * log1p(-p)));
}

static void draw(sampled_softmax *self, int64_t step)
{
    bp_rng_key key = bp_rng_key_of(self->nn->seed, BP_RNG_OUTCOMES, 0, step, 0);
    int64_t V = self->wte->shape[0], different = 0;
    uint64_t tries = 0;

    memset(self->drawn, 0, (size_t)V);
    while (different < self->samples) {
        double u = bp_rng_uniform(&key, tries++);
        int64_t k = (int64_t)exp(u * log((double)V + 1)) - 1;
        int64_t id = ((k < V ? k : V - 1) + V - 1) % V;

        different += !self->drawn[id];
        self->drawn[id] = 1;
    }
    self->tries = (double)tries;
}

/* This rank's rows, in order of their ids. */
static void gather(sampled_softmax *self)
{
    int64_t C = self->wte->shape[1], first = self->wte->offset[0], n = 0;

    for (int64_t v = 0; v < self->wte->extent[0]; v++)
        if (self->drawn[first + v]) {
            self->ids[n] = (int32_t)(first + v);
            self->correction[n] = (float)((self->bias ? (double)self->bias->value[v] : 0) -
                                          log_expected(self, first + v));
            n++;
        }
    self->here = n;
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < n; s++)
        memcpy(self->values + s * C, self->wte->value + (self->ids[s] - first) * C,
               (size_t)C * sizeof(float));
    memset(self->values + n * C, 0, (size_t)((self->columns - n) * C) * sizeof(float));
    for (int64_t s = n; s < self->columns; s++)
        self->correction[s] = ABSENT;
    bp_weight_refresh(self->map);
}

static void make_samples(sampled_softmax *self, int64_t step)
{
    if (self->step == step)
        return;
    draw(self, step);
    gather(self);
    self->step = step;
}

/* ---- a pass ---- */

/* The column of a sample; -1 if not on this rank. */
static int64_t column_of(const sampled_softmax *self, int32_t id)
{
    int64_t low = 0, high = self->here;

    while (low < high) {
        int64_t middle = (low + high) / 2;

        if (self->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < self->here && self->ids[low] == id ? low : -1;
}

static float target_logit(const sampled_softmax *self, const bp_operand *normed, int64_t r,
                          int64_t row)
{
    int64_t C = self->wte->shape[1];
    double sum = self->bias ? (double)self->bias->value[row] : 0;

    for (int64_t k = 0; k < C; k++)
        sum += (double)bp_operand_value(normed, r * normed->stride + k) *
               (double)self->wte->value[row * C + k];
    return (float)(sum - log_expected(self, row + self->wte->offset[0]));
}

static bool has_row(const sampled_softmax *self, int32_t id)
{
    return id >= self->wte->offset[0] && id < self->wte->offset[0] + self->wte->extent[0];
}

void sampled_softmax_forward(sampled_softmax *self, float *logits, int32_t *own,
                             const bp_operand *normed, const int32_t *targets, int64_t step)
{
    int64_t columns = self->columns;

    make_samples(self, step);
    bp_linear_forward_operand(self->nn->gemm, logits, normed, self->map, self->correction);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < normed->rows; r++) {
        bool mine = has_row(self, targets[r]);
        int64_t sampled = mine ? column_of(self, targets[r]) : -1;

        own[r] = (int32_t)(targets[r] < 0 ? -1 : mine ? self->samples : columns);
        if (sampled >= 0)
            logits[r * columns + sampled] = ABSENT;
        if (mine)
            logits[r * columns + self->samples] =
                target_logit(self, normed, r, targets[r] - self->wte->offset[0]);
    }
}

/* The rows of targets, in order: threads split the columns. */
static void add_targets(const sampled_softmax *self, float *dnormed, const bp_operand *dlogits,
                        const bp_operand *normed, const int32_t *targets)
{
    int64_t C = self->wte->shape[1], first = self->wte->offset[0];
    float *bias = self->bias ? self->bias->gradient : NULL;

#pragma omp parallel for schedule(static)
    for (int64_t from = 0; from < C; from += COLUMN_UNIT)
        for (int64_t r = 0; r < normed->rows; r++) {
            int64_t end = from + COLUMN_UNIT < C ? from + COLUMN_UNIT : C;
            float d, *gradient = self->wte->gradient;

            if (!has_row(self, targets[r]))
                continue;
            d = bp_operand_value(dlogits, r * dlogits->stride + self->samples);
            for (int64_t k = from, row = (targets[r] - first) * C; k < end; k++) {
                dnormed[r * C + k] += d * self->wte->value[row + k];
                if (gradient)
                    gradient[row + k] += d * bp_operand_value(normed, r * normed->stride + k);
            }
        }
    for (int64_t r = 0; bias && r < normed->rows; r++)
        if (has_row(self, targets[r]))
            bias[targets[r] - first] +=
                bp_operand_value(dlogits, r * dlogits->stride + self->samples);
}

void sampled_softmax_backward(sampled_softmax *self, const sampled_gradients *to,
                              const bp_operand *dlogits, const bp_operand *normed,
                              const int32_t *targets, bool fresh)
{
    int64_t C = self->wte->shape[1], first = self->wte->offset[0];
    float *gradient = self->wte->gradient;

    bp_linear_backward_input_operand(self->nn->gemm, to->dnormed, dlogits, self->map);
    if (gradient && fresh)
        bp_zero(gradient, bp_param_floats(self->wte));
    if (gradient) {
        bp_linear_backward_weight_operand(self->nn->gemm, to->sampled, dlogits, normed, true);
#pragma omp parallel for schedule(static)
        for (int64_t s = 0; s < self->here; s++)
            for (int64_t k = 0; k < C; k++)
                gradient[(self->ids[s] - first) * C + k] += to->sampled[s * C + k];
    }
    if (self->bias && self->bias->gradient) {
        bp_zero(to->sums, self->columns);
        bp_logit_column_sums(to->sums, dlogits);
        for (int64_t s = 0; s < self->here; s++)
            self->bias->gradient[self->ids[s] - first] += to->sums[s];
    }
    add_targets(self, to->dnormed, dlogits, normed, targets);
}
