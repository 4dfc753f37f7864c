/* Gated activations and rotary positions: passes over a product's result. */
#include "base/trace.h"
#include "math/gemm/operand_pass.h"
#include "math/kernels/kernels.h"

/* Rounds n values in place, if the operand's form requires it. */
static const float *rounded_load(const bp_loops *loops, const bp_operand *x, int64_t r, int64_t c,
                                 float *workspace, int64_t n)
{
    const float *values = bp_operand_load(loops, x, r, c, workspace, n);

    if (x->form == BP_OPERAND_ROUNDED)
        bp_operand_store(loops, x, r, c, values, n);
    return values;
}

typedef void (*gated_forward)(float *y, const float *gate, const float *up, int64_t n);
typedef void (*gated_backward)(float *y, float *dgate, float *dup, const float *dy,
                               const float *gate, const float *up, int64_t n);

static gated_forward forward_of(const bp_loops *loops, bp_activation kind)
{
    return kind == BP_GEGLU         ? loops->geglu_forward
           : kind == BP_GEGLU_EXACT ? loops->geglu_exact_forward
                                    : loops->swiglu_forward;
}

static gated_backward backward_of(const bp_loops *loops, bp_activation kind)
{
    return kind == BP_GEGLU         ? loops->geglu_backward
           : kind == BP_GEGLU_EXACT ? loops->geglu_exact_backward
                                    : loops->swiglu_backward;
}

void bp_gated_forward(bp_activation kind, const bp_operand *y, const bp_operand *x)
{
    const bp_loops *loops = bp_loops_best();
    int64_t F = y->columns;

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, bp_operand_moved(x) + bp_operand_moved(y));
#pragma omp parallel for schedule(static) if (y->rows * F > 8192)
    for (int64_t r = 0; r < y->rows; r++) {
        float workspaces[3][BP_PASS_COLUMNS];

        for (int64_t c = 0; c < F; c += BP_PASS_COLUMNS) {
            int64_t n = bp_min(BP_PASS_COLUMNS, F - c);
            const float *gate = rounded_load(loops, x, r, c, workspaces[0], n),
                        *up = rounded_load(loops, x, r, F + c, workspaces[1], n);
            float *to = bp_operand_workspace(y, r, c, workspaces[2]);

            forward_of(loops, kind)(to, gate, up, n);
            bp_operand_store(loops, y, r, c, to, n);
        }
    }
}

void bp_gated_backward(bp_activation kind, const bp_operand *dx, const bp_operand *y,
                       const bp_operand *dy, const bp_operand *x)
{
    const bp_loops *loops = bp_loops_best();
    int64_t F = y->columns;

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0,
             bp_operand_moved(dy) + bp_operand_moved(dx) + bp_operand_moved(y) +
                 bp_operand_moved(x));
#pragma omp parallel for schedule(static) if (y->rows * F > 8192)
    for (int64_t r = 0; r < y->rows; r++) {
        float workspaces[6][BP_PASS_COLUMNS];

        for (int64_t c = 0; c < F; c += BP_PASS_COLUMNS) {
            int64_t n = bp_min(BP_PASS_COLUMNS, F - c);
            const float *gate = bp_operand_load(loops, x, r, c, workspaces[0], n),
                        *up = bp_operand_load(loops, x, r, F + c, workspaces[1], n),
                        *out = rounded_load(loops, dy, r, c, workspaces[5], n);
            float *again = bp_operand_workspace(y, r, c, workspaces[2]),
                  *dgate = bp_operand_workspace(dx, r, c, workspaces[3]),
                  *dup = bp_operand_workspace(dx, r, F + c, workspaces[4]);

            backward_of(loops, kind)(again, dgate, dup, out, gate, up, n);
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
