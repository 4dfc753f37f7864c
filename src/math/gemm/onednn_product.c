/* Primitives of matrix products: description, cache, execution. The math mode is strict: float32
 * means float32. */
#include "base/log.h"
#include "math/gemm/onednn_product_priv.h"
#include "math/math.h"
#include <omp.h>
#include <string.h>

dnnl_data_type_t bp_gemm_type(const bp_gemm *gemm)
{
    return gemm->precision == BP_BF16 && gemm->form != BP_BF16_ROUNDED ? dnnl_bf16 : dnnl_f32;
}

int64_t bp_row_stride(dnnl_data_type_t type, int64_t columns)
{
    return type == dnnl_f32 && columns % 1024 == 0 ? columns + 16 : columns;
}

shape bp_shape_of(kind what, int64_t rows, int64_t outs, int64_t ins, dnnl_data_type_t type)
{
    int64_t left = what == FORWARD || what == FORWARD_BIAS ? ins : outs;

    return (shape){what, rows, outs, ins, omp_get_max_threads(), left, bp_row_stride(type, ins),
                   false};
}

bool bp_weights_are_reordered(const shape *s, dnnl_data_type_t type)
{
    return type == dnnl_bf16 ||
           (s->what == BACKWARD_INPUT && bp_row_stride(type, s->ins) != s->ins);
}

void bp_weights_plain(bp_layout **out, kind what, int64_t outs, int64_t ins, dnnl_data_type_t type)
{
    if (what == BACKWARD_INPUT)
        CHECK(bp_layout_new(out, outs, ins, type, ins, 1));
    else
        CHECK(bp_layout_new(out, ins, outs, type, 1, ins));
}

static void weights_any(bp_layout **out, kind what, int64_t outs, int64_t ins,
                        dnnl_data_type_t type)
{
    if (what == BACKWARD_INPUT)
        CHECK(bp_layout_new_tag(out, outs, ins, type, dnnl_format_tag_any));
    else
        CHECK(bp_layout_new_tag(out, ins, outs, type, dnnl_format_tag_any));
}

/* All but the weights of a forward or backward product. */
static void make_layouts(bp_matmul_layouts *layouts, const shape *s, dnnl_data_type_t type)
{
    dnnl_data_type_t to = s->halves ? dnnl_bf16 : dnnl_f32;

    switch (s->what) {
    case FORWARD_BIAS:
        CHECK(bp_layout_new(&layouts->bias, 1, s->outs, dnnl_f32, s->outs, 1));
        /* fall through */
    case FORWARD:
        CHECK(bp_layout_new(&layouts->source, s->rows, s->ins, type, s->left_stride, 1));
        CHECK(bp_layout_new(&layouts->destination, s->rows, s->outs, to, s->outs, 1));
        break;
    case BACKWARD_INPUT:
        CHECK(bp_layout_new(&layouts->source, s->rows, s->outs, type, s->left_stride, 1));
        CHECK(bp_layout_new(&layouts->destination, s->rows, s->ins, to, s->ins, 1));
        break;
    case BACKWARD_WEIGHT:
    case BACKWARD_WEIGHT_ADDED:
        CHECK(bp_layout_new(&layouts->source, s->outs, s->rows, type, 1, s->left_stride));
        CHECK(bp_layout_new(&layouts->weights, s->rows, s->ins, type, s->right_stride, 1));
        CHECK(bp_layout_new(&layouts->destination, s->outs, s->ins, dnnl_f32, s->ins, 1));
        break;
    }
}

static void free_layouts(bp_matmul_layouts *layouts)
{
    bp_layout_free(&layouts->source);
    bp_layout_free(&layouts->weights);
    bp_layout_free(&layouts->bias);
    bp_layout_free(&layouts->destination);
}

dnnl_primitive_attr_t bp_product_attributes(kind what)
{
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t post_ops;

    CHECK(dnnl_primitive_attr_create(&attributes));
    CHECK(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    CHECK(dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict));
    if (what == BACKWARD_WEIGHT_ADDED) {
        CHECK(dnnl_post_ops_create(&post_ops));
        CHECK(bp_post_ops_add_sum(post_ops));
        CHECK(dnnl_primitive_attr_set_post_ops(attributes, post_ops));
        CHECK(dnnl_post_ops_destroy(post_ops));
    }
    return attributes;
}

static dnnl_primitive_desc_t describe(dnnl_engine_t engine, const bp_matmul_layouts *layouts,
                                      kind what)
{
    dnnl_primitive_attr_t attributes = bp_product_attributes(what);
    dnnl_primitive_desc_t desc;

    CHECK(bp_matmul_describe(&desc, engine, layouts, attributes));
    CHECK(dnnl_primitive_attr_destroy(attributes));
    return desc;
}

size_t bp_scratchpad_of(dnnl_memory_t *out, const_dnnl_primitive_desc_t desc, dnnl_engine_t engine)
{
    bp_layout *layout;

    CHECK(bp_layout_new_query(&layout, desc, dnnl_query_scratchpad_md));
    size_t bytes = bp_layout_bytes(layout);
    CHECK(bp_layout_memory(out, layout, engine));
    bp_layout_free(&layout);
    return bytes;
}

