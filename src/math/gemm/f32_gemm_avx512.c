/* The register kernels of float32 products: 6 rows by 64 columns, and packing.
 * Source: the register blocking of Goto and van de Geijn 2008, section 4. */
#include "math/gemm/f32_gemm.h"
#include "math/gemm/transpose_avx512.h"

#define WIDE       (BP_F32_COLUMNS / LANES)
#define PACK_AHEAD (2 * LANES)          /* steps of k, or those of the panel beside */
#define AHEAD      (8 * BP_F32_COLUMNS) /* prefetch distance in the panel */

static inline __mmask16 first_lanes(int64_t n)
{
    return n >= LANES ? 0xffff : n <= 0 ? 0 : (__mmask16)((1 << n) - 1);
}

/* `rows` is a constant wherever this is inlined, so that all sums stay in registers. */
static inline __attribute__((always_inline)) void add(__m512 sums[][WIDE], const float *a,
                                                      int64_t a_row, const float *b, int rows)
{
#pragma GCC unroll 4
    for (int k = 0; k < BP_F32_STEP; k++, b += BP_F32_COLUMNS) {
        __m512 right[WIDE];

#pragma GCC unroll 4
        for (int j = 0; j < WIDE; j++) {
            right[j] = _mm512_load_ps(b + j * LANES);
            _mm_prefetch((const char *)(b + AHEAD + j * LANES), _MM_HINT_T0);
        }
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m512 left = _mm512_set1_ps(a[i * a_row + k]);
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; j++)
                sums[i][j] = _mm512_fmadd_ps(left, right[j], sums[i][j]);
        }
    }
}

/* c = start + sums */
static inline __attribute__((always_inline)) void store(const bp_f32_tile *t, __m512 sums[][WIDE],
                                                        int rows)
{
#pragma GCC unroll 4
    for (int j = 0; j < WIDE; j++) {
        __mmask16 some = first_lanes(t->columns - j * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m512 start = _mm512_maskz_loadu_ps(some, t->start + i * t->start_row + j * LANES);
            _mm512_mask_storeu_ps(t->c + i * t->c_row + j * LANES, some,
                                  _mm512_add_ps(start, sums[i][j]));
        }
    }
}

static inline __attribute__((always_inline)) void multiply(const bp_f32_tile *t, int rows)
{
    __m512 sums[BP_F32_ROWS][WIDE];
    const float *c = t->c, *left = t->next[0], *right = t->next[1];

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; j++)
            sums[i][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < t->inner; k += BP_F32_STEP) {
        for (int j = 0; j < WIDE; j++)
            __builtin_prefetch(c + j * LANES, 1);
        c += k / BP_F32_STEP + 1 < rows ? t->c_row : 0;
        _mm_prefetch((const char *)left, _MM_HINT_T1);
        _mm_prefetch((const char *)right, _MM_HINT_T1);
        left += t->next_step[0];
        right += t->next_step[1];
        add(sums, t->a + k, t->a_row, t->b + k * BP_F32_COLUMNS, rows);
    }
    store(t, sums, rows);
}

static void multiply_tile(const bp_f32_tile *tile)
{
    switch (tile->rows) {
    case 1:
        multiply(tile, 1);
        break;
    case 2:
        multiply(tile, 2);
        break;
    case 3:
        multiply(tile, 3);
        break;
    case 4:
        multiply(tile, 4);
        break;
    case 5:
        multiply(tile, 5);
        break;
    default:
        multiply(tile, 6);
    }
}

/* `ahead`: the square that follows some steps later, to prefetch; of the last ones it may be beyond
 * the matrix. Few rows on the left wait for this copy, which reads the right side from memory:
 * lines of 64 rows or columns in turn, too many runs for the CPU's own prefetching. */
static void pack_square(float *to, int64_t to_row, const float *from, int64_t from_row,
                        bool transposed, int64_t rows, int64_t columns, const float *ahead)
{
    int64_t there = transposed ? columns : rows;
    __mmask16 some = first_lanes(transposed ? rows : columns);
    __m512i words[LANES];

#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        _mm_prefetch((const char *)(ahead + i * from_row), _MM_HINT_T0);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        words[i] = i < there ? _mm512_maskz_loadu_epi32(some, from + i * from_row)
                             : _mm512_setzero_si512();
    if (transposed)
        transpose(words);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        _mm512_store_si512(to + i * to_row, words[i]);
}

static void pack(float *to, int64_t to_row, const float *from, int64_t from_row, bool transposed,
                 int64_t rows, int64_t columns)
{
    int64_t down = transposed ? 1 : from_row, along = transposed ? from_row : 1;

    for (int64_t r = 0; r < rows; r += LANES)
        for (int64_t c = 0; c < columns; c += LANES) {
            int64_t later = r + PACK_AHEAD < rows ? r + PACK_AHEAD : r + PACK_AHEAD - rows,
                    beside = r + PACK_AHEAD < rows ? c : c + columns;

            pack_square(to + r * to_row + c, to_row, from + r * down + c * along, from_row,
                        transposed, rows - r, columns - c, from + later * down + beside * along);
        }
}

const bp_f32_kernel bp_f32_kernel_avx512 = {multiply_tile, pack};
