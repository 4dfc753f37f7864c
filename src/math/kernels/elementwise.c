/* Elementwise passes: threads share the range in whole cache lines. */
#include "base/err.h"
#include "base/trace.h"
#include "math/gemm/linear_parts.h"
#include "math/gemm/operand_pass.h"
#include "math/kernels/kernels.h"
#include <omp.h>
#include <string.h>

#define GRAIN 1024 /* elements; fewer are not worth a thread */

/* Run `body` on each thread's share [first, last) of n elements. */
#define FOR_SHARES(n, first, last, body)                                                           \
    _Pragma("omp parallel if ((n) > 8 * GRAIN)")                                                   \
    {                                                                                              \
        int64_t first, last;                                                                       \
        bp_share((n), GRAIN, omp_get_num_threads(), omp_get_thread_num(), &first, &last);          \
        if (first < last)                                                                          \
            body;                                                                                  \
    }

static void copy(float *y, const float *x, int64_t n)
{
    if (y != x)
        FOR_SHARES(n, first, last, memcpy(y + first, x + first, (size_t)(last - first) * sizeof *y))
}

void bp_add_dropout(float *y, const float *a, const float *x, int64_t n, float p,
                    const bp_rng_key *key, int64_t first)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, (a ? 12.0 : 8.0) * (double)n);
    BP_ASSERT(p >= 0.0f && p < 1.0f);
    if (p == 0.0f && !a) {
        copy(y, x, n);
    } else if (p == 0.0f) {
        FOR_SHARES(n, begin, end, loops->sum(y + begin, a + begin, x + begin, end - begin))
    } else {
        bp_mask mask = bp_mask_of(p, key);
        FOR_SHARES(n, begin, end,
                   loops->dropout(y + begin, a ? a + begin : NULL, x + begin, end - begin, &mask,
                                  first + begin))
    }
}

void bp_dropout_backward(float *dx, const float *dy, int64_t n, float p, const bp_rng_key *key,
                         int64_t first)
{
    bp_add_dropout(dx, NULL, dy, n, p, key, first);
}

typedef struct dropped {
    const bp_loops *loops;
    const bp_operand *dx;
    bp_mask mask;
    int64_t first;
} dropped;

static void dropout_backward_row(const void *context, const float *dy, int64_t r, int64_t c,
                                 int64_t n, float *sums)
{
    const dropped *in = context;
    float workspace[BP_PASS_COLUMNS], *dx = bp_operand_workspace(in->dx, r, c, workspace);

    in->loops->dropout(dx, NULL, dy, n, &in->mask, in->first + r * in->dx->columns + c);
    if (sums)
        in->loops->add(sums, dx, n);
    bp_operand_store(in->loops, in->dx, r, c, dx, n);
}

void bp_dropout_backward_operand(const bp_operand *dx, const bp_bias_gradient *bias,
                                 const float *dy, float p, const bp_rng_key *key, int64_t first)
{
    BP_ASSERT(p >= 0.0f && p < 1.0f);
    if (p == 0.0f) {
        bp_operand_fill_sums(dx, bias, dy);
        return;
    }
    dropped in = {bp_loops_best(), dx, bp_mask_of(p, key), first};
    const bp_operand from = bp_operand_floats((float *)dy, dx->rows, dx->columns);
    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, bp_float_bytes(dx, 1) + bp_operand_moved(dx));
    bp_run_pass(dropout_backward_row, &in, &from, bias);
}

void bp_add(float *y, const float *x, int64_t n)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_GRADIENT, 0, 12.0 * (double)n);
    FOR_SHARES(n, first, last, loops->add(y + first, x + first, last - first))
}

void bp_multiply(float *y, const float *x, int64_t n)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, 12.0 * (double)n);
    FOR_SHARES(n, first, last, loops->multiply(y + first, y + first, x + first, last - first))
}

void bp_scale(float *y, float factor, int64_t n)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, 8.0 * (double)n);
    FOR_SHARES(n, first, last, loops->scale(y + first, factor, last - first))
}

void bp_zero(float *y, int64_t n)
{
    BP_TRACE(BP_TRACE_GRADIENT, 0, 4.0 * (double)n);

    FOR_SHARES(n, first, last, memset(y + first, 0, (size_t)(last - first) * sizeof *y))
}

void bp_column_sums(float *sums, const float *x, int64_t rows, int64_t columns)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_GRADIENT, 0, 4.0 * (double)(rows * columns));
#pragma omp parallel if (rows * columns > 8 * GRAIN)
    {
        int64_t first, last;
        bp_share(columns, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        loops->column_sums(sums + first, x + first, rows, last - first, columns);
    }
}