void bp_product_choices(bp_layout **weights, size_t *scratch_bytes, dnnl_engine_t engine,
                        const shape *s, dnnl_data_type_t type)
{
    bp_matmul_layouts layouts = {0};
    dnnl_memory_t scratchpad;

    make_layouts(&layouts, s, type);
    if (!layouts.weights && bp_weights_are_reordered(s, type))
        weights_any(&layouts.weights, s->what, s->outs, s->ins, type);
    else if (!layouts.weights)
        bp_weights_plain(&layouts.weights, s->what, s->outs, s->ins, type);
    dnnl_primitive_desc_t desc = describe(engine, &layouts, s->what);
    if (weights)
        CHECK(bp_layout_new_query(weights, desc, dnnl_query_weights_md));
    if (scratch_bytes) {
        *scratch_bytes = bp_scratchpad_of(&scratchpad, desc, engine);
        CHECK(dnnl_memory_destroy(scratchpad));
    }
    CHECK(dnnl_primitive_desc_destroy(desc));
    free_layouts(&layouts);
}

/* If no kernel supports a product, oneDNN uses plain loops: ref:any, or gemm:ref on CPUs without
 * any kernel. */
static void warn_of_plain_loops(bp_gemm *gemm, const_dnnl_primitive_desc_t desc, const shape *s)
{
    const char *name = NULL;

    CHECK(dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name));
    if (gemm->warned || !name || (strncmp(name, "ref:", 4) != 0 && !strstr(name, ":ref")))
        return;
    gemm->warned = true;
    BP_WARN(
        "math.slow_product",
        "products of this shape may take a hundred times as long as others: %lld rows (%lld and "
        "%lld elements apart), %lld outputs, %lld inputs, which %s multiplies in plain loops "
        "(%s); another library, or another shape, helps",
        (long long)s->rows, (long long)s->left_stride, (long long)s->right_stride,
        (long long)s->outs, (long long)s->ins, bp_math_library(), name);
}

static void product_make(bp_gemm *gemm, product *one, const shape *s, const bp_layout *weights)
{
    bp_matmul_layouts layouts = {0};

    make_layouts(&layouts, s, bp_gemm_type(gemm));
    bp_matmul_layouts all = layouts;
    if (weights)
        all.weights = (bp_layout *)weights; /* borrowed */
    const bp_layout *operands[] = {all.source, all.weights, all.bias, all.destination};
    dnnl_primitive_desc_t desc = describe(gemm->engine, &all, s->what);
    warn_of_plain_loops(gemm, desc, s);
    for (int i = SOURCE; i <= DESTINATION; i++)
        if (operands[i])
            CHECK(bp_layout_memory(&one->memory[i], operands[i], gemm->engine));
    one->scratch_bytes = bp_scratchpad_of(&one->memory[SCRATCHPAD], desc, gemm->engine);
    CHECK(dnnl_primitive_create(&one->primitive, desc));
    CHECK(dnnl_primitive_desc_destroy(desc));
    one->shape = *s;
    free_layouts(&layouts);
}

void bp_product_clear(product *one)
{
    for (int i = 0; i < OPERANDS; i++)
        if (one->memory[i])
            CHECK(dnnl_memory_destroy(one->memory[i]));
    if (one->primitive)
        CHECK(dnnl_primitive_destroy(one->primitive));
    memset(one, 0, sizeof *one);
}

static bool shape_equal(const shape *a, const shape *b)
{
    return a->what == b->what && a->rows == b->rows && a->outs == b->outs && a->ins == b->ins &&
           a->threads == b->threads && a->left_stride == b->left_stride &&
           a->right_stride == b->right_stride && a->halves == b->halves;
}

product *bp_product_of(bp_gemm *gemm, const shape *s, const bp_layout *weights)
{
    product *oldest = &gemm->products[0];

    gemm->uses++;
    for (int i = 0; i < PRODUCTS; i++) {
        product *one = &gemm->products[i];
        if (one->primitive && shape_equal(&one->shape, s)) {
            one->last_use = gemm->uses;
            return one;
        }
        if (one->last_use < oldest->last_use)
            oldest = one;
    }
    bp_product_clear(oldest);
    product_make(gemm, oldest, s, weights);
    oldest->last_use = gemm->uses;
    return oldest;
}

void bp_product_run(bp_gemm *gemm, product *one, const void *source, const void *weights,
                    const float *bias, void *destination)
{
    static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST,
                                        DNNL_ARG_SCRATCHPAD};
    void *data[OPERANDS] = {(void *)source, (void *)weights, (void *)bias, destination,
                            bp_workspace_of(&gemm->scratchpad, one->scratch_bytes)};
    dnnl_exec_arg_t arguments[OPERANDS];
    int count = 0;

    for (int i = 0; i < OPERANDS; i++) {
        if (!one->memory[i])
            continue;
        CHECK(dnnl_memory_set_data_handle(one->memory[i], data[i]));
        arguments[count++] = (dnnl_exec_arg_t){names[i], one->memory[i]};
    }
    CHECK(dnnl_primitive_execute(one->primitive, gemm->stream, count, arguments));
    CHECK(dnnl_stream_wait(gemm->stream));
}
