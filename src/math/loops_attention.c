/* What attention does to a tile of scores[keys][BP_TILE_QUERIES]: queries are the lanes, so nothing
 * is summed across. */
#include "math/loops_math_priv.h"
#include "math/loops_names_priv.h"
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
            top[q] = max_of(top[q], row[q]);
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

void LOOP(transpose_in)(float *y, const float *x, int64_t rows, int64_t columns, int64_t x_row,
                        float factor)
{
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t r = 0; r < rows; r++)
            y[c * Q + r] = x[r * x_row + c] * factor;
        for (int64_t r = rows; r < Q; r++)
            y[c * Q + r] = 0.0f;
    }
}

void LOOP(transpose_out)(float *y, const float *x, int64_t rows, int64_t columns, int64_t y_row)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            y[r * y_row + c] = x[c * Q + r];
}
