/* Linear maps through oneDNN's matmul primitive.
 *
 * Native bf16 products read a copy of the weight for each direction, in the layout that the
 * primitive asks for. Float32 products read the values where they lie, or, in rounded bf16, one
 * copy of them rounded; but a matrix whose rows are a whole number of pages apart has a reordered
 * copy for the backward direction. Copies are made anew at the first use after a refresh.
 *
 * Where our own bf16 kernels are the faster (bp_cpu_bf16_form), they multiply (bf16_linear.c).
 */
#include "base/fault.h"
#include "base/trace.h"
#include "math/kernels.h"
#include "math/onednn_product_priv.h"
#include <omp.h>
#include <stdio.h>
#include <string.h>

#define LAYOUT_ROWS 1024 /* weights are laid out as products of this many rows like them */

/* A weight as one direction's products read it. */
typedef struct copy {
    bp_layout *layout;
    dnnl_primitive_t
        reorder; /* float32 as it lies -> this layout; NULL where it is read as it lies */
    dnnl_memory_t from, to, scratchpad;
    size_t scratch_bytes;
    void *data; /* NULL: not made yet, or not needed */
    bool fresh;
} copy;

enum { FORWARD_COPY, BACKWARD_COPY, PLAIN, COPIES };

typedef struct weight_copies {
    copy library[COPIES];
    bp_bf16_copies own;
} weight_copies;

struct bp_weight {
    bp_gemm *gemm;
    const float *value;
    int64_t outs, ins;
    weight_copies *copies;
};

void bp_gemm_library_name(char *out, size_t out_bytes)
{
    const dnnl_version_t *version = dnnl_version();

    snprintf(out, out_bytes, "onednn %d.%d.%d", version->major, version->minor, version->patch);
}

