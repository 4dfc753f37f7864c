/* Activation, dropout, conversion, sums of columns. */
#include "math/loops/loops_math_priv.h"
#include "math/loops/loops_names_priv.h"
#include "math/loops/loops_philox_priv.h"

#include <math.h>

#define GELU_SLOPE        0.797884560802865356f /* sqrt(2 / pi) */
#define GELU_CUBIC        0.044715f
#define LOG2_E            1.44269504088896341f
#define INVERSE_ROOT_2_PI 0.398942280401432678f

/* -2 log2(e) u, u = sqrt(2/pi) (x + 0.044715 x^3) */
static inline float gelu_exponent(float x)
{
    return x * fused(-2.0f * GELU_SLOPE * LOG2_E * GELU_CUBIC, x * x, -2.0f * GELU_SLOPE * LOG2_E);
}

/* The remaining elements of n from `at` on, at most CUT. */
static inline int64_t cut_of(int64_t n, int64_t at)
{
    return n - at < CUT ? n - at : CUT;
}

/* exp(-2u) */
static inline void gelu_powers(float *e, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float exponent = gelu_exponent(x[i]);
        e[i] = exponent > 128.0f ? 128.0f : exponent;
    }
    exp2_cut(e, e, n);
}

/* x / (1 + exp(-2u)) is x/2 (1 + tanh u) without its cancellation. */
void LOOP(gelu_forward)(float *y, const float *x, int64_t n)
{
    float e[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        gelu_powers(e, x + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[at + i] = x[at + i] * (1.0f / (1.0f + e[i]));
    }
}

/* The slope: it is 0 or 1 to the last bit long before x = 15; the bounds keep all factors finite
 * (and NaN is NaN). rest: 1 - sigmoid, without its cancellation. */
static inline float gelu_slope(float x, float sigmoid, float rest)
{
    float at = x > 15.0f ? 15.0f : x;

    at = at < -15.0f ? -15.0f : at;
    float steep = fused(2.0f * GELU_SLOPE * 3.0f * GELU_CUBIC, at * at, 2.0f * GELU_SLOPE);
    return fused(at * steep, rest * sigmoid, sigmoid);
}

static inline void gelu_sigmoids(float *sigmoid, float *rest, const float *x, int64_t n)
{
    gelu_powers(rest, x, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float e = rest[i];
        sigmoid[i] = 1.0f / (1.0f + e);
        rest[i] = (e > 8e37f ? 8e37f : e) * sigmoid[i];
    }
}

void LOOP(gelu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n)
{
    float sigmoid[CUT], rest[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        gelu_sigmoids(sigmoid, rest, x + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float slope = gelu_slope(x[at + i], sigmoid[i], rest[i]);
            y[at + i] = x[at + i] * sigmoid[i];
            dx[at + i] = dy[at + i] * slope;
        }
    }
}

/* Half of erfc(|x| / sqrt(2)), the share of the normal distribution beyond |x|, within a relative
 * 5e-7 up to |x| = 4 (and 5e-6 where it ends, since x^2 is rounded), from `power` = exp(-x^2 / 2).
 * Source: the form of Abramowitz and Stegun 7.1.26, polynomial in 1 / (1 + a |x|); the coefficients
 * are ours, Chebyshev's interpolation up to |x| = 13.3 (relative error 3e-8). */
static inline float normal_tail(float x, float power)
{
    float t = 1.0f / (1.0f + 0.27f * fabsf(x));
    float p = 0.5f * 5.787029409414575e-2f;
    p = fused(p, t, 0.5f * -0.2527944417710576f);
    p = fused(p, t, 0.5f * 0.3393586361643899f);
    p = fused(p, t, 0.5f * -0.13834301366521262f);
    p = fused(p, t, 0.5f * 0.21570032543864665f);
    p = fused(p, t, 0.5f * 0.1440419666854736f);
    p = fused(p, t, 0.5f * 0.20364237724133233f);
    p = fused(p, t, 0.5f * 0.21508237675684436f);
    p = fused(p, t, 0.5f * 0.2154414999447074f);
    return p * t * power;
}

/* The share below x, without the cancellation of 1 + erf. */
static inline float normal_share(float x, float power)
{
    float tail = normal_tail(x, power);

    return x > 0.0f ? 1.0f - tail : tail;
}

static inline void normal_shares(float *share, float *power, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        power[i] = -0.5f * LOG2_E * (x[i] * x[i]);
    exp2_cut(power, power, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        share[i] = normal_share(x[i], power[i]);
}

void LOOP(gelu_exact_forward)(float *y, const float *x, int64_t n)
{
    float power[CUT], share[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        normal_shares(share, power, x + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[at + i] = x[at + i] * share[i];
    }
}

/* The density is 0 long before |x| = 15. */
void LOOP(gelu_exact_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n)
{
    float power[CUT], share[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        normal_shares(share, power, x + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float here = x[at + i], bounded = here > 15.0f ? 15.0f : here;
            bounded = bounded < -15.0f ? -15.0f : bounded;
            y[at + i] = here * share[i];
            dx[at + i] = dy[at + i] * fused(bounded, INVERSE_ROOT_2_PI * power[i], share[i]);
        }
    }
}

/* Non-positive values are multiplied by 0, so a NaN stays NaN. */
void LOOP(relu_forward)(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > 0.0f ? x[i] : x[i] * 0.0f + 0.0f;
}

void LOOP(relu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float none = x[i] * 0.0f + 0.0f;
        y[i] = x[i] > 0.0f ? x[i] : none;
        dx[i] = dy[i] * (x[i] > 0.0f ? 1.0f : none);
    }
}

/* 1 / (1 + exp(-x)), and 1 less it without its cancellation. */
static inline void sigmoids(float *sigmoid, float *rest, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float exponent = x[i] * -LOG2_E;
        rest[i] = exponent > 126.0f ? 126.0f : exponent;
    }
    exp2_cut(rest, rest, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        sigmoid[i] = 1.0f / (1.0f + rest[i]);
        rest[i] *= sigmoid[i];
    }
}

#define SILU_END 87.0f /* below -SILU_END it is 0, and above SILU_END the slope is 1 */

void LOOP(silu_forward)(float *y, const float *x, int64_t n)
{
    float sigmoid[CUT], rest[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        sigmoids(sigmoid, rest, x + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[at + i] = x[at + i] * (x[at + i] < -SILU_END ? 0.0f : sigmoid[i]);
    }
}

void LOOP(silu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n)
{
    float sigmoid[CUT], rest[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        sigmoids(sigmoid, rest, x + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float here = x[at + i], bounded = here > SILU_END ? SILU_END : here;
            float share = here < -SILU_END ? 0.0f : sigmoid[i];
            y[at + i] = here * share;
            dx[at + i] = dy[at + i] * (share + bounded * share * rest[i]);
        }
    }
}

void LOOP(swiglu_forward)(float *y, const float *gate, const float *up, int64_t n)
{
    float sigmoid[CUT], rest[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        sigmoids(sigmoid, rest, gate + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[at + i] = gate[at + i] * sigmoid[i] * up[at + i];
    }
}

void LOOP(swiglu_backward)(float *y, float *dgate, float *dup, const float *dy, const float *gate,
                           const float *up, int64_t n)
{
    float sigmoid[CUT], rest[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        sigmoids(sigmoid, rest, gate + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float u = up[at + i], d = dy[at + i], silu = gate[at + i] * sigmoid[i];
            y[at + i] = silu * u;
            dgate[at + i] = d * u * (sigmoid[i] + silu * rest[i]);
            dup[at + i] = d * silu;
        }
    }
}

void LOOP(geglu_forward)(float *y, const float *gate, const float *up, int64_t n)
{
    float e[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        gelu_powers(e, gate + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[at + i] = gate[at + i] * (1.0f / (1.0f + e[i])) * up[at + i];
    }
}

void LOOP(geglu_backward)(float *y, float *dgate, float *dup, const float *dy, const float *gate,
                          const float *up, int64_t n)
{
    float sigmoid[CUT], rest[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        gelu_sigmoids(sigmoid, rest, gate + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float u = up[at + i], d = dy[at + i], gelu = gate[at + i] * sigmoid[i];
            float slope = gelu_slope(gate[at + i], sigmoid[i], rest[i]);
            y[at + i] = gelu * u;
            dgate[at + i] = d * u * slope;
            dup[at + i] = d * gelu;
        }
    }
}

void LOOP(geglu_exact_forward)(float *y, const float *gate, const float *up, int64_t n)
{
    float power[CUT], share[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        normal_shares(share, power, gate + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++)
            y[at + i] = gate[at + i] * share[i] * up[at + i];
    }
}

void LOOP(geglu_exact_backward)(float *y, float *dgate, float *dup, const float *dy,
                                const float *gate, const float *up, int64_t n)
{
    float power[CUT], share[CUT];

    for (int64_t at = 0; at < n; at += CUT) {
        int64_t count = cut_of(n, at);
        normal_shares(share, power, gate + at, count);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float here = gate[at + i], bounded = here > 15.0f ? 15.0f : here;
            float u = up[at + i], d = dy[at + i], gelu = here * share[i];
            bounded = bounded < -15.0f ? -15.0f : bounded;
            y[at + i] = gelu * u;
            dgate[at + i] = d * u * fused(bounded, INVERSE_ROOT_2_PI * power[i], share[i]);
            dup[at + i] = d * gelu;
        }
    }
}

void LOOP(rotate)(float *x, const float *cosine, const float *sine, int64_t half, float sign)
{
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half], s = sine[i] * sign;
        x[i] = a * cosine[i] - b * s;
        x[i + half] = b * cosine[i] + a * s;
    }
}

void LOOP(add)(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

void LOOP(sum)(float *y, const float *a, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + x[i];
}

void LOOP(multiply)(float *y, const float *a, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * x[i];
}

void LOOP(scale)(float *y, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= factor;
}

static inline float factor_of(uint64_t word, const bp_mask *mask)
{
    return (uint32_t)word >= mask->threshold ? mask->scale : 0.0f;
}

void LOOP(dropout)(float *y, const float *a, const float *x, int64_t n, const bp_mask *mask,
                   int64_t first)
{
    const bp_mask one = *mask;
    uint64_t words[4][COUNTERS];
    float factors[4 * COUNTERS];

    for (int64_t i = 0; i < n;) {
        int64_t skip = (first + i) % 4; /* only before the first element */
        int64_t count = 4 * COUNTERS - skip < n - i ? 4 * COUNTERS - skip : n - i;
        philox(words, one.key, (uint64_t)(first + i) / 4, 1);
        for (int c = 0; c < COUNTERS; c++)
            for (int w = 0; w < 4; w++)
                factors[4 * c + w] = factor_of(words[w][c], &one);
        /* A factor, not a selection: a dropped NaN stays NaN. */
        if (a) {
            for (int64_t j = 0; j < count; j++)
                y[i + j] = a[i + j] + x[i + j] * factors[skip + j];
        } else {
            for (int64_t j = 0; j < count; j++)
                y[i + j] = x[i + j] * factors[skip + j];
        }
        i += count;
    }
}

void LOOP(tile_mask)(float *factors, const bp_mask *mask, int64_t keys, int64_t first,
                     int64_t stride)
{
    const bp_mask one = *mask;
    uint64_t words[4][COUNTERS];

    for (int64_t k = 0; k < keys; k += 4) {
        for (int64_t q = 0; q < BP_TILE_QUERIES; q += COUNTERS) {
            philox(words, one.key, (uint64_t)(first + q * stride + k) / 4, (uint64_t)stride / 4);
            for (int64_t j = 0; j < 4 && k + j < keys; j++)
                for (int c = 0; c < COUNTERS; c++)
                    factors[(k + j) * BP_TILE_QUERIES + q + c] = factor_of(words[j][c], &one);
        }
    }
}

/* The upper half of the bits, rounded to nearest, ties to even; NaN stays NaN. */
static inline uint32_t bf16_of(float x)
{
    uint32_t bits = bits_of_float(x);

    return x != x ? (bits >> 16 | 0x40u) : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

void LOOP(to_bf16)(uint16_t *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint16_t)bf16_of(x[i]);
}

void LOOP(round_bf16)(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = float_of_bits(bf16_of(x[i]) << 16);
}

void LOOP(from_bf16)(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = float_of_bits((uint32_t)x[i] << 16);
}

void LOOP(column_sums)(float *sums, const float *x, int64_t rows, int64_t columns,
                       int64_t row_stride)
{
    for (int64_t r = 0; r < rows; r++)
        LOOP(add)(sums, x + r * row_stride, columns);
}
