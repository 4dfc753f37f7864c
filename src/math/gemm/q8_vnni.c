/* Products with weights of 8 bits by AVX512_VNNI: unsigned bytes (the weights) times signed bytes
 * (a digit of x), four at a time. One row is bound by reading the weights; up to four rows share
 * the reads. */
#include "math/kernels/q8.h"

#include <immintrin.h>
#include <string.h>

#define ROWS   4
#define HALF   16 /* columns of a vector */
#define AHEAD  8  /* prefetch distance in blocks */

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS __m512i digits_of(const int8_t *from)
{
    int32_t four;

    memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
}

ALWAYS void fetch(const bp_q8_weights *w)
{
#pragma GCC unroll 17
    for (size_t i = 0; i < sizeof *w; i += 64)
        _mm_prefetch((const char *)w + i, _MM_HINT_T0);
}

/* `rows` is a constant wherever this is inlined, so that the sums stay in registers. */
ALWAYS void add_block(__m512 y[ROWS][2], const bp_q8_row *x, int64_t x_row, const bp_q8_weights *w,
                      int rows)
{
    __m512i high[ROWS][2], low[ROWS][2];

#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        high[i][0] = high[i][1] = _mm512_setzero_si512();
        low[i][0] = low[i][1] = _mm512_set1_epi32(x[i * x_row].offset);
    }
#pragma GCC unroll 8
    for (int k = 0; k < BP_Q8_BLOCK / 4; k++) {
        __m512i left = _mm512_loadu_si512(w->values[k][0]),
                right = _mm512_loadu_si512(w->values[k][HALF]);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            __m512i upper = digits_of(x[i * x_row].high + 4 * k),
                    lower = digits_of(x[i * x_row].low + 4 * k);
            high[i][0] = _mm512_dpbusd_epi32(high[i][0], left, upper);
            high[i][1] = _mm512_dpbusd_epi32(high[i][1], right, upper);
            low[i][0] = _mm512_dpbusd_epi32(low[i][0], left, lower);
            low[i][1] = _mm512_dpbusd_epi32(low[i][1], right, lower);
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
        __m256i halves = _mm256_loadu_si256((const void *)(w->scales + j * HALF));
        __m512 scales = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high[i][j], 8), low[i][j]);
            __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(x[i * x_row].scale));
            y[i][j] = _mm512_add_ps(y[i][j], _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale));
        }
    }
}

ALWAYS __mmask16 columns_of(int64_t columns, int half)
{
    int64_t n = columns - half * HALF;

    return (__mmask16)(n >= HALF ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

ALWAYS void multiply_rows(const bp_q8_product *t, int64_t r, int rows)
{
    __m512 y[ROWS][2];

#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            y[i][j] = t->start
                          ? _mm512_maskz_loadu_ps(columns_of(t->columns, j), t->start + j * HALF)
                          : _mm512_setzero_ps();
    for (int64_t b = 0; b < t->blocks; b++) {
        fetch(&t->w[b + AHEAD]);
        add_block(y, t->x + r * t->blocks + b, t->blocks, &t->w[b], rows);
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            _mm512_mask_storeu_ps(t->y + (r + i) * t->y_row + j * HALF, columns_of(t->columns, j),
                                  y[i][j]);
}

void bp_q8_multiply_vnni(const bp_q8_product *t)
{
    int64_t r = 0;

    for (; r + ROWS <= t->rows; r += ROWS)
        multiply_rows(t, r, ROWS);
    if (r + 2 <= t->rows) {
        multiply_rows(t, r, 2);
        r += 2;
    }
    if (r < t->rows)
        multiply_rows(t, r, 1);
}
