/* Rows of logits: maximum, sum of exponentials, gradient; and sums of squares. */
#include "math/loops_math_priv.h"
#include "math/loops_names_priv.h"
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

static inline double wide_sum(double lanes[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

double LOOP(exp_sum)(const float *x, int64_t n, float max)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += (double)exp_of(x[i + l] - max);
    for (int l = 0; i + l < n; l++)
        lanes[l] += (double)exp_of(x[i + l] - max);
    return wide_sum(lanes);
}

void LOOP(exp_scale)(float *x, int64_t n, float max, float factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = exp_of(x[i] - max) * factor;
}

double LOOP(square_sum)(const float *x, int64_t n)
{
    double lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i + l < n; l++)
        lanes[l] += (double)x[i + l] * (double)x[i + l];
    return wide_sum(lanes);
}
