/* bf16 products by AVX512_BF16: ROWS rows of the sums by two vectors. */
#include "math/bf16/bf16_passes.h"
#include "math/bf16/bf16_tiles.h"
#include <immintrin.h>
#include <string.h>

#define LANES 16
#define ROWS  8

static void nothing(void)
{
}

/* The pair at `a`, in every lane. */
static inline __m512bh pair(const uint16_t *a)
{
    uint32_t bits;

    memcpy(&bits, a, sizeof bits);
    return (__m512bh)_mm512_set1_epi32((int)bits);
}

static void block(const bp_bf16_tile *t, int64_t m, int64_t n)
{
    const uint16_t *a = t->a + m * t->a_row;
    const uint32_t *b = t->b + n;
    float *c = t->c + m * t->c_row + n;
    __m512 sums[ROWS][2];

#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            sums[i][j] =
                t->accumulate ? _mm512_loadu_ps(c + i * t->c_row + j * LANES) : _mm512_setzero_ps();
    for (int64_t k = 0; k < t->K; k += 2, b += t->b_row) {
        __m512bh left = (__m512bh)_mm512_loadu_si512(b),
                 right = (__m512bh)_mm512_loadu_si512(b + LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            __m512bh row = pair(a + i * t->a_row + k);
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], row, left);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], row, right);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            _mm512_storeu_ps(c + i * t->c_row + j * LANES, sums[i][j]);
}

static void product(const bp_bf16_tile *tile)
{
    for (int64_t n = 0; n < tile->N; n += 2 * LANES)
        for (int64_t m = 0; m < tile->M; m += ROWS)
            block(tile, m, n);
}

static void products(const bp_bf16_tile *tiles, int count)
{
    for (int i = 0; i < count; i++)
        product(&tiles[i]);
}

const bp_bf16_tiles bp_bf16_tiles_avx512 = {nothing, nothing, products, &bp_bf16_passes_avx512};
