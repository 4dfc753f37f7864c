/* A mixture of softmaxes: states and priors of rows, the combination of their softmaxes, and the
 * backward pass. */
#include "nn/heads/softmax_mixture_priv.h"

#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

#define ROWS_AT_ONCE 16 /* of the head, whose distributions are asked for */

/* A linear map whose rows are cut over tensor ranks. */
typedef struct split_map {
    bp_param *param;   /* this rank's rows of [O][C] */
    bp_weight *weight; /* NULL if this rank has no rows */
} split_map;

enum { STATES, PRIORS, MAPS };

struct softmax_mixture {
    const bp_nn *nn;
    int64_t K, C;
    split_map map[MAPS];
    /* of ROWS_AT_ONCE rows, made at first use */
    void *memory;
    mixture_rows rows;
    bp_operand normed;
    float *logits, *max; /* [rows K][V], [2][rows K] */
    double *sums;        /* [2][rows K] */
    int64_t V;
};

static split_map add_map(const bp_nn *nn, bp_group *group, const char *name, int64_t O, int64_t C)
{
    int64_t first, count;

    bp_vocab_share(nn, O, &first, &count);
    return (split_map){
        bp_group_add_matrix_part(group, name, O, C, 1 / sqrtf(3 * (float)C), 0, first, count),
        NULL};
}

softmax_mixture *softmax_mixture_new(const bp_nn *nn, int64_t K, int64_t C, bp_group *split)
{
    softmax_mixture *self = bp_alloc("nn.head", 1, sizeof *self);

    self->nn = nn;
    self->K = K;
    self->C = C;
    self->map[STATES] = add_map(nn, split, "head.states.weight", K * C, C);
    self->map[PRIORS] = add_map(nn, split, "head.priors.weight", K, C);
    return self;
}

void softmax_mixture_free(softmax_mixture **mixture)
{
    softmax_mixture *self = *mixture;

    *mixture = NULL;
    if (!self)
        return;
    for (int m = 0; m < MAPS; m++)
        bp_weight_free(&self->map[m].weight);
    bp_free(self->memory);
    bp_free(self);
}

bp_err softmax_mixture_bind(softmax_mixture *self)
{
    bp_err err = BP_OK;

    for (int m = 0; m < MAPS && err == BP_OK; m++)
        if (self->map[m].param->extent[0] > 0)
            err = bp_weight_new(&self->map[m].weight, self->nn->gemm, self->map[m].param->value,
                                self->map[m].param->extent[0], self->C);
    return err;
}

void softmax_mixture_refresh(softmax_mixture *self)
{
    for (int m = 0; m < MAPS; m++)
        if (self->map[m].weight)
            bp_weight_refresh(self->map[m].weight);
}

void softmax_mixture_products(const softmax_mixture *self, bp_product_bytes *bytes, int64_t rows)
{
    for (int m = 0; m < MAPS; m++)
        if (self->map[m].param->extent[0] > 0)
            bp_product_bytes_add(bytes, self->nn, rows, self->map[m].param->extent[0], self->C);
}

mixture_rows softmax_mixture_alloc(const softmax_mixture *self, bp_arena *arena, int64_t rows,
                                   bool training)
{
    int64_t all = rows * self->K, C = self->C;
    const bp_gemm *gemm = self->nn->gemm;
    mixture_rows to = {0};

    to.states = bp_arena_floats(arena, all * C);
    to.operand = bp_operand_over(arena, gemm, to.states, all, C);
    to.log_prior = bp_arena_floats(arena, all);
    to.posterior = bp_arena_floats(arena, all);
    to.logprob = (double *)(void *)bp_arena_floats(arena, 2 * rows);
    to.targets = (int32_t *)(void *)bp_arena_floats(arena, all);
    if (self->nn->tensor_ranks > 1) {
        to.own = bp_arena_floats(arena, rows * (self->map[STATES].param->extent[0] +
                                                self->map[PRIORS].param->extent[0]));
        to.scratch = bp_arena_floats(arena, all * C);
    }
    if (training) {
        to.dstates = bp_arena_floats(arena, all * C);
        for (int m = 0; m < MAPS; m++)
            to.down[m] = bp_operand_alloc(arena, gemm, rows, self->map[m].param->extent[0]);
    }
    return to;
}

