/* Token and position embeddings. */
#include "base/trace.h"
#include "math/kernels/kernels.h"
#include "math/loops/loops.h"
#include <omp.h>
#include <string.h>

void bp_embedding_forward(float *x, const float *table, const int32_t *ids, int64_t rows, int64_t C,
                          int64_t first_row, int64_t rows_here)
{
    BP_TRACE(BP_TRACE_EMBEDDING, 0, 8.0 * (double)(rows * C));

#pragma omp parallel for schedule(static) if (rows * C > 8192)
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = ids[r] - first_row;
        if (row >= 0 && row < rows_here)
            memcpy(x + r * C, table + row * C, (size_t)C * sizeof *x);
        else
            memset(x + r * C, 0, (size_t)C * sizeof *x);
    }
}

/* Threads split the columns: one thread adds all rows with the same id, in order. */
void bp_embedding_backward(float *dtable, const float *dx, const int32_t *ids, int64_t rows,
                           int64_t C, int64_t first_row, int64_t rows_here)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_EMBEDDING, 0, 12.0 * (double)(rows * C));
#pragma omp parallel if (rows * C > 8192)
    {
        int64_t first, last;
        bp_share(C, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        for (int64_t r = 0; r < rows && first < last; r++) {
            int64_t row = ids[r] - first_row;
            if (row >= 0 && row < rows_here)
                loops->add(dtable + row * C + first, dx + r * C + first, last - first);
        }
    }
}

void bp_positions_forward(float *x, const float *table, const bp_position_rows *rows, int64_t C)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_EMBEDDING, 0, 12.0 * (double)(rows->count * C));
#pragma omp parallel for schedule(static) if (rows->count * C > 8192)
    for (int64_t r = 0; r < rows->count; r++) {
        int64_t position = rows->positions ? rows->positions[r] : (rows->first + r) % rows->T;

        loops->add(x + r * C, table + position * C, C);
    }
}

void bp_positions_backward(float *dtable, const float *dx, const bp_position_rows *rows, int64_t C)
{
    const bp_loops *loops = bp_loops_best();
    int64_t T = rows->T;

    BP_TRACE(BP_TRACE_EMBEDDING, 0, 12.0 * (double)(rows->count * C));
#pragma omp parallel for schedule(static) if (rows->count * C > 8192)
    for (int64_t t = 0; t < T; t++)
        for (int64_t r = (t - rows->first % T + T) % T; r < rows->count; r += T)
            loops->add(dtable + t * C, dx + r * C, C);
}
