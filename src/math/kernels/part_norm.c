/* Norms of parts of rows: of each head's query and key, or over all heads together. Threads share
 * the rows; the gradient of the gain is a sum over blocks of rows, in order. */
#include "base/trace.h"
#include "math/gemm/operand_pass.h"

#include <math.h>
#include <omp.h>

static const float ZEROS[BP_PASS_COLUMNS];

static int64_t floats_of(const bp_part_norm *norm)
{
    return norm->rows * norm->parts * norm->D;
}

static double moved(const bp_part_norm *norm, int times)
{
    return 4.0 * (double)times * (double)floats_of(norm);
}

void bp_part_norm_squares(float *sums, const float *x, const bp_part_norm *norm)
{
    const bp_loops *loops = bp_loops_best();
    int64_t parts = norm->parts, D = norm->D, from = norm->counted_from;

    BP_TRACE(BP_TRACE_NORM, 0, moved(norm, 1));
#pragma omp parallel for schedule(static) if (floats_of(norm) > 8192)
    for (int64_t r = 0; r < norm->rows; r++)
        for (int64_t p = 0; p < parts; p++)
            sums[r * parts + p] =
                (float)loops->square_sum(x + r * norm->row + p * D + from, D - from);
}

static void forward_part(const bp_loops *loops, float *x, float rstd, const bp_part_norm *norm)
{
    for (int64_t c = 0; c < norm->D; c += BP_PASS_COLUMNS)
        loops->norm_apply(x + c, x + c, norm->gain + c, ZEROS, 0, rstd,
                          bp_min(BP_PASS_COLUMNS, norm->D - c));
}

void bp_part_norm_forward(float *x, float *before, float *sums, const bp_part_norm *norm)
{
    const bp_loops *loops = bp_loops_best();
    int64_t parts = norm->parts, D = norm->D;

    BP_TRACE(BP_TRACE_NORM, 0, moved(norm, before ? 3 : 2));
#pragma omp parallel for schedule(static) if (floats_of(norm) > 8192)
    for (int64_t r = 0; r < norm->rows; r++) {
        float *row = x + r * norm->row;

        if (before)
            memcpy(before + r * parts * D, row, (size_t)(parts * D) * sizeof *row);
        for (int64_t p = 0; p < parts; p++) {
            float *rstd = &sums[r * parts + p];

            *rstd =
                (float)(1.0 / sqrt((double)*rstd / (double)norm->whole + (double)norm->epsilon));
            forward_part(loops, row + p * D, *rstd, norm);
        }
    }
}

void bp_part_norm_dots(float *dots, const float *dx, const float *before, const float *rstd,
                       const bp_part_norm *norm)
{
    const bp_loops *loops = bp_loops_best();
    int64_t parts = norm->parts, D = norm->D;

    BP_TRACE(BP_TRACE_NORM, 0, moved(norm, 2));
#pragma omp parallel for schedule(static) if (floats_of(norm) > 8192)
    for (int64_t r = 0; r < norm->rows; r++)
        for (int64_t p = 0; p < parts; p++) {
            int64_t at = r * parts + p;
            float mean, mean_dot;

            loops->norm_means(&mean, &mean_dot, dx + r * norm->row + p * D, before + at * D,
                              norm->gain, 0, rstd[at], D);
            dots[at] = mean_dot * (float)D;
        }
}

int64_t bp_part_norm_scratch(int64_t rows, int64_t D)
{
    return bp_block_count(rows) * 2 * D;
}

/* Numbers [c, end) of a part; sums: those of the gain, followed by D unused ones. */
static void backward_run(const bp_loops *loops, float *dx, const float *before, float *sums,
                         const bp_norm_row *row, int64_t c, int64_t end, const bp_part_norm *norm)
{
    float dy[BP_PASS_COLUMNS];

    for (; c < end; c += BP_PASS_COLUMNS) {
        int64_t n = bp_min(BP_PASS_COLUMNS, end - c);

        memcpy(dy, dx + c, (size_t)n * sizeof *dy);
        memset(dx + c, 0, (size_t)n * sizeof *dx);
        loops->norm_gradient(dx + c, sums + c, sums + norm->D + c, dy, before + c, norm->gain + c,
                             row, n);
    }
}

static void backward_row(const bp_loops *loops, float *dx, const float *before, const float *rstd,
                         const float *dots, float *sums, const bp_part_norm *norm)
{
    for (int64_t p = 0; p < norm->parts; p++) {
        bp_norm_row row = {.rstd =
                               rstd[p]}; /* of another rank's copy: the owner subtracts the dots */

        backward_run(loops, dx + p * norm->D, before + p * norm->D, sums, &row, 0,
                     norm->counted_from, norm);
        row.mean_dot = dots[p] / (float)norm->whole;
        backward_run(loops, dx + p * norm->D, before + p * norm->D, sums, &row, norm->counted_from,
                     norm->D, norm);
    }
}

void bp_part_norm_backward(const bp_part_norm_gradients *to, const float *before, const float *rstd,
                           const float *dots, const bp_part_norm *norm, float *scratch)
{
    const bp_loops *loops = bp_loops_best();
    int64_t blocks = bp_block_count(norm->rows), parts = norm->parts, D = norm->D;

    BP_TRACE(BP_TRACE_NORM, 0, moved(norm, 3));
#pragma omp parallel for schedule(static) if (floats_of(norm) > 8192)
    for (int64_t block = 0; block < blocks; block++) {
        float *sums = scratch + block * 2 * D;

        memset(sums, 0, (size_t)(2 * D) * sizeof *sums);
        for (int64_t r = block * BP_BLOCK_ROWS; r < bp_min((block + 1) * BP_BLOCK_ROWS, norm->rows);
             r++)
            backward_row(loops, to->dx + r * norm->row, before + r * parts * D, rstd + r * parts,
                         dots + r * parts, sums, norm);
    }
    if (to->dgain)
        loops->column_sums(to->dgain, scratch, blocks, D, 2 * D);
}
