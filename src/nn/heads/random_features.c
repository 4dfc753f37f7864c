/* A Gaussian process after a network, by random features: features of a text's state, logits linear
 * in them, and outside training the logits of the posterior's mean field. Called by
 * models/task/task.c and train/parts/sngp.c. */
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

#define INIT_STD 0.02F
#define PIECE    64                /* columns of a factor at a time */
#define PI       3.141592653589793 /* M_PI is not part of C11 */

typedef struct random_features {
    bp_block block;
    bp_features_shape shape;
    bp_param *directions, *phases, *outputs, *factor;
    bp_weight *projection, *map;
    const bp_feature_watch *watch;
} random_features;

static const random_features *features_of(const bp_block *block)
{
    return (const random_features *)block;
}

/* ---- memory ---- */

typedef struct work {
    int32_t *rows;                        /* [B] of the texts that this rank has */
    float *states, *angles, *features;    /* [B][C], [B][D], [B][D] */
    float *logits;                        /* [B][K] */
    double *variances;                    /* [K][B] */
    float *dlogits, *dfeatures, *dstates; /* backward: as these */
} work;

static int64_t saved_floats(const random_features *self, int64_t B)
{
    return B * self->shape.C;
}

static work alloc_work(const random_features *self, bp_arena *arena, int64_t B, bool backward)
{
    int64_t C = self->shape.C, D = self->shape.D, K = self->shape.K;
    work w = {.rows = (int32_t *)(void *)bp_arena_floats(arena, B)};

    w.states = bp_arena_floats(arena, B * C);
    w.angles = bp_arena_floats(arena, B * D);
    w.features = bp_arena_floats(arena, B * D);
    w.logits = bp_arena_floats(arena, B * K);
    w.variances = (double *)(void *)bp_arena_floats(arena, 2 * B * K);
    if (!backward)
        return w;
    w.dlogits = bp_arena_floats(arena, B * K);
    w.dfeatures = bp_arena_floats(arena, B * D);
    w.dstates = bp_arena_floats(arena, B * C);
    return w;
}

static size_t features_saved(const bp_block *block, const bp_extent *most)
{
    return bp_arena_bytes(saved_floats(features_of(block), most->B), sizeof(float));
}

static size_t features_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    bp_arena count = {0};

    alloc_work(features_of(block), &count, most->B, training);
    return count.used_bytes;
}

static bp_product_bytes features_products(const bp_block *block, const bp_extent *most)
{
    const bp_features_shape *shape = &features_of(block)->shape;
    bp_product_bytes bytes = {0};

    bp_product_bytes_add(&bytes, block->nn, most->B, shape->D, shape->C);
    bp_product_bytes_add(&bytes, block->nn, most->B, shape->K, shape->D);
    return bytes;
}

static bp_err features_bind(bp_block *block)
{
    random_features *self = (random_features *)block;
    const bp_features_shape *shape = &self->shape;
    bp_err err = bp_weight_new(&self->projection, block->nn->gemm, self->directions->value,
                               shape->D, shape->C);

    if (err == BP_OK)
        err = bp_weight_new(&self->map, block->nn->gemm, self->outputs->value, shape->K, shape->D);
    return err;
}

static void features_refresh(bp_block *block)
{
    random_features *self = (random_features *)block;

    bp_weight_refresh(self->projection);
    bp_weight_refresh(self->map);
}

/* ---- features, logits, variances ---- */

/* The number of rows of first positions on this rank. */
static int64_t find_texts(const random_features *self, const bp_pass *pass, int32_t *rows)
{
    bp_row_range own = bp_nn_rows(self->block.nn, pass);
    int64_t n = 0;

    for (int64_t b = 0; b < pass->B; b++)
        if (b * pass->T >= own.first && b * pass->T < own.first + own.count)
            rows[n++] = (int32_t)(b * pass->T - own.first);
    return n;
}

static float amplitude(const random_features *self)
{
    return sqrtf(2.0F / (float)self->shape.D);
}

/* Angles, features and logits of n states. */
static void compute(const random_features *self, const work *w, const float *states, int64_t n)
{
    bp_gemm *gemm = self->block.nn->gemm;
    int64_t D = self->shape.D;
    float scale = amplitude(self);

    if (n == 0)
        return;
    bp_linear_forward(gemm, w->angles, states, self->projection, self->phases->value, n);
    for (int64_t i = 0; i < n * D; i++)
        w->features[i] = scale * cosf(w->angles[i]);
    bp_linear_forward(gemm, w->logits, w->features, self->map, NULL, n);
}

/* For one class and n texts: |R^T phi|^2, in pieces of columns that the texts share. */
static void add_variances(double *variances, const float *factor, const float *features, int64_t n,
                          int64_t D)
{
    for (int64_t first = 0; first < D; first += PIECE) {
        int64_t count = D - first < PIECE ? D - first : PIECE;

        for (int64_t b = 0; b < n; b++) {
            double sums[PIECE] = {0};

            for (int64_t j = 0; j < first + count; j++)
                for (int64_t i = 0; i < count; i++)
                    sums[i] += (double)features[b * D + j] * (double)factor[j * D + first + i];
            for (int64_t i = 0; i < count; i++)
                variances[b] += sums[i] * sums[i];
        }
    }
}

static bool has_covariance(const random_features *self)
{
    return self->factor->value[0] != 0;
}

