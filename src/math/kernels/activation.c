/* Activations of one number and their gradients: as passes over a product's result, or as the
 * product's epilogue, where its sums never go to memory. */
#include "base/err.h"
#include "base/trace.h"
#include "math/gemm/linear_parts.h"
#include "math/gemm/operand_pass.h"
#include "math/kernels/kernels.h"

typedef struct activation {
    const bp_loops *loops;
    const bp_operand *y, *x, *dx; /* forward: no dx */
    void (*forward)(float *y, const float *x, int64_t n);
    void (*backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
} activation;

static activation activation_of(bp_activation kind, const bp_operand *y, const bp_operand *x,
                                const bp_operand *dx)
{
    const bp_loops *loops = bp_loops_best();
    activation in = {loops, y, x, dx, loops->gelu_forward, loops->gelu_backward};

    BP_ASSERT(kind < BP_SWIGLU);
    if (kind == BP_GELU_EXACT) {
        in.forward = loops->gelu_exact_forward;
        in.backward = loops->gelu_exact_backward;
    } else if (kind == BP_RELU) {
        in.forward = loops->relu_forward;
        in.backward = loops->relu_backward;
    } else if (kind == BP_SILU) {
        in.forward = loops->silu_forward;
        in.backward = loops->silu_backward;
    }
    return in;
}

static void forward_row(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                        float *sums)
{
    const activation *in = context;
    float workspace[BP_PASS_COLUMNS], *y = bp_operand_workspace(in->y, r, c, workspace);

    (void)sums;
    in->forward(y, x, n);
    bp_operand_store(in->loops, in->y, r, c, y, n);
}

/* On a product's sums: first rounded to x's form, and kept if x has memory. */
static void forward_sums(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                         float *sums)
{
    const activation *in = context;
    float workspace[BP_PASS_COLUMNS];

    if (in->x->form != BP_OPERAND_F32) {
        in->loops->round_bf16(workspace, x, n);
        x = workspace;
    }
    if (in->x->data)
        bp_operand_store(in->loops, in->x, r, c, x, n);
    forward_row(in, x, r, c, n, sums);
}

void bp_activation_forward(bp_activation kind, const bp_operand *y, const bp_operand *x)
{
    activation in = activation_of(kind, y, x, NULL);

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, bp_operand_moved(x) + bp_operand_moved(y));
    bp_run_pass(x->form == BP_OPERAND_ROUNDED ? forward_sums : forward_row, &in, x, NULL);
}

static void backward_row(const void *context, const float *dy, int64_t r, int64_t c, int64_t n,
                         float *sums)
{
    const activation *in = context;
    float x_workspace[BP_PASS_COLUMNS], y_workspace[BP_PASS_COLUMNS], dx_workspace[BP_PASS_COLUMNS];
    const float *x = bp_operand_load(in->loops, in->x, r, c, x_workspace, n);
    float *y = bp_operand_workspace(in->y, r, c, y_workspace),
          *dx = bp_operand_workspace(in->dx, r, c, dx_workspace);

    in->backward(y, dx, dy, x, n);
    if (sums)
        in->loops->add(sums, dx, n);
    bp_operand_store(in->loops, in->y, r, c, y, n);
    bp_operand_store(in->loops, in->dx, r, c, dx, n);
}

/* On a product's sums. */
static void backward_sums(const void *context, const float *dy, int64_t r, int64_t c, int64_t n,
                          float *sums)
{
    const activation *in = context;
    float workspace[BP_PASS_COLUMNS];

    in->loops->round_bf16(workspace, dy, n);
    backward_row(in, workspace, r, c, n, sums);
}

void bp_activation_backward(bp_activation kind, const bp_operand *dx, const bp_operand *y,
                            const bp_bias_gradient *bias, const bp_operand *dy, const bp_operand *x)
{
    activation in = activation_of(kind, y, x, dx);

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0,
             bp_operand_moved(dy) + bp_operand_moved(dx) + bp_operand_moved(y) +
                 bp_operand_moved(x));
    bp_run_pass(dy->form == BP_OPERAND_ROUNDED ? backward_sums : backward_row, &in, dy, bias);
}

bp_operand bp_linear_activation_alloc(bp_arena *arena, const bp_gemm *gemm, int64_t rows,
                                      int64_t width, int64_t inner)
{
    if (bp_gemm_takes_epilogue(gemm, width))
        return bp_operand_at(gemm, NULL, rows, inner);
    return bp_operand_alloc_apart(arena, gemm, rows, inner);
}

void bp_linear_activation_forward(bp_gemm *gemm, const bp_activation_rows *to, const bp_operand *x,
                                  const bp_weight *w, const float *bias)
{
    activation in = activation_of(to->kind, to->y, to->x, NULL);
    bp_operand sums = bp_operand_unrounded(to->x);
    bp_epilogue epilogue = {
        .pass = forward_sums, .context = &in, .written = {to->y, to->x->data ? to->x : NULL}};

    if (bp_gemm_takes_epilogue(gemm, x->columns)) {
        bp_linear_forward_through(gemm, &epilogue, x, w, bias);
        return;
    }
    bp_linear_forward_into(gemm, &sums, x, w, bias);
    bp_activation_forward(to->kind, to->y, to->x);
}

void bp_linear_activation_backward(bp_gemm *gemm, const bp_activation_rows *to,
                                   const bp_operand *dy, const bp_weight *w)
{
    activation in = activation_of(to->kind, to->y, to->x, to->dx);
    bp_operand sums = bp_operand_unrounded(to->dx);
    bp_epilogue epilogue = {backward_sums, &in, to->bias, to->x, {to->y, to->dx}};

    if (bp_gemm_takes_epilogue(gemm, dy->columns)) {
        bp_linear_backward_input_through(gemm, &epilogue, dy, w);
        return;
    }
    bp_linear_backward_input_into(gemm, &sums, dy, w);
    bp_activation_backward(to->kind, to->dx, to->y, to->bias, to->dx, to->x);
}
