/* Products of oneDNN's matmul primitive: created once for each (kind, shape, threads) and cached
 * in the bp_gemm. */
#pragma once

#include "base/err.h"
#include "math/bf16/bf16_linear.h"
#include "math/gemm/f32_gemm.h"
#include "math/gemm/linear_parts.h"
#include "math/gemm/onednn_priv.h"
#include "math/gemm/q8_priv.h"
#include <stdbool.h>

/* A failure here is our bug, since shapes were checked; or out of memory, since the plan does not
 * count descriptions. */
#define CHECK(call) check_dnnl((call), #call, __FILE__, __LINE__)

static inline void check_dnnl(dnnl_status_t status, const char *call, const char *file, int line)
{
    if (status == dnnl_out_of_memory)
        bp_memory_ended(call, 1, 0);
    if (status != dnnl_success)
        bp_assert_failed(call, file, line);
}

#define PRODUCTS 128 /* kept; the least recently used one goes */

/* The second of the weight gradients accumulates. */
typedef enum kind {
    FORWARD,
    FORWARD_BIAS,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    BACKWARD_WEIGHT_ADDED
} kind;

typedef struct shape {
    kind what;
    int64_t rows, outs, ins;
    int threads;
    int64_t left_stride, right_stride; /* elements from row to row of the operands; only the right
                                          one of weight gradients */
    bool halves;                       /* results in bf16 */
} shape;

typedef enum operand { SOURCE, WEIGHTS, BIAS, DESTINATION, SCRATCHPAD, OPERANDS } operand;

/* A primitive with its memory objects. */
typedef struct product {
    shape shape;
    dnnl_primitive_t primitive; /* NULL: the place is free */
    dnnl_memory_t memory[OPERANDS];
    size_t scratch_bytes;
    int64_t last_use;
} product;

struct bp_gemm {
    bp_precision precision;
    bp_bf16_form form;
    const bp_bf16_kernel
        *kernel; /* our own kernels, if they make some of the products or copies; or NULL */
    const bp_f32_kernel *floats; /* our own float32 kernels; NULL: the library's */
    bool row_blocks;             /* the library picks kernels by the number of rows */
    bool warned;                 /* about products in plain loops */
    bool few_rows;               /* bp_gemm_take_few_rows */
    bool forward_only;
    bool q8; /* bp_gemm_hold_q8 */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    product products[PRODUCTS];
    int64_t uses;
    bp_workspace scratchpad, workspaces[BP_WORKSPACES], off_pages, tail;
    bp_workspace staged;     /* the last weight reordered for float32 products ... */
    const void *staged_copy; /* ... and the copy whose data it holds; may be NULL */
};

/** The row stride, in floats, of a matrix of `columns` for fast reading row by row. */
int64_t bp_row_stride(dnnl_data_type_t type, int64_t columns);

/** The type of the operands as oneDNN sees them. */
dnnl_data_type_t bp_gemm_type(const bp_gemm *gemm);

/** A product of operands that are laid out as by bp_operand_alloc. */
shape bp_shape_of(kind what, int64_t rows, int64_t outs, int64_t ins, dnnl_data_type_t type);
dnnl_primitive_attr_t bp_product_attributes(kind what);
/** The matrix that a product multiplies by, Wt[ins][outs] or W[outs][ins], as it is stored. */
void bp_weights_plain(bp_layout **out, kind what, int64_t outs, int64_t ins, dnnl_data_type_t type);
/** Forward and backward products of this shape read the weight in a layout of their own choice, not
 * as it is stored. */
bool bp_weights_are_reordered(const shape *s, dnnl_data_type_t type);
/** The layout that products of this shape choose for their weights, and the bytes of their
 * scratchpad (NULL: not wanted). */
void bp_product_choices(bp_layout **weights, size_t *scratch_bytes, dnnl_engine_t engine,
                        const shape *s, dnnl_data_type_t type);

/** The memory object of a primitive's scratchpad, and its bytes. */
size_t bp_scratchpad_of(dnnl_memory_t *out, const_dnnl_primitive_desc_t desc, dnnl_engine_t engine);

/** The product of a shape, created if it is new, replacing the least recently used one. `weights`
 * is NULL for weight gradients; it must be the same for every product of one shape. */
product *bp_product_of(bp_gemm *gemm, const shape *s, const bp_layout *weights);
void bp_product_run(bp_gemm *gemm, product *one, const void *source, const void *weights,
                    const float *bias, void *destination);
void bp_product_clear(product *one);

/** The weight as products of this shape read it, and its layout: created or refreshed if needed. */
const void *bp_weight_values(const bp_layout **layout, const bp_weight *w, const shape *s);
/** A weight of bp_gemm_hold_q8. */
const bp_q8_weights *bp_weight_q8(const bp_weight *w);
/** A float32 weight [outs][ins] in its own layout: its values, or a rounded copy. */
const float *bp_weight_plain(const bp_weight *w);
/** Bytes of a float32 weight that is reordered for its backward products, while they run. */
size_t bp_weight_staged_bytes(int64_t outs, int64_t ins);
/** The same for our own products. */
const uint32_t *bp_weight_panels(const bp_weight *w, bool backward);
