/* Datasets and attributes: writing. */
#include "h5_priv.h"

#include "base/fault.h"
#include "base/mem.h"

#include <string.h>

size_t bp_h5_type_bytes(bp_h5_type type)
{
    static const size_t bytes[] = {1, 2, 4, 8, 8, 4, 8};

    return bytes[type];
}

hid_t bp_h5_stored_type(bp_h5_type type)
{
    switch (type) {
    case BP_H5_U8:
        return H5T_STD_U8LE;
    case BP_H5_U16:
        return H5T_STD_U16LE;
    case BP_H5_U32:
        return H5T_STD_U32LE;
    case BP_H5_U64:
        return H5T_STD_U64LE;
    case BP_H5_I64:
        return H5T_STD_I64LE;
    case BP_H5_F32:
        return H5T_IEEE_F32LE;
    case BP_H5_F64:
        return H5T_IEEE_F64LE;
    }
    return -1;
}

hid_t bp_h5_memory_type(bp_h5_type type)
{
    switch (type) {
    case BP_H5_U8:
        return H5T_NATIVE_UINT8;
    case BP_H5_U16:
        return H5T_NATIVE_UINT16;
    case BP_H5_U32:
        return H5T_NATIVE_UINT32;
    case BP_H5_U64:
        return H5T_NATIVE_UINT64;
    case BP_H5_I64:
        return H5T_NATIVE_INT64;
    case BP_H5_F32:
        return H5T_NATIVE_FLOAT;
    case BP_H5_F64:
        return H5T_NATIVE_DOUBLE;
    }
    return -1;
}

