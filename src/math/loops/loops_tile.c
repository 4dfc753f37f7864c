/* Small matrix products in registers: ROWS rows of the result by up to WIDE vectors.
 * Source: the register blocking of Goto and van de Geijn 2008, section 4. */
#include "math/loops/loops_names_priv.h"

#if defined(__AVX512F__)
#define VECTOR_FLOATS 16
#define WIDE          4
#elif defined(__AVX2__)
#define VECTOR_FLOATS 8
#define WIDE          2
#else
#define VECTOR_FLOATS 4
#define WIDE          2
#endif
#define ROWS 6

typedef float vector __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));
typedef float loose_vector
    __attribute__((vector_size(VECTOR_FLOATS * sizeof(float)), aligned(sizeof(float)), may_alias));

/* `rows` and `wide` are constants wherever this is inlined, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void block(const bp_tile *t, int64_t m, int64_t n,
                                                        int rows, int wide)
{
    vector sums[ROWS][WIDE];
    const float *a = t->a + m * t->a_row, *b = t->b + n;
    float *c = t->c + m * t->c_row + n;

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < wide; j++)
            sums[i][j] =
                t->accumulate
                    ? (vector) * (const loose_vector *)(c + i * t->c_row + j * VECTOR_FLOATS)
                    : (vector){0};
    for (int64_t k = 0; k < t->K; k++, a += t->a_column, b += t->b_row) {
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < wide; j++)
                sums[i][j] += a[i * t->a_row] * *(const loose_vector *)(b + j * VECTOR_FLOATS);
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < wide; j++)
            *(loose_vector *)(c + i * t->c_row + j * VECTOR_FLOATS) = sums[i][j];
}

static inline __attribute__((always_inline)) void columns(const bp_tile *t, int64_t n, int wide)
{
    /* as few blocks as possible, of about equal rows: few rows leave registers empty */
    for (int64_t m = 0, rows; m < t->M; m += rows) {
        int64_t blocks = (t->M - m + ROWS - 1) / ROWS;

        rows = (t->M - m + blocks - 1) / blocks;
        if (rows == 6)
            block(t, m, n, 6, wide);
        else if (rows == 5)
            block(t, m, n, 5, wide);
        else if (rows == 4)
            block(t, m, n, 4, wide);
        else if (rows == 3)
            block(t, m, n, 3, wide);
        else if (rows == 2)
            block(t, m, n, 2, wide);
        else
            block(t, m, n, 1, wide);
    }
}

void LOOP(tile_product)(const bp_tile *tile)
{
    int64_t n = 0;

    for (; n + WIDE * VECTOR_FLOATS <= tile->N; n += WIDE * VECTOR_FLOATS)
        columns(tile, n, WIDE);
    for (; n + 2 * VECTOR_FLOATS <= tile->N; n += 2 * VECTOR_FLOATS)
        columns(tile, n, 2);
    for (; n < tile->N; n += VECTOR_FLOATS)
        columns(tile, n, 1);
}
