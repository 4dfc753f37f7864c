/* Updates element by element: any split of the parameters gives the same bits. */
#include "math/loops_names_priv.h"
#include <math.h>

void LOOP(adamw)(float *w, float *m, float *v, const float *g, int64_t n,
                 const bp_adamw_constants *constants)
{
    const bp_adamw_constants k = *constants;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * k.gradient_scale;
        m[i] = k.beta1 * m[i] + k.rest1 * gradient;
        v[i] = k.beta2 * v[i] + k.rest2 * (gradient * gradient);
        float step = m[i] * k.correction1 / (sqrtf(v[i] * k.correction2) + k.epsilon);
        w[i] -= k.rate * (step + k.decay * w[i]);
    }
}

void LOOP(sgd)(float *w, float *m, const float *g, int64_t n, float rate, float momentum,
               float decay, float gradient_scale)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        m[i] = momentum * m[i] + g[i] * gradient_scale;
        w[i] -= rate * (m[i] + decay * w[i]);
    }
}

/* A float's bits, read in place: through memcpy the loop would stay scalar. */
typedef uint32_t float_bits __attribute__((may_alias));

uint32_t LOOP(bit_sum)(const float *x, int64_t n)
{
    const float_bits *bits = (const float_bits *)x;
    uint32_t sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += bits[i];
    return sum;
}