/* Fixed-length UTF-8 padded with zeros; the caller closes it. */
static hid_t text_type(size_t width)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    if (type >= 0 && (H5Tset_size(type, width) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0 ||
                      H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

/* ---- datasets ---- */

/* Contiguous, its space taken at once (so that it has an address), nothing but our values written
 * to it. */
static hid_t make_dataset(hid_t file, const char *name, hid_t type, int dims, const hsize_t *extent)
{
    hid_t space = H5Screate_simple(dims, extent, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t dataset = -1;

    if (space >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0 &&
        H5Pset_layout(creation, H5D_CONTIGUOUS) >= 0 &&
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) >= 0 &&
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0)
        dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (creation >= 0)
        H5Pclose(creation);
    if (space >= 0)
        H5Sclose(space);
    return dataset;
}

/* The groups on the way to `name`. Not left to HDF5, whose own would carry the time of day. */
static bp_err make_parents(bp_h5 *file, const char *name)
{
    char path[512];
    bp_err err = BP_OK;

    for (const char *slash = strchr(name, '/'); slash != NULL && err == BP_OK;
         slash = strchr(slash + 1, '/')) {
        if (slash == name)
            continue;
        BP_ASSERT((size_t)(slash - name) < sizeof path);
        memcpy(path, name, (size_t)(slash - name));
        path[slash - name] = '\0';
        if (!bp_h5_has(file, path))
            err = bp_h5_make_group(file, path);
    }
    return err;
}

static bp_err make_typed(bp_h5 *file, const char *name, hid_t type, int dims, const hsize_t *extent)
{
    bp_err err = bp_h5_sound(file);
    hid_t dataset;

    if (err == BP_OK)
        err = make_parents(file, name);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    dataset = type >= 0 ? make_dataset(file->id, name, type, dims, extent) : -1;
    if (dataset < 0 || H5Dclose(dataset) < 0)
        err = bp_h5_fail(file, "can't create dataset", name);
    bp_h5_unlock();
    return err;
}

bool bp_h5_select(hid_t space, hsize_t first, hsize_t count)
{
    hsize_t extent[2] = {0, 1}, from[2] = {first, 0}, many[2] = {count, 1};
    int dims = H5Sget_simple_extent_dims(space, extent, NULL);

    if (dims == 2) {
        if (extent[1] == 0 || first % extent[1] != 0 || count % extent[1] != 0)
            return false;
        from[0] = first / extent[1];
        many[0] = count / extent[1];
        many[1] = extent[1];
    }
    return dims >= 1 && H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, many, NULL) >= 0;
}

/* Values [first, first + count) of a dataset that is there, or the whole. */
static bool write_values(hid_t dataset, hid_t type, hsize_t first, hsize_t count, const void *data,
                         bool whole)
{
    hid_t in_file = whole ? H5S_ALL : H5Dget_space(dataset);
    hid_t in_memory = whole ? H5S_ALL : H5Screate_simple(1, &count, NULL);
    bool done = in_file >= 0 && in_memory >= 0;

    if (done && !whole)
        done = bp_h5_select(in_file, first, count);
    done = done && H5Dwrite(dataset, type, in_memory, in_file, H5P_DEFAULT, data) >= 0;
    if (!whole && in_file >= 0)
        H5Sclose(in_file);
    if (!whole && in_memory >= 0)
        H5Sclose(in_memory);
    return done;
}

static bp_err write_typed(bp_h5 *file, const char *name, hid_t type, int64_t first, int64_t count,
                          const void *data, bool whole)
{
    bp_err err = bp_h5_sound(file);
    hid_t dataset;
    bool done;

    if (err != BP_OK || count == 0)
        return err;
    bp_h5_lock();
    dataset = type >= 0 ? H5Dopen2(file->id, name, H5P_DEFAULT) : -1;
    done = dataset >= 0 && !bp_fault("store.write") &&
           write_values(dataset, type, (hsize_t)first, (hsize_t)count, data, whole);
    if (dataset >= 0 && H5Dclose(dataset) < 0)
        done = false;
    if (!done)
        err = bp_h5_fail(file, "can't write dataset", name);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_make(bp_h5 *file, const char *name, bp_h5_type type, int64_t count)
{
    hsize_t extent = (hsize_t)count;

    bp_h5_lock(); /* the types are known once the library has started */
    bp_err err = make_typed(file, name, bp_h5_stored_type(type), 1, &extent);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_write_slab(bp_h5 *file, const char *name, bp_h5_type type, int64_t first,
                        const void *data, int64_t count)
{
    bp_h5_lock();
    bp_err err = write_typed(file, name, bp_h5_memory_type(type), first, count, data, false);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_write(bp_h5 *file, const char *name, bp_h5_type type, const void *data, int64_t count)
{
    bp_err err = bp_h5_make(file, name, type, count);

    if (err == BP_OK)
        err = bp_h5_write_slab(file, name, type, 0, data, count);
    return err;
}

bp_err bp_h5_make_grid(bp_h5 *file, const char *name, bp_h5_type type, int64_t rows,
                       int64_t columns)
{
    hsize_t extent[2] = {(hsize_t)rows, (hsize_t)columns};

    bp_h5_lock();
    bp_err err = make_typed(file, name, bp_h5_stored_type(type), 2, extent);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_write_grid(bp_h5 *file, const char *name, bp_h5_type type, const void *data,
                        int64_t rows, int64_t columns)
{
    bp_err err = bp_h5_make_grid(file, name, type, rows, columns);

    bp_h5_lock();
    if (err == BP_OK && rows > 0 && columns > 0)
        err = write_typed(file, name, bp_h5_memory_type(type), 0, rows, data, true);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_make_text(bp_h5 *file, const char *name, size_t width, int64_t count)
{
    hsize_t extent = (hsize_t)count;
    bp_err err;

    bp_h5_lock();
    hid_t type = text_type(width);
    err = make_typed(file, name, type, 1, &extent);
    if (type >= 0)
        H5Tclose(type);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_write_text_slab(bp_h5 *file, const char *name, size_t width, int64_t first,
                             const char *data, int64_t count)
{
    bp_err err;

    bp_h5_lock();
    hid_t type = text_type(width);
    err = write_typed(file, name, type, first, count, data, false);
    if (type >= 0)
        H5Tclose(type);
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
    hid_t at, space, attribute = -1;
    bool done;

    if (err != BP_OK)
        return err;
    at = H5Oopen(file->id, object, H5P_DEFAULT);
    space = H5Screate(H5S_SCALAR);
    if (at >= 0 && space >= 0 && stored >= 0)
        attribute = H5Acreate2(at, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    done = attribute >= 0 && H5Awrite(attribute, memory, value) >= 0;
    if (!done)
        err = bp_h5_fail(file, "can't write attribute", name);
    if (attribute >= 0)
        H5Aclose(attribute);
    if (space >= 0)
        H5Sclose(space);
    if (at >= 0)
        H5Oclose(at);
    return err;
}

bp_err bp_h5_put_int(bp_h5 *file, const char *object, const char *name, int64_t value)
{
    bp_err err;

    bp_h5_lock();
    err = put(file, object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_put_real(bp_h5 *file, const char *object, const char *name, double value)
{
    bp_err err;

    bp_h5_lock();
    err = put(file, object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_put_text(bp_h5 *file, const char *object, const char *name, const char *value)
{
    size_t bytes = strlen(value);
    bp_err err;

    bp_h5_lock();
    hid_t type = text_type(bytes > 0 ? bytes : 1);
    err = put(file, object, name, type, type, value);
    if (type >= 0)
        H5Tclose(type);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_make_group(bp_h5 *file, const char *name)
{
    bp_err err = bp_h5_sound(file);
    hid_t creation, group = -1;

    if (err != BP_OK)
        return err;
    bp_h5_lock();
    creation = H5Pcreate(H5P_GROUP_CREATE);
    if (creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0)
        group = H5Gcreate2(file->id, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (group < 0 || H5Gclose(group) < 0)
        err = bp_h5_fail(file, "can't create group", name);
    if (creation >= 0)
        H5Pclose(creation);
    bp_h5_unlock();
    return err;
}
