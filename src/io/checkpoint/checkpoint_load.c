/* Loading: any rank requests any slices and reads them from the pieces that they overlap. Digests
 * check that the tensors are those that were saved: sums over elements, in the slices of ranks or
 * in the pieces of files. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "mesh/collective.h"

#include <stdlib.h>
#include <string.h>

#define READ_FLOATS ((int64_t)1 << 20)

/* ---- slices from pieces ---- */

/* One read: a piece that a slice overlaps. */
struct request {
    const bp_manifest_tensor *tensor;
    const bp_manifest_piece *piece;
    const bp_slice *slice;
};

struct requests {
    struct request *list;
    int64_t count, capacity;
};

/* The tensor that a slice is of. Errors: BP_ERR_FORMAT missing, or of another shape. */
static bp_err find_tensor(const bp_checkpoint *checkpoint, const bp_slice *slice,
                          const bp_manifest_tensor **out)
{
    bool of_base = bp_checkpoint_is_of_base(checkpoint, slice->name);
    const bp_manifest_tensor *tensor =
        bp_manifest_find(of_base ? checkpoint->base->manifest : checkpoint->manifest, slice->name);
    char found[100] = "", wanted[100] = "";

    *out = tensor;
    if (!tensor && json_is_true(json_object_get(bp_checkpoint_state(checkpoint), "headless")))
        return BP_FAIL(
            BP_ERR_FORMAT, "tensor.no_head",
            "the model was imported without a head (tensor '%s'): in checkpoint %s; take "
            "vectors of documents (score.vectors=mean), fine-tune it, or import a "
            "folder that has its head",
            slice->name, checkpoint->folder);
    if (!tensor)
        return BP_FAIL(BP_ERR_FORMAT, "tensor.missing", "tensor '%s' is missing: in checkpoint %s",
                       slice->name, checkpoint->folder);
    if (tensor->dims == slice->dims &&
        memcmp(tensor->shape, slice->shape, (size_t)slice->dims * sizeof slice->shape[0]) == 0)
        return BP_OK;
    bp_shape_text(found, sizeof found, tensor->dims, tensor->shape);
    bp_shape_text(wanted, sizeof wanted, slice->dims, slice->shape);
    return BP_FAIL(BP_ERR_FORMAT, "tensor.wrong_shape",
                   "tensor '%s' has shape %s instead of %s: in checkpoint %s", slice->name, found,
                   wanted, checkpoint->folder);
}

bp_err bp_checkpoint_check_tensor(const bp_checkpoint *checkpoint, const bp_slice *slice)
{
    const bp_manifest_tensor *tensor;

    return find_tensor(checkpoint, slice, &tensor);
}

static bp_err collect(const bp_checkpoint *checkpoint, const bp_slice *slice,
                      struct requests *requests)
{
    int64_t offset[BP_TENSOR_DIMS], extent[BP_TENSOR_DIMS];
    const bp_manifest_tensor *tensor;
    bp_err err = bp_slice_check(slice);

    if (err != BP_OK)
        return bp_err_prefix(BP_ERR_SOFTWARE, "a slice to load");
    err = find_tensor(checkpoint, slice, &tensor);
    for (int64_t k = 0; err == BP_OK && k < tensor->count; k++) {
        const bp_manifest_piece *piece = &checkpoint->manifest->pieces[tensor->first + k];

        if (!bp_slice_intersect(slice->dims, piece->offset, piece->extent, slice->offset,
                                slice->extent, offset, extent))
            continue;
        requests->list = bp_grow("load.requests", requests->list, &requests->capacity,
                                 requests->count + 1, sizeof *requests->list);
        requests->list[requests->count++] = (struct request){tensor, piece, slice};
    }
    return err;
}

/* By file, then in the order of writing, so that each file is opened once and read forwards. */
static int compare_errands(const void *a, const void *b)
{
    const struct request *p = a, *q = b;

    if (p->piece->file != q->piece->file)
        return p->piece->file < q->piece->file ? -1 : 1;
    if (p->piece != q->piece)
        return p->piece < q->piece ? -1 : 1;
    return p->slice == q->slice ? 0 : p->slice < q->slice ? -1 : 1;
}

static bp_err open_file(const bp_checkpoint *checkpoint, int64_t file, bp_h5 **out)
{
    char *path = bp_path_join(checkpoint->folder, checkpoint->manifest->files[file].name);
    bp_err err = bp_h5_open(out, path);

    bp_free(path);
    return err;
}

static bp_err load_local(const bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count)
{
    struct requests requests = {NULL, 0, 0};
    bp_h5 *reader = NULL;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = collect(checkpoint, &slices[k], &requests);
    if (requests.count > 0)
        qsort(requests.list, (size_t)requests.count, sizeof *requests.list, compare_errands);
    for (int64_t k = 0; k < requests.count && err == BP_OK; k++) {
        const struct request *request = &requests.list[k];

        if (k == 0 || request->piece->file != request[-1].piece->file) {
            bp_h5_drop(&reader);
            err = open_file(checkpoint, request->piece->file, &reader);
        }
        if (err == BP_OK)
            err = bp_shard_read(reader, checkpoint->manifest, request->tensor, request->piece,
                                request->slice);
    }
    bp_h5_drop(&reader);
    bp_free(requests.list);
    return err;
}

