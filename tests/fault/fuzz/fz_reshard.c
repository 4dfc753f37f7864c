/* Checkpoints of one layout read as another: the shape of a tensor and two ways to cut it come of
 * the input. What was written as A is read as B, written, and read as A: the same values and
 * digests, and no element read twice. */
#include "base/mem.h"
#include "fuzz.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "io/h5/user_block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOXES   12
#define VOLUME  4096
#define EXTENTS 9

typedef struct layout {
    bp_slice slices[BOXES];
    int count;
    float *data; /* of all slices, one after another; guards of NaN between them */
} layout;

static int64_t volume_of(const bp_slice *slice)
{
    int64_t volume;

    FUZZ_CHECK(bp_slice_volume(slice->dims, slice->extent, &volume));
    return volume;
}

/* Cut a slice in two, again and again, where the input says; an empty part is fine. */
static void cut_slices(layout *out, const bp_slice *whole, fuzz_bytes *in)
{
    int cuts = fuzz_below(in, BOXES);

    out->count = 1;
    out->slices[0] = *whole;
    for (int k = 0; k < cuts; k++) {
        bp_slice *slice = &out->slices[fuzz_below(in, out->count)],
                 *rest = &out->slices[out->count];
        int d = fuzz_below(in, whole->dims);
        int64_t at = fuzz_below(in, (int)slice->extent[d] + 1);

        *rest = *slice;
        slice->extent[d] = at;
        rest->offset[d] += at;
        rest->extent[d] -= at;
        out->count++;
    }
    out->data = malloc((VOLUME + BOXES) * sizeof *out->data);
    FUZZ_CHECK(out->data != NULL);
    memset(out->data, 0xff, (VOLUME + BOXES) * sizeof *out->data);
    for (int k = 0, at = 0; k < out->count; k++) {
        out->slices[k].data = out->data + at;
        at += (int)volume_of(&out->slices[k]) + 1;
    }
}

/* The value of element k of a slice: its place in the tensor. */
static float value_at(const bp_slice *slice, int64_t k)
{
    int64_t place = 0, scale = 1;

    for (int d = slice->dims - 1; d >= 0; d--) {
        place += scale * (slice->offset[d] + k % slice->extent[d]);
        k /= slice->extent[d];
        scale *= slice->shape[d];
    }
    return (float)place;
}

static bp_digest digest_of(const layout *of)
{
    bp_digest sum = {{0, 0}};

    for (int k = 0; k < of->count; k++) {
        bp_digest one = {{0, 0}};

        if (volume_of(&of->slices[k]) > 0)
            bp_slice_digest(&one, &of->slices[k], of->slices[k].data);
        bp_digest_merge(&sum, &one);
    }
    return sum;
}

static void add_slice(bp_shard *shard, bp_plan_slice *piece, const bp_slice *slice, int64_t number)
{
    *piece = (bp_plan_slice){.slice = *slice, .number = number};
    memcpy(piece->extent, slice->extent, sizeof piece->extent);
    FUZZ_CHECK(bp_shard_add(shard, piece) == BP_OK);
}

static void write_slice(bp_shard *shard, const bp_plan_slice *piece, const bp_slice *slice,
                        int64_t limit)
{
    int64_t written = 0;
    bp_part part;

    for (int64_t k = 0; bp_slice_part(&part, slice, limit, k); k++) {
        FUZZ_CHECK(part.first == written && part.count > 0 && part.count <= limit);
        FUZZ_CHECK(bp_shard_write(shard, piece, &part, slice->data + part.first) == BP_OK);
        written += part.count;
    }
    FUZZ_CHECK(written == volume_of(slice));
}

/* The lowest address beyond `done`; -1: there is none. */
static int64_t next_address(const bp_plan_slice *pieces, int count, int64_t done)
{
    int64_t next = -1;

    for (int k = 0; k < count; k++)
        if (pieces[k].address > done && (next < 0 || pieces[k].address < next))
            next = pieces[k].address;
    return next;
}

static void read_back(bp_shard *shard)
{
    char hash[BP_USER_BLOCK_HASH];
    int64_t bytes;
    bool more = true;

    FUZZ_CHECK(bp_shard_seal(shard) == BP_OK);
    while (more)
        FUZZ_CHECK(bp_shard_read_back(shard, &more, hash, &bytes) == BP_OK);
    FUZZ_CHECK(bytes > BP_USER_BLOCK_BYTES);
}

/* All slices to one file; its pieces, as a manifest lists them. */
static void write_layout(const layout *from, const char *path, int64_t limit,
                         bp_manifest_piece *pieces)
{
    bp_plan_slice added[BOXES];
    bp_shard *shard;

    FUZZ_CHECK(bp_shard_create(&shard, path) == BP_OK);
    for (int k = 0; k < from->count; k++) {
        const bp_slice *slice = &from->slices[k];

        add_slice(shard, &added[k], slice, k);
        pieces[k] = (bp_manifest_piece){.file = 0, .dataset = k};
        memcpy(pieces[k].offset, slice->offset, sizeof slice->offset);
        memcpy(pieces[k].extent, slice->extent, sizeof slice->extent);
    }
    FUZZ_CHECK(bp_shard_lay_out(shard) == BP_OK);
    for (int64_t done = -1, next; (next = next_address(added, from->count, done)) >= 0; done = next)
        for (int k = 0; k < from->count; k++)
            if (added[k].address == next)
                write_slice(shard, &added[k], &from->slices[k], limit);
    read_back(shard);
    bp_shard_free(&shard);
}

