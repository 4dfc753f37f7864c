/* Loading: any rank asks for any slices and reads them from the pieces that they meet. */
#include "base/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_open_priv.h"

#include <stdlib.h>
#include <string.h>

/* One read: a piece that a slice meets. */
struct errand {
    const bp_manifest_tensor *tensor;
    const bp_manifest_piece *piece;
    const bp_slice *slice;
};

struct errands {
    struct errand *list;
    int64_t count, room;
};

static void add_errand(struct errands *errands, const struct errand *errand)
{
    if (errands->count == errands->room) {
        int64_t room = errands->room == 0 ? 64 : 2 * errands->room;
        void *list = bp_realloc("load.errands", errands->list, room, sizeof *errand);

        errands->list = list;
        errands->room = room;
    }
    errands->list[errands->count++] = *errand;
}

bp_err bp_checkpoint_find_tensor(const bp_checkpoint *checkpoint, const bp_slice *slice,
                                 const bp_manifest_tensor **out)
{
    const bp_manifest_tensor *tensor = bp_manifest_find(checkpoint->manifest, slice->name);
    char found[100] = "", wanted[100] = "";

    *out = tensor;
    if (tensor == NULL)
        return BP_FAIL(BP_ERR_FORMAT, "tensor '%s' is missing: in checkpoint %s", slice->name,
                       checkpoint->folder);
    if (tensor->dims == slice->dims &&
        memcmp(tensor->shape, slice->shape, (size_t)slice->dims * sizeof slice->shape[0]) == 0)
        return BP_OK;
    bp_shape_text(found, sizeof found, tensor->dims, tensor->shape);
    bp_shape_text(wanted, sizeof wanted, slice->dims, slice->shape);
    return BP_FAIL(BP_ERR_FORMAT, "tensor '%s' has shape %s instead of %s: in checkpoint %s",
                   slice->name, found, wanted, checkpoint->folder);
}

static bp_err collect(const bp_checkpoint *checkpoint, const bp_slice *slice,
                      struct errands *errands)
{
    int64_t offset[BP_TENSOR_DIMS], extent[BP_TENSOR_DIMS];
    const bp_manifest_tensor *tensor;
    bp_err err = bp_slice_check(slice);

    if (err != BP_OK)
        return bp_err_prefix(BP_ERR_SOFTWARE, "a slice to load");
    err = bp_checkpoint_find_tensor(checkpoint, slice, &tensor);
    for (int64_t k = 0; err == BP_OK && k < tensor->count; k++) {
        const bp_manifest_piece *piece = &checkpoint->manifest->pieces[tensor->first + k];

        if (bp_slice_intersect(slice->dims, piece->offset, piece->extent, slice->offset,
                               slice->extent, offset, extent))
            add_errand(errands, &(struct errand){tensor, piece, slice});
    }
    return err;
}

/* By file and then as the file was written, so that each is opened once and read forwards. */
static int compare_errands(const void *a, const void *b)
{
    const struct errand *p = a, *q = b;

    if (p->piece->file != q->piece->file)
        return p->piece->file < q->piece->file ? -1 : 1;
    if (p->piece != q->piece)
        return p->piece < q->piece ? -1 : 1;
    return p->slice == q->slice ? 0 : p->slice < q->slice ? -1 : 1;
}

/* Errands [first, end) lie in one file. */
static bp_err read_file(const bp_checkpoint *checkpoint, const struct errands *errands,
                        int64_t first, int64_t end)
{
    const bp_manifest_file *file = &checkpoint->manifest->files[errands->list[first].piece->file];
    char *path = bp_path_join(checkpoint->folder, file->name);
    bp_shard_reader *reader = NULL;
    bp_err err = bp_shard_open(&reader, path);

    for (int64_t k = first; k < end && err == BP_OK; k++)
        err = bp_shard_read(reader, errands->list[k].tensor, errands->list[k].piece,
                            errands->list[k].slice);
    bp_shard_close(&reader);
    bp_free(path);
    return err;
}

static bp_err load_local(const bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count)
{
    struct errands errands = {NULL, 0, 0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = collect(checkpoint, &slices[k], &errands);
    if (errands.count > 0)
        qsort(errands.list, (size_t)errands.count, sizeof *errands.list, compare_errands);
    for (int64_t first = 0, end; first < errands.count && err == BP_OK; first = end) {
        for (end = first + 1; end < errands.count; end++)
            if (errands.list[end].piece->file != errands.list[first].piece->file)
                break;
        err = read_file(checkpoint, &errands, first, end);
    }
    bp_free(errands.list);
    return err;
}

bp_err bp_checkpoint_load(bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count)
{
    return bp_agree(checkpoint->comm, load_local(checkpoint, slices, count));
}