typedef bp_err (*take_slices)(const bp_checkpoint *checkpoint, const bp_slice *slices,
                              int64_t count);

/* Slices in the checkpoint, and slices in its base. */
static bp_err take_both(const bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count,
                        take_slices take)
{
    bp_slice *part;
    bp_err err = BP_OK;

    if (!checkpoint->base)
        return take(checkpoint, slices, count);
    part = bp_alloc("load.slices", count + 1, sizeof *part);
    for (int of_base = 0; of_base < 2 && err == BP_OK; of_base++) {
        int64_t used = 0;

        for (int64_t k = 0; k < count; k++)
            if (bp_checkpoint_is_of_base(checkpoint, slices[k].name) == (of_base == 1))
                part[used++] = slices[k];
        err = take(of_base ? checkpoint->base : checkpoint, part, used);
    }
    bp_free(part);
    return err;
}

bp_err bp_checkpoint_load(bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count)
{
    return bp_agree(checkpoint->comm, take_both(checkpoint, slices, count, load_local));
}

/* ---- digests ---- */

/* The partial digest of a tensor, summed over slices and ranks modulo 2^64. */
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

static bp_err see_slices(const bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count,
                         seen *sums)
{
    for (int64_t k = 0; k < count; k++) {
        const bp_manifest_tensor *tensor;

        if (bp_slice_check(&slices[k]) != BP_OK)
            return bp_err_prefix(BP_ERR_SOFTWARE, "a slice to check");
        if (find_tensor(checkpoint, &slices[k], &tensor) != BP_OK)
            return BP_ERR_FORMAT;
        see(&sums[tensor - checkpoint->manifest->tensors], &slices[k]);
    }
    return BP_OK;
}

static bp_err see_piece(bp_h5 *reader, const bp_manifest *manifest,
                        const bp_manifest_tensor *tensor, const bp_manifest_piece *piece,
                        float *scratch, seen *sum)
{
    bp_slice whole = bp_manifest_slice(tensor, piece);
    bp_part part;
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && bp_slice_part(&part, &whole, READ_FLOATS, k); k++) {
        bp_slice slice = bp_slice_of_part(&whole, &part);

        slice.data = scratch;
        err = bp_shard_read(reader, manifest, tensor, piece, &slice);
        if (err == BP_OK)
            see(sum, &slice);
    }
    return err;
}

static bp_err see_file(const bp_checkpoint *checkpoint, int64_t file, float *scratch, seen *sums)
{
    const bp_manifest *manifest = checkpoint->manifest;
    bp_h5 *reader = NULL;
    bp_err err = BP_OK;

    for (int64_t t = 0; t < manifest->tensor_count; t++)
        for (int64_t p = 0; p < manifest->tensors[t].count && err == BP_OK; p++) {
            const bp_manifest_piece *piece = &manifest->pieces[manifest->tensors[t].first + p];

            if (piece->file != file)
                continue;
            if (!reader)
                err = open_file(checkpoint, file, &reader);
            if (err == BP_OK)
                err = see_piece(reader, manifest, &manifest->tensors[t], piece, scratch, &sums[t]);
        }
    bp_h5_drop(&reader);
    return err;
}

/* The files that this rank hashed, which are still in its page cache. */
static bp_err see_files(const bp_checkpoint *checkpoint, seen *sums)
{
    float *scratch = bp_alloc("load.digests", READ_FLOATS, sizeof *scratch);
    bp_err err = BP_OK;

    for (int64_t k = bp_comm_rank(checkpoint->comm);
         k < checkpoint->manifest->file_count && err == BP_OK; k += bp_comm_size(checkpoint->comm))
        err = see_file(checkpoint, k, scratch, sums);
    bp_free(scratch);
    return err;
}

static bp_err compare(const bp_checkpoint *checkpoint, const seen *sums)
{
    const bp_manifest *manifest = checkpoint->manifest;

    for (int64_t k = 0; k < manifest->tensor_count; k++) {
        const bp_manifest_tensor *tensor = &manifest->tensors[k];
        int64_t volume = bp_checked_volume(tensor->dims, tensor->shape);

        if (sums[k].elements == 0)
            continue; /* not requested */
        if (sums[k].elements != (uint64_t)volume)
            return BP_FAIL(BP_ERR_SOFTWARE, "tensor.wrong_slices",
                           "the slices cover %llu elements of tensor '%s', which has %lld",
                           (unsigned long long)sums[k].elements, tensor->name, (long long)volume);
        if (memcmp(&sums[k].digest, &tensor->digest, sizeof tensor->digest) != 0)
            return BP_FAIL(BP_ERR_FORMAT, "tensor.damaged",
                           "tensor '%s' has another digest than the manifest says: in %s",
                           tensor->name, checkpoint->folder);
    }
    return BP_OK;
}

/* slices NULL: those of the files. */
static bp_err check(const bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count)
{
    int64_t tensors = checkpoint->manifest->tensor_count;
    seen *sums = bp_alloc("load.digests", tensors, sizeof *sums);
    bp_err err = slices ? see_slices(checkpoint, slices, count, sums) : see_files(checkpoint, sums);

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

    return take_both(checkpoint, slices ? slices : &none, count, check);
}

bp_err bp_checkpoint_verify_digests(const bp_checkpoint *checkpoint)
{
    return check(checkpoint, NULL, 0);
}
