/* Multiply-adds only in registers. */
#include "math/loops/loops_names_priv.h"
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_FLOATS 16
#define SUMS          24
#define LEFT          3 /* operands in registers; sums and a product fill the rest */
#define RIGHT         3
#elif defined(__AVX2__)
#define VECTOR_FLOATS 8
#define SUMS          12
#define LEFT          2
#define RIGHT         1
#else
#define VECTOR_FLOATS 4
#define SUMS          12
#define LEFT          2
#define RIGHT         1
#endif

typedef float vector __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));

int64_t LOOP(multiply_adds)(float *out, const float *operands, int64_t times)
{
    vector sums[SUMS], total = {0}, a[LEFT], b[RIGHT];

    memcpy(a, operands, sizeof a);
    memcpy(b, operands + LEFT * VECTOR_FLOATS, sizeof b);
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++)
        sums[i] = total + (float)i; /* all different, so that the compiler does not merge them */
    for (int64_t t = 0; t < times; t++)
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++)
            sums[i] += a[i % LEFT] * b[i / LEFT % RIGHT];
    for (int i = 0; i < SUMS; i++)
        total += sums[i];
    for (int i = 0; i < VECTOR_FLOATS; i++)
        *out += total[i];
    return 2 * SUMS * VECTOR_FLOATS * times;
}
