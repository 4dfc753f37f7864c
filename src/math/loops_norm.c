/* Layer normalisation by rows. */
#include "math/loops_names_priv.h"
#include <math.h>

static inline float sum_of(const float *x, int64_t n)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += x[i + l];
    for (int l = 0; i + l < n; l++)
        lanes[l] += x[i + l];
    return lane_sum(lanes);
}

static inline float square_deviations(const float *x, float mean, int64_t n)
{
    float lanes[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (int l = 0; i + l < n; l++)
        lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
    return lane_sum(lanes);
}

void LOOP(norm_forward)(float *y, float *mean, float *rstd, const float *x, const float *gain,
                        const float *bias, int64_t rows, int64_t C, float epsilon)
{
    for (int64_t r = 0; r < rows; r++, x += C, y += C) {
        float mu = sum_of(x, C) / (float)C;
        float inverse = 1.0f / sqrtf(square_deviations(x, mu, C) / (float)C + epsilon);
#pragma omp simd
        for (int64_t c = 0; c < C; c++)
            y[c] = (x[c] - mu) * inverse * gain[c] + bias[c];
        if (mean)
            mean[r] = mu;
        if (rstd)
            rstd[r] = inverse;
    }
}

/* Sums over a row of dy gain and of dy gain xhat. */
static inline void row_sums(float *sum, float *dot, const float *dy, const float *x,
                            const float *gain, float mean, float rstd, int64_t C)
{
    float sums[LANES] = {0}, dots[LANES] = {0};
    int64_t c = 0;

    for (; c + LANES <= C; c += LANES)
        for (int l = 0; l < LANES; l++) {
            float d = dy[c + l] * gain[c + l];
            sums[l] += d;
            dots[l] += d * ((x[c + l] - mean) * rstd);
        }
    for (int l = 0; c + l < C; l++) {
        float d = dy[c + l] * gain[c + l];
        sums[l] += d;
        dots[l] += d * ((x[c + l] - mean) * rstd);
    }
    *sum = lane_sum(sums);
    *dot = lane_sum(dots);
}

void LOOP(norm_backward)(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                         const float *gain, const float *mean, const float *rstd, int64_t rows,
                         int64_t C)
{
    for (int64_t c = 0; c < C; c++)
        dgain[c] = dbias[c] = 0.0f;
    for (int64_t r = 0; r < rows; r++, x += C, dy += C, dx += C) {
        float sum, dot, mu = mean[r], inverse = rstd[r];
        row_sums(&sum, &dot, dy, x, gain, mu, inverse, C);
        sum /= (float)C;
        dot /= (float)C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++) {
            float xhat = (x[c] - mu) * inverse;
            dgain[c] += dy[c] * xhat;
            dbias[c] += dy[c];
            dx[c] += inverse * (dy[c] * gain[c] - sum - xhat * dot);
        }
    }
}
