/* Datasets and attributes: reading. */
#include "io/h5/h5_parts.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define TEXT_LIMIT_BYTES 65536

/* ---- finding things ---- */

/* Does `name` exist, reached only by hard links? */
static bp_err hard_path(bp_h5 *file, const char *name, bool *is_missing)
{
    char path[512];
    size_t bytes = strlen(name);
    bp_err err = BP_OK;

    if (bytes >= sizeof path)
        return BP_FAIL(BP_ERR_FORMAT, "h5.name_too_long", "a name of %zu bytes: at %s", bytes,
                       file->path);
    bp_h5_lock();
    for (size_t n = 1; n <= bytes && err == BP_OK; n++) {
        H5L_info_t info;
        if (n < bytes && name[n] != '/')
            continue;
        memcpy(path, name, n);
        path[n] = '\0';
        if (strcmp(path, "/") == 0)
            continue;
        if (H5Lexists(file->id, path, H5P_DEFAULT) <= 0 ||
            H5Lget_info(file->id, path, &info, H5P_DEFAULT) < 0) {
            bp_h5_forget();
            *is_missing = true;
            err = BP_FAIL(BP_ERR_FORMAT, "h5.missing", "%s%s is missing: at %s",
                          name[0] == '/' ? "" : "/", name, file->path);
        } else if (info.type != H5L_TYPE_HARD) {
            err = BP_FAIL(BP_ERR_FORMAT, "h5.link",
                          "%s is %s link: at %s; copy what it points at into the file", path,
                          info.type == H5L_TYPE_EXTERNAL ? "an external" : "a soft", file->path);
        }
    }
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_find(bp_h5 *file, const char *name, bool *found)
{
    bool is_missing = false;
    bp_err err = hard_path(file, name, &is_missing);

    *found = err == BP_OK;
    return is_missing ? BP_OK : err;
}

bool bp_h5_has(bp_h5 *file, const char *name)
{
    bool is_missing;

    return hard_path(file, name, &is_missing) == BP_OK;
}

bool bp_h5_is_group(bp_h5 *file, const char *name)
{
    if (!bp_h5_has(file, name))
        return false;
    bp_h5_lock();
    hid_t object = H5Oopen(file->id, name, H5P_DEFAULT);
    bool is_group = H5Iget_type(object) == H5I_GROUP;
    bp_h5_release(object);
    bp_h5_forget();
    bp_h5_unlock();
    return is_group;
}

bp_err bp_h5_open_dataset(bp_h5 *file, const char *name, hid_t *dataset)
{
    bool is_missing;
    bp_err err = hard_path(file, name, &is_missing);
    hid_t object;

    *dataset = H5I_INVALID_HID;
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    object = H5Oopen(file->id, name, H5P_DEFAULT);
    if (object < 0) {
        err = bp_h5_fail(file, "can't open dataset", name);
    } else if (H5Iget_type(object) != H5I_DATASET) {
        err = BP_FAIL(BP_ERR_FORMAT, "h5.not_a_dataset", "%s is not a dataset: at %s", name,
                      file->path);
        H5Oclose(object);
    } else {
        *dataset = object;
    }
    bp_h5_unlock();
    return err;
}

typedef struct name_list {
    char **names;
    int64_t count, capacity;
} name_list;

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    name_list *list = context;

    (void)group;
    if (info->type != H5L_TYPE_HARD)
        return 0;
    list->names =
        bp_grow("io.names", list->names, &list->capacity, list->count + 1, sizeof *list->names);
    list->names[list->count++] = bp_strdup(name);
    return 0;
}

bp_err bp_h5_names(bp_h5 *file, const char *group, char ***names, int64_t *count)
{
    name_list list = {NULL, 0, 0};
    bp_err err = BP_OK;

    *names = NULL;
    *count = 0;
    if (strcmp(group, "/") != 0 && !bp_h5_has(file, group))
        return BP_OK;
    bp_h5_lock();
    hid_t at = H5Gopen2(file->id, group, H5P_DEFAULT);
    if (at < 0 || H5Literate(at, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, &list) < 0)
        err = bp_h5_fail(file, "can't list group", group);
    bp_h5_release(at);
    bp_h5_unlock();
    if (err != BP_OK) {
        bp_names_free(&list.names, list.count);
        return err;
    }
    *names = list.names;
    *count = list.count;
    return BP_OK;
}

/* ---- shape ---- */

