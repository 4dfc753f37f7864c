/* Weights, as the products of oneDNN and our own read them.
 *
 * bf16 products read a copy of the weight for each direction, in the layout that the library or
 * our own kernels ask for. Copies are refreshed at the first use after a change: by our own
 * packing, which reads the values once for both directions, if it knows the layout, else by the
 * library's reorder (half as fast or less: bench_gemm). With forward products only, the forward
 * copy is made at the refresh, and the values may be freed.
 *
 * Float32 products read the values in place, or, in rounded bf16, one rounded copy. But a matrix
 * whose row stride is a whole number of pages is reordered for the backward direction, in a
 * workspace that all weights share, unless the previous product used the same weight. Permanent
 * copies would take as much memory as the weights (docs/measurements/memory.md).
 */
#include "base/fault.h"
#include "base/trace.h"
#include "math/gemm/onednn_product_priv.h"

#define LAYOUT_ROWS 1024 /* weights are laid out for products of this many rows */

/* What oneDNN 2.6.3 chooses for bf16 weights of more than 48 columns: panels like those of our
 * packing, with this many columns. */
#define LIBRARY_PANELS  dnnl_BA16a64b2a
#define LIBRARY_COLUMNS 64

/* A weight as one direction's products of the library read it. */
typedef struct copy {
    bp_layout *layout;
    bool packed; /* by our own packing: all below is empty */
    dnnl_primitive_t
        reorder; /* float32 in its own layout -> this layout; NULL if read in its own layout */
    dnnl_memory_t from, to, scratchpad;
    size_t scratch_bytes;
    bool staged; /* in the shared workspace */
    void *data;  /* NULL: not made yet, or not needed */
    bool fresh;
} copy;

enum { FORWARD_COPY, BACKWARD_COPY, PLAIN, COPIES };

typedef struct weight_copies {
    copy library[COPIES];
    bp_bf16_copies packed;
} weight_copies;

struct bp_weight {
    bp_gemm *gemm;
    const float *value;
    int64_t outs, ins;
    weight_copies *copies;
    bp_q8_weights *q8; /* bp_gemm_hold_q8; else NULL */
};

/* Does the library read our packing's layout? */
static bool is_packed(const bp_gemm *gemm, const bp_layout *layout, const shape *s)
{
    int64_t K = s->what == BACKWARD_INPUT ? s->outs : s->ins,
            N = s->what == BACKWARD_INPUT ? s->ins : s->outs;
    bp_layout *panels;

    if (!gemm->kernel || bp_gemm_type(gemm) != dnnl_bf16)
        return false;
    CHECK(bp_layout_new_tag(&panels, K, N, dnnl_bf16, LIBRARY_PANELS));
    bool same = bp_layout_equal(panels, layout);
    bp_layout_free(&panels);
    return same;
}

/* A copy in the layout that products of this shape choose, and the primitive that fills it. */
static void copy_make(copy *one, bp_gemm *gemm, const shape *s)
{
    bp_layout *plain;
    dnnl_primitive_desc_t desc;

    bp_product_choices(&one->layout, NULL, gemm->engine, s, bp_gemm_type(gemm));
    one->packed = is_packed(gemm, one->layout, s);
    if (one->packed)
        return;
    dnnl_primitive_attr_t attributes = bp_product_attributes(s->what);
    bp_weights_plain(&plain, s->what, s->outs, s->ins, dnnl_f32);
    CHECK(bp_layout_memory(&one->from, plain, gemm->engine));
    CHECK(bp_layout_memory(&one->to, one->layout, gemm->engine));
    CHECK(bp_reorder_describe(&desc, gemm->engine, plain, one->layout, attributes));
    one->scratch_bytes = bp_scratchpad_of(&one->scratchpad, desc, gemm->engine);
    CHECK(dnnl_primitive_create(&one->reorder, desc));
    CHECK(dnnl_primitive_desc_destroy(desc));
    CHECK(dnnl_primitive_attr_destroy(attributes));
    bp_layout_free(&plain);
    one->staged = bp_gemm_type(gemm) == dnnl_f32;
    if (one->staged)
        return;
    one->data = bp_alloc("math.weight.copy", (int64_t)bp_layout_bytes(one->layout), 1);
    CHECK(dnnl_memory_set_data_handle(one->to, one->data));
}

/* Give a staged copy the shared workspace, which overwrites the copy that was there. */
static void copy_stage(copy *one, bp_gemm *gemm)
{
    one->data = bp_workspace_of(&gemm->staged, bp_layout_bytes(one->layout));
    CHECK(dnnl_memory_set_data_handle(one->to, one->data));
    gemm->staged_copy = one;
    one->fresh = false;
}

static void copy_refresh(copy *one, bp_gemm *gemm, const void *value)
{
    BP_TRACE(BP_TRACE_COPIES, 0, 0);
    CHECK(dnnl_memory_set_data_handle(one->from, (void *)value));
    CHECK(dnnl_memory_set_data_handle(one->scratchpad,
                                      bp_workspace_of(&gemm->scratchpad, one->scratch_bytes)));
    dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_FROM, one->from}, {DNNL_ARG_TO, one->to}, {DNNL_ARG_SCRATCHPAD, one->scratchpad}};
    CHECK(dnnl_primitive_execute(one->reorder, gemm->stream, 3, arguments));
    CHECK(dnnl_stream_wait(gemm->stream));
    one->fresh = true;
}

