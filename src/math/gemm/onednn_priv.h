/* The parts of oneDNN's C API that differ between 2.x (onednn_v2.c) and 3.x (onednn_v3.c): memory
 * descriptors, and how primitives are described. Everything returns a dnnl_status_t. */
#pragma once

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** How a matrix is laid out in memory: a structure in 2.x, a handle in 3.x. Heap; bp_layout_free.
 */
typedef struct bp_layout bp_layout;

dnnl_status_t bp_layout_new(bp_layout **out, int64_t rows, int64_t columns, dnnl_data_type_t type,
                            int64_t row_stride, int64_t column_stride);
/** By the name of a format; dnnl_format_tag_any: the primitive chooses. */
dnnl_status_t bp_layout_new_tag(bp_layout **out, int64_t rows, int64_t columns,
                                dnnl_data_type_t type, dnnl_format_tag_t tag);
/** What a primitive chose (dnnl_query_weights_md), or needs (dnnl_query_scratchpad_md). */
dnnl_status_t bp_layout_new_query(bp_layout **out, const_dnnl_primitive_desc_t primitive,
                                  dnnl_query_t which);
bool bp_layout_equal(const bp_layout *a, const bp_layout *b);
void bp_layout_free(bp_layout **layout);
size_t bp_layout_bytes(const bp_layout *layout);
/** A memory object without data. */
dnnl_status_t bp_layout_memory(dnnl_memory_t *out, const bp_layout *layout, dnnl_engine_t engine);

/** destination = source weights + bias (NULL: none) */
typedef struct bp_matmul_layouts {
    bp_layout *source, *weights, *bias, *destination;
} bp_matmul_layouts;
dnnl_status_t bp_matmul_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                 const bp_matmul_layouts *layouts,
                                 const_dnnl_primitive_attr_t attributes);
dnnl_status_t bp_reorder_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const bp_layout *from, const bp_layout *to,
                                  const_dnnl_primitive_attr_t attributes);
/** The result is added to the destination. */
dnnl_status_t bp_post_ops_add_sum(dnnl_post_ops_t operations);
