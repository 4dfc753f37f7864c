/* bf16 products by AVX512_BF16: ROWS rows of the sums by two vectors fill the registers, the left
 * side's pairs are broadcast from memory. */
#include "math/bf16/bf16_gemm.h"
#include "math/bf16/bf16_words_priv.h"

#define ROWS 14
#define SUMS 24
#define SIDE 3 /* operands of a side in registers in the peak's loop */

static void nothing(void)
{
}

/* Makes non-temporal stores visible to readers in other threads. */
static void fence(void)
{
    _mm_sfence();
}

/* Panels of pairs: word [k / 2][m]. */
static void pack(uint32_t *panel, const uint16_t *a, int64_t a_row, int64_t rows, int64_t k)
{
    for (int64_t at = 0; at < k; at += BP_BF16_STEP, panel += LANES * ROWS) {
        __m512i words[LANES];
        __mmask32 some = first_halves(k - at);
#pragma GCC unroll 16
        for (int m = 0; m < LANES; m++)
            words[m] = m < rows ? _mm512_maskz_loadu_epi16(some, a + m * a_row + at)
                                : _mm512_setzero_si512();
        transpose(words);
        /* A store writes two words past the end, which the next one overwrites. */
#pragma GCC unroll 16
        for (int pair = 0; pair < LANES; pair++)
            _mm512_storeu_si512(panel + pair * ROWS, words[pair]);
    }
}

static void pack_transposed(uint32_t *panel, const uint16_t *a, int64_t a_row, int64_t rows,
                            int64_t k)
{
    __mmask16 some = (__mmask16)first_halves(rows);
    int64_t padded = (k + BP_BF16_STEP - 1) / BP_BF16_STEP * BP_BF16_STEP;

    for (int64_t at = 0; at < padded; at += 2, panel += ROWS)
        _mm512_storeu_si512(panel, pair_of_rows(a + at * a_row, a_row, k - at, some));
}

/* The lines of c are written whole, one after the other. */
static inline void store_sums(const bp_bf16_block *t, __m512 sums[ROWS][2])
{
    if (t->past)
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) {
            _mm512_stream_ps(t->c + i * t->c_row, sums[i][0]);
            _mm512_stream_ps(t->c + i * t->c_row + LANES, sums[i][1]);
        }
    else
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) {
            _mm512_storeu_ps(t->c + i * t->c_row, sums[i][0]);
            _mm512_storeu_ps(t->c + i * t->c_row + LANES, sums[i][1]);
        }
}

static void block(const bp_bf16_block *t)
{
    const uint32_t *a = t->a, *b = t->b;
    int64_t rows = t->ahead.rows, share = (rows + t->steps - 1) / t->steps, fetched = 0;
    __m512 sums[ROWS][2];

#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
            sums[i][j] = t->from ? _mm512_loadu_ps(t->from + i * t->from_row + j * LANES)
                                 : _mm512_setzero_ps();
    for (int64_t step = 0; step < t->steps; step++) {
        for (int64_t pair = 0; pair < LANES; pair++, a += ROWS, b += BP_BF16_COLUMNS) {
            __m512bh left = (__m512bh)_mm512_loadu_si512(b),
                     right = (__m512bh)_mm512_loadu_si512(b + LANES);
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; i++) {
                __m512bh row = (__m512bh)_mm512_set1_epi32((int)a[i]);
                sums[i][0] = _mm512_dpbf16_ps(sums[i][0], left, row);
                sums[i][1] = _mm512_dpbf16_ps(sums[i][1], right, row);
            }
        }
        bp_bf16_fetch(&t->ahead, fetched, fetched + share < rows ? fetched + share : rows);
        fetched += share;
    }
    store_sums(t, sums);
}

static int64_t multiply_adds(float *out, const float *operands, int64_t times)
{
    __m512 sums[SUMS], total = _mm512_setzero_ps();
    __m512bh a[SIDE], b[SIDE];

    for (int i = 0; i < SIDE; i++) {
        const float *from = operands + 4 * LANES * i;
        a[i] = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from), _mm512_loadu_ps(from + LANES));
        b[i] = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 2 * LANES),
                                   _mm512_loadu_ps(from + 3 * LANES));
    }
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++)
        sums[i] =
            _mm512_set1_ps((float)i); /* all different, so that the compiler does not merge them */
    for (int64_t t = 0; t < times; t++)
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++)
            sums[i] = _mm512_dpbf16_ps(sums[i], a[i % SIDE], b[i / SIDE % SIDE]);
    for (int i = 0; i < SUMS; i++)
        total = _mm512_add_ps(total, sums[i]);
    *out += _mm512_reduce_add_ps(total);
    return times * SUMS * LANES * 4;
}

const bp_bf16_kernel bp_bf16_kernel_avx512 = {
    .name = "avx512_bf16",
    .rows = ROWS,
    .k_bytes = 3 * ROWS, /* two thirds for the left side: the right one streams through */
    .k_blocks = 1,
    .past = true,
    .begin = nothing,
    .end = fence,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .block = block,
    .pack_right = bp_bf16_pack_rows,
    .pack_weight = bp_bf16_pack_weight,
    .multiply_adds = multiply_adds,
};
