/* Gated activations and rotary positions: passes over what a product wrote. */
#include "base/trace.h"
#include "math/gemm/operand_pass_priv.h"
#include "math/kernels/kernels.h"

void bp_gated_forward(bp_activation kind, const bp_operand *y, const bp_operand *kept,
                      const float *x)
{
    const bp_loops *loops = bp_loops_best();
    int64_t F = y->columns;

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0,
             bp_float_bytes(y, 2) + bp_operand_moved(y) + (kept ? bp_operand_moved(kept) : 0));
#pragma omp parallel for schedule(static) if (y->rows * F > 8192)
    for (int64_t r = 0; r < y->rows; r++) {
        const float *gate = x + r * 2 * F;
        float workspace[BP_PASS_COLUMNS];

        for (int64_t c = 0; c < F; c += BP_PASS_COLUMNS) {
            int64_t n = bp_smaller(BP_PASS_COLUMNS, F - c);
            float *to = bp_operand_workspace(y, r, c, workspace);

            (kind == BP_GEGLU ? loops->geglu_forward : loops->swiglu_forward)(to, gate + c,
                                                                              gate + F + c, n);
            bp_operand_store(loops, y, r, c, to, n);
        }
        for (int64_t c = 0; kept && c < 2 * F; c += BP_PASS_COLUMNS)
            bp_operand_store(loops, kept, r, c, gate + c, bp_smaller(BP_PASS_COLUMNS, 2 * F - c));
    }
}

void bp_gated_backward(bp_activation kind, const bp_operand *dx, const bp_operand *y,
                       const float *dy, const bp_operand *x)
{
    const bp_loops *loops = bp_loops_best();
    int64_t F = y->columns;

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0,
             bp_float_bytes(y, 1) + bp_operand_moved(dx) + bp_operand_moved(y) +
                 bp_operand_moved(x));
#pragma omp parallel for schedule(static) if (y->rows * F > 8192)
    for (int64_t r = 0; r < y->rows; r++) {
        float workspaces[5][BP_PASS_COLUMNS];

        for (int64_t c = 0; c < F; c += BP_PASS_COLUMNS) {
            int64_t n = bp_smaller(BP_PASS_COLUMNS, F - c);
            const float *gate = bp_operand_load(loops, x, r, c, workspaces[0], n),
                        *up = bp_operand_load(loops, x, r, F + c, workspaces[1], n);
            float *again = bp_operand_workspace(y, r, c, workspaces[2]),
                  *dgate = bp_operand_workspace(dx, r, c, workspaces[3]),
                  *dup = bp_operand_workspace(dx, r, F + c, workspaces[4]);

            (kind == BP_GEGLU ? loops->geglu_backward : loops->swiglu_backward)(
                again, dgate, dup, dy + r * F + c, gate, up, n);
            bp_operand_store(loops, y, r, c, again, n);
            bp_operand_store(loops, dx, r, c, dgate, n);
            bp_operand_store(loops, dx, r, F + c, dup, n);
        }
    }
}

void bp_rotary_turn(float *x, int64_t row, int64_t rows, int64_t heads, int64_t D,
                    const bp_rotary *by, bool back)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, 16.0 * (double)(rows * heads * by->half));
#pragma omp parallel for schedule(static) if (rows * heads * D > 8192)
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (by->positions ? by->positions[r] : r % by->T) * by->half;

        for (int64_t h = 0; h < heads; h++)
            loops->rotate(x + r * row + h * D, by->cosine + at, by->sine + at, by->half,
                          back ? -1.0f : 1.0f);
    }
}
