/* Are the tensors those that were saved? Sums over elements, wherever those lie: in the slices of
 * ranks, or in the pieces of files. */
#include "base/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_open_priv.h"
#include "mesh/collective.h"

#include <string.h>

#define READ_FLOATS ((int64_t)1 << 20)

/* What was seen of a tensor, summed over slices and ranks modulo 2^64. */
typedef struct seen {
    bp_digest digest;
    uint64_t elements;
} seen;

_Static_assert(sizeof(seen) == 3 * sizeof(uint64_t), "it is summed as three integers");

static void see(seen *sum, const bp_slice *slice)
{
    bp_slice_digest(&sum->digest, slice, slice->data);
    sum->elements += (uint64_t)bp_checked_volume(slice->dims, slice->extent);
}

/* ---- in memory ---- */

static bp_err see_slices(const bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count,
                         seen *sums)
{
    for (int64_t k = 0; k < count; k++) {
        const bp_manifest_tensor *tensor;

        if (bp_slice_check(&slices[k]) != BP_OK)
            return bp_err_prefix(BP_ERR_SOFTWARE, "a slice to check");
        if (bp_checkpoint_find_tensor(checkpoint, &slices[k], &tensor) != BP_OK)
            return BP_ERR_FORMAT;
        see(&sums[tensor - checkpoint->manifest->tensors], &slices[k]);
    }
    return BP_OK;
}

/* ---- on disk ---- */

static bp_err see_piece(bp_shard_reader *reader, const bp_manifest_tensor *tensor,
                        const bp_manifest_piece *piece, float *room, seen *sum)
{
    bp_slice whole = {.dims = tensor->dims}, slice;
    bp_part part;
    bp_err err = BP_OK;

    memcpy(whole.name, tensor->name, sizeof whole.name);
    memcpy(whole.shape, tensor->shape, sizeof whole.shape);
    memcpy(whole.extent, piece->extent, sizeof whole.extent);
    for (int64_t k = 0; err == BP_OK && bp_slice_part(&part, &whole, READ_FLOATS, k); k++) {
        slice = whole;
        slice.data = room;
        for (int d = 0; d < slice.dims; d++) {
            slice.offset[d] = piece->offset[d] + part.start[d];
            slice.extent[d] = part.size[d];
        }
        err = bp_shard_read(reader, tensor, piece, &slice);
        if (err == BP_OK)
            see(sum, &slice);
    }
    return err;
}

static bp_err see_file(const bp_checkpoint *checkpoint, int64_t file, float *room, seen *sums)
{
    const bp_manifest *manifest = checkpoint->manifest;
    char *path = bp_path_join(checkpoint->folder, manifest->files[file].name);
    bp_shard_reader *reader = NULL;
    bp_err err = BP_OK;

    for (int64_t t = 0; t < manifest->tensor_count; t++)
        for (int64_t p = 0; p < manifest->tensors[t].count && err == BP_OK; p++) {
            const bp_manifest_piece *piece = &manifest->pieces[manifest->tensors[t].first + p];

            if (piece->file != file)
                continue;
            if (reader == NULL)
                err = bp_shard_open(&reader, path);
            if (err == BP_OK)
                err = see_piece(reader, &manifest->tensors[t], piece, room, &sums[t]);
        }
    bp_shard_close(&reader);
    bp_free(path);
    return err;
}

/* Every so-many-th file: the one that this rank has hashed, and its kernel still holds. */
static bp_err see_files(const bp_checkpoint *checkpoint, seen *sums)
{
    float *room = bp_alloc("load.digests", READ_FLOATS, sizeof *room);
    bp_err err = BP_OK;

    for (int64_t k = bp_comm_rank(checkpoint->comm);
         k < checkpoint->manifest->file_count && err == BP_OK; k += bp_comm_size(checkpoint->comm))
        err = see_file(checkpoint, k, room, sums);
    bp_free(room);
    return err;
}

/* ---- against the manifest ---- */

static bp_err compare(const bp_checkpoint *checkpoint, const seen *sums)
{
    const bp_manifest *manifest = checkpoint->manifest;

    for (int64_t k = 0; k < manifest->tensor_count; k++) {
        const bp_manifest_tensor *tensor = &manifest->tensors[k];
        int64_t volume = bp_checked_volume(tensor->dims, tensor->shape);

        if (sums[k].elements == 0)
            continue; /* nobody asked */
        if (sums[k].elements != (uint64_t)volume)
            return BP_FAIL(BP_ERR_SOFTWARE,
                           "the slices cover %llu elements of tensor '%s', which has %lld",
                           (unsigned long long)sums[k].elements, tensor->name, (long long)volume);
        if (memcmp(&sums[k].digest, &tensor->digest, sizeof tensor->digest) != 0)
            return BP_FAIL(BP_ERR_FORMAT,
                           "tensor '%s' has another digest than the manifest says: in %s",
                           tensor->name, checkpoint->folder);
    }
    return BP_OK;
}

/* slices: NULL, the files'. */
static bp_err check(const bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count)
{
    int64_t tensors = checkpoint->manifest->tensor_count;
    seen *sums = bp_alloc("load.digests", tensors, sizeof *sums);
    bp_err err = BP_OK;

    err =
        slices != NULL ? see_slices(checkpoint, slices, count, sums) : see_files(checkpoint, sums);
    err = bp_agree(checkpoint->comm, err);
    if (err == BP_OK) {
        BP_MPI_WAIT("all_sum", MPI_Allreduce(MPI_IN_PLACE, sums, bp_mpi_count(3 * tensors),
                                             MPI_UINT64_T, MPI_SUM, checkpoint->comm));
        err = compare(checkpoint, sums);
    }
    bp_free(sums);
    return err;
}

bp_err bp_checkpoint_check_digests(bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count)
{
    static const bp_slice none;

    return check(checkpoint, slices != NULL ? slices : &none, count);
}

bp_err bp_checkpoint_verify_digests(const bp_checkpoint *checkpoint)
{
    return check(checkpoint, NULL, 0);
}
