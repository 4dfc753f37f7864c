/* Updates element by element: any split of the parameters gives the same bits. */
#include "math/loops/loops_names_priv.h"
#include <math.h>

/* A float's bits, read in place: through memcpy the loops would stay scalar. */
typedef uint32_t float_bits __attribute__((may_alias));

bp_update_sums LOOP(adamw)(float *w, float *m, float *v, const float *g, int64_t n,
                           const bp_update_constants *constants)
{
    const bp_update_constants k = *constants;
    const float_bits *w_bits = (const float_bits *)w, *m_bits = (const float_bits *)m,
                     *v_bits = (const float_bits *)v;
    uint32_t w0 = 0, m0 = 0, v0 = 0, w1 = 0, m1 = 0, v1 = 0;

#pragma omp simd reduction(+ : w0, m0, v0, w1, m1, v1)
    for (int64_t i = 0; i < n; i++) {
        w0 += w_bits[i];
        m0 += m_bits[i];
        v0 += v_bits[i];
        float gradient = g[i] * k.gradient_scale;
        m[i] = k.beta1 * m[i] + k.rest1 * gradient;
        v[i] = k.beta2 * v[i] + k.rest2 * (gradient * gradient);
        float step = m[i] * k.correction1 / (sqrtf(v[i] * k.correction2) + k.epsilon);
        w[i] -= k.rate * (step + k.decay * w[i]);
        w1 += w_bits[i];
        m1 += m_bits[i];
        v1 += v_bits[i];
    }
    return (bp_update_sums){{w0, m0, v0}, {w1, m1, v1}};
}

/* A rule with one moment, and one with two: what an element's step is, in BODY. */
#define ONE_MOMENT(rule, BODY)                                                                     \
    bp_update_sums LOOP(rule)(float *w, float *m, float *v, const float *g, int64_t n,             \
                              const bp_update_constants *constants)                                \
    {                                                                                              \
        const bp_update_constants k = *constants;                                                  \
        const float_bits *w_bits = (const float_bits *)w, *m_bits = (const float_bits *)m;         \
        uint32_t w0 = 0, m0 = 0, w1 = 0, m1 = 0;                                                   \
                                                                                                   \
        (void)v;                                                                                   \
        _Pragma("omp simd reduction(+ : w0, m0, w1, m1)") for (int64_t i = 0; i < n; i++)          \
        {                                                                                          \
            w0 += w_bits[i];                                                                       \
            m0 += m_bits[i];                                                                       \
            float gradient = g[i] * k.gradient_scale + k.decay * w[i];                             \
            BODY;                                                                                  \
            w1 += w_bits[i];                                                                       \
            m1 += m_bits[i];                                                                       \
        }                                                                                          \
        return (bp_update_sums){{w0, m0, 0}, {w1, m1, 0}};                                         \
    }
#define TWO_MOMENTS(rule, BODY)                                                                    \
    bp_update_sums LOOP(rule)(float *w, float *m, float *v, const float *g, int64_t n,             \
                              const bp_update_constants *constants)                                \
    {                                                                                              \
        const bp_update_constants k = *constants;                                                  \
        const float_bits *w_bits = (const float_bits *)w, *m_bits = (const float_bits *)m,         \
                         *v_bits = (const float_bits *)v;                                          \
        uint32_t w0 = 0, m0 = 0, v0 = 0, w1 = 0, m1 = 0, v1 = 0;                                   \
                                                                                                   \
        _Pragma("omp simd reduction(+ : w0, m0, v0, w1, m1, v1)") for (int64_t i = 0; i < n; i++)  \
        {                                                                                          \
            w0 += w_bits[i];                                                                       \
            m0 += m_bits[i];                                                                       \
            v0 += v_bits[i];                                                                       \
            float gradient = g[i] * k.gradient_scale + k.decay * w[i];                             \
            BODY;                                                                                  \
            w1 += w_bits[i];                                                                       \
            m1 += m_bits[i];                                                                       \
            v1 += v_bits[i];                                                                       \
        }                                                                                          \
        return (bp_update_sums){{w0, m0, v0}, {w1, m1, v1}};                                       \
    }

ONE_MOMENT(sgd, m[i] = k.beta1 * m[i] + gradient; w[i] -= k.rate * m[i])
ONE_MOMENT(adagrad, m[i] += gradient * gradient;
           w[i] -= k.rate * (gradient / (sqrtf(m[i]) + k.epsilon)))