/* y[rows][O] of x, whole on all ranks. */
static void map_forward(const softmax_mixture *self, const mixture_rows *work, int m, float *y,
                        const bp_operand *x)
{
    const bp_nn *nn = self->nn;
    const split_map *map = &self->map[m];
    int64_t O = map->param->shape[0], count = map->param->extent[0];
    float *own = nn->tensor_ranks > 1 ? work->own : y;

    if (count > 0)
        bp_linear_forward_operand(nn->gemm, own, x, map->weight, NULL);
    if (nn->tensor_ranks == 1)
        return;
    bp_zero(y, x->rows * O);
    for (int64_t r = 0; r < x->rows; r++)
        memcpy(y + r * O + map->param->offset[0], own + r * count, (size_t)count * sizeof *y);
    bp_all_sum(y, x->rows * O, work->scratch, nn->tensor);
}

static void log_softmax(float *x, int64_t n)
{
    float max = x[0];
    double sum = 0;

    for (int64_t k = 1; k < n; k++)
        max = x[k] > max ? x[k] : max;
    for (int64_t k = 0; k < n; k++)
        sum += exp((double)x[k] - (double)max);
    for (int64_t k = 0; k < n; k++)
        x[k] = (float)((double)x[k] - (double)max - log(sum));
}

void softmax_mixture_forward(const softmax_mixture *self, mixture_rows *to,
                             const bp_operand *normed, const int32_t *targets, int64_t rows)
{
    int64_t K = self->K, floats = normed->rows * K * self->C;
    bp_operand states = bp_operand_part(&to->operand, 0, normed->rows * K);

    map_forward(self, to, STATES, to->states, normed);
#pragma omp parallel for schedule(static) if (floats > 8192)
    for (int64_t i = 0; i < floats; i++)
        to->states[i] = tanhf(to->states[i]);
    bp_operand_fill(&states, to->states);
    map_forward(self, to, PRIORS, to->log_prior, normed);
    for (int64_t r = 0; r < normed->rows; r++)
        log_softmax(to->log_prior + r * K, K);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++)
            to->targets[r * K + k] = targets[r];
}

void softmax_mixture_combine(const softmax_mixture *self, mixture_rows *to, const float *max,
                             const double *sums, int64_t rows)
{
    int64_t K = self->K;

    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;

        if (to->targets[r * K] < 0) {
            bp_zero(to->posterior + r * K, K);
            continue;
        }
        for (int64_t k = r * K; k < (r + 1) * K; k++)
            most = fmax(most, (double)to->log_prior[k] + bp_logit_logprob(max, sums, rows * K, k));
        for (int64_t k = r * K; k < (r + 1) * K; k++) {
            double share =
                exp((double)to->log_prior[k] + bp_logit_logprob(max, sums, rows * K, k) - most);
            to->posterior[k] = (float)share;
            sum += share;
        }
        for (int64_t k = r * K; k < (r + 1) * K; k++)
            to->posterior[k] = (float)((double)to->posterior[k] / sum);
        to->logprob[r] = most + log(sum);
    }
}

/* From dy[rows][O], the same on all ranks, the gradient of this rank's rows of the map, and its
 * part of dx. */
static void map_backward(const softmax_mixture *self, const mixture_rows *work, int m, float *dx,
                         const float *dy, const bp_operand *x)
{
    const bp_nn *nn = self->nn;
    const split_map *map = &self->map[m];
    int64_t O = map->param->shape[0], count = map->param->extent[0];
    bp_operand down = bp_operand_part(&work->down[m], 0, x->rows);

    if (count == 0) {
        bp_zero(dx, x->rows * self->C);
        return;
    }
    for (int64_t r = 0; r < x->rows && nn->tensor_ranks > 1; r++)
        memcpy(work->own + r * count, dy + r * O + map->param->offset[0],
               (size_t)count * sizeof *dy);
    bp_operand_fill(&down, nn->tensor_ranks > 1 ? work->own : dy);
    bp_linear_backward_input_operand(nn->gemm, dx, &down, map->weight);
    if (map->param->gradient)
        bp_linear_backward_weight_operand(nn->gemm, map->param->gradient, &down, x, false);
}