/* The logits become those whose softmax is that of the mean field. */
static void take_variances(const random_features *self, const work *w, int64_t n)
{
    int64_t D = self->shape.D, K = self->shape.K;

    memset(w->variances, 0, (size_t)(K * n) * sizeof *w->variances);
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < K; k++) {
        add_variances(w->variances + k * n, self->factor->value + k * D * D, w->features, n, D);
        for (int64_t b = 0; b < n; b++)
            w->logits[b * K + k] =
                (float)((double)w->logits[b * K + k] / sqrt(1 + PI / 8 * w->variances[k * n + b]));
    }
}

/* For text b among n, over classes; 0 without variances. */
static float mean_variance(const random_features *self, const work *w, int64_t b, int64_t n)
{
    double sum = 0;

    for (int64_t k = 0; k < self->shape.K; k++)
        sum += w->variances[k * n + b];
    return (float)(sum / (double)self->shape.K);
}

/* Rows of `count` positions become logits, then (where there is a place) the variance, and zeros:
 * the head that follows reads only the logits. */
static void give_rows(const random_features *self, float *rows, int64_t count, const float *logits,
                      float variance)
{
    int64_t C = self->shape.C, K = self->shape.K;

    for (int64_t t = 0; t < count; t++) {
        memcpy(rows + t * C, logits, (size_t)K * sizeof *rows);
        bp_zero(rows + t * C + K, C - K);
        if (K < C)
            rows[t * C + K] = variance;
    }
}

static void take_states(const random_features *self, const work *w, float *states,
                        const float *hidden, int64_t n)
{
    int64_t C = self->shape.C;

    for (int64_t b = 0; b < n; b++)
        memcpy(states + b * C, hidden + w->rows[b] * C, (size_t)C * sizeof *states);
}

/* In training a text's state is at its first place; else at each. */
static void features_forward(bp_block *block, bp_pass *pass, bp_activations *activations,
                             void *saved)
{
    const random_features *self = features_of(block);
    float *hidden = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    work w = alloc_work(self, pass->scratch, pass->B, false);
    float *states = saved ? saved : w.states;
    int64_t n = find_texts(self, pass, w.rows);

    take_states(self, &w, states, hidden, n);
    compute(self, &w, states, n);
    if (!pass->training && self->watch)
        self->watch->see(self->watch->context, w.features, w.logits, n);
    bool varies = !pass->training && has_covariance(self);
    if (varies)
        take_variances(self, &w, n);
    for (int64_t b = 0; b < n; b++)
        give_rows(self, hidden + w.rows[b] * self->shape.C, pass->training ? 1 : pass->T,
                  w.logits + b * self->shape.K, varies ? mean_variance(self, &w, b, n) : 0);
    pass->scratch->used_bytes = mark;
}

static void features_backward(bp_block *block, bp_pass *pass, bp_activations *activations,
                              void *saved)
{
    const random_features *self = features_of(block);
    int64_t C = self->shape.C, D = self->shape.D, K = self->shape.K;
    float *dhidden = activations->item[0].data, scale = amplitude(self);
    size_t mark = pass->scratch->used_bytes;
    work w = alloc_work(self, pass->scratch, pass->B, true);
    int64_t n = find_texts(self, pass, w.rows);

    compute(self, &w, saved, n);
    for (int64_t b = 0; b < n; b++)
        memcpy(w.dlogits + b * K, dhidden + w.rows[b] * C, (size_t)K * sizeof *w.dlogits);
    if (n > 0) {
        bp_linear_backward(&(bp_linear_gradients){w.dfeatures, self->outputs->gradient, NULL},
                           block->nn->gemm, w.dlogits, w.features, self->map, n);
        for (int64_t i = 0; i < n * D; i++)
            w.dfeatures[i] *= -scale * sinf(w.angles[i]);
        bp_linear_backward_input(block->nn->gemm, w.dstates, w.dfeatures, self->projection, n);
    }
    for (int64_t b = 0; b < n; b++)
        memcpy(dhidden + w.rows[b] * C, w.dstates + b * C, (size_t)C * sizeof *dhidden);
    pass->scratch->used_bytes = mark;
}

static void features_free(bp_block *block)
{
    random_features *self = (random_features *)block;

    bp_weight_free(&self->projection);
    bp_weight_free(&self->map);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "random_features",
    .saved_bytes = features_saved,
    .scratch_bytes = features_scratch,
    .product_bytes = features_products,
    .bind = features_bind,
    .refresh = features_refresh,
    .forward = features_forward,
    .backward = features_backward,
    .free = features_free,
};

void bp_random_features_new(bp_block **out, const bp_nn *nn, const bp_features_shape *shape,
                            bp_group *group, bp_group *frozen)
{
    random_features *self = bp_alloc("nn.head", 1, sizeof *self);

    BP_ASSERT(shape->K <= shape->C);
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->outputs = bp_group_add_matrix(group, "task.weight", shape->K, shape->D, INIT_STD);
    self->directions = bp_group_add_matrix(frozen, "sngp.directions", shape->D, shape->C,
                                           (float)(1 / shape->length_scale));
    self->phases = bp_group_add_vector(frozen, "sngp.phases", shape->D, BP_INIT_UNIFORM);
    self->phases->init_std = (float)PI;
    self->factor = bp_group_add_matrix(frozen, "sngp.factor", shape->K * shape->D, shape->D, 0);
    self->factor->init = BP_INIT_ZERO;
    *out = &self->block;
}

bool bp_is_random_features(const bp_block *block)
{
    return block->ops == &OPS;
}

void bp_random_features_watch(bp_block *block, const bp_feature_watch *watch)
{
    ((random_features *)block)->watch = watch;
}

float *bp_random_features_factor(bp_block *block, int64_t class)
{
    const random_features *self = features_of(block);

    return self->factor->value + class * self->shape.D * self->shape.D;
}
