/* Checks of a foreign dataset before it is read: prevents an untrusted file from misusing the HDF5
 * library. */
#include "io/h5/h5_parts.h"

#include "io/h5/lzf_filter.h"
#include "io/h5/zstd_filter.h"

#include <inttypes.h>

#define CHUNK_LIMIT_BYTES ((hsize_t)256 << 20)
#define COPY_IT           "copy what is in /tokens, /doc_start and vocab_size into a new file"

static bp_err walk_filters(bp_h5 *file, const char *name, hid_t creation)
{
    int count = H5Pget_nfilters(creation);

    if (count < 0)
        return bp_h5_fail(file, "can't read the filters of", name);
    for (int k = 0; k < count; k++) {
        unsigned flags = 0, config = 0;
        size_t values = 0;
        char filter_name[64] = "";
        H5Z_filter_t id = H5Pget_filter2(creation, (unsigned)k, &flags, &values, NULL,
                                         sizeof filter_name, filter_name, &config);
        bp_h5_forget();
        if (id != H5Z_FILTER_DEFLATE && id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_FLETCHER32 &&
            id != BP_FILTER_LZF && id != BP_FILTER_ZSTD)
            return BP_FAIL(BP_ERR_FORMAT, "h5.unknown_filter",
                           "%s has filter %d (%s): at %s; write it with gzip, lzf, shuffle or zstd",
                           name, (int)id, filter_name[0] != '\0' ? filter_name : "without a name",
                           file->path);
    }
    return BP_OK;
}

/* Checks that a contiguous dataset is inside the file. */
static bp_err walk_contiguous(bp_h5 *file, const char *name, hid_t dataset, uint64_t bytes)
{
    haddr_t offset = H5Dget_offset(dataset);
    hsize_t file_bytes = 0;

    bp_h5_forget();
    if (H5Fget_filesize(file->id, &file_bytes) < 0)
        return bp_h5_fail(file, "can't read the size of", NULL);
    if (offset == HADDR_UNDEF || offset > file_bytes || bytes > file_bytes - offset)
        return BP_FAIL(BP_ERR_FORMAT, "h5.claims_too_much",
                       "%s claims %" PRIu64
                       " bytes, more than is stored: at %s; write all its values",
                       name, bytes, file->path);
    return BP_OK;
}

/* Checks that every chunk of the shape exists. */
static bp_err walk_chunks(bp_h5 *file, const char *name, hid_t dataset, hid_t creation,
                          const bp_h5_shape *shape)
{
    hsize_t chunk[H5S_MAX_RANK] = {0}, extent[H5S_MAX_RANK] = {0}, values = 1, there = 0,
            needed = 1;
    hid_t space = H5Dget_space(dataset);
    herr_t counted = H5Dget_num_chunks(dataset, space, &there);
    bool known = H5Pget_chunk(creation, shape->dims, chunk) == shape->dims &&
                 H5Sget_simple_extent_dims(space, extent, NULL) == shape->dims;

    bp_h5_release(space);
    for (int d = 0; d < shape->dims && known; d++) {
        known = chunk[d] > 0;
        if (known && values > CHUNK_LIMIT_BYTES / shape->width / chunk[d])
            return BP_FAIL(BP_ERR_FORMAT, "h5.large_chunks",
                           "%s has chunks of %llu values: at %s; write it with smaller ones", name,
                           (unsigned long long)(values * chunk[d]), file->path);
        values *= known ? chunk[d] : 1;
        needed *= known ? (extent[d] + chunk[d] - 1) / chunk[d] : 1;
    }
    if (!known)
        return bp_h5_fail(file, "can't read the chunks of", name);
    if (counted < 0)
        return bp_h5_fail(file, "can't read the chunks of", name);
    if (there != needed)
        return BP_FAIL(
            BP_ERR_FORMAT, "h5.claims_too_much",
            "%s claims %" PRId64 " values, more than is stored (%llu of %llu chunks): at "
            "%s; write all its values",
            name, shape->count, (unsigned long long)there, (unsigned long long)needed, file->path);
    return BP_OK;
}

static bp_err walk_layout(bp_h5 *file, const char *name, hid_t dataset, hid_t creation,
                          const bp_h5_shape *shape)
{
    if (H5Pget_external_count(creation) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "h5.external",
                       "%s is in other files (external storage): at %s; " COPY_IT, name,
                       file->path);
    switch (H5Pget_layout(creation)) {
    case H5D_COMPACT:
        return BP_OK;
    case H5D_CONTIGUOUS:
        return shape->count == 0
                   ? BP_OK
                   : walk_contiguous(file, name, dataset, (uint64_t)shape->count * shape->width);
    case H5D_CHUNKED:
        return walk_chunks(file, name, dataset, creation, shape);
    default:
        return BP_FAIL(BP_ERR_FORMAT, "h5.virtual", "%s is a virtual dataset: at %s; " COPY_IT,
                       name, file->path);
    }
}

/* A named type refers to another object of the file. */
static bp_err walk_type(bp_h5 *file, const char *name, hid_t dataset)
{
    hid_t type = H5Dget_type(dataset);
    htri_t is_named = H5Tcommitted(type);

    bp_h5_release(type);
    if (is_named < 0)
        return bp_h5_fail(file, "can't read the type of", name);
    return is_named == 0 ? BP_OK
                         : BP_FAIL(BP_ERR_FORMAT, "h5.named_type",
                                   "%s is of a named type (a committed one): at %s; write it with "
                                   "a plain one (h5py: a dtype of NumPy)",
                                   name, file->path);
}

bp_err bp_h5_walk_dataset(bp_h5 *file, const char *name, hid_t dataset, const bp_h5_shape *shape)
{
    hid_t creation = H5Dget_create_plist(dataset);
    bp_err err = BP_OK;

    if (creation < 0)
        err = bp_h5_fail(file, "can't read the properties of", name);
    if (err == BP_OK)
        err = walk_type(file, name, dataset);
    if (err == BP_OK)
        err = walk_layout(file, name, dataset, creation, shape);
    if (err == BP_OK)
        err = walk_filters(file, name, creation);
    if (err == BP_OK && H5Pget_layout(creation) == H5D_CHUNKED)
        err = bp_h5_walk_lengths(file, name, dataset, creation, shape);
    bp_h5_release(creation);
    return err;
}

bp_err bp_h5_walk(bp_h5 *file, const char *name)
{
    hid_t dataset;
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(file, name, &shape);

    if (err != BP_OK)
        return err;
    if (shape.dims != 1)
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_dims",
                       "%s has %d dimensions, not 1: at %s; " BP_H5_REMEDY, name, shape.dims,
                       file->path);
    err = bp_h5_open_dataset(file, name, &dataset);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    err = bp_h5_walk_dataset(file, name, dataset, &shape);
    H5Dclose(dataset);
    bp_h5_unlock();
    return bp_err_advise(err, BP_H5_REMEDY);
}
