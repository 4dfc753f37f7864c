/* One file of a checkpoint: an HDF5 file with a dataset a piece, written by one rank and read by
 * any. */
#include "base/fault.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "io/checkpoint/direct_writer.h"
#include "io/h5/h5.h"

#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHARD_KIND    "checkpoint"
#define SHARD_VERSION 1

/* ---- writing ---- */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are written as they lie in memory");

struct bp_shard {
    bp_h5 *file; /* until it is laid out */
    char *path;
    bp_direct_writer *content; /* from then on */
};

void bp_piece_dataset(char out[BP_PIECE_DATASET], const char *tensor, int64_t number)
{
    (void)snprintf(out, BP_PIECE_DATASET, "/%.*s/p%" PRId64, BP_TENSOR_NAME, tensor, number);
}

bp_err bp_shard_create(bp_shard **out, const char *path)
{
    bp_shard *shard = bp_alloc("shard", 1, sizeof *shard);
    bp_err err = BP_OK;

    *out = NULL;
    shard->path = bp_strdup(path);
    err = bp_fault("ckpt.shard_open") ? bp_fail_create("can't create", path)
                                      : bp_h5_create(&shard->file, path);
    if (err != BP_OK)
        bp_shard_free(&shard);
    *out = shard;
    return err;
}

/* Contiguous, its place allocated at once, no fill, no times: equal state gives equal bytes. */
static hid_t dataset_properties(void)
{
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);

    if (plist < 0)
        return plist;
    if (H5Pset_layout(plist, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER) < 0 ||
        H5Pset_obj_track_times(plist, false) < 0) {
        (void)H5Pclose(plist);
        return H5I_INVALID_HID;
    }
    return plist;
}

static hid_t create_dataset(bp_shard *shard, const char *name, const bp_plan_slice *piece)
{
    hsize_t extent[BP_TENSOR_DIMS];
    hid_t space, plist, dataset = H5I_INVALID_HID;

    for (int d = 0; d < piece->dims; d++)
        extent[d] = (hsize_t)piece->extent[d];
    space = H5Screate_simple(piece->dims, extent, NULL);
    plist = dataset_properties();
    if (space >= 0 && plist >= 0)
        dataset = H5Dcreate2((hid_t)bp_h5_id(shard->file), name, H5T_IEEE_F32LE, space, H5P_DEFAULT,
                             plist, H5P_DEFAULT);
    if (plist >= 0)
        (void)H5Pclose(plist);
    if (space >= 0)
        (void)H5Sclose(space);
    return dataset;
}

/* The groups on the way to a tensor's pieces, outermost first. */
static bp_err make_groups(bp_shard *shard, const char *tensor)
{
    char path[BP_TENSOR_NAME];
    bp_err err = BP_OK;

    for (size_t end = strcspn(tensor, "/"); err == BP_OK;
         end += 1 + strcspn(tensor + end + 1, "/")) {
        (void)snprintf(path, sizeof path, "%.*s", (int)end, tensor);
        if (!bp_h5_has(shard->file, path))
            err = bp_h5_make_group(shard->file, path);
        if (tensor[end] == '\0')
            break;
    }
    return err;
}

/* Where its values lie in the file, the user block counted; below 0: HDF5 failed. */
static int64_t add_dataset(bp_shard *shard, const char *name, const bp_plan_slice *piece)
{
    hid_t dataset = create_dataset(shard, name, piece);
    haddr_t address = dataset < 0 ? HADDR_UNDEF : H5Dget_offset(dataset);

    if (dataset >= 0 && H5Dclose(dataset) < 0)
        address = HADDR_UNDEF;
    return address == HADDR_UNDEF ? -1 : (int64_t)address;
}

bp_err bp_shard_add(bp_shard *shard, bp_plan_slice *piece)
{
    char name[BP_PIECE_DATASET];
    bp_err err;

    bp_piece_dataset(name, piece->name, piece->number);
    err = make_groups(shard, piece->name);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    piece->address = add_dataset(shard, name, piece);
    if (piece->address < 0)
        err = bp_h5_fail(shard->file, "can't create the dataset", name);
    bp_h5_unlock();
    return err;
}

