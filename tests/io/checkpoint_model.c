#include "io/checkpoint_model.h"

#include "base/files/hash.h"
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

static int64_t volume_of(const bp_slice *slice)
{
    int64_t volume = 1;

    for (int d = 0; d < slice->dims; d++)
        volume *= slice->extent[d];
    return volume;
}

/* The place in the whole tensor of element k of a slice. */
static int64_t place_of(const bp_slice *slice, int64_t k)
{
    int64_t place = 0, stride = 1;

    for (int d = slice->dims - 1; d >= 0; d--) {
        place += (slice->offset[d] + k % slice->extent[d]) * stride;
        k /= slice->extent[d];
        stride *= slice->shape[d];
    }
    return place;
}

bp_slice model_slice(const char *name, int dims, const int64_t *shape, const int64_t *offset,
                     const int64_t *extent, bool filled)
{
    bp_slice slice = {.dims = dims};
    int64_t volume;

    (void)snprintf(slice.name, sizeof slice.name, "%s", name);
    for (int d = 0; d < dims; d++) {
        slice.shape[d] = shape[d];
        slice.offset[d] = offset[d];
        slice.extent[d] = extent[d];
    }
    volume = volume_of(&slice);
    slice.data = bp_alloc("test.slice", volume, sizeof *slice.data);
    BP_ASSERT(slice.data != NULL);
    for (int64_t k = 0; k < volume && filled; k++)
        slice.data[k] = value_at(name, place_of(&slice, k));
    return slice;
}

bp_slice model_whole(const char *name, int dims, const int64_t *shape, bool filled)
{
    return model_slice(name, dims, shape, (int64_t[BP_TENSOR_DIMS]){0}, shape, filled);
}

bool model_is_right(const bp_slice *slices, int64_t count)
{
    for (int64_t b = 0; b < count; b++)
        for (int64_t k = 0; k < volume_of(&slices[b]); k++)
            if (slices[b].data[k] != value_at(slices[b].name, place_of(&slices[b], k)))
                return false;
    return true;
}

static void add(model_slices *out, const bp_slice *slab, const int64_t *offset,
                const int64_t *extent, bool filled)
{
    int64_t at[BP_TENSOR_DIMS] = {0};

    for (int d = 0; d < slab->dims; d++)
        at[d] = slab->offset[d] + offset[d];
    BP_ASSERT(out->count < 256);
    out->list[out->count++] = model_slice(slab->name, slab->dims, slab->shape, at, extent, filled);
}

/* A flat range [first, end) of a slab as at most three slices: the end of a row, whole rows, the
 * begin of a row. */
static void add_range(model_slices *out, const bp_slice *slab, int64_t first, int64_t end,
                      bool filled)
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
static void add_parameter(model_slices *out, const char *name, int dims, const int64_t *shape,
                          int split_axis, model_mesh mesh, int data_at, int tensor_at, bool filled)
{
    bp_slice slab = {.dims = dims};
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

void model_build(model_slices *out, model_mesh mesh, int rank, bool filled)
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

void model_clear(model_slices *slices)
{
    for (int64_t k = 0; k < slices->count; k++)
        bp_free(slices->list[k].data);
    slices->count = 0;
}
