/* Linear maps through oneDNN's matmul primitive; our own bf16 kernels (bf16_linear.c) multiply
 * where they are faster (bp_cpu_bf16_form, bp_cpu_owns_gradient). */
#include "base/fault.h"
#include "base/trace.h"
#include "math/gemm/onednn_product_priv.h"
#include "math/kernels/kernels.h"
#include <omp.h>
#include <string.h>

#define LEAST_COLUMNS 48 /* of both sides of a weight, for our own float32 products */

bp_bf16_form bp_gemm_bf16_form(void)
{
    return bp_cpu_bf16_form();
}

bp_err bp_gemm_new_form(bp_gemm **out, bp_precision precision, bp_bf16_form form)
{
    *out = NULL;
    if (precision == BP_BF16 && !bp_gemm_has_bf16())
        return BP_FAIL(
            BP_ERR_CONFIG, "math.no_bf16",
            "math.precision, with the value bf16: this CPU has neither AMX nor AVX512_BF16; "
            "use auto or f32");
    bp_gemm *gemm = bp_fault("math.gemm") ? NULL : bp_alloc("math.gemm", 1, sizeof *gemm);
    if (!gemm)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "out of memory: for the matrix products");
    gemm->precision = precision;
    gemm->form = form;
    if (precision == BP_BF16 && (form == BP_BF16_OWN || form == BP_BF16_MIXED))
        gemm->kernel = bp_bf16_kernel_here();
    /* oneDNN's AVX-512 kernels sum every row alike; its older ones differ in the last rows. */
    gemm->row_blocks =
        (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core;
    if (bp_gemm_type(gemm) == dnnl_f32 && !gemm->row_blocks && form != BP_BF16_NATIVE)
        gemm->floats = bp_f32_kernel_here();
    if (dnnl_engine_create(&gemm->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&gemm->stream, gemm->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
        bp_gemm_free(&gemm);
        return BP_FAIL(BP_ERR_SYSTEM, "math.no_engine", "oneDNN did not start: no CPU engine");
    }
    *out = gemm;
    return BP_OK;
}

void bp_gemm_free(bp_gemm **gemm)
{
    bp_gemm *old = *gemm;

    *gemm = NULL;
    if (!old)
        return;
    for (int i = 0; i < PRODUCTS; i++)
        bp_product_clear(&old->products[i]);
    if (old->stream)
        CHECK(dnnl_stream_destroy(old->stream));
    if (old->engine)
        CHECK(dnnl_engine_destroy(old->engine));
    bp_workspace_free(&old->scratchpad);
    for (int i = 0; i < BP_WORKSPACES; i++)
        bp_workspace_free(&old->workspaces[i]);
    bp_workspace_free(&old->off_pages);
    bp_workspace_free(&old->staged);
    bp_workspace_free(&old->tail);
    bp_free(old);
}

bp_precision bp_gemm_precision(const bp_gemm *gemm)
{
    return gemm->precision;
}

bp_gemm_kind bp_gemm_kind_of(const bp_gemm *gemm)
{
    return (bp_gemm_kind){gemm->precision, gemm->form, gemm->forward_only, gemm->q8};
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
    return gemm->precision == BP_F32       ? BP_OPERAND_F32
           : gemm->form != BP_BF16_ROUNDED ? BP_OPERAND_BF16
                                           : BP_OPERAND_ROUNDED;
}

bp_workspace *bp_gemm_workspace(bp_gemm *gemm, int which)
{
    return &gemm->workspaces[which];
}

#ifdef BP_LOOPS_X86
const bp_bf16_tiles *bp_gemm_bf16_tiles(const bp_gemm *gemm)
{
    if (bp_gemm_type(gemm) != dnnl_bf16)
        return NULL;
    return bp_cpu_has_tiles() ? &bp_bf16_tiles_amx : &bp_bf16_tiles_avx512;
}
#else
const bp_bf16_tiles *bp_gemm_bf16_tiles(const bp_gemm *gemm)
{
    (void)gemm;
    return NULL;
}
#endif

static bool is_own(const bp_gemm *gemm)
{
    return gemm->kernel && gemm->form == BP_BF16_OWN;
}

/* Does our kernel compute the gradient of a weight [outs][ins]? */
static bool is_own_gradient(const bp_gemm *gemm, int64_t outs, int64_t ins)
{
    return is_own(gemm) || (gemm->kernel && bp_cpu_owns_gradient(outs, ins));
}

typedef struct call {
    bp_gemm *gemm;
    const bp_weight *w;
    const float *bias;
    kind what;
    int64_t stride;              /* of the rows that are multiplied */
    const bp_operand *to;        /* NULL: the epilogue takes the rows */
    const bp_epilogue *epilogue; /* of our own kernels; may be NULL */
} call;

/* y[rows] = source[rows] times the weight, in one product. */
static void multiply_at(const call *c, void *y, const void *source, int64_t rows)
{
    shape s = bp_shape_of(c->what, rows, bp_weight_outs(c->w), bp_weight_ins(c->w),
                          bp_gemm_type(c->gemm));
    const bp_layout *layout;
    const void *weights = bp_weight_values(&layout, c->w, &s);

    s.left_stride = c->stride;
    s.halves = c->to->form == BP_OPERAND_BF16;
    bp_product_run(c->gemm, bp_product_of(c->gemm, &s, layout), source, weights, c->bias, y);
}

static void multiply_rows(const void *context, float *y, const float *x, int64_t rows)
{
    multiply_at(context, y, x, rows);
}

static void multiply_own(const call *c, const bp_operand *x, int64_t y_columns)
{
    const uint32_t *panels = bp_weight_panels(c->w, c->what == BACKWARD_INPUT);
    bp_bf16_target rows = {c->to, c->epilogue, c->bias, y_columns};

    if (!c->to || c->to->form != BP_OPERAND_BF16 ||
        bp_bf16_takes_halves(c->gemm->kernel, x->columns)) {
        bp_bf16_map(c->gemm->kernel, &c->gemm->scratchpad, &rows, x, panels);
        return;
    }
    size_t bytes = bp_operand_bytes(BP_OPERAND_F32, x->rows, y_columns);
    bp_operand sums = bp_operand_floats(bp_workspace_of(&c->gemm->tail, bytes), x->rows, y_columns);
    rows.y = &sums;
    bp_bf16_map(c->gemm->kernel, &c->gemm->scratchpad, &rows, x, panels);
    bp_operand_fill(c->to, sums.data);
}

/* Are float32 products of a weight [outs][ins] our own? With few columns a panel of 64 is
 * wasteful. The choice ignores rows and threads, which would change bits. */
static bool is_own_float(const bp_gemm *gemm, int64_t outs, int64_t ins)
{
    return gemm->floats && outs >= LEAST_COLUMNS && ins >= LEAST_COLUMNS;
}

static void multiply_floats(bp_gemm *gemm, const bp_f32_product *p)
{
    bp_f32_multiply(gemm->floats, p, bp_workspace_of(&gemm->scratchpad, bp_f32_workspace_bytes(p)));
}

static void multiply(const call *c, const bp_operand *x, int64_t y_columns)
{
    if (x->rows == 0)
        return;
    BP_ASSERT(x->form == bp_gemm_form(c->gemm));
    if (is_own(c->gemm)) {
        multiply_own(c, x, y_columns);
        return;
    }
    BP_ASSERT(c->to->stride == y_columns);
    if (is_own_float(c->gemm, bp_weight_outs(c->w), bp_weight_ins(c->w)))
        multiply_floats(c->gemm, &(bp_f32_product){.c = c->to->data,
                                                   .c_row = y_columns,
                                                   .a = {x->data, x->stride, false},
                                                   .b = {bp_weight_plain(c->w), bp_weight_ins(c->w),
                                                         c->what != BACKWARD_INPUT},
                                                   .start = c->bias,
                                                   .M = x->rows,
                                                   .N = y_columns,
                                                   .K = x->columns});
    else if (c->gemm->row_blocks && x->form != BP_OPERAND_BF16)
        bp_in_row_blocks(
            &(bp_rows){c->to->data, x->data, x->rows, y_columns, x->columns, x->stride},
            &c->gemm->tail, multiply_rows, c);
    else
        multiply_at(c, c->to->data, x->data, x->rows);
    bp_operand_round(c->to);
}

bool bp_gemm_prepares(const bp_gemm *gemm)
{
    return bp_gemm_form(gemm) == BP_OPERAND_BF16 && !gemm->q8 && !is_own(gemm);
}

void bp_gemm_take_few_rows(bp_gemm *gemm, bool few)
{
    gemm->few_rows = few;
}

/* y = x Wt + bias, or the epilogue instead of y. */
static void forward(bp_gemm *gemm, const bp_operand *y, const bp_epilogue *epilogue,
                    const bp_operand *x, const bp_weight *w, const float *bias)
{
    BP_TRACE(BP_TRACE_PRODUCT_FORWARD,
             2.0 * (double)(x->rows * bp_weight_outs(w) * bp_weight_ins(w)), 0);
    BP_ASSERT(x->columns == bp_weight_ins(w));
    if (gemm->q8) {
        bp_q8_forward(y, x, bp_weight_q8(w), bias, &gemm->scratchpad);
    } else if (gemm->few_rows && x->form != BP_OPERAND_BF16) {
        bp_multiply_few_rows(&(bp_few_rows){y->data, x->data, bp_weight_plain(w), bias, x->rows,
                                            x->stride, bp_weight_outs(w), x->columns});
        bp_operand_round(y);
    } else {
        multiply(&(call){gemm, w, bias, bias ? FORWARD_BIAS : FORWARD, x->stride, y, epilogue}, x,
                 bp_weight_outs(w));
    }
}

/* dx = dy W, or the epilogue instead of dx. */
static void backward_input(bp_gemm *gemm, const bp_operand *dx, const bp_epilogue *epilogue,
                           const bp_operand *dy, const bp_weight *w)
{
    BP_TRACE(BP_TRACE_PRODUCT_INPUT,
             2.0 * (double)(dy->rows * bp_weight_outs(w) * bp_weight_ins(w)), 0);
    BP_ASSERT(dy->columns == bp_weight_outs(w) && !gemm->forward_only);
    multiply(&(call){gemm, w, NULL, BACKWARD_INPUT, dy->stride, dx, epilogue}, dy,
             bp_weight_ins(w));
}

int64_t bp_linear_row_stride(const bp_gemm *gemm, bp_operand_form form, int64_t columns)
{
    int64_t line = form == BP_OPERAND_BF16 ? 32 : 16;

    return is_own(gemm) ? ((columns + line - 1) / line | 1) * line : columns;
}

void bp_linear_forward_into(bp_gemm *gemm, const bp_operand *y, const bp_operand *x,
                            const bp_weight *w, const float *bias)
{
    forward(gemm, y, NULL, x, w, bias);
}

void bp_linear_backward_input_into(bp_gemm *gemm, const bp_operand *dx, const bp_operand *dy,
                                   const bp_weight *w)
{
    backward_input(gemm, dx, NULL, dy, w);
}

bool bp_gemm_takes_epilogue(const bp_gemm *gemm, int64_t inner)
{
    return !gemm->q8 && is_own(gemm) && bp_bf16_takes_epilogue(gemm->kernel, inner);
}

void bp_linear_forward_through(bp_gemm *gemm, const bp_epilogue *epilogue, const bp_operand *x,
                               const bp_weight *w, const float *bias)
{
    BP_ASSERT(bp_gemm_takes_epilogue(gemm, x->columns));
    forward(gemm, NULL, epilogue, x, w, bias);
}

void bp_linear_backward_input_through(bp_gemm *gemm, const bp_epilogue *epilogue,
                                      const bp_operand *dy, const bp_weight *w)
{
    BP_ASSERT(bp_gemm_takes_epilogue(gemm, dy->columns));
    backward_input(gemm, NULL, epilogue, dy, w);
}

/* The right operand: rows of floats a whole number of pages apart would fall into the same cache
 * sets (measured: half the speed). */
static bp_operand off_pages(bp_gemm *gemm, const bp_operand *x)
{
    bp_operand out = *x;

    out.stride = bp_row_stride(bp_gemm_type(gemm), x->stride);
    if (out.stride == x->stride)
        return out;
    size_t bytes = (size_t)(x->rows * out.stride) * sizeof(float);
    out.data = bp_workspace_of(&gemm->off_pages, bytes);
#pragma omp parallel for schedule(static) if (x->rows * x->columns > 8192)
    for (int64_t r = 0; r < x->rows; r++)
        memcpy((float *)out.data + r * out.stride, (const float *)x->data + r * x->stride,
               (size_t)x->columns * sizeof(float));
    return out;
}

void bp_linear_backward_weight_operand(bp_gemm *gemm, float *dw, const bp_operand *dy,
                                       const bp_operand *x, bool fresh)
{
    kind what = fresh ? BACKWARD_WEIGHT : BACKWARD_WEIGHT_ADDED;
    shape s = bp_shape_of(what, dy->rows, dy->columns, x->columns, bp_gemm_type(gemm));

    BP_TRACE(BP_TRACE_PRODUCT_WEIGHT, 2.0 * (double)(dy->rows * dy->columns * x->columns), 0);
    BP_ASSERT(dy->rows == x->rows && dy->form == bp_gemm_form(gemm) && x->form == dy->form);
    if (dy->rows == 0) {
        if (fresh)
            bp_zero(dw, dy->columns * x->columns);
        return;
    }
    if (is_own_gradient(gemm, dy->columns, x->columns)) {
        bp_bf16_weight_gradient(gemm->kernel, &gemm->scratchpad, dw, dy, NULL, x, fresh);
        return;
    }
    if (is_own_float(gemm, dy->columns, x->columns)) {
        multiply_floats(gemm, &(bp_f32_product){.c = dw,
                                                .c_row = x->columns,
                                                .a = {dy->data, dy->stride, true},
                                                .b = {x->data, x->stride, false},
                                                .start = fresh ? NULL : dw,
                                                .M = dy->columns,
                                                .N = x->columns,
                                                .K = x->rows});
        return;
    }
    bp_operand right = off_pages(gemm, x);
    s.left_stride = dy->stride;
    s.right_stride = right.stride;
    bp_product_run(gemm, bp_product_of(gemm, &s, NULL), dy->data, right.data, NULL, dw);
}

bool bp_linear_weight_at_once(bp_gemm *gemm, float *dw, const bp_operand dy[2], const bp_operand *x,
                              bool fresh)
{
    if (!is_own_gradient(gemm, dy->columns, x->columns) || dy[0].rows % BP_BF16_STEP != 0)
        return false;
    BP_TRACE(BP_TRACE_PRODUCT_WEIGHT, 2.0 * (double)(x->rows * dy->columns * x->columns), 0);
    BP_ASSERT(dy[0].rows + dy[1].rows == x->rows && dy[0].stride == dy[1].stride);
    bp_bf16_weight_gradient(gemm->kernel, &gemm->scratchpad, dw, &dy[0], &dy[1], x, fresh);
    return true;
}

/* The largest internal scratch of a library product. */
static size_t library_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins)
{
    static const kind kinds[] = {FORWARD_BIAS, BACKWARD_INPUT, BACKWARD_WEIGHT,
                                 BACKWARD_WEIGHT_ADDED};
    dnnl_data_type_t type = bp_gemm_type(gemm);
    size_t most = 0, bytes;

    for (int i = 0; i < (gemm->forward_only ? 1 : 4); i++) {
        bool blocks = gemm->row_blocks && i < 2;
        shape s = bp_shape_of(kinds[i], blocks ? BP_ROW_BLOCK : rows, outs, ins, type);
        for (int halves = 0; halves <= (i < 2 && type == dnnl_bf16); halves++) {
            s.halves = halves;
            bp_product_choices(NULL, &bytes, gemm->engine, &s, type);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* Additional scratch of backward products. */
static size_t backward_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins)
{
    dnnl_data_type_t type = bp_gemm_type(gemm);
    size_t bytes = 0;

    if (bp_row_stride(type, ins) != ins)
        bytes += (size_t)(rows * bp_row_stride(type, ins)) * sizeof(float) +
                 bp_weight_staged_bytes(outs, ins);
    return bytes;
}

/* The largest scratch of our own float32 products. */
static size_t float_bytes(const bp_gemm *gemm, int64_t rows, int64_t outs, int64_t ins)
{
    const bp_f32_product products[] = {{.N = outs, .K = ins, .a = {NULL, ins, false}},
                                       {.N = ins, .K = outs, .a = {NULL, outs, false}},
                                       {.N = ins, .K = rows, .a = {NULL, outs, true}}};
    size_t most = 0, bytes;

    for (int i = 0; i < (gemm->forward_only ? 1 : 3); i++) {
        bytes = bp_f32_workspace_bytes(&products[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t bp_linear_form_scratch_bytes(const bp_gemm_kind *of, int64_t rows, int64_t outs, int64_t ins)
{
    bp_gemm *gemm;
    size_t bytes = 0;

    if (rows == 0 || bp_gemm_new_form(&gemm, of->precision, of->form) != BP_OK)
        return 0;
    gemm->forward_only = of->forward_only;
    if (is_own_float(gemm, outs, ins) && !of->q8) {
        bytes = float_bytes(gemm, rows, outs, ins);
        bp_gemm_free(&gemm);
        return bytes;
    }
    if (of->q8)
        bytes = bp_q8_scratch_bytes(rows, ins);
    else if (is_own(gemm) || (!gemm->forward_only && is_own_gradient(gemm, outs, ins)))
        bytes = bp_bf16_workspace_bytes(gemm->kernel, rows, outs, ins, gemm->forward_only);
    if (!of->q8 && !is_own(gemm)) {
        size_t library = library_bytes(gemm, rows, outs, ins);
        bytes = library > bytes ? library : bytes;
    }
    if (!gemm->forward_only)
        bytes += backward_bytes(gemm, rows, outs, ins);
    if (gemm->row_blocks && !of->q8)
        bytes += (size_t)(BP_ROW_BLOCK * (outs + ins)) * sizeof(float);
    bp_gemm_free(&gemm);
    return bytes;
}