bp_err bp_shard_lay_out(bp_shard *shard)
{
    bp_err err = bp_h5_close(&shard->file);

    return err == BP_OK ? bp_direct_writer_open(&shard->content, shard->path) : err;
}

bp_err bp_shard_write(bp_shard *shard, const bp_plan_slice *piece, const bp_part *part,
                      const float *values)
{
    int64_t at = piece->address + part->first * (int64_t)sizeof *values;

    if (bp_fault("ckpt.shard_half"))
        return bp_fail_errno(BP_ERR_IO, "can't write", shard->path);
    return bp_direct_writer_put(shard->content, at, values, (size_t)part->count * sizeof *values);
}

bp_err bp_shard_seal(bp_shard *shard)
{
    bp_user_block block = {.kind = SHARD_KIND, .version = SHARD_VERSION};

    if (bp_fault("ckpt.shard_close"))
        return BP_FAIL(BP_ERR_IO, "can't close (fault injected): at %s", shard->path);
    return bp_direct_writer_seal(shard->content, &block);
}

bp_err bp_shard_read_back(bp_shard *shard, bool *more, char hash[BP_USER_BLOCK_HASH],
                          int64_t *bytes)
{
    return bp_direct_writer_read_back(shard->content, more, hash, bytes);
}

bp_err bp_shard_verify(const char *path, const char hash[BP_USER_BLOCK_HASH])
{
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path);

    if (err == BP_OK)
        err = bp_user_block_expect(&block, SHARD_KIND, SHARD_VERSION, path);
    if (err == BP_ERR_FORMAT || (err == BP_OK && strcmp(block.hash, hash) != 0))
        err = BP_FAIL(BP_ERR_FORMAT, "the XXH3-128 of %s is not that of the manifest: at %s",
                      bp_path_base(path), path);
    return err;
}

void bp_shard_free(bp_shard **shard)
{
    if (*shard == NULL)
        return;
    bp_h5_drop(&(*shard)->file);
    bp_direct_writer_free(&(*shard)->content);
    bp_free((*shard)->path);
    bp_free(*shard);
    *shard = NULL;
}

/* ---- reading ---- */

struct bp_shard_reader {
    bp_h5 *file;
};

bp_err bp_shard_open(bp_shard_reader **out, const char *path)
{
    bp_shard_reader *reader = bp_alloc("shard.reader", 1, sizeof *reader);
    bp_err err;

    *out = NULL;
    err = bp_h5_open(&reader->file, path);
    if (err != BP_OK)
        bp_shard_close(&reader);
    *out = reader;
    return err;
}

void bp_shard_close(bp_shard_reader **reader)
{
    if (*reader == NULL)
        return;
    bp_h5_drop(&(*reader)->file);
    bp_free(*reader);
    *reader = NULL;
}

/* Contiguous, inside the file, and of a floating-point type: nothing else is a piece, whoever wrote
 * it. */
static bool is_plain(hid_t dataset)
{
    hid_t plist = H5Dget_create_plist(dataset), type = H5Dget_type(dataset);
    bool plain = plist >= 0 && type >= 0 && H5Pget_layout(plist) == H5D_CONTIGUOUS &&
                 H5Pget_external_count(plist) == 0 && H5Tget_class(type) == H5T_FLOAT &&
                 H5Tget_size(type) == sizeof(float) && H5Dget_offset(dataset) != HADDR_UNDEF;

    if (plist >= 0)
        (void)H5Pclose(plist);
    if (type >= 0)
        (void)H5Tclose(type);
    return plain;
}

static bool has_extent(hid_t dataset, int dims, const int64_t *extent)
{
    hsize_t found[BP_TENSOR_DIMS] = {0};
    hid_t space = H5Dget_space(dataset);
    bool same = space >= 0 && H5Sget_simple_extent_ndims(space) == dims &&
                H5Sget_simple_extent_dims(space, found, NULL) == dims;

    for (int d = 0; d < dims && same; d++)
        same = found[d] == (hsize_t)extent[d];
    if (space >= 0)
        (void)H5Sclose(space);
    return same;
}

