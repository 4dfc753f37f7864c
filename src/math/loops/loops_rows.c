/* Products of a vector with listed rows of a table, for models of word vectors.
 *
 * A row has `width` floats, a multiple of `lanes`. Float k of a row belongs to lane k % lanes; a
 * lane's products are added up in order, and the lanes by recursive halving. So ranks that each
 * hold a part of the lanes, and add their parts by that tree, get the bits of one rank. Products
 * and sums are not fused. */
#include "math/loops/loops_names_priv.h"

/* `lanes` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) float dot(const float *x, const float *row,
                                                       int64_t width, int lanes)
{
    float sums[LANES],
        halves[LANES / 2]; /* two lists: compilers do not vectorise an in-place one */

    for (int i = 0; i < lanes; i++)
        sums[i] = x[i] * row[i];
    for (int64_t k = lanes; k < width; k += lanes)
        for (int i = 0; i < lanes; i++)
            sums[i] += x[k + i] * row[k + i];
#pragma GCC unroll 3
    for (int n = lanes / 2; n >= 4; n /= 2) {
        for (int i = 0; i < n; i++)
            halves[i] = sums[2 * i] + sums[2 * i + 1];
        for (int i = 0; i < n; i++)
            sums[i] = halves[i];
    }
    return lanes == 1   ? sums[0]
           : lanes == 2 ? sums[0] + sums[1]
                        : (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static inline __attribute__((always_inline)) void dots(float *y, const float *x,
                                                       const bp_row_list *rows, int lanes)
{
    for (int64_t k = 0; k < rows->count; k++)
        y[k] = dot(x, rows->table + rows->ids[k] * rows->width, rows->width, lanes);
}

void LOOP(row_dots)(float *y, const float *x, const bp_row_list *rows)
{
    switch (rows->lanes) {
    case 32:
        dots(y, x, rows, 32);
        break;
    case 16:
        dots(y, x, rows, 16);
        break;
    case 8:
        dots(y, x, rows, 8);
        break;
    case 4:
        dots(y, x, rows, 4);
        break;
    case 2:
        dots(y, x, rows, 2);
        break;
    default:
        dots(y, x, rows, 1);
    }
}

void LOOP(rows_add_to)(float *y, const float *weights, const bp_row_list *rows)
{
    for (int64_t k = 0; k < rows->count; k++) {
        const float *row = rows->table + rows->ids[k] * rows->width;

        for (int64_t i = 0; i < rows->width; i++)
            y[i] += weights[k] * row[i];
    }
}

void LOOP(add_to_rows)(const bp_row_list *rows, const float *weights, const float *x)
{
    for (int64_t k = 0; k < rows->count; k++) {
        float *row = rows->table + rows->ids[k] * rows->width;

        for (int64_t i = 0; i < rows->width; i++)
            row[i] += weights[k] * x[i];
    }
}
