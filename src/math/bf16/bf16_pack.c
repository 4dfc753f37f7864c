/* Packing of bf16 operands, with AVX-512: all of it is memory-bound. Copies of a large weight
 * bypass the caches, which would otherwise read the lines first (measured: half the time).
 */
#include "base/numbers.h"
#include "math/bf16/bf16_gemm.h"
#include "math/bf16/bf16_words_priv.h"
#include <stdbool.h>

#define TILE_WORDS   (LANES * LANES)                    /* of a tile register */
#define PAIRS        (BP_BF16_STEP / 2)                 /* of a step */
#define STEP_WORDS   ((int64_t)PAIRS * BP_BF16_COLUMNS) /* of a step of a panel of the right side */

#define LARGE_HALVES (1 << 20) /* of a right side */
#define LARGE_FLOATS (1 << 20) /* a weight whose copies fill the second cache, and more */

static int64_t steps_of(int64_t k)
{
    return (k + BP_BF16_STEP - 1) / BP_BF16_STEP;
}

/* Rows of the step after the one that begins at row `first` of `rows`. */
static int64_t rows_after(int64_t first, int64_t rows)
{
    int64_t left = rows - first - BP_BF16_STEP;

    return left < 0 ? 0 : bp_min(BP_BF16_STEP, left);
}

/* For AMX: a step of a panel is two tiles of 16 rows, a row of a tile 16 pairs. */
void bp_bf16_pack_tiles(uint32_t *panel, const uint16_t *a, int64_t a_row, int64_t rows, int64_t k)
{
    for (int64_t m = 0; m < BP_BF16_ROWS; m++) {
        uint32_t *to = panel + m * LANES;
        for (int64_t at = 0; at < k; at += BP_BF16_STEP, to += 2 * TILE_WORDS)
            _mm512_store_si512(
                to, m < rows ? _mm512_maskz_loadu_epi16(first_halves(k - at), a + m * a_row + at)
                             : _mm512_setzero_si512());
    }
}

void bp_bf16_pack_tiles_transposed(uint32_t *panel, const uint16_t *a, int64_t a_row, int64_t rows,
                                   int64_t k)
{
    for (int64_t at = 0; at < k; at += BP_BF16_STEP) {
        if (rows == BP_BF16_ROWS && at + BP_BF16_STEP <= k) {
            for (int m = 0; m < BP_BF16_ROWS; m += 8)
                transpose_octet(panel + m * LANES, a + at * a_row + m, a_row);
            panel += STEP_WORDS;
            continue;
        }
        for (int64_t m = 0; m < BP_BF16_ROWS; m += LANES, panel += TILE_WORDS) {
            __m512i words[LANES];
            __mmask16 some = (__mmask16)first_halves(rows - m);
            for (int pair = 0; pair < PAIRS; pair++)
                words[pair] = pair_of_rows(a + (at + 2 * pair) * a_row + m, a_row,
                                           some ? k - at - 2 * pair : 0, some);
            transpose(words);
            for (int row = 0; row < LANES; row++)
                _mm512_store_si512(panel + row * LANES, words[row]);
        }
    }
}

static inline void put(uint32_t *to, __m512i words, bool past)
{
    if (past)
        _mm512_stream_si512((void *)to, words);
    else
        _mm512_store_si512(to, words);
}

static void pack_step(uint32_t *to, const uint16_t *x, int64_t x_row, int64_t rows, int64_t columns,
                      bool past)
{
    __mmask32 some = first_halves(columns);

    for (int pair = 0; pair < PAIRS; pair++, rows -= 2, to += BP_BF16_COLUMNS, x += 2 * x_row) {
        __m512i lower = _mm512_maskz_loadu_epi16(rows > 0 ? some : 0, x),
                upper = _mm512_maskz_loadu_epi16(rows > 1 ? some : 0, x + x_row);
        put(to, pair_left(upper, lower), past);
        put(to + LANES, pair_right(upper, lower), past);
    }
}