static bp_err type_of(bp_h5 *file, const char *name, hid_t type, bp_h5_shape *shape)
{
    H5T_class_t class = H5Tget_class(type);
    bool is_text = class == H5T_STRING && H5Tis_variable_str(type) == 0;

    if (class != H5T_INTEGER && class != H5T_FLOAT && !is_text)
        return BP_FAIL(
            BP_ERR_FORMAT, "h5.wrong_type",
            "%s holds neither integers, reals nor fixed-length text: at %s; write one of "
            "those (h5py: dtype='S20' for text)",
            name, file->path);
    shape->is_text = is_text;
    shape->is_real = class == H5T_FLOAT;
    shape->is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    shape->width = H5Tget_size(type);
    if (shape->width == 0 || shape->width > (is_text ? TEXT_LIMIT_BYTES : 8))
        return BP_FAIL(BP_ERR_FORMAT, "h5.too_wide", "%s has values of %zu bytes: at %s", name,
                       shape->width, file->path);
    return BP_OK;
}

static bp_err extent_of(bp_h5 *file, const char *name, hid_t space, bp_h5_shape *shape)
{
    hsize_t extent[2] = {0, 1};

    shape->dims = H5Sget_simple_extent_ndims(space);
    if (shape->dims < 0)
        return bp_h5_fail(file, "can't read the shape of", name);
    if (H5Sis_simple(space) <= 0 || shape->dims < 1 || shape->dims > 2)
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_dims", "%s has %d dimensions, not 1: at %s", name,
                       shape->dims, file->path);
    if (H5Sget_simple_extent_dims(space, extent, NULL) < 0)
        return bp_h5_fail(file, "can't read the shape of", name);
    if (extent[0] > INT64_MAX / TEXT_LIMIT_BYTES ||
        (extent[1] != 0 && extent[0] > (hsize_t)(INT64_MAX / TEXT_LIMIT_BYTES) / extent[1]))
        return BP_FAIL(BP_ERR_FORMAT, "h5.claims_too_much",
                       "%s claims %llu values: at %s, which can't hold them", name,
                       (unsigned long long)extent[0], file->path);
    shape->count = (int64_t)(extent[0] * extent[1]);
    shape->columns = (int64_t)extent[1];
    return BP_OK;
}

bp_err bp_h5_shape_of(bp_h5 *file, const char *name, bp_h5_shape *shape)
{
    hid_t dataset, type, space;
    haddr_t offset;
    bp_err err;

    memset(shape, 0, sizeof *shape);
    err = bp_h5_open_dataset(file, name, &dataset);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    type = H5Dget_type(dataset);
    space = H5Dget_space(dataset);
    err = type_of(file, name, type, shape);
    if (err == BP_OK)
        err = extent_of(file, name, space, shape);
    offset = H5Dget_offset(dataset); /* undefined, without an error, if chunked */
    bp_h5_forget();
    shape->offset = offset == HADDR_UNDEF || offset > INT64_MAX ? -1 : (int64_t)offset;
    bp_h5_release(space);
    bp_h5_release(type);
    H5Dclose(dataset);
    bp_h5_unlock();
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* ---- values ---- */

bool bp_h5_read_values(hid_t dataset, hid_t type, hsize_t first, hsize_t count, void *data)
{
    hid_t in_file = H5Dget_space(dataset);
    hid_t in_memory = H5Screate_simple(1, &count, NULL);
    bool done = bp_h5_select(in_file, first, count) &&
                H5Dread(dataset, type, in_memory, in_file, H5P_DEFAULT, data) >= 0;

    bp_h5_release(in_file);
    bp_h5_release(in_memory);
    return done;
}

static bp_err read_typed(bp_h5 *file, const char *name, hid_t type, const bp_h5_shape *shape,
                         int64_t first, int64_t count, void *data)
{
    hid_t dataset;
    bp_err err;

    if (first < 0 || count < 0 || first > shape->count - count)
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_length",
                       "%s has %" PRId64 " values, not the %" PRId64 " looked for: at %s", name,
                       shape->count, first + count, file->path);
    if (count == 0)
        return BP_OK;
    err = bp_h5_open_dataset(file, name, &dataset);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    if (!bp_h5_read_values(dataset, type, (hsize_t)first, (hsize_t)count, data))
        err = bp_h5_fail(file, "can't read dataset", name);
    H5Dclose(dataset);
    bp_h5_unlock();
    return err;
}

bp_err bp_h5_read(bp_h5 *file, const char *name, bp_h5_type type, int64_t first, void *data,
                  int64_t count)
{
    bool wants_real = type == BP_H5_F32 || type == BP_H5_F64;
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(file, name, &shape);

    if (err != BP_OK)
        return err;
    if (shape.is_text || (shape.is_real && !wants_real))
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_type", "%s holds %s, not %s: at %s; " BP_H5_REMEDY,
                       name, shape.is_text ? "text" : "reals", wants_real ? "reals" : "integers",
                       file->path);
    if (shape.dims == 2 && shape.columns > 0 &&
        (first % shape.columns != 0 || count % shape.columns != 0))
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_dims",
                       "%s has rows of %" PRId64 " values: at %s; " BP_H5_REMEDY, name,
                       shape.columns, file->path);
    bp_h5_lock();
    err = read_typed(file, name, bp_h5_memory_type(type), &shape, first, count, data);
    bp_h5_unlock();
    return bp_err_advise(err, BP_H5_REMEDY);
}