void softmax_mixture_backward(const softmax_mixture *self, mixture_rows *of, float *dnormed,
                              const bp_operand *normed, const float *weight)
{
    int64_t rows = normed->rows, K = self->K, C = self->C, floats = rows * K * C;

    if (self->nn->tensor_ranks > 1)
        bp_all_sum(of->dstates, floats, of->scratch, self->nn->tensor);
#pragma omp parallel for schedule(static) if (floats > 8192)
    for (int64_t i = 0; i < floats; i++)
        of->dstates[i] *= 1 - of->states[i] * of->states[i];
    map_backward(self, of, STATES, dnormed, of->dstates, normed);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = r * K; k < (r + 1) * K; k++)
            of->log_prior[k] = weight[r] * (expf(of->log_prior[k]) - of->posterior[k]);
    map_backward(self, of, PRIORS, of->states, of->log_prior, normed);
    bp_add(dnormed, of->states, rows * C);
}

/* ---- whole distributions ---- */

static void lay_rows(softmax_mixture *self, bp_arena *arena, int64_t V)
{
    int64_t all = ROWS_AT_ONCE * self->K;

    self->V = V;
    self->normed = bp_operand_alloc(arena, self->nn->gemm, ROWS_AT_ONCE, self->C);
    self->rows = softmax_mixture_alloc(self, arena, ROWS_AT_ONCE, false);
    self->logits = bp_arena_floats(arena, all * V);
    self->max = bp_arena_floats(arena, 2 * all);
    self->sums = (double *)(void *)bp_arena_floats(arena, 2 * 2 * all);
}

static void make_rows(softmax_mixture *self, int64_t V)
{
    bp_arena arena = {0};

    if (self->memory && self->V == V)
        return;
    bp_free(self->memory);
    lay_rows(self, &arena, V);
    self->memory = bp_alloc("nn.head", (int64_t)arena.used_bytes, 1);
    arena = (bp_arena){.base = self->memory, .size_bytes = arena.used_bytes};
    lay_rows(self, &arena, V);
}

/* logs[V] of row r. */
static void mix_row(const softmax_mixture *self, float *logs, int64_t r)
{
    int64_t K = self->K, V = self->V;
    const float *logits = self->logits + r * K * V;
    float shift[BP_HEAD_SOFTMAXES];

    for (int64_t k = 0; k < K; k++)
        shift[k] = (float)((double)self->rows.log_prior[r * K + k] - (double)self->max[r * K + k] -
                           log(self->sums[r * K + k]));
    for (int64_t v = 0; v < V; v++) {
        float most = -INFINITY, sum = 0;

        for (int64_t k = 0; k < K; k++)
            most = fmaxf(most, logits[k * V + v] + shift[k]);
        for (int64_t k = 0; k < K; k++)
            sum += expf(logits[k * V + v] + shift[k] - most);
        logs[v] = most + logf(sum);
    }
}

void softmax_mixture_log_probabilities(softmax_mixture *self, float *logs,
                                       const mixture_outcomes *outcomes, const float *hidden,
                                       int64_t rows)
{
    const bp_nn *nn = self->nn;
    int64_t V = outcomes->V;
    static const int32_t NO_TARGETS[ROWS_AT_ONCE] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                     -1, -1, -1, -1, -1, -1, -1, -1};

    make_rows(self, V);
    for (int64_t first = 0; first < rows; first += ROWS_AT_ONCE) {
        int64_t n = first + ROWS_AT_ONCE < rows ? ROWS_AT_ONCE : rows - first;
        bp_operand normed = bp_operand_part(&self->normed, 0, n);
        bp_operand states = bp_operand_part(&self->rows.operand, 0, n * self->K);

        bp_operand_fill(&normed, hidden + first * self->C);
        softmax_mixture_forward(self, &self->rows, &normed, NO_TARGETS, n);
        if (V > 0)
            bp_linear_forward_operand(nn->gemm, self->logits, &states, outcomes->map,
                                      outcomes->bias);
        bp_logit_rows in = {self->logits, self->rows.targets, n * self->K, V, 0, V};
        bp_logit_statistics(self->max, self->sums, &in, nn->tensor);
#pragma omp parallel for schedule(static) if (n * self->K * V > 8192)
        for (int64_t r = 0; r < n; r++)
            mix_row(self, logs + (first + r) * V, r);
    }
}
