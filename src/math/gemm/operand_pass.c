/* Passes over operands that convert, or also sum columns. */
#include "math/gemm/operand_pass.h"

#include "base/trace.h"
#include <omp.h>
#include <string.h>

int64_t bp_bias_scratch(int64_t rows, int64_t columns)
{
    return bp_block_count(rows) * columns;
}

/* Rows [block * BP_BLOCK_ROWS, ...) of columns [first, last): along the rows, since memory is read
 * faster in long runs. */
static void run_block(bp_row_pass *pass, const void *context, const bp_operand *x, int64_t block,
                      int64_t first, int64_t last, const bp_bias_gradient *bias)
{
    const bp_loops *loops = bp_loops_best();
    int64_t r = block * BP_BLOCK_ROWS, end = bp_min(r + BP_BLOCK_ROWS, x->rows);
    float *sums = bias ? bias->scratch + block * x->columns : NULL, workspace[BP_PASS_COLUMNS];

    if (sums)
        memset(sums + first, 0, (size_t)(last - first) * sizeof *sums);
    for (; r < end; r++)
        for (int64_t c = first; c < last; c += BP_PASS_COLUMNS) {
            int64_t n = bp_min(BP_PASS_COLUMNS, last - c);
            pass(context, bp_operand_load(loops, x, r, c, workspace, n), r, c, n,
                 sums ? sums + c : NULL);
        }
}

void bp_run_pass(bp_row_pass *pass, const void *context, const bp_operand *x,
                 const bp_bias_gradient *bias)
{
    const bp_loops *loops = bp_loops_best();
    int64_t blocks = bp_block_count(x->rows), columns = x->columns;
    /* A few blocks are divided, so that all threads have work. */
    int64_t part = blocks >= 2 * omp_get_max_threads() ? columns : BP_PASS_COLUMNS;

#pragma omp parallel if (x->rows * columns > 8192)
    {
#pragma omp for collapse(2) schedule(static)
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t c = 0; c < columns; c += part)
                run_block(pass, context, x, block, c, bp_min(c + part, columns), bias);
        if (bias) {
            int64_t first, last;
            bp_share(columns, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
            loops->column_sums(bias->sums + first, bias->scratch + first, blocks, last - first,
                               columns);
        }
    }
}

typedef struct conversion {
    const bp_loops *loops;
    const bp_operand *to;
} conversion;

static void convert_row(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                        float *sums)
{
    const conversion *in = context;

    if (sums)
        in->loops->add(sums, x, n);
    bp_operand_store(in->loops, in->to, r, c, x, n);
}

void bp_operand_fill_sums(const bp_operand *to, const bp_bias_gradient *bias, const float *x)
{
    conversion in = {bp_loops_best(), to};
    const bp_operand from = bp_operand_floats((float *)x, to->rows, to->columns);

    BP_TRACE(BP_TRACE_OPERANDS, 0,
             (bias || to->data != x ? bp_float_bytes(to, 1) : 0) +
                 (to->data != x ? bp_operand_moved(to) : 0));
    if (bias || to->data != x)
        bp_run_pass(convert_row, &in, &from, bias);
}

static void sum_row(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                    float *sums)
{
    const bp_loops *loops = context;

    (void)r;
    (void)c;
    loops->add(sums, x, n);
}

void bp_operand_sums(const bp_bias_gradient *bias, const bp_operand *x)
{
    BP_TRACE(BP_TRACE_GRADIENT, 0, bias ? bp_operand_moved(x) : 0);

    if (bias)
        bp_run_pass(sum_row, bp_loops_best(), x, bias);
}

void bp_operand_round(const bp_operand *to)
{
    conversion in = {bp_loops_best(), to};

    if (to->form == BP_OPERAND_ROUNDED)
        bp_run_pass(convert_row, &in, to, NULL);
}

void bp_operand_fill(const bp_operand *to, const float *x)
{
    bp_operand_fill_sums(to, NULL, x);
}