bp_err bp_h5_read_text(bp_h5 *file, const char *name, size_t width, int64_t first, char *data,
                       int64_t count)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(file, name, &shape);

    if (err != BP_OK)
        return err;
    if (!shape.is_text || shape.width != width || shape.dims != 1)
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_type",
                       "%s holds no text of %zu bytes: at %s; " BP_H5_REMEDY, name, width,
                       file->path);
    bp_h5_lock();
    hid_t dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    hid_t type = H5Dget_type(dataset); /* its own: no conversion between ASCII and UTF-8 */
    err = read_typed(file, name, type, &shape, first, count, data);
    bp_h5_release(dataset);
    bp_h5_release(type);
    bp_h5_unlock();
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* ---- attributes ---- */

bool bp_h5_has_attribute(bp_h5 *file, const char *object, const char *name)
{
    htri_t there;

    bp_h5_lock();
    there = H5Aexists_by_name(file->id, object, name, H5P_DEFAULT);
    bp_h5_forget();
    bp_h5_unlock();
    return there > 0;
}

/* Open an attribute that has one value; the caller closes it, after an error too. */
static bp_err open_attribute(bp_h5 *file, const char *object, const char *name, H5T_class_t class,
                             hid_t *attribute, hid_t *type)
{
    *attribute = H5Aopen_by_name(file->id, object, name, H5P_DEFAULT, H5P_DEFAULT);
    *type = H5Aget_type(*attribute);
    hid_t space = H5Aget_space(*attribute);
    bool is_one = H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(*type) == class;

    bp_h5_release(space);
    bp_h5_forget();
    if (*attribute < 0)
        return BP_FAIL(BP_ERR_FORMAT, "h5.missing_attribute",
                       "attribute %s of %s is missing: at %s", name, object, file->path);
    if (!is_one)
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_attribute",
                       "attribute %s of %s is not one %s: at %s", name, object,
                       class == H5T_STRING ? "string" : "number", file->path);
    return BP_OK;
}

bp_err bp_h5_get_int(bp_h5 *file, const char *object, const char *name, int64_t *value)
{
    hid_t attribute, type;

    bp_h5_lock();
    bp_err err = open_attribute(file, object, name, H5T_INTEGER, &attribute, &type);
    if (err == BP_OK && H5Aread(attribute, H5T_NATIVE_INT64, value) < 0)
        err = bp_h5_fail(file, "can't read attribute", name);
    bp_h5_release(type);
    bp_h5_release(attribute);
    bp_h5_unlock();
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* Fixed or variable length; HDF5 owns a variable-length one. */
static bp_err read_attribute_text(bp_h5 *file, const char *name, hid_t attribute, hid_t type,
                                  char *out, size_t out_bytes)
{
    bool is_variable = H5Tis_variable_str(type) > 0;
    size_t width = H5Tget_size(type);
    char *theirs = NULL, *ours, *text;
    bp_err err = BP_OK;

    if (width == 0 || width > TEXT_LIMIT_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_attribute", "attribute %s has %zu bytes: at %s",
                       name, width, file->path);
    ours = bp_alloc("io.attribute", (int64_t)width + 1, 1);
    if (H5Aread(attribute, type, is_variable ? (void *)&theirs : ours) < 0)
        err = bp_h5_fail(file, "can't read attribute", name);
    text = theirs ? theirs : is_variable ? "" : ours;
    if (err == BP_OK && strlen(text) >= out_bytes)
        err = BP_FAIL(BP_ERR_FORMAT, "h5.wrong_attribute",
                      "attribute %s is longer than %zu bytes: at %s", name, out_bytes - 1,
                      file->path);
    if (err == BP_OK)
        memcpy(out, text, strlen(text) + 1);
    if (theirs)
        H5free_memory(theirs);
    bp_free(ours);
    return err;
}

bp_err bp_h5_get_text(bp_h5 *file, const char *object, const char *name, char *out,
                      size_t out_bytes)
{
    hid_t attribute, type;

    out[0] = '\0';
    bp_h5_lock();
    bp_err err = open_attribute(file, object, name, H5T_STRING, &attribute, &type);
    if (err == BP_OK)
        err = read_attribute_text(file, name, attribute, type, out, out_bytes);
    bp_h5_release(type);
    bp_h5_release(attribute);
    bp_h5_unlock();
    return bp_err_advise(err, BP_H5_REMEDY);
}
