/* Arrays that benchmarks compute with. */
#pragma once

#include "base/mem.h"
#include <stdint.h>
#include <stdlib.h>

/* n numbers from -1 to 1; without memory the program ends. */
static inline float *floats(int64_t n)
{
    float *x = bp_alloc("bench", n, sizeof *x);

    if (!x)
        exit(71);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i * 2654435761u % 1024) / 512.0f - 1.0f;
    return x;
}
