/* oneDNN 2.x: a memory descriptor is a structure; an operation descriptor comes before the
 * primitive descriptor. */
#include "base/mem.h"
#include "math/gemm/onednn_priv.h"

struct bp_layout {
    dnnl_memory_desc_t desc;
};

dnnl_status_t bp_layout_new(bp_layout **out, int64_t rows, int64_t columns, dnnl_data_type_t type,
                            int64_t row_stride, int64_t column_stride)
{
    dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};

    *out = bp_alloc("math.gemm", 1, sizeof **out);
    return *out ? dnnl_memory_desc_init_by_strides(&(*out)->desc, 2, dims, type, strides)
                : dnnl_out_of_memory;
}

dnnl_status_t bp_layout_new_tag(bp_layout **out, int64_t rows, int64_t columns,
                                dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_dims_t dims = {rows, columns};

    *out = bp_alloc("math.gemm", 1, sizeof **out);
    return *out ? dnnl_memory_desc_init_by_tag(&(*out)->desc, 2, dims, type, tag)
                : dnnl_out_of_memory;
}

dnnl_status_t bp_layout_new_query(bp_layout **out, const_dnnl_primitive_desc_t primitive,
                                  dnnl_query_t which)
{
    const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(primitive, which, 0);

    *out = bp_alloc("math.gemm", 1, sizeof **out);
    if (desc)
        (*out)->desc = *desc;
    return dnnl_success;
}

void bp_layout_free(bp_layout **layout)
{
    bp_free(*layout);
    *layout = NULL;
}

bool bp_layout_equal(const bp_layout *a, const bp_layout *b)
{
    return dnnl_memory_desc_equal(&a->desc, &b->desc) != 0;
}

size_t bp_layout_bytes(const bp_layout *layout)
{
    return dnnl_memory_desc_get_size(&layout->desc);
}

dnnl_status_t bp_layout_memory(dnnl_memory_t *out, const bp_layout *layout, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, &layout->desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t bp_matmul_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const bp_matmul_layouts *layouts,
                                 const_dnnl_primitive_attr_t attributes)
{
    dnnl_matmul_desc_t operation;
    dnnl_status_t status = dnnl_matmul_desc_init(
        &operation, &layouts->source->desc, &layouts->weights->desc,
        layouts->bias ? &layouts->bias->desc : NULL, &layouts->destination->desc);

    return status == dnnl_success
               ? dnnl_primitive_desc_create(out, &operation, attributes, engine, NULL)
               : status;
}

dnnl_status_t bp_reorder_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const bp_layout *from, const bp_layout *to,
                                  const_dnnl_primitive_attr_t attributes)
{
    return dnnl_reorder_primitive_desc_create(out, &from->desc, engine, &to->desc, engine,
                                              attributes);
}

dnnl_status_t bp_post_ops_add_sum(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_sum(operations, 1.0f);
}
