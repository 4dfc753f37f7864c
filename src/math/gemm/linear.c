/* Linear maps of float32 rows: operands are made, then multiplied. */
#include "math/gemm/linear_parts.h"

bp_err bp_gemm_new(bp_gemm **out, bp_precision precision)
{
    return bp_gemm_new_form(out, precision, bp_gemm_bf16_form());
}

bp_err bp_gemm_new_forward(bp_gemm **out, bp_precision precision)
{
    bp_err err = bp_gemm_new(out, precision);

    if (err == BP_OK)
        bp_gemm_set_forward_only(*out);
    return err;
}

bool bp_gemm_is_forward_only(const bp_gemm *gemm)
{
    return bp_gemm_kind_of(gemm).forward_only;
}

bool bp_gemm_reads_values(const bp_gemm *gemm)
{
    return bp_gemm_precision(gemm) == BP_F32 && !bp_gemm_kind_of(gemm).q8;
}

size_t bp_weight_copy_bytes(const bp_gemm *gemm, int64_t outs, int64_t ins)
{
    bp_gemm_kind kind = bp_gemm_kind_of(gemm);

    return bp_weight_form_bytes(&kind, outs, ins);
}

size_t bp_linear_operand_scratch_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins)
{
    bp_gemm_kind kind = bp_gemm_kind_of(gemm);

    return bp_linear_form_scratch_bytes(&kind, rows, outs, ins);
}

size_t bp_linear_scratch_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins)
{
    size_t bytes = bp_linear_operand_scratch_bytes(gemm, rows, outs, ins);
    bp_operand_form form = bp_gemm_form(gemm);

    if (form == BP_OPERAND_F32)
        return bytes;
    bytes += bp_operand_bytes(form, rows, ins > outs ? ins : outs);
    return bytes + (bp_gemm_is_forward_only(gemm) ? 0 : bp_operand_bytes(form, rows, ins));
}

void bp_linear_forward_operand(bp_gemm *gemm, float *y, const bp_operand *x, const bp_weight *w,
                               const float *bias)
{
    bp_operand to = bp_operand_floats(y, x->rows, bp_weight_outs(w));

    bp_linear_forward_into(gemm, &to, x, w, bias);
}

void bp_linear_backward_input_operand(bp_gemm *gemm, float *dx, const bp_operand *dy,
                                      const bp_weight *w)
{
    bp_operand to = bp_operand_floats(dx, dy->rows, bp_weight_ins(w));

    bp_linear_backward_input_into(gemm, &to, dy, w);
}

static bp_operand operand_of(bp_gemm *gemm, int workspace, const float *x, int64_t rows,
                             int64_t columns)
{
    bp_operand_form form = bp_gemm_form(gemm);

    if (form == BP_OPERAND_F32)
        return (bp_operand){form, rows, columns, columns, (void *)x};
    void *data =
        bp_workspace_of(bp_gemm_workspace(gemm, workspace), bp_operand_bytes(form, rows, columns));
    bp_operand out = bp_operand_at(gemm, data, rows, columns);
    bp_operand_fill(&out, x);
    return out;
}

void bp_linear_forward(bp_gemm *gemm, float *y, const float *x, const bp_weight *w,
                       const float *bias, int64_t rows)
{
    bp_operand source = operand_of(gemm, BP_WORKSPACE_SOURCE, x, rows, bp_weight_ins(w));

    bp_linear_forward_operand(gemm, y, &source, w, bias);
}

void bp_linear_backward_input(bp_gemm *gemm, float *dx, const float *dy, const bp_weight *w,
                              int64_t rows)
{
    bp_operand source = operand_of(gemm, BP_WORKSPACE_SOURCE, dy, rows, bp_weight_outs(w));

    bp_linear_backward_input_operand(gemm, dx, &source, w);
}

/* dw += dyt x, dbias += sums of dy's columns */
static void add_gradients(bp_gemm *gemm, float *dw, float *dbias, const bp_operand *left,
                          const float *dy, const float *x, int64_t ins)
{
    if (dw) {
        bp_operand right = operand_of(gemm, BP_WORKSPACE_SECOND, x, left->rows, ins);

        bp_linear_backward_weight_operand(gemm, dw, left, &right, false);
    }
    if (dbias)
        bp_column_sums(dbias, dy, left->rows, left->columns);
}

void bp_linear_backward_weight(bp_gemm *gemm, float *dw, float *dbias, const float *dy,
                               const float *x, int64_t rows, int64_t outs, int64_t ins)
{
    bp_operand left = operand_of(gemm, BP_WORKSPACE_SOURCE, dy, rows, outs);

    add_gradients(gemm, dw, dbias, &left, dy, x, ins);
}

void bp_linear_backward(const bp_linear_gradients *to, bp_gemm *gemm, const float *dy,
                        const float *x, const bp_weight *w, int64_t rows)
{
    bp_operand left = operand_of(gemm, BP_WORKSPACE_SOURCE, dy, rows, bp_weight_outs(w));

    add_gradients(gemm, to->dw, to->dbias, &left, dy, x, bp_weight_ins(w));
    bp_linear_backward_input_operand(gemm, to->dx, &left, w);
}

void bp_linear_backward_weight_pieces(bp_gemm *gemm, float *dw, const bp_operand dy[2],
                                      const bp_operand *x, bool fresh)
{
    int64_t at = 0;

    if (dy[0].rows > 0 && dy[1].rows > 0 && bp_linear_weight_at_once(gemm, dw, dy, x, fresh))
        return;
    for (int p = 0; p < 2; p++) {
        bp_operand part = bp_operand_part(x, at, dy[p].rows);

        if (dy[p].rows > 0)
            bp_linear_backward_weight_operand(gemm, dw, &dy[p], &part, fresh && at == 0);
        at += dy[p].rows;
    }
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

bp_operand bp_operand_alloc_apart(bp_arena *arena, const bp_gemm *gemm, int64_t rows,
                                  int64_t columns)
{
    int64_t stride = bp_linear_row_stride(gemm, bp_gemm_form(gemm), columns);
    bp_operand out = bp_operand_alloc(arena, gemm, rows, stride);

    out.columns = columns;
    return out;
}

bp_operand bp_operand_over(bp_arena *arena, const bp_gemm *gemm, const float *x, int64_t rows,
                           int64_t columns)
{
    if (bp_gemm_form(gemm) != BP_OPERAND_F32)
        return bp_operand_alloc_apart(arena, gemm, rows, columns);
    return (bp_operand){BP_OPERAND_F32, rows, columns, columns, (void *)x};
}
