/* The tensors of GPT-2, theirs and ours. */
#include "io/huggingface/hf_gpt2_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYER_TENSORS 12
#define BLOCK         32 /* a transposition walks squares, so that both sides stay in the cache */

/* Of one layer, in the order of their files; W is the width. `rows` and `columns` in widths, 0: a
 * vector. */
static const struct layer_tensor {
    const char *name;
    int rows, columns;
    bool transposed;
    int parts;
    const char *ours[HF_PARTS];
} LAYER[LAYER_TENSORS] = {
    {"ln_1.weight", 0, 1, false, 1, {"ln1.gain"}},
    {"ln_1.bias", 0, 1, false, 1, {"ln1.bias"}},
    {"attn.c_attn.weight", 1, 3, true, 3, {"attn.q.weight", "attn.k.weight", "attn.v.weight"}},
    {"attn.c_attn.bias", 0, 3, false, 3, {"attn.q.bias", "attn.k.bias", "attn.v.bias"}},
    {"attn.c_proj.weight", 1, 1, true, 1, {"attn.out.weight"}},
    {"attn.c_proj.bias", 0, 1, false, 1, {"attn.out.bias"}},
    {"ln_2.weight", 0, 1, false, 1, {"ln2.gain"}},
    {"ln_2.bias", 0, 1, false, 1, {"ln2.bias"}},
    {"mlp.c_fc.weight", 1, 4, true, 1, {"mlp.up.weight"}},
    {"mlp.c_fc.bias", 0, 4, false, 1, {"mlp.up.bias"}},
    {"mlp.c_proj.weight", 4, 1, true, 1, {"mlp.down.weight"}},
    {"mlp.c_proj.bias", 0, 1, false, 1, {"mlp.down.bias"}},
};

int64_t hf_tensor_count(const bp_hf_shape *shape)
{
    return 2 + LAYER_TENSORS * shape->layers + 2;
}

static void set_names(hf_tensor *out, const char *name, const char *ours)
{
    (void)snprintf(out->name, HF_NAME, "%s", name);
    (void)snprintf(out->ours[0], HF_NAME, "%s", ours);
    out->parts = 1;
}

static void of_layer(hf_tensor *out, int64_t width, int64_t layer, const struct layer_tensor *row)
{
    (void)snprintf(out->name, HF_NAME, "h.%" PRId64 ".%s", layer, row->name);
    for (int p = 0; p < row->parts; p++)
        (void)snprintf(out->ours[p], HF_NAME, "h.%" PRId64 ".%s", layer, row->ours[p]);
    out->dims = row->rows == 0 ? 1 : 2;
    out->shape[0] = (row->rows == 0 ? row->columns : row->rows) * width;
    out->shape[1] = row->rows == 0 ? 0 : row->columns * width;
    out->transposed = row->transposed;
    out->parts = row->parts;
}

void hf_tensor_of(hf_tensor *out, const bp_hf_shape *shape, int64_t k)
{
    int64_t last = hf_tensor_count(shape) - 2;

    *out = (hf_tensor){.dims = 1, .shape = {shape->width, 0}};
    if (k < 2) {
        set_names(out, k == 0 ? "wte.weight" : "wpe.weight", k == 0 ? "wte" : "wpe");
        out->dims = 2;
        out->shape[0] = k == 0 ? shape->vocab_size : shape->context;
        out->shape[1] = shape->width;
    } else if (k < last) {
        of_layer(out, shape->width, (k - 2) / LAYER_TENSORS, &LAYER[(k - 2) % LAYER_TENSORS]);
    } else {
        set_names(out, k == last ? "ln_f.weight" : "ln_f.bias",
                  k == last ? "ln_f.gain" : "ln_f.bias");
    }
}

/* Written as we write it: "h.01." is nobody's. */
int64_t hf_layer_of(const char *name, const char **rest)
{
    size_t digits = strncmp(name, "h.", 2) == 0 ? strspn(name + 2, "0123456789") : 0;

    if (digits == 0 || digits > 9 || name[2 + digits] != '.' || (name[2] == '0' && digits > 1))
        return -1;
    *rest = name + 2 + digits + 1;
    return strtoll(name + 2, NULL, 10);
}

bool hf_name_is_known(const bp_hf_shape *shape, const char *name)
{
    static const char *const others[] = {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"};
    const char *rest;
    int64_t layer = hf_layer_of(name, &rest);

    for (int k = 0; k < 4; k++)
        if (strcmp(name, others[k]) == 0)
            return true;
    for (int k = 0; k < LAYER_TENSORS && layer >= 0 && layer < shape->layers; k++)
        if (strcmp(rest, LAYER[k].name) == 0)
            return true;
    return false;
}

void hf_part_shape(const hf_tensor *tensor, int64_t shape[2])
{
    int64_t rows = tensor->dims == 2 ? tensor->shape[0] : 1;
    int64_t width = (tensor->dims == 2 ? tensor->shape[1] : tensor->shape[0]) / tensor->parts;

    shape[0] = tensor->dims == 1 || tensor->transposed ? width : rows;
    shape[1] = tensor->dims == 1 ? 0 : tensor->transposed ? rows : width;
}

/* out[c][r] = in[r][c] for a matrix of rows x columns; `in_stride` and `out_stride` floats from row
 * to row. */
static void transpose(float *out, int64_t out_stride, const float *in, int64_t in_stride,
                      int64_t rows, int64_t columns)
{
    for (int64_t r0 = 0; r0 < rows; r0 += BLOCK)
        for (int64_t c0 = 0; c0 < columns; c0 += BLOCK)
            for (int64_t r = r0; r < rows && r < r0 + BLOCK; r++)
                for (int64_t c = c0; c < columns && c < c0 + BLOCK; c++)
                    out[c * out_stride + r] = in[r * in_stride + c];
}

void hf_take_part(float *ours, const float *theirs, const hf_tensor *tensor, int part)
{
    int64_t rows = tensor->dims == 2 ? tensor->shape[0] : 1;
    int64_t columns = tensor->dims == 2 ? tensor->shape[1] : tensor->shape[0];
    int64_t width = columns / tensor->parts;
    const float *from = theirs + part * width;

    if (tensor->transposed)
        transpose(ours, rows, from, columns, rows, width);
    else
        for (int64_t r = 0; r < rows; r++)
            memcpy(ours + r * width, from + r * columns, (size_t)width * sizeof *ours);
}

void hf_put_part(float *theirs, const float *ours, const hf_tensor *tensor, int part)
{
    int64_t rows = tensor->dims == 2 ? tensor->shape[0] : 1;
    int64_t columns = tensor->dims == 2 ? tensor->shape[1] : tensor->shape[0];
    int64_t width = columns / tensor->parts;
    float *to = theirs + part * width;

    if (tensor->transposed)
        transpose(to, columns, ours, rows, width, rows);
    else
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + r * columns, ours + r * width, (size_t)width * sizeof *ours);
}
