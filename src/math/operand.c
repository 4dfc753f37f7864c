/* Operands of matrix products: their memory, and the passes that only convert. */
#include "base/err.h"
#include "base/trace.h"
#include "math/gemm_priv.h"
#include "math/loops_priv.h"
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

bp_operand bp_operand_carve(bp_arena *arena, const bp_gemm *gemm, int64_t rows, int64_t columns)
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
        return bp_operand_carve(arena, gemm, rows, columns);
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

void bp_operand_store(const bp_operand *to, int64_t r, int64_t c, const float *x, int64_t n)
{
    int64_t at = r * to->stride + c;
    float *y = (float *)to->data + at;

    if (to->form == BP_OPERAND_BF16)
        bp_loops_best()->to_bf16((uint16_t *)to->data + at, x, n);
    else if (to->form == BP_OPERAND_ROUNDED)
        bp_loops_best()->round_bf16(y, x, n);
    else if (y != x)
        memcpy(y, x, (size_t)n * sizeof *x);
}

void bp_operand_fill(const bp_operand *to, const float *x)
{
    if (to->data == x)
        return;
    BP_TRACE(BP_TRACE_OPERANDS, 0, 6.0 * (double)(to->rows * to->columns));
#pragma omp parallel for schedule(static) if (to->rows * to->columns > 8192)
    for (int64_t r = 0; r < to->rows; r++)
        bp_operand_store(to, r, 0, x + r * to->columns, to->columns);
}
