/* Vectors of bf16 pairs (AVX-512 with AVX512_BF16): the building blocks of packing and attention's
 * passes. */
#pragma once

#include "math/gemm/transpose_avx512.h"
#include <stdint.h>

/* The first n of 32 halves, all if n is more. */
static inline __mmask32 first_halves(int64_t n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : ((__mmask32)1 << n) - 1;
}

/* The first 8 halves of 32 rows, `row` apart, transposed to 8 rows of 32: loads place quarters of
 * vectors, so that words move within quarters only, which takes half the shuffles of transpose().
 */
WORDS_TARGET static inline __attribute__((always_inline)) void
transpose_octet(uint32_t *to, const uint16_t *a, int64_t row)
{
    __m512i rows[8], pairs[8];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const uint16_t *at = a + i * row;
        rows[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)at));
        rows[i] = _mm512_inserti32x4(rows[i], _mm_loadu_si128((const void *)(at + 8 * row)), 1);
        rows[i] = _mm512_inserti32x4(rows[i], _mm_loadu_si128((const void *)(at + 16 * row)), 2);
        rows[i] = _mm512_inserti32x4(rows[i], _mm_loadu_si128((const void *)(at + 24 * row)), 3);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        pairs[i] = _mm512_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
        pairs[i + 4] = _mm512_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        rows[i] = _mm512_unpacklo_epi32(pairs[i], pairs[i + 1]);
        rows[i + 1] = _mm512_unpackhi_epi32(pairs[i], pairs[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        int from = i / 2 * 4 + i % 2;
        _mm512_store_si512(to + 2 * i * LANES, _mm512_unpacklo_epi64(rows[from], rows[from + 2]));
        _mm512_store_si512(to + (2 * i + 1) * LANES,
                           _mm512_unpackhi_epi64(rows[from], rows[from + 2]));
    }
}

/* Pairs of two rows, a_row apart, of which there may be one (`rows` 1) or none, in the columns of
 * `some`. */
WORDS_TARGET static inline __m512i pair_of_rows(const uint16_t *a, int64_t a_row, int64_t rows,
                                                __mmask16 some)
{
    __m512i lower = _mm512_setzero_si512(), upper = lower;

    if (rows > 0)
        lower = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, a));
    if (rows > 1)
        upper = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, a + a_row));
    return _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16));
}

/* Pairs of two rows of 32 halves: columns 0 to 15 and 16 to 31. */
WORDS_TARGET static inline __m512i pair_left(__m512i upper, __m512i lower)
{
    const __m512i order =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);

    return _mm512_permutex2var_epi16(lower, order, upper);
}

WORDS_TARGET static inline __m512i pair_right(__m512i upper, __m512i lower)
{
    const __m512i order =
        _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55, 23, 54,
                         22, 53, 21, 52, 20, 51, 19, 50, 18, 49, 17, 48, 16);

    return _mm512_permutex2var_epi16(lower, order, upper);
}