/* Every slice of `to` from the pieces that it meets; what they have in common adds up to the slice.
 */
static void read_layout(layout *to, const char *path, const bp_manifest_tensor *tensor,
                        const bp_manifest_piece *pieces)
{
    const bp_manifest none = {0}; /* no names: all datasets are numbered */
    bp_h5 *reader;

    FUZZ_CHECK(bp_h5_open(&reader, path) == BP_OK);
    for (int k = 0; k < to->count; k++) {
        const bp_slice *slice = &to->slices[k];
        int64_t offset[BP_TENSOR_DIMS], extent[BP_TENSOR_DIMS], got = 0, volume;

        for (int64_t p = 0; p < tensor->count; p++) {
            if (!bp_slice_intersect(slice->dims, pieces[p].offset, pieces[p].extent, slice->offset,
                                    slice->extent, offset, extent))
                continue;
            FUZZ_CHECK(bp_slice_volume(slice->dims, extent, &volume));
            got += volume;
            FUZZ_CHECK(bp_shard_read(reader, &none, tensor, &pieces[p], slice) == BP_OK);
        }
        FUZZ_CHECK(got == volume_of(slice));
    }
    bp_h5_drop(&reader);
}

static int compare_pieces(const void *a, const void *b)
{
    return memcmp(((const bp_manifest_piece *)a)->offset, ((const bp_manifest_piece *)b)->offset,
                  sizeof((const bp_manifest_piece *)a)->offset);
}

/* Do they tile? The test wants them by offset; small numbers compare alike as bytes. */
static void check_tiles(const bp_manifest_tensor *tensor, const bp_manifest_piece *pieces)
{
    bp_manifest_piece sorted[BOXES];

    memcpy(sorted, pieces, (size_t)tensor->count * sizeof *sorted);
    qsort(sorted, (size_t)tensor->count, sizeof *sorted, compare_pieces);
    FUZZ_CHECK(bp_manifest_check_tiles(tensor, sorted) == BP_OK);
}

static void check_values(const layout *of)
{
    for (int b = 0; b < of->count; b++) {
        int64_t volume = volume_of(&of->slices[b]);
        uint32_t guard;

        for (int64_t k = 0; k < volume; k++)
            FUZZ_CHECK(of->slices[b].data[k] == value_at(&of->slices[b], k));
        memcpy(&guard, of->slices[b].data + volume, sizeof guard);
        FUZZ_CHECK(guard == UINT32_MAX);
        FUZZ_CHECK(volume == 0 || bp_are_finite(of->slices[b].data, volume));
    }
}

static bp_slice take_shape(fuzz_bytes *in)
{
    static const char *const names[] = {"a.weight", "adamw.m/h.0.b", "x", "p.0/q/r"};
    bp_slice whole = {.dims = 1 + fuzz_below(in, BP_TENSOR_DIMS)};
    int64_t volume = 1;

    strcpy(whole.name, names[fuzz_below(in, 4)]);
    for (int d = 0; d < whole.dims; d++) {
        whole.shape[d] = whole.extent[d] = 1 + fuzz_below(in, EXTENTS);
        if (volume * whole.shape[d] > VOLUME)
            whole.shape[d] = whole.extent[d] = 1;
        volume *= whole.shape[d];
    }
    FUZZ_CHECK(bp_slice_check(&whole) == BP_OK);
    return whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    bp_slice whole = take_shape(&in);
    int64_t limit = 1 + fuzz_below(&in, 100);
    bp_manifest_tensor tensor = {.dims = whole.dims};
    bp_manifest_piece pieces[BOXES];
    layout a, b, again;
    fuzz_bytes same;
    char path[300];
    bp_digest digest, other;

    fuzz_begin();
    memcpy(tensor.name, whole.name, sizeof tensor.name);
    memcpy(tensor.shape, whole.shape, sizeof tensor.shape);
    (void)snprintf(path, sizeof path, "%s/shard-00000.h5", fuzz_folder());
    same = in;
    cut_slices(&again, &whole, &same);
    cut_slices(&a, &whole, &in);
    cut_slices(&b, &whole, &in);
    for (int k = 0; k < a.count; k++)
        for (int64_t i = 0; i < volume_of(&a.slices[k]); i++)
            a.slices[k].data[i] = value_at(&a.slices[k], i);
    tensor.count = a.count;
    write_layout(&a, path, limit, pieces);
    check_tiles(&tensor, pieces);
    read_layout(&b, path, &tensor, pieces);
    check_values(&b);
    tensor.count = b.count;
    write_layout(&b, path, limit, pieces);
    read_layout(&again, path, &tensor, pieces);
    check_values(&again);
    digest = digest_of(&a);
    other = digest_of(&b);
    FUZZ_CHECK(memcmp(&digest, &other, sizeof digest) == 0);
    free(a.data);
    free(b.data);
    free(again.data);
    fuzz_end();
    return 0;
}
