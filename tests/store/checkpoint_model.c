#include "store/checkpoint_model.h"

#include "base/hash.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define LAYERS 2
#define WIDTH  8
#define VOCAB  37 /* two tensor ranks don't divide it */

static float value_at(const char *name, int64_t place)
{
    uint64_t mixed = bp_xxh3(name, strlen(name)) + (uint64_t)place * 0x9E3779B97F4A7C15u;

    mixed ^= mixed >> 29;
    mixed *= 0xBF58476D1CE4E5B9u;
    return (float)((double)(mixed >> 40) / 16777216.0 - 0.5);
}

static int64_t volume_of(const bp_box *box)
{
    int64_t volume = 1;

    for (int d = 0; d < box->dims; d++)
        volume *= box->extent[d];
    return volume;
}

/* The place in the whole tensor of element k of a box. */
static int64_t place_of(const bp_box *box, int64_t k)
{
    int64_t place = 0, stride = 1;

    for (int d = box->dims - 1; d >= 0; d--) {
        place += (box->offset[d] + k % box->extent[d]) * stride;
        k /= box->extent[d];
        stride *= box->shape[d];
    }
    return place;
}

bp_box model_box(const char *name, int dims, const int64_t *shape, const int64_t *offset,
                 const int64_t *extent, bool filled)
{
    bp_box box = {.dims = dims};
    int64_t volume;

    (void)snprintf(box.name, sizeof box.name, "%s", name);
    for (int d = 0; d < dims; d++) {
        box.shape[d] = shape[d];
        box.offset[d] = offset[d];
        box.extent[d] = extent[d];
    }
    volume = volume_of(&box);
    box.data = bp_alloc("test.box", volume, sizeof *box.data);
    BP_ASSERT(box.data != NULL);
    for (int64_t k = 0; k < volume && filled; k++)
        box.data[k] = value_at(name, place_of(&box, k));
    return box;
}

bp_box model_whole(const char *name, int dims, const int64_t *shape, bool filled)
{
    return model_box(name, dims, shape, (int64_t[BP_TENSOR_DIMS]){0}, shape, filled);
}

bool model_is_right(const bp_box *boxes, int64_t count)
{
    for (int64_t b = 0; b < count; b++)
        for (int64_t k = 0; k < volume_of(&boxes[b]); k++)
            if (boxes[b].data[k] != value_at(boxes[b].name, place_of(&boxes[b], k)))
                return false;
    return true;
}

static void add(model_boxes *out, const bp_box *slab, const int64_t *offset, const int64_t *extent,
                bool filled)
{
    int64_t at[BP_TENSOR_DIMS] = {0};

    for (int d = 0; d < slab->dims; d++)
        at[d] = slab->offset[d] + offset[d];
    BP_ASSERT(out->count < 256);
    out->list[out->count++] = model_box(slab->name, slab->dims, slab->shape, at, extent, filled);
}

/* A flat range [first, end) of a slab as at most three boxes: the end of a row, whole rows, the
 * begin of a row. */
static void add_range(model_boxes *out, const bp_box *slab, int64_t first, int64_t end, bool filled)
{
    int64_t columns = slab->dims == 2 ? slab->extent[1] : 1;

    while (first < end) {
        int64_t row = first / columns, column = first % columns;
        int64_t rows = column == 0 && end - first >= columns ? (end - first) / columns : 1;
        int64_t width = end - first < columns - column ? end - first : columns - column;
        const int64_t offset[2] = {row, column}, extent[2] = {rows, width};

        add(out, slab, offset, extent, filled);
        first += rows * width;
    }
}

/* A parameter that a rank of (pipeline stage, tensor rank) holds as a slab; its moments are cut
 * flat over data ranks. */
static void add_parameter(model_boxes *out, const char *name, int dims, const int64_t *shape,
                          int split_axis, model_mesh mesh, int data_at, int tensor_at, bool filled)
{
    bp_box slab = {.dims = dims};
    int64_t volume;
    static const int64_t zero[2] = {0, 0};

    for (int d = 0; d < dims; d++) {
        slab.shape[d] = shape[d];
        slab.extent[d] = shape[d];
    }
    if (split_axis >= 0) {
        slab.offset[split_axis] = shape[split_axis] * tensor_at / mesh.tensor;
        slab.extent[split_axis] =
            shape[split_axis] * (tensor_at + 1) / mesh.tensor - slab.offset[split_axis];
    } else if (tensor_at > 0) {
        return; /* replicated: the first tensor rank publishes it */
    }
    (void)snprintf(slab.name, sizeof slab.name, "%s", name);
    if (data_at == 0)
        add(out, &slab, zero, slab.extent, filled);
    (void)snprintf(slab.name, sizeof slab.name, "adamw.m/%s", name);
    volume = volume_of(&slab);
    add_range(out, &slab, volume * data_at / mesh.data, volume * (data_at + 1) / mesh.data, filled);
}

void model_build(model_boxes *out, model_mesh mesh, int rank, bool filled)
{
    int tensor_at = rank % mesh.tensor, data_at = rank / mesh.tensor % mesh.data,
        stage = rank / mesh.tensor / mesh.data;
    const int64_t vocab[] = {VOCAB, WIDTH}, square[] = {WIDTH, WIDTH}, row[] = {WIDTH};
    char name[64];

    out->count = 0;
    if (stage >= mesh.pipeline)
        return;
    if (stage == 0)
        add_parameter(out, "wte", 2, vocab, 0, mesh, data_at, tensor_at, filled);
    for (int layer = LAYERS * stage / mesh.pipeline; layer < LAYERS * (stage + 1) / mesh.pipeline;
         layer++) {
        (void)snprintf(name, sizeof name, "h.%d.attn.q.weight", layer);
        add_parameter(out, name, 2, square, 0, mesh, data_at, tensor_at, filled);
        (void)snprintf(name, sizeof name, "h.%d.attn.out.weight", layer);
        add_parameter(out, name, 2, square, 1, mesh, data_at, tensor_at, filled);
        (void)snprintf(name, sizeof name, "h.%d.ln1.gain", layer);
        add_parameter(out, name, 1, row, -1, mesh, data_at, tensor_at, filled);
    }
    if (stage == mesh.pipeline - 1)
        add_parameter(out, "ln_f.gain", 1, row, -1, mesh, data_at, tensor_at, filled);
}

void model_clear(model_boxes *boxes)
{
    for (int64_t k = 0; k < boxes->count; k++)
        bp_free(boxes->list[k].data);
    boxes->count = 0;
}
