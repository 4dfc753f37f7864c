/* Attention's operations on a tile of scores[keys][BP_TILE_QUERIES]: queries are the lanes, so no
 * sum crosses lanes. */
#include "math/loops/loops_math_priv.h"
#include "math/loops/loops_names_priv.h"
#include <math.h>

#define Q BP_TILE_QUERIES

/* Lane q sees key k iff k <= q + visible: the first lane that sees it. */
static inline int first_lane(int64_t key, int64_t visible)
{
    int64_t lane = key - visible;

    return lane < 0 ? 0 : lane < Q ? (int)lane : Q;
}

void LOOP(tile_softmax)(float *scores, float *max, float *sum, float *factor, int64_t keys,
                        int64_t visible)
{
    float top[Q];

    for (int q = 0; q < Q; q++)
        top[q] = max[q];
    for (int64_t k = 0; k < keys; k++) {
        float *row = scores + k * Q;
        for (int q = 0; q < first_lane(k, visible); q++)
            row[q] = -INFINITY;
        for (int q = 0; q < Q; q++)
            top[q] = row[q] > top[q] ? row[q] : top[q]; /* NaN shows in the weights */
    }
    for (int q = 0; q < Q; q++) {
        factor[q] = exp_of(max[q] - top[q]);
        sum[q] *= factor[q];
        max[q] = top[q];
    }
    for (int64_t k = 0; k < keys; k++) {
        float *row = scores + k * Q;
        for (int q = 0; q < Q; q++) {
            row[q] = exp_of(row[q] - top[q]);
            sum[q] += row[q];
        }
    }
}

void LOOP(tile_weights)(float *scores, const float *lse, int64_t keys, int64_t visible)
{
    for (int64_t k = 0; k < keys; k++) {
        float *row = scores + k * Q;
        for (int q = 0; q < Q; q++)
            row[q] = exp_of(row[q] - lse[q]);
        for (int q = 0; q < first_lane(k, visible); q++)
            row[q] = 0.0f;
    }
}

void LOOP(tile_score_gradient)(float *ds, const float *weights, const float *delta, int64_t keys)
{
    for (int64_t k = 0; k < keys; k++) {
        float *row = ds + k * Q;
        const float *weight = weights + k * Q;
        for (int q = 0; q < Q; q++)
            row[q] = weight[q] * (row[q] - delta[q]);
    }
}

void LOOP(scale_columns)(float *y, const float *factors, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        for (int q = 0; q < Q; q++)
            y[r * Q + q] *= factors[q];
}

typedef float four __attribute__((vector_size(16)));
typedef float loose_four __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));

/* y[4][4], rows y_row apart, = x[4][4] transposed, times factor */
static inline void turn(float *y, int64_t y_row, const float *x, int64_t x_row, float factor)
{
    four a = *(const loose_four *)x, b = *(const loose_four *)(x + x_row),
         c = *(const loose_four *)(x + 2 * x_row), d = *(const loose_four *)(x + 3 * x_row);
    four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
         ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
         cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);

    *(loose_four *)y = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) * factor;
    *(loose_four *)(y + y_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7) * factor;
    *(loose_four *)(y + 2 * y_row) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5) * factor;
    *(loose_four *)(y + 3 * y_row) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7) * factor;
}

/* Rows of a head are pages apart, so hardware does not prefetch. */
static inline void fetch_ahead(const float *row, int64_t columns)
{
    for (int64_t c = 0; c < columns; c += 16)
        __builtin_prefetch(row + c);
}

void LOOP(transpose_in)(float *y, const float *x, int64_t rows, int64_t columns, int64_t x_row,
                        float factor)
{
    int64_t whole = columns / 4 * 4, r = 0;

    for (; r + 4 <= rows; r += 4) {
        for (int64_t ahead = r + 16; ahead < r + 20; ahead++)
            fetch_ahead(x + ahead * x_row, columns);
        for (int64_t c = 0; c < whole; c += 4)
            turn(y + c * Q + r, Q, x + r * x_row + c, x_row, factor);
        for (int64_t i = r; i < r + 4; i++)
            for (int64_t c = whole; c < columns; c++)
                y[c * Q + i] = x[i * x_row + c] * factor;
    }
    for (int64_t c = 0; c < columns; c++)
        for (int64_t i = r; i < Q; i++)
            y[c * Q + i] = i < rows ? x[i * x_row + c] * factor : 0.0f;
}

void LOOP(transpose_out)(float *y, const float *x, int64_t rows, int64_t columns, int64_t y_row)
{
    int64_t whole = columns / 4 * 4, r = 0;

    for (; r + 4 <= rows; r += 4) {
        for (int64_t c = 0; c < whole; c += 4)
            turn(y + r * y_row + c, y_row, x + c * Q + r, Q, 1.0f);
        for (int64_t i = r; i < r + 4; i++)
            for (int64_t c = whole; c < columns; c++)
                y[i * y_row + c] = x[c * Q + i];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            y[r * y_row + c] = x[c * Q + r];
}
