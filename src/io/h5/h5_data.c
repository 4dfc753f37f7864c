/* Datasets and attributes: writing. h5_read.c reads them. */
#include "io/h5/h5_parts.h"

#include "base/fault.h"
#include "base/mem.h"

#include <string.h>

size_t bp_h5_type_bytes(bp_h5_type type)
{
    static const size_t bytes[] = {1, 2, 4, 8, 8, 4, 8};

    return bytes[type];
}

/* The file's types: little-endian; borrowed. Types are known once the library has started. */
static hid_t stored_type(bp_h5_type type)
{
    const hid_t types[] = {
        [BP_H5_U8] = H5T_STD_U8LE,   [BP_H5_U16] = H5T_STD_U16LE, [BP_H5_U32] = H5T_STD_U32LE,
        [BP_H5_U64] = H5T_STD_U64LE, [BP_H5_I64] = H5T_STD_I64LE, [BP_H5_F32] = H5T_IEEE_F32LE,
        [BP_H5_F64] = H5T_IEEE_F64LE};

    return types[type];
}

hid_t bp_h5_memory_type(bp_h5_type type)
{
    const hid_t types[] = {[BP_H5_U8] = H5T_NATIVE_UINT8,   [BP_H5_U16] = H5T_NATIVE_UINT16,
                           [BP_H5_U32] = H5T_NATIVE_UINT32, [BP_H5_U64] = H5T_NATIVE_UINT64,
                           [BP_H5_I64] = H5T_NATIVE_INT64,  [BP_H5_F32] = H5T_NATIVE_FLOAT,
                           [BP_H5_F64] = H5T_NATIVE_DOUBLE};

    return types[type];
}

/* Fixed-length UTF-8 padded with zeros; the caller closes it. */
static hid_t text_type(size_t width)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    if (H5Tset_size(type, width) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
        H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        return type;
    bp_h5_release(type);
    return H5I_INVALID_HID;
}

/* ---- datasets ---- */

/* Contiguous, allocated at once (so that it has an address), without fill values or times. */
static hid_t make_dataset(hid_t file, const char *name, hid_t type, int dims, const int64_t *extent)
{
    hsize_t sizes[BP_H5_DIMS];
    hid_t space, creation = H5Pcreate(H5P_DATASET_CREATE), dataset = H5I_INVALID_HID;

    BP_ASSERT(dims <= BP_H5_DIMS);
    for (int d = 0; d < dims; d++)
        sizes[d] = (hsize_t)extent[d];
    space = H5Screate_simple(dims, sizes, NULL);
    if (H5Pset_obj_track_times(creation, 0) >= 0 && H5Pset_layout(creation, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0)
        dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    bp_h5_release(creation);
    bp_h5_release(space);
    return dataset;
}

/* Creates the groups on the path to `name`: those that HDF5 creates would have the time of day. */
static bp_err make_parents(bp_h5 *file, const char *name)
{
    char path[512];
    bp_err err = BP_OK;

    for (const char *slash = strchr(name + 1, '/'); slash && err == BP_OK;
         slash = strchr(slash + 1, '/')) {
        BP_ASSERT((size_t)(slash - name) < sizeof path);
        memcpy(path, name, (size_t)(slash - name));
        path[slash - name] = '\0';
        if (!bp_h5_has(file, path))
            err = bp_h5_make_group(file, path);
    }
    return err;
}

static bp_err make_typed(bp_h5 *file, const char *name, hid_t type, int dims, const int64_t *extent,
                         int64_t *address)
{
    bp_err err = bp_h5_sound(file);
    haddr_t at;
    hid_t dataset;

    if (err == BP_OK)
        err = make_parents(file, name);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    dataset = make_dataset(file->id, name, type, dims, extent);
    at = dataset >= 0 && address ? H5Dget_offset(dataset) : 0;
    if (H5Dclose(dataset) < 0 || at == HADDR_UNDEF)
        err = bp_h5_fail(file, "can't create dataset", name);
    else if (address)
        *address = (int64_t)at;
    bp_h5_unlock();
    return err;
}

bool bp_h5_select(hid_t space, hsize_t first, hsize_t count)
{
    hsize_t extent[H5S_MAX_RANK] = {0, 1}, from[2] = {first, 0}, many[2] = {count, 1};
    int dims = H5Sget_simple_extent_dims(space, extent, NULL);

    if (dims > 2)
        return first == 0 && H5Sget_simple_extent_npoints(space) == (hssize_t)count &&
               H5Sselect_all(space) >= 0;

    if (dims == 2) {
        if (extent[1] == 0 || first % extent[1] != 0 || count % extent[1] != 0)
            return false;
        from[0] = first / extent[1];
        many[0] = count / extent[1];
        many[1] = extent[1];
    }
    return dims >= 1 && H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, many, NULL) >= 0;
}

