/* Updates element by element: any split of the parameters gives the same bits. */
#include "math/kernels/loops_names_priv.h"
#include <math.h>

/* A float's bits, read in place: through memcpy the loops would stay scalar. */
typedef uint32_t float_bits __attribute__((may_alias));

bp_update_sums LOOP(adamw)(float *w, float *m, float *v, const float *g, int64_t n,
                           const bp_adamw_constants *constants)
{
    const bp_adamw_constants k = *constants;
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

bp_update_sums LOOP(sgd)(float *w, float *m, const float *g, int64_t n, float rate, float momentum,
                         float decay, float gradient_scale)
{
    const float_bits *w_bits = (const float_bits *)w, *m_bits = (const float_bits *)m;
    uint32_t w0 = 0, m0 = 0, w1 = 0, m1 = 0;

#pragma omp simd reduction(+ : w0, m0, w1, m1)
    for (int64_t i = 0; i < n; i++) {
        w0 += w_bits[i];
        m0 += m_bits[i];
        m[i] = momentum * m[i] + g[i] * gradient_scale;
        w[i] -= rate * (m[i] + decay * w[i]);
        w1 += w_bits[i];
        m1 += m_bits[i];
    }
    return (bp_update_sums){{w0, m0, 0}, {w1, m1, 0}};
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
