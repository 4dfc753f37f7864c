/* Forward products of few rows, for decoding: y = x Wt + bias, in float32, by our own loops.
 *
 * Libraries pick their kernels by the number of rows, or multiply in whole blocks of them; a token
 * of a sequence would cost a block. Here threads share the columns of y, and each reads its part
 * of the weight once for as many rows as the caches hold. */
#include "math/gemm/linear_parts.h"

#include "base/numbers.h"
#include "math/loops/loops.h"
#include <omp.h>
#include <string.h>

#define GROUP 12  /* columns of y whose weights stay in L1 for all rows */
#define ROWS  64  /* rows of x, of INNER columns, that stay in L2 */
#define INNER 768 /* columns of x at a time: sums over more are added block by block */
#define FEW   8   /* so few rows stay in L1, whatever their width; then a group is */
#define LONG  48  /* of more columns, so that the weight is read in order */

static bp_dots dots_of(const bp_few_rows *all, int64_t row, int64_t out, int64_t in)
{
    return (bp_dots){.y = all->y + row * all->outs + out,
                     .x = all->x + row * all->x_row + in,
                     .w = all->w + out * all->ins + in,
                     .y_row = all->outs,
                     .x_row = all->x_row,
                     .w_row = all->ins,
                     .ins = bp_min(INNER, all->ins - in),
                     .accumulate = in > 0 || all->bias};
}

/* Columns [first, last) of some rows. Each sum adds its blocks in one order, whichever loop is the
 * outer one: with few rows the weight is read in order, with more the rows stay in the cache. */
static void multiply(const bp_few_rows *all, const bp_loops *loops, int64_t row, int64_t rows,
                     int64_t first, int64_t last)
{
    int64_t columns = rows <= FEW ? LONG : GROUP;
    int64_t blocks = (all->ins + INNER - 1) / INNER,
            groups = (last - first + columns - 1) / columns;

    for (int64_t k = 0; k < blocks * groups; k++) {
        int64_t block = rows <= FEW ? k % blocks : k / groups;
        int64_t group = rows <= FEW ? k / blocks : k % groups;
        bp_dots dots = dots_of(all, row, first + group * columns, block * INNER);

        dots.rows = rows;
        dots.outs = bp_min(columns, last - first - group * columns);
        loops->dots(&dots);
    }
}

void bp_multiply_few_rows(const bp_few_rows *all)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel if (all->rows * all->outs * all->ins > 32768)
    {
        int64_t first, last;

        bp_share(all->outs, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        for (int64_t row = 0; row < all->rows && first < last; row += ROWS) {
            int64_t rows = bp_min(ROWS, all->rows - row);

            for (int64_t r = row; all->bias && r < row + rows; r++)
                memcpy(all->y + r * all->outs + first, all->bias + first,
                       (size_t)(last - first) * sizeof *all->y);
            multiply(all, loops, row, rows, first, last);
        }
    }
}
