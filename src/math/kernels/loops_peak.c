/* Multiply-adds in registers alone. */
#include "math/kernels/loops_names_priv.h"

#if defined(__AVX512F__)
#define VECTOR_FLOATS 16
#define SUMS          24
#elif defined(__AVX2__)
#define VECTOR_FLOATS 8
#define SUMS          12
#else
#define VECTOR_FLOATS 4
#define SUMS          12
#endif

typedef float vector __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));

int64_t LOOP(multiply_adds)(float *out, float factor, int64_t times)
{
    vector sums[SUMS], total = {0}, a = total + factor, b = a + factor;

#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++)
        sums[i] = total + (float)i; /* all different, lest one be computed for all */
    for (int64_t t = 0; t < times; t++)
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++)
            sums[i] += a * b;
    for (int i = 0; i < SUMS; i++)
        total += sums[i];
    for (int i = 0; i < VECTOR_FLOATS; i++)
        *out += total[i];
    return 2 * SUMS * VECTOR_FLOATS * times;
}
