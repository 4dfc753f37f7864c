/* Layer normalisation by rows. */
#include "math/loops/loops_names_priv.h"
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

void LOOP(norm_statistics)(float *mean, float *rstd, const float *x, int64_t C, float epsilon)
{
    float mu = sum_of(x, C) / (float)C;

    *mean = mu;
    *rstd = 1.0f / sqrtf(square_deviations(x, mu, C) / (float)C + epsilon);
}

void LOOP(norm_apply)(float *y, const float *x, const float *gain, const float *bias, float mean,
                      float rstd, int64_t n)
{
#pragma omp simd
    for (int64_t c = 0; c < n; c++)
        y[c] = (x[c] - mean) * rstd * gain[c] + bias[c];
}

/* Means over a row of dy gain and of dy gain xhat. */
void LOOP(norm_means)(float *mean_d, float *mean_dot, const float *dy, const float *x,
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
    *mean_d = lane_sum(sums) / (float)C;
    *mean_dot = lane_sum(dots) / (float)C;
}

void LOOP(norm_gradient)(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                         const float *gain, const bp_norm_row *row, int64_t n)
{
    const bp_norm_row at = *row;

#pragma omp simd
    for (int64_t c = 0; c < n; c++) {
        float xhat = (x[c] - at.mean) * at.rstd;
        dgain[c] += dy[c] * xhat;
        dbias[c] += dy[c];
        dx[c] += at.rstd * (dy[c] * gain[c] - at.mean_d - xhat * at.mean_dot);
    }
}
