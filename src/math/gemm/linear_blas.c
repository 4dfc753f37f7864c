/* Linear maps through BLAS, float32 only.
 *
 * Every BLAS has the Fortran entry sgemm_. It is column-major: a row-major matrix is its own
 * transpose there, so the operands are in reverse order.
 */
#include "base/err.h"
#include "base/fault.h"
#include "base/trace.h"
#include "math/gemm/q8_priv.h"
#include "math/kernels/kernels.h"
#include "math/loops/loops.h"
#include <limits.h>
#include <omp.h>
#include <string.h>

void sgemm_(const char *transpose_a, const char *transpose_b, const int *m, const int *n,
            const int *k, const float *alpha, const float *a, const int *lda, const float *b,
            const int *ldb, const float *beta, float *c, const int *ldc);

struct bp_gemm {
    bp_precision precision;
    bool few_rows; /* bp_gemm_take_few_rows */
    bool forward_only, q8;
    bp_workspace q8_rows, tail, workspaces[BP_WORKSPACES];
};

struct bp_weight {
    const float *value;
    int64_t outs, ins;
    bool is_q8;
    bp_q8_weights *q8; /* bp_gemm_hold_q8; else NULL */
};

bp_bf16_form bp_gemm_bf16_form(void)
{
    return BP_BF16_ROUNDED;
}

bp_err bp_gemm_new_form(bp_gemm **out, bp_precision precision, bp_bf16_form form)
{
    (void)form;
    *out = NULL;
    if (precision != BP_F32)
        return BP_FAIL(
            BP_ERR_CONFIG, "math.no_bf16",
            "math.precision, with the value bf16: this build multiplies matrices through "
            "BLAS, in float32 only; use f32, or build with oneDNN");
    bp_gemm *gemm = bp_fault("math.gemm") ? NULL : bp_alloc("math.gemm", 1, sizeof *gemm);
    if (!gemm)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "out of memory: for the matrix products");
    gemm->precision = precision;
    *out = gemm;
    return BP_OK;
}

void bp_gemm_free(bp_gemm **gemm)
{
    if (*gemm) {
        bp_workspace_free(&(*gemm)->tail);
        bp_workspace_free(&(*gemm)->q8_rows);
    }
    bp_free(*gemm);
    *gemm = NULL;
}

bp_precision bp_gemm_precision(const bp_gemm *gemm)
{
    return gemm->precision;
}

bp_gemm_kind bp_gemm_kind_of(const bp_gemm *gemm)
{
    return (bp_gemm_kind){gemm->precision, BP_BF16_ROUNDED, gemm->forward_only, gemm->q8};
}

void bp_gemm_hold_q8(bp_gemm *gemm)
{
    BP_ASSERT(gemm->forward_only);
    gemm->q8 = true;
}

void bp_gemm_set_forward_only(bp_gemm *gemm)
{
    gemm->forward_only = true;
}

bp_operand_form bp_gemm_form(const bp_gemm *gemm)
{
    (void)gemm;
    return BP_OPERAND_F32;
}

bp_workspace *bp_gemm_workspace(bp_gemm *gemm, int which)
{
    return &gemm->workspaces[which]; /* stays empty: float32 rows are read in place */
}

const bp_bf16_tiles *bp_gemm_bf16_tiles(const bp_gemm *gemm)
{
    (void)gemm;
    return NULL;
}

bp_err bp_weight_new(bp_weight **out, bp_gemm *gemm, const float *value, int64_t outs, int64_t ins)
{
    *out = bp_fault("math.weight") ? NULL : bp_alloc("math.weight", 1, sizeof **out);
    if (!*out)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "out of memory: for a weight of %lld x %lld",
                       (long long)outs, (long long)ins);
    **out = (bp_weight){value, outs, ins, gemm->q8, NULL};
    return BP_OK;
}

void bp_weight_free(bp_weight **weight)
{
    if (*weight)
        bp_free((*weight)->q8);
    bp_free(*weight);
    *weight = NULL;
}

int64_t bp_weight_outs(const bp_weight *w)
{
    return w->outs;
}

int64_t bp_weight_ins(const bp_weight *w)
{
    return w->ins;
}

void bp_weight_refresh(bp_weight *weight)
{
    if (!weight->is_q8) /* products read the values in place */
        return;
    bp_free(weight->q8);
    weight->q8 = bp_q8_new(weight->value, weight->outs, weight->ins);
    weight->value = NULL;
}

size_t bp_weight_form_bytes(const bp_gemm_kind *of, int64_t outs, int64_t ins)
{
    return of->q8 ? bp_q8_bytes(outs, ins) : 0;
}

bool bp_linear_weight_at_once(bp_gemm *gemm, float *dw, const bp_operand dy[2], const bp_operand *x,
                              bool fresh)
{
    (void)gemm, (void)dw, (void)dy, (void)x, (void)fresh;
    return false;
}

size_t bp_linear_form_scratch_bytes(const bp_gemm_kind *of, int64_t rows, int64_t outs, int64_t ins)
{
    if (of->q8)
        return bp_q8_scratch_bytes(rows, ins);
    return rows == 0 ? 0 : (size_t)(BP_ROW_BLOCK * (outs + ins)) * sizeof(float);
}

