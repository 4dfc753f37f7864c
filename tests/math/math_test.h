/* What the tests of src/math share: arrays of random numbers, comparisons with a reason. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include <math.h>
#include <string.h>

static inline float *floats(int64_t n)
{
    float *x = bp_alloc("test", n, sizeof *x);

    assert_non_null(x);
    return x;
}

/* Normal numbers of a stream of their own. */
static inline float *randoms(int64_t n, int64_t stream)
{
    bp_rng_key key = bp_rng_key_of(7, BP_RNG_TEST, 0, 0, stream);
    float *x = floats(n);

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)bp_rng_normal(&key, (uint64_t)i);
    return x;
}

static inline float *copied(const float *x, int64_t n)
{
    float *y = floats(n);

    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

/* The largest |x - y|; NaN when there is one. */
static inline double distance(const float *x, const double *y, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)x[i] - y[i]);
        if (!(d <= most))
            most = d;
        if (isnan(d))
            return d;
    }
    return most;
}

#define assert_near(x, y, n, tolerance)                                                            \
    do {                                                                                           \
        double distance_ = distance((x), (y), (n));                                                \
        if (!(distance_ <= (tolerance)))                                                           \
            fail_msg("%s is %g from %s, more than %g", #x, distance_, #y, (double)(tolerance));    \
    } while (0)

static inline double *doubles(int64_t n)
{
    double *x = bp_alloc("test", n, sizeof *x);

    assert_non_null(x);
    return x;
}

static inline double *widened(const float *x, int64_t n)
{
    double *y = doubles(n);

    for (int64_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

/* Equal to the bit. */
#define assert_same_bits(x, y, n) assert_memory_equal((x), (y), (size_t)(n) * sizeof *(x))

static inline int no_leaks(void **state)
{
    char names[1024];

    (void)state;
    if (bp_mem_balance(names, sizeof names) == 0)
        return 0;
    print_error("still allocated: %s\n", names);
    return 1;
}
