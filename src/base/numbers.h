/* Small numbers. */
#pragma once

#include <stdint.h>

static inline int64_t bp_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t bp_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/** n / unit, rounded up; n >= 0. */
static inline int64_t bp_divide_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/** The least multiple of `unit` that is at least n; n >= 0. */
static inline int64_t bp_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}