static int checked_int(int64_t n)
{
    BP_ASSERT(n >= 0 && n <= INT_MAX);
    return (int)n;
}

/* A matrix as it is in a product; `form` 't': transposed. */
typedef struct factor {
    const float *data;
    char form;
    int64_t stride;
} factor;

/* c[rows][columns] = a b + beta c, row-major */
static void product(float *c, const factor *a, const factor *b, int64_t rows, int64_t columns,
                    int64_t inner, float beta)
{
    int m = checked_int(rows), n = checked_int(columns), k = checked_int(inner);
    int a_row = checked_int(a->stride), b_row = checked_int(b->stride);
    float one = 1.0f;

    sgemm_(&b->form, &a->form, &n, &m, &k, &one, b->data, &b_row, a->data, &a_row, &beta, c, &n);
}

typedef struct call {
    const bp_weight *w;
    int64_t stride; /* of the rows that are multiplied */
} call;

static void forward_rows(const void *context, float *y, const float *x, int64_t rows)
{
    const call *c = context;
    factor a = {x, 'n', c->stride}, b = {c->w->value, 't', c->w->ins};

    product(y, &a, &b, rows, c->w->outs, c->w->ins, 0.0f);
}

static void backward_rows(const void *context, float *dx, const float *dy, int64_t rows)
{
    const call *c = context;
    factor a = {dy, 'n', c->stride}, b = {c->w->value, 'n', c->w->ins};

    product(dx, &a, &b, rows, c->w->ins, c->w->outs, 0.0f);
}

bool bp_gemm_prepares(const bp_gemm *gemm)
{
    (void)gemm;
    return false;
}

void bp_gemm_take_few_rows(bp_gemm *gemm, bool few)
{
    gemm->few_rows = few;
}

int64_t bp_linear_row_stride(const bp_gemm *gemm, bp_operand_form form, int64_t columns)
{
    (void)gemm, (void)form;
    return columns;
}

void bp_linear_forward_into(bp_gemm *gemm, const bp_operand *to, const bp_operand *x,
                            const bp_weight *w, const float *bias)
{
    const bp_loops *loops = bp_loops_best();
    float *y = to->data;
    bp_rows all = {y, x->data, x->rows, w->outs, w->ins, x->stride};

    BP_TRACE(BP_TRACE_PRODUCT_FORWARD, 2.0 * (double)(x->rows * w->outs * w->ins), 0);
    BP_ASSERT(x->columns == w->ins);
    if (gemm->q8) {
        bp_q8_forward(to, x, w->q8, bias, &gemm->q8_rows);
        return;
    }
    if (gemm->few_rows) {
        bp_multiply_few_rows(
            &(bp_few_rows){y, x->data, w->value, bias, x->rows, x->stride, w->outs, w->ins});
        return;
    }
    bp_in_row_blocks(&all, &gemm->tail, forward_rows, &(call){w, x->stride});
    if (!bias)
        return;
#pragma omp parallel for schedule(static) if (x->rows * w->outs > 8192)
    for (int64_t r = 0; r < x->rows; r++)
        loops->add(y + r * w->outs, bias, w->outs);
}

void bp_linear_backward_input_into(bp_gemm *gemm, const bp_operand *dx, const bp_operand *dy,
                                   const bp_weight *w)
{
    bp_rows all = {dx->data, dy->data, dy->rows, w->ins, w->outs, dy->stride};

    BP_TRACE(BP_TRACE_PRODUCT_INPUT, 2.0 * (double)(dy->rows * w->outs * w->ins), 0);
    BP_ASSERT(dy->columns == w->outs);
    bp_in_row_blocks(&all, &gemm->tail, backward_rows, &(call){w, dy->stride});
}

bool bp_gemm_takes_epilogue(const bp_gemm *gemm, int64_t inner)
{
    (void)gemm, (void)inner;
    return false;
}

void bp_linear_forward_through(bp_gemm *gemm, const bp_epilogue *epilogue, const bp_operand *x,
                               const bp_weight *w, const float *bias)
{
    (void)gemm, (void)epilogue, (void)x, (void)w, (void)bias;
    BP_ASSERT(!"BLAS takes no epilogue");
}

void bp_linear_backward_input_through(bp_gemm *gemm, const bp_epilogue *epilogue,
                                      const bp_operand *dy, const bp_weight *w)
{
    (void)gemm, (void)epilogue, (void)dy, (void)w;
    BP_ASSERT(!"BLAS takes no epilogue");
}

void bp_linear_backward_weight_operand(bp_gemm *gemm, float *dw, const bp_operand *dy,
                                       const bp_operand *x, bool fresh)
{
    factor a = {dy->data, 't', dy->stride}, b = {x->data, 'n', x->stride};

    (void)gemm;
    BP_TRACE(BP_TRACE_PRODUCT_WEIGHT, 2.0 * (double)(dy->rows * dy->columns * x->columns), 0);
    BP_ASSERT(dy->rows == x->rows);
    if (dy->rows > 0)
        product(dw, &a, &b, dy->columns, x->columns, dy->rows, fresh ? 0.0f : 1.0f);
    else if (fresh)
        bp_zero(dw, dy->columns * x->columns);
}
