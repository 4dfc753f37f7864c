/* Operands of matrix products: their memory, and the passes that only convert. */
#include "base/err.h"
#include "base/trace.h"
#include "math/gemm/gemm_priv.h"
#include "math/gemm/operand_priv.h"
#include <omp.h>
#include <string.h>

static size_t element_bytes(bp_operand_form form)
{
    return form == BP_OPERAND_BF16 ? sizeof(uint16_t) : sizeof(float);
}

size_t bp_operand_bytes(bp_operand_form form, int64_t rows, int64_t columns)
{
    return (size_t)(rows * columns) * element_bytes(form);
}

bp_operand bp_operand_at(const bp_gemm *gemm, void *data, int64_t rows, int64_t columns)
{
    bp_operand_form form = bp_gemm_form(gemm);

    return (bp_operand){form, rows, columns, columns, data};
}

bp_operand bp_operand_alloc(bp_arena *arena, const bp_gemm *gemm, int64_t rows, int64_t columns)
{
    size_t bytes = bp_operand_bytes(bp_gemm_form(gemm), rows, columns);
    void *data = NULL;

    if (arena->base)
        data = bp_arena_take(arena, (int64_t)bytes, 1);
    else
        arena->used_bytes += bp_arena_bytes((int64_t)bytes, 1);
    return bp_operand_at(gemm, data, rows, columns);
}

bp_operand bp_operand_over(bp_arena *arena, const bp_gemm *gemm, const float *x, int64_t rows,
                           int64_t columns)
{
    if (bp_gemm_form(gemm) != BP_OPERAND_F32)
        return bp_operand_alloc(arena, gemm, rows, columns);
    return (bp_operand){BP_OPERAND_F32, rows, columns, columns, (void *)x};
}

bp_operand bp_operand_part(const bp_operand *all, int64_t first, int64_t rows)
{
    bp_operand part = *all;

    BP_ASSERT(first >= 0 && rows >= 0 && first + rows <= all->rows);
    part.rows = rows;
    part.data = (char *)all->data + (size_t)(first * all->stride) * element_bytes(all->form);
    return part;
}

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

void bp_operand_fill(const bp_operand *to, const float *x)
{
    bp_operand_fill_sums(to, NULL, x);
}
