/* Products with weights held in 8 bits: the rows are converted to integers, then threads share the
 * columns of y. */
#include "math/gemm/q8_priv.h"

#include "base/numbers.h"
#include "math/gemm/operand_pass.h"
#include "math/loops/loops.h"
#include <omp.h>

#define ROUNDED_ROWS 16 /* of float32 sums before they are rounded to bf16 */

size_t bp_q8_bytes(int64_t outs, int64_t ins)
{
    return (size_t)(bp_divide_up(outs, BP_Q8_COLUMNS) * bp_divide_up(ins, BP_Q8_BLOCK)) *
           sizeof(bp_q8_weights);
}

bp_q8_weights *bp_q8_new(const float *w, int64_t outs, int64_t ins)
{
    const bp_loops *loops = bp_loops_best();
    int64_t blocks = bp_divide_up(ins, BP_Q8_BLOCK), runs = bp_divide_up(outs, BP_Q8_COLUMNS);
    bp_q8_weights *to = bp_alloc("math.weight.copy", (int64_t)bp_q8_bytes(outs, ins), 1);

#pragma omp parallel for schedule(static) if (outs * ins > 8192)
    for (int64_t run = 0; run < runs; run++)
        for (int64_t b = 0; b < blocks; b++)
            loops->q8_weights(&to[run * blocks + b],
                              w + run * BP_Q8_COLUMNS * ins + b * BP_Q8_BLOCK, ins,
                              bp_min(BP_Q8_COLUMNS, outs - run * BP_Q8_COLUMNS),
                              bp_min(BP_Q8_BLOCK, ins - b * BP_Q8_BLOCK));
    return to;
}

size_t bp_q8_scratch_bytes(int64_t rows, int64_t ins)
{
    return (size_t)(rows * bp_divide_up(ins, BP_Q8_BLOCK)) * sizeof(bp_q8_row);
}

bp_q8_multiply *bp_q8_multiply_here(void)
{
#ifdef BP_LOOPS_X86
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw"))
        return bp_q8_multiply_vnni;
#endif
    return bp_loops_best()->q8_multiply;
}

/* Block b of row r. */
static void make_block(const bp_loops *loops, bp_q8_row *to, const bp_operand *x, int64_t r,
                       int64_t b)
{
    int64_t at = r * x->stride + b * BP_Q8_BLOCK,
            n = bp_min(BP_Q8_BLOCK, x->columns - b * BP_Q8_BLOCK);
    const float *from = (const float *)x->data + at;
    float floats[BP_Q8_BLOCK];

    if (x->form == BP_OPERAND_BF16) {
        loops->from_bf16(floats, (const uint16_t *)x->data + at, n);
        from = floats;
    }
    loops->q8_row(to, from, n);
}

/* Columns of the product, rounded where the result is bf16. */
static void multiply_columns(const bp_loops *loops, bp_q8_multiply *multiply, const bp_operand *y,
                             int64_t column, const bp_q8_product *of)
{
    bp_q8_product part = *of;
    float floats[ROUNDED_ROWS * BP_Q8_COLUMNS];

    if (y->form != BP_OPERAND_BF16) {
        part.y = (float *)y->data + column;
        part.y_row = y->stride;
        multiply(&part);
        return;
    }
    part.y = floats;
    part.y_row = BP_Q8_COLUMNS;
    for (int64_t r = 0; r < of->rows; r += ROUNDED_ROWS) {
        part.x = of->x + r * of->blocks;
        part.rows = bp_min(ROUNDED_ROWS, of->rows - r);
        multiply(&part);
        for (int64_t i = 0; i < part.rows; i++)
            bp_operand_store(loops, y, r + i, column, floats + i * BP_Q8_COLUMNS, of->columns);
    }
}

void bp_q8_forward(const bp_operand *y, const bp_operand *x, const bp_q8_weights *w,
                   const float *bias, bp_workspace *workspace)
{
    const bp_loops *loops = bp_loops_best();
    bp_q8_multiply *multiply = bp_q8_multiply_here();
    int64_t blocks = bp_divide_up(x->columns, BP_Q8_BLOCK), outs = y->columns;
    bp_q8_row *rows = bp_workspace_of(workspace, bp_q8_scratch_bytes(x->rows, x->columns));

#pragma omp parallel if (x->rows * outs * x->columns > 32768)
    {
        int64_t first, last;

#pragma omp for schedule(static)
        for (int64_t k = 0; k < x->rows * blocks; k++)
            make_block(loops, &rows[k], x, k / blocks, k % blocks);
        bp_share(outs, BP_Q8_COLUMNS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        for (int64_t o = first; o < last; o += BP_Q8_COLUMNS)
            multiply_columns(loops, multiply, y, o,
                             &(bp_q8_product){.start = bias ? bias + o : NULL,
                                              .x = rows,
                                              .w = w + o / BP_Q8_COLUMNS * blocks,
                                              .rows = x->rows,
                                              .blocks = blocks,
                                              .columns = bp_min(BP_Q8_COLUMNS, outs - o)});
    }
    for (int64_t r = 0; r < y->rows; r++)
        bp_operand_end_row(y, r);
    bp_operand_round(y);
}
