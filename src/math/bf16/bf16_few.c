/* Our own bf16 products of few rows, for decoding: bound by reading the right side from memory,
 * once and without copies. */
#include "math/bf16/bf16_gemm.h"
#include <string.h>

#define STEP_WORDS ((int64_t)BP_BF16_STEP / 2 * BP_BF16_COLUMNS)

bool bp_bf16_is_few(const bp_bf16_product *product)
{
    return product->c && product->M <= BP_BF16_FEW && product->K > 0 && !product->transposed &&
           !product->accumulate && !product->epilogue;
}

/* The last panel, of fewer columns. */
static void multiply_edge(const bp_bf16_kernel *kernel, const bp_bf16_few *of, int64_t columns,
                          float *scratch)
{
    float *start = scratch + BP_BF16_FEW * BP_BF16_COLUMNS;
    bp_bf16_few edge = *of;

    if (of->start) {
        memcpy(start, of->start, (size_t)columns * sizeof *start);
        edge.start = start;
    }
    edge.c = scratch;
    edge.c_row = BP_BF16_COLUMNS;
    kernel->few(&edge);
    for (int64_t r = 0; r < of->rows; r++)
        memcpy(of->c + r * of->c_row, scratch + r * BP_BF16_COLUMNS,
               (size_t)columns * sizeof *scratch);
}

void bp_bf16_multiply_few(const bp_bf16_kernel *kernel, const bp_bf16_product *product,
                          int64_t n_first, int64_t n_last, float *scratch)
{
    int64_t steps = (product->K + BP_BF16_STEP - 1) / BP_BF16_STEP,
            whole = (steps - 1) * BP_BF16_STEP;
    float *edge = scratch + BP_BF16_FEW * BP_BF16_STEP / 2;
    uint16_t *last = (uint16_t *)scratch;
    bp_bf16_few of = {.a = product->a,
                      .last = last,
                      .c_row = product->c_row,
                      .a_row = product->a_row,
                      .rows = product->M,
                      .steps = steps};

    memset(last, 0, BP_BF16_FEW * BP_BF16_STEP * sizeof *last);
    for (int64_t r = 0; r < product->M; r++)
        memcpy(last + r * BP_BF16_STEP, product->a + r * product->a_row + whole,
               (size_t)(product->K - whole) * sizeof *last);
    for (int64_t n = n_first; n < n_last; n++) {
        int64_t at = n * BP_BF16_COLUMNS, columns = product->N - at;

        of.c = product->c + at;
        of.b = product->b + n * steps * STEP_WORDS;
        of.start = product->bias ? product->bias + at : NULL;
        if (columns < BP_BF16_COLUMNS)
            multiply_edge(kernel, &of, columns, edge);
        else
            kernel->few(&of);
    }
}
