/* Layer normalisation: threads share the rows; the gradients of gain and bias are sums over blocks
 * of rows, in order. */
#include "base/trace.h"
#include "math/kernels.h"
#include "math/loops_priv.h"
#include <omp.h>

#define BLOCK_ROWS 64 /* fixed, so that the sums do not depend on the threads */

static int64_t block_count(int64_t rows)
{
    return (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

void bp_layer_norm_forward(float *y, float *mean, float *rstd, const float *x, const float *gain,
                           const float *bias, int64_t rows, int64_t C, float epsilon)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_NORM, 0, 8.0 * (double)(rows * C));
#pragma omp parallel if (rows * C > 8192)
    {
        int64_t first, last;
        bp_share(rows, 1, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        loops->norm_forward(y + first * C, mean ? mean + first : NULL, rstd ? rstd + first : NULL,
                            x + first * C, gain, bias, last - first, C, epsilon);
    }
}

int64_t bp_layer_norm_scratch(int64_t rows, int64_t C)
{
    return block_count(rows) * 2 * C;
}

void bp_layer_norm_backward(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                            const float *gain, const float *mean, const float *rstd, int64_t rows,
                            int64_t C, float *scratch)
{
    const bp_loops *loops = bp_loops_best();
    int64_t blocks = block_count(rows);

    BP_TRACE(BP_TRACE_NORM, 0, 16.0 * (double)(rows * C));
#pragma omp parallel if (rows * C > 8192)
    {
#pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t r = block * BLOCK_ROWS, count = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS;
            float *sums = scratch + block * 2 * C;
            loops->norm_backward(dx + r * C, sums, sums + C, dy + r * C, x + r * C, gain, mean + r,
                                 rstd + r, count, C);
        }
        int64_t first, last;
        bp_share(C, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        loops->column_sums(dgain + first, scratch + first, blocks, last - first, 2 * C);
        loops->column_sums(dbias + first, scratch + C + first, blocks, last - first, 2 * C);
    }
}
