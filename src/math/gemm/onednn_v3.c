/* oneDNN 3.x: a memory descriptor is a handle; primitive descriptors are made in one call. */
#include "base/mem.h"
#include "math/gemm/onednn_priv.h"

struct bp_layout {
    dnnl_memory_desc_t desc;
};

static bp_layout *new_layout(void)
{
    return bp_alloc("math.gemm", 1, sizeof(bp_layout));
}

dnnl_status_t bp_layout_new(bp_layout **out, int64_t rows, int64_t columns, dnnl_data_type_t type,
                            int64_t row_stride, int64_t column_stride)
{
    dnnl_dims_t dims = {rows, columns}, strides = {row_stride, column_stride};

    *out = new_layout();
    return *out ? dnnl_memory_desc_create_with_strides(&(*out)->desc, 2, dims, type, strides)
                : dnnl_out_of_memory;
}

dnnl_status_t bp_layout_new_tag(bp_layout **out, int64_t rows, int64_t columns,
                                dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_dims_t dims = {rows, columns};

    *out = new_layout();
    return *out ? dnnl_memory_desc_create_with_tag(&(*out)->desc, 2, dims, type, tag)
                : dnnl_out_of_memory;
}

dnnl_status_t bp_layout_new_query(bp_layout **out, const_dnnl_primitive_desc_t primitive,
                                  dnnl_query_t which)
{
    const_dnnl_memory_desc_t desc = dnnl_primitive_desc_query_md(primitive, which, 0);

    *out = new_layout();
    if (!*out)
        return dnnl_out_of_memory;
    return desc ? dnnl_memory_desc_clone(&(*out)->desc, desc) : dnnl_success;
}

void bp_layout_free(bp_layout **layout)
{
    if (*layout && (*layout)->desc)
        dnnl_memory_desc_destroy((*layout)->desc);
    bp_free(*layout);
    *layout = NULL;
}

bool bp_layout_equal(const bp_layout *a, const bp_layout *b)
{
    return dnnl_memory_desc_equal(a->desc, b->desc) != 0;
}

size_t bp_layout_bytes(const bp_layout *layout)
{
    return layout->desc ? dnnl_memory_desc_get_size(layout->desc) : 0;
}

dnnl_status_t bp_layout_memory(dnnl_memory_t *out, const bp_layout *layout, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, layout->desc, engine, DNNL_MEMORY_NONE);
}

dnnl_status_t bp_matmul_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const bp_matmul_layouts *layouts,
                                 const_dnnl_primitive_attr_t attributes)
{
    return dnnl_matmul_primitive_desc_create(
        out, engine, layouts->source->desc, layouts->weights->desc,
        layouts->bias ? layouts->bias->desc : NULL, layouts->destination->desc, attributes);
}

dnnl_status_t bp_reorder_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const bp_layout *from, const bp_layout *to,
                                  const_dnnl_primitive_attr_t attributes)
{
    return dnnl_reorder_primitive_desc_create(out, from->desc, engine, to->desc, engine,
                                              attributes);
}

dnnl_status_t bp_post_ops_add_sum(dnnl_post_ops_t operations)
{
    return dnnl_post_ops_append_sum(operations, 1.0f, 0, dnnl_data_type_undef);
}