ONE_MOMENT(rmsprop, m[i] = k.beta1 * m[i] + k.rest1 * (gradient * gradient);
           w[i] -= k.rate * (gradient / (sqrtf(m[i]) + k.epsilon)))
TWO_MOMENTS(rmsprop_momentum, m[i] = k.beta1 * m[i] + k.rest1 * (gradient * gradient);
            v[i] = k.beta2 * v[i] + gradient / (sqrtf(m[i]) + k.epsilon); w[i] -= k.rate * v[i])
TWO_MOMENTS(adadelta, m[i] = k.beta1 * m[i] + k.rest1 * (gradient * gradient);
            float step = sqrtf(v[i] + k.epsilon) / sqrtf(m[i] + k.epsilon) * gradient;
            v[i] = k.beta1 * v[i] + k.rest1 * (step * step); w[i] -= k.rate * step)

void LOOP(lamb_moments)(float *m, float *v, const float *g, int64_t n,
                        const bp_update_constants *constants)
{
    const bp_update_constants k = *constants;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * k.gradient_scale;
        m[i] = k.beta1 * m[i] + k.rest1 * gradient;
        v[i] = k.beta2 * v[i] + k.rest2 * (gradient * gradient);
    }
}

static inline float lamb_step(float w, float m, float v, const bp_update_constants *k)
{
    return m * k->correction1 / (sqrtf(v * k->correction2) + k->epsilon) + k->decay * w;
}

void LOOP(lamb_squares)(double sums[2], const float *w, const float *m, const float *v, int64_t n,
                        const bp_update_constants *constants)
{
    const bp_update_constants k = *constants;
    double weights[LANES] = {0}, steps[LANES] = {0};

    for (int64_t i = 0; i < n; i += LANES) {
        int lanes = n - i < LANES ? (int)(n - i) : LANES;
        for (int l = 0; l < lanes; l++) {
            double step = lamb_step(w[i + l], m[i + l], v[i + l], &k);
            weights[l] += (double)w[i + l] * (double)w[i + l];
            steps[l] += step * step;
        }
    }
    sums[0] = wide_sum(weights);
    sums[1] = wide_sum(steps);
}

void LOOP(lamb_apply)(float *w, const float *m, const float *v, int64_t n,
                      const bp_update_constants *constants)
{
    const bp_update_constants k = *constants;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        w[i] -= k.rate * lamb_step(w[i], m[i], v[i], &k);
}

static inline double factor_sum_of(double *columns, const float *g, int64_t n, float scale,
                                   float floor)
{
    double lanes[LANES] = {0};

    for (int64_t i = 0; i < n; i += LANES) {
        int count = n - i < LANES ? (int)(n - i) : LANES;
        for (int l = 0; l < count; l++) {
            double gradient = g[i + l] * scale, square = gradient * gradient + (double)floor;
            lanes[l] += square;
            if (columns)
                columns[i + l] += square;
        }
    }
    return wide_sum(lanes);
}

double LOOP(factor_sum)(double *columns, const float *g, int64_t n, float scale, float floor)
{
    return columns ? factor_sum_of(columns, g, n, scale, floor)
                   : factor_sum_of(NULL, g, n, scale, floor);
}

void LOOP(factor_columns)(double *columns, const float *g, int64_t n, float scale, float floor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        double gradient = g[i] * scale;
        columns[i] += gradient * gradient + (double)floor;
    }
}

double LOOP(factor_squares)(const float *g, const float *column, int64_t n, float row)
{
    double lanes[LANES] = {0};

    for (int64_t i = 0; i < n; i += LANES) {
        int count = n - i < LANES ? (int)(n - i) : LANES;
        for (int l = 0; l < count; l++) {
            double step = g[i + l] * row * column[i + l];
            lanes[l] += step * step;
        }
    }
    return wide_sum(lanes);
}

void LOOP(factor_apply)(float *w, const float *g, const float *column, int64_t n, float row,
                        float keep)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        w[i] = keep * w[i] - g[i] * row * column[i];
}

uint32_t LOOP(bit_sum)(const float *x, int64_t n)
{
    const float_bits *bits = (const float_bits *)x;
    uint32_t sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += bits[i];
    return sum;
}