/* Values [first, first + count) of an existing dataset. */
static bp_err write_typed(bp_h5 *file, const char *name, hid_t type, int64_t first,
                          const void *data, int64_t count)
{
    bp_err err = bp_h5_sound(file);
    hsize_t many = (hsize_t)count;
    hid_t dataset, in_file, in_memory;

    if (err != BP_OK || count == 0)
        return err;
    dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    in_file = H5Dget_space(dataset);
    in_memory = H5Screate_simple(1, &many, NULL);
    if (bp_fault("store.write") || !bp_h5_select(in_file, (hsize_t)first, many) ||
        H5Dwrite(dataset, type, in_memory, in_file, H5P_DEFAULT, data) < 0)
        err = bp_h5_fail(file, "can't write dataset", name);
    bp_h5_release(in_file);
    bp_h5_release(in_memory);
    if (H5Dclose(dataset) < 0 && err == BP_OK)
        err = bp_h5_fail(file, "can't write dataset", name);
    bp_h5_forget();
    return err;
}

bp_err bp_h5_make_array(bp_h5 *file, const char *name, bp_h5_type type, int dims,
                        const int64_t *extent, int64_t *address)
{
    bp_h5_lock();
    bp_err err = make_typed(file, name, stored_type(type), dims, extent, address);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_make(bp_h5 *file, const char *name, bp_h5_type type, int64_t count)
{
    return bp_h5_make_array(file, name, type, 1, &count, NULL);
}

bp_err bp_h5_write_slab(bp_h5 *file, const char *name, bp_h5_type type, int64_t first,
                        const void *data, int64_t count)
{
    bp_h5_lock();
    bp_err err = write_typed(file, name, bp_h5_memory_type(type), first, data, count);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_write(bp_h5 *file, const char *name, bp_h5_type type, const void *data, int64_t count)
{
    bp_err err = bp_h5_make(file, name, type, count);

    return err == BP_OK ? bp_h5_write_slab(file, name, type, 0, data, count) : err;
}

bp_err bp_h5_make_text(bp_h5 *file, const char *name, size_t width, int64_t count)
{
    bp_h5_lock();
    hid_t type = text_type(width);
    bp_err err = make_typed(file, name, type, 1, &count, NULL);
    bp_h5_release(type);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_write_text_slab(bp_h5 *file, const char *name, size_t width, int64_t first,
                             const char *data, int64_t count)
{
    bp_h5_lock();
    hid_t type = text_type(width);
    bp_err err = write_typed(file, name, type, first, data, count);
    bp_h5_release(type);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_write_texts(bp_h5 *file, const char *name, const char *const *texts, int64_t count)
{
    size_t width = 1;
    char *padded;
    bp_err err;

    for (int64_t k = 0; k < count; k++) {
        size_t bytes = strlen(texts[k]);
        width = bytes > width ? bytes : width;
    }
    padded = bp_alloc("io.texts", count, width);
    for (int64_t k = 0; k < count; k++)
        memcpy(padded + (size_t)k * width, texts[k], strlen(texts[k]));
    err = bp_h5_make_text(file, name, width, count);
    if (err == BP_OK)
        err = bp_h5_write_text_slab(file, name, width, 0, padded, count);
    bp_free(padded);
    return err;
}

/* ---- attributes and groups ---- */

static bp_err put(bp_h5 *file, const char *object, const char *name, hid_t stored, hid_t memory,
                  const void *value)
{
    bp_err err = bp_h5_sound(file);
    hid_t at, space, attribute;

    if (err != BP_OK)
        return err;
    at = H5Oopen(file->id, object, H5P_DEFAULT);
    space = H5Screate(H5S_SCALAR);
    attribute = H5Acreate2(at, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    if (H5Awrite(attribute, memory, value) < 0)
        err = bp_h5_fail(file, "can't write attribute", name);
    bp_h5_release(attribute);
    bp_h5_release(space);
    bp_h5_release(at);
    return err;
}

bp_err bp_h5_put_int(bp_h5 *file, const char *object, const char *name, int64_t value)
{
    bp_h5_lock();
    bp_err err = put(file, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_put_text(bp_h5 *file, const char *object, const char *name, const char *value)
{
    size_t bytes = strlen(value);

    bp_h5_lock();
    hid_t type = text_type(bytes > 0 ? bytes : 1);
    bp_err err = put(file, object, name, type, type, value);
    bp_h5_release(type);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_make_group(bp_h5 *file, const char *name)
{
    bp_err err = bp_h5_sound(file);
    hid_t creation, group = H5I_INVALID_HID;

    if (err != BP_OK)
        return err;
    bp_h5_lock();
    creation = H5Pcreate(H5P_GROUP_CREATE);
    if (H5Pset_obj_track_times(creation, 0) >= 0)
        group = H5Gcreate2(file->id, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (H5Gclose(group) < 0)
        err = bp_h5_fail(file, "can't create group", name);
    bp_h5_release(creation);
    bp_h5_unlock();
    return err;
}
