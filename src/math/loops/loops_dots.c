/* Products of few rows: each weight is read once, in place, and each sum over k has its own
 * vectors of partial sums. The bits of a result depend only on its row and its column, not on the
 * number of others. */
#include "math/loops/loops_names_priv.h"

#if defined(__AVX512F__)
#define VECTOR_FLOATS 16
#elif defined(__AVX2__)
#define VECTOR_FLOATS 8
#else
#define VECTOR_FLOATS 4
#endif
#define ROWS 3
#define OUTS 4 /* a row's results of a tile make one quad */
#define WIDE 8 /* vectors of a row of values that are summed at once */

typedef float vector __attribute__((vector_size(VECTOR_FLOATS * sizeof(float))));
typedef float loose_vector
    __attribute__((vector_size(VECTOR_FLOATS * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef float quad __attribute__((vector_size(OUTS * sizeof(float))));
typedef float loose_quad
    __attribute__((vector_size(OUTS * sizeof(float)), aligned(sizeof(float)), may_alias));

static inline __attribute__((always_inline)) quad fold(vector v)
{
    union {
        vector whole;
        quad parts[VECTOR_FLOATS / OUTS];
    } halves = {v};

    for (int n = VECTOR_FLOATS / OUTS / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            halves.parts[i] += halves.parts[i + n];
    return halves.parts[0];
}

/* The sums of four vectors, pair by pair. */
static inline __attribute__((always_inline)) quad totals(const vector sums[OUTS])
{
    quad a = fold(sums[0]), b = fold(sums[1]), c = fold(sums[2]), d = fold(sums[3]);
    quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);

    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* The last columns of x, fewer than a vector. */
static inline __attribute__((always_inline)) quad
add_last(quad sums, const bp_dots *d, const float *x, const float *w, int64_t k, int outs)
{
    for (; k < d->ins; k++)
        for (int j = 0; j < outs; j++)
            sums[j] += x[k] * w[j * d->w_row + k];
    return sums;
}

/* `rows` and `outs` are constants wherever this is inlined, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void tile(const bp_dots *d, int64_t r, int64_t o,
                                                       int rows, int outs)
{
    vector sums[ROWS][OUTS];
    const float *x = d->x + r * d->x_row, *w = d->w + o * d->w_row;
    float *y = d->y + r * d->y_row + o;
    int64_t k = 0;

#pragma GCC unroll 3
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < OUTS; j++)
            sums[i][j] = (vector){0};
    for (; k + VECTOR_FLOATS <= d->ins; k += VECTOR_FLOATS) {
        vector weights[OUTS];
#pragma GCC unroll 4
        for (int j = 0; j < outs; j++)
            weights[j] = *(const loose_vector *)(w + j * d->w_row + k);
#pragma GCC unroll 3
        for (int i = 0; i < rows; i++) {
            vector own = *(const loose_vector *)(x + i * d->x_row + k);
#pragma GCC unroll 4
            for (int j = 0; j < outs; j++)
                sums[i][j] += own * weights[j];
        }
    }
#pragma GCC unroll 3
    for (int i = 0; i < rows; i++) {
        quad all = add_last(totals(sums[i]), d, x + i * d->x_row, w, k, outs);
        float *to = y + i * d->y_row;

        if (outs == OUTS)
            *(loose_quad *)to = d->accumulate ? (quad)(*(loose_quad *)to) + all : all;
        else
            for (int j = 0; j < outs; j++)
                to[j] = d->accumulate ? to[j] + all[j] : all[j];
    }
}

/* One row by two quads of columns: it is bound by reading w, which is fastest with this many
 * streams.
 */
static inline __attribute__((always_inline)) void line(const bp_dots *d, int64_t r, int64_t o)
{
    vector sums[2 * OUTS];
    const float *x = d->x + r * d->x_row, *w = d->w + o * d->w_row;
    int64_t k = 0;

#pragma GCC unroll 8
    for (int j = 0; j < 2 * OUTS; j++)
        sums[j] = (vector){0};
    for (; k + VECTOR_FLOATS <= d->ins; k += VECTOR_FLOATS)
#pragma GCC unroll 8
        for (int j = 0; j < 2 * OUTS; j++)
            sums[j] +=
                *(const loose_vector *)(x + k) * *(const loose_vector *)(w + j * d->w_row + k);
#pragma GCC unroll 2
    for (int q = 0; q < 2; q++) {
        loose_quad *to = (loose_quad *)(d->y + r * d->y_row + o + q * OUTS);
        quad all = add_last(totals(sums + q * OUTS), d, x, w + q * OUTS * d->w_row, k, OUTS);

        *to = d->accumulate ? (quad)*to + all : all;
    }
}

static inline __attribute__((always_inline)) void band(const bp_dots *d, int64_t r, int rows)
{
    int64_t o = 0;

    for (; rows == 1 && o + 2 * OUTS <= d->outs; o += 2 * OUTS)
        line(d, r, o);
    for (; o + OUTS <= d->outs; o += OUTS)
        tile(d, r, o, rows, OUTS);
    for (; o < d->outs; o++)
        tile(d, r, o, rows, 1);
}

void LOOP(dots)(const bp_dots *dots)
{
    int64_t r = 0;

    for (; r + ROWS <= dots->rows; r += ROWS)
        band(dots, r, ROWS);
    if (r + 2 <= dots->rows) {
        band(dots, r, 2);
        r += 2;
    }
    if (r < dots->rows)
        band(dots, r, 1);
}

static inline __attribute__((always_inline)) void
add_columns(float *y, const float *weights, const float *rows, int64_t count, int64_t row, int wide)
{
    vector sums[WIDE];

#pragma GCC unroll 8
    for (int j = 0; j < wide; j++)
        sums[j] = *(const loose_vector *)(y + j * VECTOR_FLOATS);
    for (int64_t r = 0; r < count; r++)
#pragma GCC unroll 8
        for (int j = 0; j < wide; j++)
            sums[j] += weights[r] * *(const loose_vector *)(rows + r * row + j * VECTOR_FLOATS);
#pragma GCC unroll 8
    for (int j = 0; j < wide; j++)
        *(loose_vector *)(y + j * VECTOR_FLOATS) = sums[j];
}

void LOOP(weighted_rows)(float *y, const float *weights, const float *rows, int64_t count,
                         int64_t row, int64_t columns)
{
    int64_t c = 0;

    for (; c + WIDE * VECTOR_FLOATS <= columns; c += WIDE * VECTOR_FLOATS)
        add_columns(y + c, weights, rows + c, count, row, WIDE);
    for (; c + 4 * VECTOR_FLOATS <= columns; c += 4 * VECTOR_FLOATS)
        add_columns(y + c, weights, rows + c, count, row, 4);
    for (; c + VECTOR_FLOATS <= columns; c += VECTOR_FLOATS)
        add_columns(y + c, weights, rows + c, count, row, 1);
    for (; c < columns; c++)
        for (int64_t r = 0; r < count; r++)
            y[c] += weights[r] * rows[r * row + c];
}