/* The rows [start, start + size) of a dataset; H5I_INVALID_HID on failure. */
static hid_t select_rows(hid_t dataset, int dims, const int64_t *start, const int64_t *size)
{
    hsize_t begin[BP_TENSOR_DIMS], count[BP_TENSOR_DIMS];
    hid_t space = H5Dget_space(dataset);

    for (int d = 0; d < dims; d++) {
        begin[d] = (hsize_t)start[d];
        count[d] = (hsize_t)size[d];
    }
    if (space >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL) < 0) {
        (void)H5Sclose(space);
        return H5I_INVALID_HID;
    }
    return space;
}

/* What piece and slice have in common, from the file straight to its place in the slice. */
static herr_t read_common(hid_t dataset, const bp_manifest_piece *piece, const bp_slice *slice)
{
    int64_t offset[BP_TENSOR_DIMS], size[BP_TENSOR_DIMS];
    hsize_t whole[BP_TENSOR_DIMS], begin[BP_TENSOR_DIMS], count[BP_TENSOR_DIMS];
    int64_t in_piece[BP_TENSOR_DIMS];
    hid_t rows, memory;
    herr_t status = -1;

    if (!bp_slice_intersect(slice->dims, piece->offset, piece->extent, slice->offset, slice->extent,
                            offset, size))
        return 0;
    for (int d = 0; d < slice->dims; d++) {
        in_piece[d] = offset[d] - piece->offset[d];
        whole[d] = (hsize_t)slice->extent[d];
        begin[d] = (hsize_t)(offset[d] - slice->offset[d]);
        count[d] = (hsize_t)size[d];
    }
    bp_heartbeat_progress();
    rows = select_rows(dataset, slice->dims, in_piece, size);
    memory = H5Screate_simple(slice->dims, whole, NULL);
    if (rows >= 0 && memory >= 0 &&
        H5Sselect_hyperslab(memory, H5S_SELECT_SET, begin, NULL, count, NULL) >= 0)
        status = H5Dread(dataset, H5T_NATIVE_FLOAT, memory, rows, H5P_DEFAULT, slice->data);
    if (rows >= 0)
        (void)H5Sclose(rows);
    if (memory >= 0)
        (void)H5Sclose(memory);
    return status;
}

static bp_err read_locked(bp_shard_reader *reader, const bp_manifest_piece *piece,
                          const bp_slice *slice)
{
    hid_t dataset = H5Dopen2((hid_t)bp_h5_id(reader->file), piece->dataset, H5P_DEFAULT);
    bp_err err = BP_OK;

    if (dataset < 0)
        return bp_h5_fail(reader->file, "can't open the dataset", piece->dataset);
    if (!is_plain(dataset) || !has_extent(dataset, slice->dims, piece->extent))
        err = BP_FAIL(BP_ERR_FORMAT,
                      "dataset %s is not the contiguous float32 piece that the manifest says: "
                      "in %s",
                      piece->dataset, bp_h5_path(reader->file));
    else if (read_common(dataset, piece, slice) < 0)
        err = bp_h5_fail(reader->file, "can't read the dataset", piece->dataset);
    (void)H5Dclose(dataset);
    return err;
}

bp_err bp_shard_read(bp_shard_reader *reader, const bp_manifest_tensor *tensor,
                     const bp_manifest_piece *piece, const bp_slice *slice)
{
    bp_err err;

    if (!bp_h5_has(reader->file, piece->dataset + 1)) /* behind hard links alone */
        return BP_FAIL(BP_ERR_FORMAT, "dataset %s of tensor '%s' is missing: in %s", piece->dataset,
                       tensor->name, bp_h5_path(reader->file));
    bp_h5_lock();
    err = read_locked(reader, piece, slice);
    bp_h5_unlock();
    return err;
}
