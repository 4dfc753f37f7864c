/* Rows of logits: maximum and sum of exponentials, gradient; and sums of squares. */
#include "math/loops/loops_math_priv.h"
#include "math/loops/loops_names_priv.h"
#include <math.h>

float LOOP(row_max)(const float *x, int64_t n)
{
    float lanes[LANES];
    int64_t i = 0;

    for (int l = 0; l < LANES; l++)
        lanes[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] = max_of(lanes[l], x[i + l]);
    for (int l = 0; i + l < n; l++)
        lanes[l] = max_of(lanes[l], x[i + l]);
    for (int l = 1; l < LANES; l++)
        lanes[0] = max_of(lanes[0], lanes[l]);
    return lanes[0];
}

#define LOG2_E 1.44269504088896341f
#define AHEAD  1024 /* floats: a page */
#define BLOCK  2048 /* columns of a row: they stay in the L1 cache for the exponentials */

/* The largest; may miss a NaN, which the sum of exponentials shows. */
static inline float largest(const float *x, int64_t n)
{
    float lanes[LANES];
    int64_t i = 0;

    for (int l = 0; l < LANES; l++)
        lanes[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    for (int l = 0; i + l < n; l++)
        lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] = lanes[l + width] > lanes[l] ? lanes[l + width] : lanes[l];
    return lanes[0];
}

static inline float exp_sum(const float *x, int64_t n, float max)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        bp_fetch(x + i + BLOCK, LANES); /* for the next block's maximum */
        for (int l = 0; l < LANES; l++)
            lanes[l] += exp2_of((x[i + l] - max) * LOG2_E);
    }
    for (int l = 0; i + l < n; l++)
        lanes[l] += exp2_of((x[i + l] - max) * LOG2_E);
    return lane_sum(lanes);
}

/* Source: Milakov & Gimelshein 2018, algorithm 3, block by block. */
void LOOP(softmax_statistics)(float *max, double *sum, const float *x, int64_t n)
{
    float top = -INFINITY;
    double total = 0;

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = n - i < BLOCK ? n - i : BLOCK;
        float here = largest(x + i, count);
        if (here > top) {
            total *= (double)exp_of(top - here);
            top = here;
        }
        if (top == -INFINITY) /* no finite sum: zeros, or NaN */
            for (int64_t j = 0; j < count; j++)
                total += x[i + j] == x[i + j] ? 0.0 : (double)x[i + j];
        else
            total += (double)exp_sum(x + i, count, top);
    }
    *max = top;
    *sum = total;
}

/* exp_sum, to the bit; *weighted: the sum of (x - max) exp(x - max). */
static inline float exp_sums(float *weighted, const float *x, int64_t n, float max)
{
    float lanes[LANES] = {0}, more[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        bp_fetch(x + i + BLOCK, LANES);
        for (int l = 0; l < LANES; l++) {
            float u = x[i + l] - max, e = exp2_of(u * LOG2_E);

            lanes[l] += e;
            more[l] += u * e;
        }
    }
    for (int l = 0; i + l < n; l++) {
        float u = x[i + l] - max, e = exp2_of(u * LOG2_E);

        lanes[l] += e;
        more[l] += u * e;
    }
    *weighted = lane_sum(more);
    return lane_sum(lanes);
}

void LOOP(softmax_entropy)(float *max, double *sum, double *entropy, const float *x, int64_t n)
{
    float top = -INFINITY;
    double total = 0, weighted = 0; /* of (x - top) exp(x - top) */

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = n - i < BLOCK ? n - i : BLOCK;
        float here = largest(x + i, count), more = 0;

        if (here > top) {
            if (total > 0) {
                double factor = (double)exp_of(top - here);

                weighted = (weighted + total * (double)(top - here)) * factor;
                total *= factor;
            }
            top = here;
        }
        if (top == -INFINITY)
            for (int64_t j = 0; j < count; j++)
                total += x[i + j] == x[i + j] ? 0.0 : (double)x[i + j];
        else
            total += (double)exp_sums(&more, x + i, count, top);
        weighted += (double)more;
    }
    *max = top;
    *sum = total;
    *entropy = log(total) - weighted / total;
}

void LOOP(exp_scale)(float *y, const float *x, int64_t n, float max, float factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = exp2_of((x[i] - max) * LOG2_E) * factor;
}

double LOOP(square_sum)(const float *x, int64_t n)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        bp_fetch(x + i + AHEAD, LANES);
        for (int l = 0; l < LANES; l++)
            lanes[l] += (double)x[i + l] * (double)x[i + l];
    }
    for (int l = 0; i + l < n; l++)
        lanes[l] += (double)x[i + l] * (double)x[i + l];
    return wide_sum(lanes);
}
