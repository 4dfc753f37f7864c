/* Attention whose weights are the 1.5-entmax of the scores, forward and backward, row by row: once
 * a row of weights is computed, keys with weight 0 cost nothing. The row's threshold is kept
 * instead of the log-sum-exp.
 *
 * For a row of scores s, with dp the gradient of its weights p and g = sqrt(p): ds = g (dp - (g
 * dp) / (sum of g)).
 * Source: Peters, Niculae & Martins 2019, section 3.2; Correia, Niculae & Martins 2019,
 * "Adaptively Sparse Transformers".
 *
 * Bits: as attention.h says. Products are of float32 in both precisions.
 */
#include "math/attention/attention_priv.h"
#include "math/kernels/entmax.h"

#include <math.h>
#include <string.h>

enum { WEIGHTS, GRADIENTS, DROPPED, ROWS }; /* of scratch, [K] each */

static int64_t row_floats(const bp_attention_shape *shape)
{
    return bp_round_up(bp_key_positions(shape), 16);
}

int64_t bp_head_scratch_entmax(const bp_attention_shape *shape)
{
    return ROWS * row_floats(shape);
}

/* The keys that query t sees: [*first, returned). */
static int64_t seen(const bp_head *one, int64_t t, int64_t *first)
{
    const bp_attention_shape *shape = one->shape;
    int64_t before = bp_window_before(shape);

    *first = shape->window > 0 && t > before ? t - before : 0;
    return bp_keys_seen(one, t, 1);
}

/* y[n] = x times keys or values from `first` on. */
static void dot_rows(const bp_head *one, float *y, const float *x, const float *rows, int64_t first,
                     int64_t n)
{
    bp_dots dots = {.y = y,
                    .x = x,
                    .w = rows + first * one->kv_row,
                    .y_row = n,
                    .x_row = one->shape->D,
                    .w_row = one->kv_row,
                    .rows = 1,
                    .outs = n,
                    .ins = one->shape->D};

    one->loops->dots(&dots);
}

static void score_row(const bp_head *one, float *scores, int64_t t, int64_t first, int64_t n)
{
    dot_rows(one, scores, bp_float_at(one->q, t * one->q_row), one->k, first, n);
    one->loops->scale(scores, one->scale, n);
    for (int64_t k = 0; one->bias && k < n; k++)
        scores[k] += one->bias[bp_bias_at(one, t, first + k)];
}

static void drop_row(const bp_head *one, float *to, const float *from, int64_t t, int64_t first,
                     int64_t n)
{
    one->loops->dropout(to, NULL, from, n, &one->mask,
                        one->first_place + t * one->place_row + first);
}

void bp_head_forward_entmax(const bp_head *one, const bp_head_results *results, int64_t first_row,
                            int64_t last_row, float *scratch)
{
    int64_t D = one->shape->D, floats = row_floats(one->shape);
    float *weights = scratch, *dropped = scratch + DROPPED * floats;

    for (int64_t t = first_row; t < last_row; t++) {
        float *out = bp_float_at(results->out, t * one->out_row);
        int64_t first, n = seen(one, t, &first) - first;
        const float *used = weights;

        memset(out, 0, (size_t)D * sizeof *out);
        results->lse[t] = 0;
        if (n <= 0)
            continue;
        score_row(one, weights, t, first, n);
        results->lse[t] = (float)bp_entmax_tau(weights, n);
        one->loops->threshold_square(weights, weights, n, (double)results->lse[t], 1);
        if (one->shape->dropout > 0) {
            drop_row(one, dropped, weights, t, first, n);
            used = dropped;
        }
        one->loops->weighted_rows(out, used, bp_float_at(one->v, first * one->kv_row), n,
                                  one->kv_row, D);
    }
}

/* y[D] += factor x */
static void add_scaled(float *y, const float *x, float factor, int64_t D)
{
    for (int64_t d = 0; d < D; d++)
        y[d] += factor * x[d];
}

/* Overwrites dp in `gradients` with ds, given the weights. */
static void score_gradient(float *gradients, const float *weights, int64_t n)
{
    double mean = 0, sum = 0;

    for (int64_t k = 0; k < n; k++) {
        double g = sqrt((double)weights[k]);

        mean += g * (double)gradients[k];
        sum += g;
    }
    mean /= sum;
    for (int64_t k = 0; k < n; k++)
        gradients[k] = (float)(sqrt((double)weights[k]) * ((double)gradients[k] - mean));
}

static void backward_row(const bp_head *one, const bp_head_results *results, int64_t t,
                         float *scratch)
{
    int64_t D = one->shape->D, floats = row_floats(one->shape), first,
            n = seen(one, t, &first) - first;
    float *weights = scratch, *gradients = scratch + GRADIENTS * floats,
          *dropped = scratch + DROPPED * floats, *dq = bp_float_at(results->dq, t * one->q_row);
    const float *dout = bp_float_at(results->dout, t * one->out_row),
                *q = bp_float_at(one->q, t * one->q_row);
    bool drops = one->shape->dropout > 0;

    memset(dq, 0, (size_t)D * sizeof *dq);
    if (n <= 0)
        return;
    score_row(one, weights, t, first, n);
    one->loops->threshold_square(weights, weights, n, (double)results->lse[t], 1);
    dot_rows(one, gradients, dout, one->v, first, n);
    if (drops) {
        drop_row(one, dropped, gradients, t, first, n);
        memcpy(gradients, dropped, (size_t)n * sizeof *gradients);
        drop_row(one, dropped, weights, t, first, n);
    }
    score_gradient(gradients, weights, n);
    for (int64_t k = 0; results->dbias && k < n; k++)
        results->dbias[bp_bias_at(one, t, first + k)] += gradients[k];
    one->loops->scale(gradients, one->scale, n);
    one->loops->weighted_rows(dq, gradients, bp_float_at(one->k, first * one->kv_row), n,
                              one->kv_row, D);
    for (int64_t k = 0; k < n; k++)
        if (weights[k] > 0) {
            int64_t row = (first + k) * results->dkv_row;

            add_scaled(bp_float_at(results->dk, row), q, gradients[k], D);
            add_scaled(bp_float_at(results->dv, row), dout, drops ? dropped[k] : weights[k], D);
        }
}

void bp_head_backward_entmax(const bp_head *one, const bp_head_results *results, float *scratch)
{
    size_t bytes = (size_t)one->shape->D * sizeof(float);

    for (int64_t k = 0; k < bp_key_positions(one->shape); k++) {
        memset(bp_float_at(results->dk, k * results->dkv_row), 0, bytes);
        memset(bp_float_at(results->dv, k * results->dkv_row), 0, bytes);
    }
    for (int64_t t = 0; t < one->shape->T; t++)
        backward_row(one, results, t, scratch);
}
