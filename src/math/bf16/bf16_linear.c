/* Linear maps by our own bf16 products: a weight's panels, the panels of a weight gradient. */
#include "math/bf16/bf16_linear.h"
#include "base/trace.h"
#include "math/bf16/bf16_gradient_priv.h"
#include <omp.h>

const uint32_t *bp_bf16_copy_of(bp_bf16_copies *copies, const bp_bf16_kernel *kernel, int direction,
                                const float *w, int64_t outs, int64_t ins)
{
    uint32_t *stale[2] = {NULL, NULL};
    bool forward = direction == BP_BF16_FORWARD;

    if (copies->fresh[direction])
        return copies->panels[direction];
    if (!copies->panels[direction]) {
        int64_t N = forward ? outs : ins, wide = copies->columns;
        size_t bytes = bp_bf16_panels_bytes(forward ? ins : outs, (N + wide - 1) / wide * wide);
        copies->panels[direction] = bp_alloc("math.weight.copy", (int64_t)bytes, 1);
    }
    for (int i = 0; i < 2; i++) /* the other direction too, if used: the values are read once */
        if (!copies->fresh[i])
            stale[i] = copies->panels[i];
    BP_TRACE(BP_TRACE_COPIES, 0, 4.0 * (double)(outs * ins));
    kernel->pack_weight(stale[BP_BF16_FORWARD], stale[BP_BF16_BACKWARD], w, outs, ins,
                        copies->columns);
    for (int i = 0; i < 2; i++)
        copies->fresh[i] = copies->panels[i] != NULL;
    return copies->panels[direction];
}

void bp_bf16_copies_refresh(bp_bf16_copies *copies)
{
    copies->fresh[BP_BF16_FORWARD] = copies->fresh[BP_BF16_BACKWARD] = false;
}

void bp_bf16_copies_clear(bp_bf16_copies *copies)
{
    bp_free(copies->panels[BP_BF16_FORWARD]);
    bp_free(copies->panels[BP_BF16_BACKWARD]);
}

/* Sums over the rows of each panel of the left side. */
static size_t panel_sums_bytes(const bp_bf16_kernel *kernel, int64_t rows, int64_t columns)
{
    return (size_t)((rows + kernel->rows - 1) / kernel->rows * columns) * sizeof(float);
}

void bp_bf16_map(const bp_bf16_kernel *kernel, bp_workspace *workspace, const bp_bf16_target *to,
                 const bp_operand *x, const uint32_t *panels)
{
    const bp_bias_gradient *sums = to->epilogue ? to->epilogue->bias : NULL;
    bool halves = to->y && to->y->form == BP_OPERAND_BF16;
    float *c = to->y && !halves ? to->y->data : NULL;
    int64_t M = x->rows, N = to->columns, K = x->columns;
    int threads = omp_get_max_threads();
    size_t sums_bytes = sums ? (panel_sums_bytes(kernel, M, N) + 63) / 64 * 64 : 0,
           bytes = bp_bf16_scratch_bytes(kernel, M, N, K, threads) +
                   (c ? 0 : bp_bf16_epilogue_bytes(kernel, N, K, threads));
    char *scratch = bp_workspace_of(workspace, sums_bytes + bytes);
    bp_bf16_product product = {.c = c,
                               .halves = halves ? to->y->data : NULL,
                               .a = x->data,
                               .b = panels,
                               .bias = to->bias,
                               .epilogue = to->epilogue,
                               .panel_sums = sums ? (float *)scratch : NULL,
                               .c_row = to->y ? to->y->stride : N,
                               .a_row = x->stride,
                               .M = M,
                               .N = N,
                               .K = K};

    bp_bf16_multiply(kernel, &product, scratch + sums_bytes);
    if (sums)
        bp_column_sums(sums->sums, product.panel_sums, (M + kernel->rows - 1) / kernel->rows, N);
}

void bp_bf16_weight_gradient(const bp_bf16_kernel *kernel, bp_workspace *workspace, float *dw,
                             const bp_operand *dy, const bp_operand *more, const bp_operand *x,
                             bool fresh)
{
    size_t panels_bytes = bp_bf16_panels_bytes(x->rows, x->columns);
    int threads = omp_get_max_threads();
    size_t bytes = bp_bf16_scratch_bytes(kernel, dy->columns, x->columns, x->rows, threads),
           strips = bp_bf16_gradient_bytes(kernel, x->rows, threads);
    uint32_t *panels = bp_workspace_of(workspace, panels_bytes + (bytes > strips ? bytes : strips));
    char *scratch = (char *)panels + panels_bytes;
    bp_bf16_gradient gradient = {.c = dw,
                                 .a = dy->data,
                                 .b = panels,
                                 .c_row = x->columns,
                                 .a_row = dy->stride,
                                 .M = dy->columns,
                                 .N = x->columns,
                                 .K = x->rows,
                                 .a_more = more ? more->data : NULL,
                                 .k_more = dy->rows,
                                 .accumulate = !fresh};
    bp_bf16_product product = {.c = dw,
                               .a = dy->data,
                               .b = panels,
                               .c_row = x->columns,
                               .a_row = dy->stride,
                               .M = dy->columns,
                               .N = x->columns,
                               .K = x->rows,
                               .a_more = more ? more->data : NULL,
                               .k_more = dy->rows,
                               .transposed = true,
                               .accumulate = !fresh};

    kernel->pack_right(panels, x->data, x->stride, x->rows, x->columns);
    if (bp_bf16_takes_gradient(kernel, &gradient, threads))
        bp_bf16_multiply_gradient(kernel, &gradient, scratch);
    else
        bp_bf16_multiply(kernel, &product, scratch);
}

/* For the map of at most `rows` rows of K to N, with any epilogue. */
static size_t map_bytes(const bp_bf16_kernel *kernel, int64_t rows, int64_t N, int64_t K)
{
    int threads = omp_get_max_threads();
    size_t bytes = bp_bf16_most_scratch_bytes(kernel, rows, N, K, threads);

    if (!bp_bf16_takes_epilogue(kernel, K))
        return bytes;
    return bytes + panel_sums_bytes(kernel, rows, N) + 63 +
           bp_bf16_epilogue_bytes(kernel, N, K, threads);
}

size_t bp_bf16_workspace_bytes(const bp_bf16_kernel *kernel, int64_t rows, int64_t outs,
                               int64_t ins, bool forward_only)
{
    int threads = omp_get_max_threads();
    size_t sides[] = {map_bytes(kernel, rows, outs, ins), map_bytes(kernel, rows, ins, outs),
                      bp_bf16_most_scratch_bytes(kernel, outs, ins, rows, threads) +
                          bp_bf16_panels_bytes(rows, ins),
                      bp_bf16_gradient_bytes(kernel, rows, threads) +
                          bp_bf16_panels_bytes(rows, ins)};
    size_t most = 0;

    for (int i = 0; i < (forward_only ? 1 : 4); i++)
        most = sides[i] > most ? sides[i] : most;
    return most;
}
