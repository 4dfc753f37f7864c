/* Scalar functions that compilers vectorise: the same bits in a vector, in its tail, and on every
 * CPU. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* a b + c, rounded once if the instruction set can: from AVX2 on. */
static inline float fused(float a, float b, float c)
{
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* exp(x) within 2 units of the last place; 0 below -86.99 (where 2^-126 begins), infinity
 * above 88.72284; NaN stays NaN. Source: the reduction and polynomial of Moshier's Cephes, expf.c.
 */
static inline float exp_of(float x)
{
    const float round =
        12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    float bounded = x > 88.8f ? 88.8f : x;
    bounded = bounded < -87.3f ? -87.3f : bounded;
    float shifted = bounded * 1.44269504088896341f + round;
    float n = shifted - round;
    float r =
        bounded - n * 0.693359375f; /* ln 2 in two parts; the product with the first is exact */
    r = r + n * 2.12194440e-4f;
    float p = 2 * 1.9875691500e-4f; /* all coefficients doubled, because n may be 128: 2^n is 2
                                       times 2^(n-1) */
    p = p * r + 2 * 1.3981999507e-3f;
    p = p * r + 2 * 8.3334519073e-3f;
    p = p * r + 2 * 4.1665795894e-2f;
    p = p * r + 2 * 1.6666665459e-1f;
    p = p * r + 2 * 5.0000001201e-1f;
    p = p * (r * r) + (r + r) + 2.0f;
    /* The bits of 2^(n-1); n = -126, the least, gives those of 0. */
    return p * float_of_bits((bits_of_float(shifted) - bits_of_float(round) + 126u) << 23);
}

/* 2^t for t up to 128, where infinity begins, within 2 units of the last place; 0 below -126
 * (where 2^-126 begins); NaN stays NaN. For arguments that may be rounded: exp_of(x) is more
 * accurate than exp2_of(x log2 e). Source: ours; the polynomial of degree 5 is the best on [-1/2,
 * 1/2] with exp2_of(0) = 1 (its relative error is 9e-8), coefficients doubled as above.
 *
 * In two parts, which loops may compute separately: t = n + fraction, and 2^(n-1). */
static inline float exp2_split(float t, float *power)
{
    const float round =
        12582912.0f + 126.0f; /* the low bits are those of the exponent of 2^(n-1) */
    float bounded = t < -126.0f ? -126.0f : t;
    float shifted = bounded + round;

    *power = float_of_bits(bits_of_float(shifted) << 23);
    return bounded - (shifted - round);
}

static inline float exp2_join(float f, float power)
{
    float p = fused(2.652945462614298e-3f, f, 1.9343025982379913e-2f);
    p = fused(p, f, 0.11101467162370682f);
    p = fused(p, f, 0.48044484853744507f);
    p = fused(p, f, 1.3862940073013306f);
    p = fused(p, f, 2.0f);
    return p * power;
}

static inline float exp2_of(float t)
{
    float power, f = exp2_split(t, &power);

    return exp2_join(f, power);
}

/* Elements per pass of a loop with many dependent operations: it is split into short loops with
 * results in the L1 cache. The CPU's scheduler, which holds some hundred operations, then finds
 * more ready ones. */
#define CUT 128

/* y = 2^t of n <= CUT; in place is allowed. */
static inline void exp2_cut(float *y, const float *t, int64_t n)
{
    float power[CUT];

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = exp2_split(t[i], &power[i]);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = exp2_join(y[i], power[i]);
}

/* The larger; NaN if either is NaN, unlike a plain maximum. */
static inline float max_of(float a, float b)
{
    return b > a || b != b ? b : a;
}