void bp_bf16_pack_rows(uint32_t *panels, const uint16_t *x, int64_t x_row, int64_t K, int64_t N)
{
    int64_t steps = steps_of(K), columns = steps_of(N);
    bool past = K * N >= LARGE_HALVES;

#pragma omp parallel if (K * N > 8192)
    {
#pragma omp for schedule(static) collapse(2) nowait
        for (int64_t step = 0; step < steps; step++)
            for (int64_t panel = 0; panel < columns; panel++) {
                int64_t first = step * BP_BF16_STEP;
                bp_bf16_fetch_part(&(bp_bf16_ahead){x + (first + BP_BF16_STEP) * x_row, x_row, N,
                                                    rows_after(first, K)},
                                   panel, columns);
                pack_step(panels + (panel * steps + step) * STEP_WORDS,
                          x + first * x_row + panel * BP_BF16_COLUMNS, x_row, K - first,
                          N - panel * BP_BF16_COLUMNS, past);
            }
        _mm_sfence(); /* makes non-temporal stores visible to readers after this loop */
    }
}

/* 32 x 32 floats of w, as bf16: zeros where there is nothing. */
static inline void load_square(__m512i halves[BP_BF16_STEP], const float *w, int64_t row,
                               int64_t rows, int64_t columns)
{
    __mmask32 some = first_halves(columns);

    for (int i = 0; i < BP_BF16_STEP; i++) {
        __mmask32 mask = i < rows ? some : 0;
        __m512 lower = _mm512_maskz_loadu_ps((__mmask16)mask, w + i * row),
               upper = _mm512_maskz_loadu_ps((__mmask16)(mask >> LANES), w + i * row + LANES);
        halves[i] = (__m512i)_mm512_cvtne2ps_pbh(upper, lower);
    }
}

static inline void store_transposed(uint32_t *to, int64_t row, const __m512i halves[BP_BF16_STEP],
                                    bool past)
{
    for (int side = 0; side < 2; side++) {
        __m512i words[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            words[i] = halves[side * LANES + i];
        transpose(words);
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            put(to + i * row + side * LANES, words[i], past);
    }
}

static inline void store_pairs(uint32_t *to, int64_t row, const __m512i halves[BP_BF16_STEP],
                               bool past)
{
#pragma GCC unroll 16
    for (int i = 0; i < BP_BF16_STEP; i += 2, to += row) {
        put(to, pair_left(halves[i + 1], halves[i]), past);
        put(to + LANES, pair_right(halves[i + 1], halves[i]), past);
    }
}

/* A square's place: step `step` of `steps` of 32 columns, which are a panel or half of one. */
static inline uint32_t *square_at(uint32_t *panels, int64_t column, int64_t step, int64_t steps,
                                  int64_t columns)
{
    int64_t halves = columns / BP_BF16_COLUMNS;

    return panels + (column / halves * steps + step) * halves * STEP_WORDS +
           column % halves * BP_BF16_COLUMNS;
}

void bp_bf16_pack_weight(uint32_t *forward, uint32_t *backward, const float *w, int64_t outs,
                         int64_t ins, int64_t columns)
{
    int64_t out_steps = steps_of(outs), in_steps = steps_of(ins);
    bool past = outs * ins >= LARGE_FLOATS;

#pragma omp parallel for schedule(static) if (outs * ins > 8192)
    for (int64_t o = 0; o < out_steps; o++) {
        bp_bf16_ahead next = {(const uint16_t *)(w + (o + 1) * BP_BF16_STEP * ins), 2 * ins,
                              2 * ins, rows_after(o * BP_BF16_STEP, outs)};
        for (int64_t i = 0; i < in_steps; i++) {
            __m512i halves[BP_BF16_STEP];
            bp_bf16_fetch_part(&next, i, in_steps);
            load_square(halves, w + o * BP_BF16_STEP * ins + i * BP_BF16_STEP, ins,
                        outs - o * BP_BF16_STEP, ins - i * BP_BF16_STEP);
            if (forward)
                store_transposed(square_at(forward, o, i, in_steps, columns), columns, halves,
                                 past);
            if (backward)
                store_pairs(square_at(backward, i, o, out_steps, columns), columns, halves, past);
        }
        _mm_sfence(); /* makes non-temporal stores visible to readers after this loop */
    }
}
