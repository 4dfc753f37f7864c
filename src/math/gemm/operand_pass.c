/* Passes over operands that convert, or sum columns beside. */
#include "math/gemm/operand_pass_priv.h"

#include "base/trace.h"
#include <omp.h>
#include <string.h>

int64_t bp_bias_scratch(int64_t rows, int64_t columns)
{
    return bp_block_count(rows) * columns;
}

void bp_run_pass(bp_row_pass *pass, const void *context, const float *x, int64_t rows,
                 int64_t columns, const bp_bias_gradient *bias)
{
    const bp_loops *loops = bp_loops_best();
    int64_t blocks = bp_block_count(rows);

#pragma omp parallel if (rows * columns > 8192)
    {
#pragma omp for collapse(2) schedule(static)
        for (int64_t block = 0; block < blocks; block++) {
            for (int64_t c = 0; c < columns; c += BP_PASS_COLUMNS) {
                int64_t n = bp_smaller(BP_PASS_COLUMNS, columns - c), r = block * BP_BLOCK_ROWS;
                int64_t last = bp_smaller(r + BP_BLOCK_ROWS, rows);
                float *sums = bias ? bias->scratch + block * columns + c : NULL;
                if (sums)
                    memset(sums, 0, (size_t)n * sizeof *sums);
                for (; r < last; r++)
                    pass(context, x + r * columns + c, r, c, n, sums);
            }
        }
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

    BP_TRACE(BP_TRACE_OPERANDS, 0,
             (bias || to->data != x ? bp_float_bytes(to, 1) : 0) +
                 (to->data != x ? bp_operand_moved(to) : 0));
    if (bias || to->data != x)
        bp_run_pass(convert_row, &in, x, to->rows, to->columns, bias);
}

void bp_operand_round(const bp_operand *to)
{
    conversion in = {bp_loops_best(), to};

    if (to->form == BP_OPERAND_ROUNDED)
        bp_run_pass(convert_row, &in, to->data, to->rows, to->columns, NULL);
}

void bp_operand_fill(const bp_operand *to, const float *x)
{
    bp_operand_fill_sums(to, NULL, x);
}