static bool isa_has(dnnl_cpu_isa_t isa)
{
    return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

const char *bp_gemm_isa(void)
{
    return isa_has(dnnl_cpu_isa_avx512_core_amx)    ? "amx"
           : isa_has(dnnl_cpu_isa_avx512_core_bf16) ? "avx512_bf16"
           : isa_has(dnnl_cpu_isa_avx512_core)      ? "avx512"
           : isa_has(dnnl_cpu_isa_avx2)             ? "avx2"
                                                    : "sse";
}

bool bp_gemm_has_bf16(void)
{
    return isa_has(dnnl_cpu_isa_avx512_core_bf16);
}

bp_bf16_form bp_gemm_bf16_form(void)
{
    return bp_cpu_bf16_form(isa_has(dnnl_cpu_isa_avx512_core_amx));
}

bp_err bp_gemm_new_form(bp_gemm **out, bp_precision precision, bp_bf16_form form)
{
    *out = NULL;
    if (precision == BP_BF16 && !bp_gemm_has_bf16())
        return BP_FAIL(
            BP_ERR_CONFIG,
            "math.precision, with the value bf16: this CPU has neither AMX nor AVX512_BF16; "
            "use auto or f32");
    bp_gemm *gemm = bp_fault("math.gemm") ? NULL : bp_alloc("math.gemm", 1, sizeof *gemm);
    if (!gemm)
        return BP_FAIL(BP_ERR_SYSTEM, "out of memory: for the matrix products");
    gemm->precision = precision;
    gemm->form = form;
    gemm->own = precision == BP_BF16 && form == BP_BF16_OWN ? bp_bf16_kernel_here() : NULL;
    /* oneDNN's AVX-512 kernels sum every row alike; its older ones differ in the last rows. */
    gemm->row_blocks = !isa_has(dnnl_cpu_isa_avx512_core);
    if (dnnl_engine_create(&gemm->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&gemm->stream, gemm->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
        bp_gemm_free(&gemm);
        return BP_FAIL(BP_ERR_SYSTEM, "oneDNN did not start: no CPU engine");
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
    bp_room_free(&old->scratchpad);
    for (int i = 0; i < BP_ROOMS; i++)
        bp_room_free(&old->rooms[i]);
    bp_room_free(&old->off_pages);
    bp_room_free(&old->tail);
    bp_free(old);
}

bp_precision bp_gemm_precision(const bp_gemm *gemm)
{
    return gemm->precision;
}

bp_operand_form bp_gemm_form(const bp_gemm *gemm)
{
    return gemm->precision == BP_F32       ? BP_OPERAND_F32
           : gemm->form != BP_BF16_ROUNDED ? BP_OPERAND_BF16
                                           : BP_OPERAND_ROUNDED;
}

bp_room *bp_gemm_room(bp_gemm *gemm, int which)
{
    return &gemm->rooms[which];
}

#ifdef BP_LOOPS_X86
const bp_bf16_tiles *bp_gemm_bf16_tiles(const bp_gemm *gemm)
{
    if (bp_gemm_type(gemm) != dnnl_bf16)
        return NULL;
    return isa_has(dnnl_cpu_isa_avx512_core_amx) ? &bp_bf16_tiles_amx : &bp_bf16_tiles_avx512;
}
#else
const bp_bf16_tiles *bp_gemm_bf16_tiles(const bp_gemm *gemm)
{
    (void)gemm;
    return NULL;
}
#endif

/* A copy in the layout that products of this shape choose, and the primitive that fills it. */
static void copy_make(copy *one, bp_gemm *gemm, const shape *s)
{
    bp_layout *plain;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_attr_t attributes = bp_product_attributes(s->what);

    bp_product_choices(&one->layout, NULL, gemm->engine, s, bp_gemm_type(gemm));
    bp_weights_plain(&plain, s->what, s->outs, s->ins, dnnl_f32);
    CHECK(bp_layout_memory(&one->from, plain, gemm->engine));
    CHECK(bp_layout_memory(&one->to, one->layout, gemm->engine));
    CHECK(bp_reorder_describe(&desc, gemm->engine, plain, one->layout, attributes));
    one->scratch_bytes = bp_scratchpad_of(&one->scratchpad, desc, gemm->engine);
    CHECK(dnnl_primitive_create(&one->reorder, desc));
    CHECK(dnnl_primitive_desc_destroy(desc));
    CHECK(dnnl_primitive_attr_destroy(attributes));
    bp_layout_free(&plain);
    one->data = bp_alloc("math.weight.copy", (int64_t)bp_layout_bytes(one->layout), 1);
    BP_NEED_MEMORY(one->data != NULL);
    CHECK(dnnl_memory_set_data_handle(one->to, one->data));
}

static void copy_refresh(copy *one, bp_gemm *gemm, const void *value)
{
    BP_TRACE(BP_TRACE_COPIES, 0, 0);
    CHECK(dnnl_memory_set_data_handle(one->from, (void *)value));
    CHECK(dnnl_memory_set_data_handle(one->scratchpad,
                                      bp_room_of(&gemm->scratchpad, one->scratch_bytes)));
    dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_FROM, one->from}, {DNNL_ARG_TO, one->to}, {DNNL_ARG_SCRATCHPAD, one->scratchpad}};
    CHECK(dnnl_primitive_execute(one->reorder, gemm->stream, 3, arguments));
    CHECK(dnnl_stream_wait(gemm->stream));
    one->fresh = true;
}

static void copy_clear(copy *one)
{
    if (one->reorder)
        CHECK(dnnl_primitive_destroy(one->reorder));
    if (one->from)
        CHECK(dnnl_memory_destroy(one->from));
    if (one->to)
        CHECK(dnnl_memory_destroy(one->to));
    if (one->scratchpad)
        CHECK(dnnl_memory_destroy(one->scratchpad));
    bp_layout_free(&one->layout);
    bp_free(one->data);
}

bp_err bp_weight_new(bp_weight **out, bp_gemm *gemm, const float *value, int64_t outs, int64_t ins)
{
    bp_weight *weight = bp_fault("math.weight") ? NULL : bp_alloc("math.weight", 1, sizeof *weight);

    *out = NULL;
    if (weight)
        weight->copies = bp_alloc("math.weight", 1, sizeof *weight->copies);
    if (!weight || !weight->copies) {
        bp_free(weight);
        return BP_FAIL(BP_ERR_SYSTEM, "out of memory: for a weight of %lld x %lld", (long long)outs,
                       (long long)ins);
    }
    weight->gemm = gemm;
    weight->value = value;
    weight->outs = outs;
    weight->ins = ins;
    *out = weight;
    return BP_OK;
}

void bp_weight_free(bp_weight **weight)
{
    bp_weight *old = *weight;

    *weight = NULL;
    if (!old)
        return;
    for (int i = 0; i < COPIES; i++)
        copy_clear(&old->copies->library[i]);
    bp_bf16_copies_clear(&old->copies->own);
    bp_free(old->copies);
    bp_free(old);
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
    for (int i = 0; i < COPIES; i++)
        weight->copies->library[i].fresh = false;
    bp_bf16_copies_refresh(&weight->copies->own);
}

size_t bp_weight_form_bytes(bp_precision precision, bp_bf16_form form, int64_t outs, int64_t ins)
{
    bool native = precision == BP_BF16 && form != BP_BF16_ROUNDED;
    dnnl_data_type_t type = native ? dnnl_bf16 : dnnl_f32;
    size_t element = native ? sizeof(uint16_t) : sizeof(float), bytes = 0;
    /* Layouts pad both sides to whole blocks, of 64 at most, our own of 32. */
    size_t padded = (size_t)(((outs + 63) / 64 * 64) * ((ins + 63) / 64 * 64)) * element;

    for (kind what = FORWARD; what <= BACKWARD_INPUT; what += BACKWARD_INPUT - FORWARD) {
        shape s = bp_shape_of(what, LAYOUT_ROWS, outs, ins, type);
        if (bp_weights_are_reordered(&s, type))
            bytes += padded;
    }
    if (precision == BP_BF16 && !native)
        bytes += (size_t)(outs * ins) * sizeof(float);
    return bytes;
}

/* The weight as it lies: its values, or a copy of them rounded, which both directions share. */
static const void *plain_values(const bp_weight *w)
{
    copy *one = &w->copies->library[PLAIN];
    size_t bytes = (size_t)(w->outs * w->ins) * sizeof(float);
    bp_room room = {one->data, one->data ? bytes : 0};

    if (w->gemm->precision == BP_F32)
        return w->value;
    if (!one->fresh) {
        one->data = bp_room_of(&room, bytes);
        bp_operand_fill(&(bp_operand){BP_OPERAND_ROUNDED, w->outs, w->ins, w->ins, one->data},
                        w->value);
    }
    one->fresh = true;
    return one->data;
}

/* The weight as products of this shape read it: made or refreshed where it has to be. */
static const void *weight_values(const bp_layout **layout, const bp_weight *w, const shape *s)
{
    bool native = bp_gemm_type(w->gemm) == dnnl_bf16,
         reordered = bp_weights_are_reordered(s, bp_gemm_type(w->gemm));
    copy *one = &w->copies->library[s->what == BACKWARD_INPUT ? BACKWARD_COPY : FORWARD_COPY];
    shape typical = bp_shape_of(s->what, LAYOUT_ROWS, s->outs, s->ins, bp_gemm_type(w->gemm));

    if (reordered && !one->data)
        copy_make(one, w->gemm, &typical);
    else if (!one->layout)
        bp_weights_plain(&one->layout, s->what, s->outs, s->ins, dnnl_f32);
    *layout = one->layout;
    if (!reordered)
        return plain_values(w);
    if (!one->fresh)
        copy_refresh(one, w->gemm, native ? (const void *)w->value : plain_values(w));
    return one->data;
}

typedef struct call {
    bp_gemm *gemm;
    const bp_weight *w;
    const float *bias;
    kind what;
    int64_t stride; /* of the rows that are multiplied */
} call;

/* y[rows] = source[rows] times the weight, in one product. */
static void multiply_at(const call *c, float *y, const void *source, int64_t rows)
{
    shape s = bp_shape_of(c->what, rows, c->w->outs, c->w->ins, bp_gemm_type(c->gemm));
    const bp_layout *layout;
    const void *weights = weight_values(&layout, c->w, &s);

    s.left_stride = c->stride;
    bp_product_run(c->gemm, bp_product_of(c->gemm, &s, layout), source, weights, c->bias, y);
}

static void multiply_rows(const void *context, float *y, const float *x, int64_t rows)
{
    multiply_at(context, y, x, rows);
}

static void multiply_own(const call *c, float *y, const bp_operand *x, int64_t y_columns)
{
    int direction = c->what == BACKWARD_INPUT ? BP_BF16_BACKWARD : BP_BF16_FORWARD;
    const uint32_t *panels = bp_bf16_copy_of(&c->w->copies->own, c->gemm->own, direction,
                                             c->w->value, c->w->outs, c->w->ins);

    bp_bf16_map(c->gemm->own, &c->gemm->scratchpad, y, x, panels, c->bias, y_columns);
}

static void multiply(const call *c, float *y, const bp_operand *x, int64_t y_columns)
{
    if (x->rows == 0)
        return;
    BP_ASSERT(x->form == bp_gemm_form(c->gemm));
    if (c->gemm->own)
        multiply_own(c, y, x, y_columns);
    else if (c->gemm->row_blocks && x->form != BP_OPERAND_BF16)
        bp_in_row_blocks(&(bp_rows){y, x->data, x->rows, y_columns, x->columns, x->stride},
                         &c->gemm->tail, multiply_rows, c);
    else
        multiply_at(c, y, x->data, x->rows);
}

void bp_linear_forward_operand(bp_gemm *gemm, float *y, const bp_operand *x, const bp_weight *w,
                               const float *bias)
{
    BP_TRACE(BP_TRACE_PRODUCT_FORWARD, 2.0 * (double)(x->rows * w->outs * w->ins), 0);
    BP_ASSERT(x->columns == w->ins);
    multiply(&(call){gemm, w, bias, bias ? FORWARD_BIAS : FORWARD, x->stride}, y, x, w->outs);
}

void bp_linear_backward_input_operand(bp_gemm *gemm, float *dx, const bp_operand *dy,
                                      const bp_weight *w)
{
    BP_TRACE(BP_TRACE_PRODUCT_INPUT, 2.0 * (double)(dy->rows * w->outs * w->ins), 0);
    BP_ASSERT(dy->columns == w->outs);
    multiply(&(call){gemm, w, NULL, BACKWARD_INPUT, dy->stride}, dx, dy, w->ins);
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
    out.data = bp_room_of(&gemm->off_pages, bytes);
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
    if (gemm->own) {
        bp_bf16_weight_gradient(gemm->own, &gemm->scratchpad, dw, dy, x, fresh);
        return;
    }
    bp_operand right = off_pages(gemm, x);
    s.left_stride = dy->stride;
    s.right_stride = right.stride;
    bp_product_run(gemm, bp_product_of(gemm, &s, NULL), dy->data, right.data, NULL, dw);
}

size_t bp_linear_form_scratch_bytes(bp_precision precision, bp_bf16_form way, int64_t rows,
                                    int64_t outs, int64_t ins)
{
    static const kind kinds[] = {FORWARD_BIAS, BACKWARD_INPUT, BACKWARD_WEIGHT,
                                 BACKWARD_WEIGHT_ADDED};
    bp_gemm *gemm;
    size_t most = 0, bytes;

    if (rows == 0 || bp_gemm_new_form(&gemm, precision, way) != BP_OK)
        return 0;
    dnnl_data_type_t type = bp_gemm_type(gemm);
    bp_operand_form form = bp_gemm_form(gemm);
    if (gemm->own)
        most = bp_bf16_room_bytes(gemm->own, rows, outs, ins);
    for (int i = 0; i < 4 && !gemm->own; i++) {
        bool blocks = gemm->row_blocks && i < 2;
        shape s = bp_shape_of(kinds[i], blocks ? BP_ROW_BLOCK : rows, outs, ins, type);
        bp_product_choices(NULL, &bytes, gemm->engine, &s, type);
        most = bytes > most ? bytes : most;
    }
    size_t tail = gemm->row_blocks ? (size_t)(BP_ROW_BLOCK * (outs + ins)) * sizeof(float) : 0;
    if (precision == BP_BF16)
        most += bp_operand_bytes(form, rows, ins > outs ? ins : outs) +
                bp_operand_bytes(form, rows, ins);
    if (bp_row_stride(type, ins) != ins)
        most += (size_t)(rows * bp_row_stride(type, ins)) * sizeof(float);
    bp_gemm_free(&gemm);
    return most + tail;
}