static void copy_clear(copy *one, bp_gemm *gemm)
{
    if (gemm->staged_copy == one)
        gemm->staged_copy = NULL;
    if (one->reorder)
        CHECK(dnnl_primitive_destroy(one->reorder));
    if (one->from)
        CHECK(dnnl_memory_destroy(one->from));
    if (one->to)
        CHECK(dnnl_memory_destroy(one->to));
    if (one->scratchpad)
        CHECK(dnnl_memory_destroy(one->scratchpad));
    bp_layout_free(&one->layout);
    if (!one->staged)
        bp_free(one->data);
}

bp_err bp_weight_new(bp_weight **out, bp_gemm *gemm, const float *value, int64_t outs, int64_t ins)
{
    bp_weight *weight = bp_fault("math.weight") ? NULL : bp_alloc("math.weight", 1, sizeof *weight);

    *out = NULL;
    if (!weight)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "out of memory: for a weight of %lld x %lld",
                       (long long)outs, (long long)ins);
    weight->copies = bp_alloc("math.weight", 1, sizeof *weight->copies);
    weight->copies->packed.columns = gemm->form == BP_BF16_OWN ? BP_BF16_COLUMNS : LIBRARY_COLUMNS;
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
        copy_clear(&old->copies->library[i], old->gemm);
    bp_bf16_copies_clear(&old->copies->packed);
    bp_free(old->copies);
    bp_free(old->q8);
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

/* Layouts pad both sides to whole blocks, of 64 at most. */
static size_t padded_elements(int64_t outs, int64_t ins)
{
    return (size_t)((outs + 63) / 64 * 64) * (size_t)((ins + 63) / 64 * 64);
}

size_t bp_weight_form_bytes(const bp_gemm_kind *of, int64_t outs, int64_t ins)
{
    if (of->q8)
        return bp_q8_bytes(outs, ins);
    if (of->precision == BP_F32)
        return 0;
    if (of->form == BP_BF16_ROUNDED)
        return (size_t)(outs * ins) * sizeof(float);
    return (of->forward_only ? 1 : 2) * padded_elements(outs, ins) * sizeof(uint16_t);
}

size_t bp_weight_staged_bytes(int64_t outs, int64_t ins)
{
    return padded_elements(outs, ins) * sizeof(float);
}

/* The weight in its own layout: its values, or a rounded copy, shared by both directions. */
static const void *plain_values(const bp_weight *w)
{
    copy *one = &w->copies->library[PLAIN];
    size_t bytes = (size_t)(w->outs * w->ins) * sizeof(float);
    bp_workspace workspace = {one->data, one->data ? bytes : 0};

    if (w->gemm->precision == BP_F32)
        return w->value;
    if (!one->fresh) {
        one->data = bp_workspace_of(&workspace, bytes);
        bp_operand_fill(&(bp_operand){BP_OPERAND_ROUNDED, w->outs, w->ins, w->ins, one->data},
                        w->value);
    }
    one->fresh = true;
    return one->data;
}

const bp_q8_weights *bp_weight_q8(const bp_weight *w)
{
    return w->q8;
}

const float *bp_weight_plain(const bp_weight *w)
{
    return plain_values(w);
}

const uint32_t *bp_weight_panels(const bp_weight *w, bool backward)
{
    return bp_bf16_copy_of(&w->copies->packed, w->gemm->kernel,
                           backward ? BP_BF16_BACKWARD : BP_BF16_FORWARD, w->value, w->outs,
                           w->ins);
}

const void *bp_weight_values(const bp_layout **layout, const bp_weight *w, const shape *s)
{
    bool native = bp_gemm_type(w->gemm) == dnnl_bf16,
         reordered = bp_weights_are_reordered(s, bp_gemm_type(w->gemm));
    copy *one = &w->copies->library[s->what == BACKWARD_INPUT ? BACKWARD_COPY : FORWARD_COPY];
    shape typical = bp_shape_of(s->what, LAYOUT_ROWS, s->outs, s->ins, bp_gemm_type(w->gemm));

    if (reordered && !one->layout)
        copy_make(one, w->gemm, &typical);
    else if (!one->layout)
        bp_weights_plain(&one->layout, s->what, s->outs, s->ins, dnnl_f32);
    *layout = one->layout;
    if (!reordered)
        return plain_values(w);
    if (one->packed)
        return bp_weight_panels(w, s->what == BACKWARD_INPUT);
    if (one->staged && w->gemm->staged_copy != one)
        copy_stage(one, w->gemm);
    if (!one->fresh)
        copy_refresh(one, w->gemm, native ? (const void *)w->value : plain_values(w));
    return one->data;
}

/* Makes the copy that forward products read. */
static void keep_forward(bp_weight *w)
{
    shape s = bp_shape_of(FORWARD, LAYOUT_ROWS, w->outs, w->ins, bp_gemm_type(w->gemm));
    const bp_layout *layout;

    bp_free(w->q8);
    w->q8 = NULL;
    if (w->gemm->q8)
        w->q8 = bp_q8_new(w->value, w->outs, w->ins);
    else if (w->gemm->form == BP_BF16_OWN && w->gemm->kernel)
        (void)bp_weight_panels(w, false);
    else
        (void)bp_weight_values(&layout, w, &s);
    w->value = NULL;
}

void bp_weight_refresh(bp_weight *weight)
{
    for (int i = 0; i < COPIES; i++)
        weight->copies->library[i].fresh = false;
    bp_bf16_copies_refresh(&weight->copies->packed);
    if (weight->gemm->forward_only && (weight->gemm->precision != BP_F32 || weight->gemm->q8))
        keep_forward(weight);
}
