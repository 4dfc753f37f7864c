/* Whole arrays of foreign files, of sizes known in advance. */
#include "io/h5/h5_parts.h"

#include "base/buffer.h"

static void append_sizes(bp_buffer *text, int dims, const hsize_t *extent)
{
    for (int d = 0; d < dims; d++)
        bp_buffer_printf(text, "%s%llu", d > 0 ? ", " : "", (unsigned long long)extent[d]);
}

/* Checks that the dataset is of reals with these sizes; *shape is for the walk. */
static bp_err check_sizes(bp_h5 *file, const char *name, hid_t dataset, int dims,
                          const int64_t *extent, bp_h5_shape *shape)
{
    hsize_t found[H5S_MAX_RANK] = {0}, wanted[BP_H5_DIMS] = {0};
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    int found_dims = H5Sget_simple_extent_dims(space, found, NULL);
    bool is_same = found_dims == dims;
    bp_buffer have = {0}, want = {0};
    bp_err err = BP_OK;

    *shape = (bp_h5_shape){.dims = dims, .count = 1, .columns = 1, .width = H5Tget_size(type)};
    shape->is_real = H5Tget_class(type) == H5T_FLOAT && shape->width > 0 && shape->width <= 8;
    for (int d = 0; d < dims; d++) {
        wanted[d] = (hsize_t)extent[d];
        is_same = is_same && found[d] == wanted[d];
        shape->count *= extent[d];
    }
    append_sizes(&have, found_dims > 0 ? found_dims : 0, found);
    append_sizes(&want, dims, wanted);
    if (!shape->is_real)
        err = BP_FAIL(BP_ERR_FORMAT, "h5.wrong_type", "%s holds no real numbers: at %s", name,
                      file->path);
    else if (!is_same)
        err = BP_FAIL(BP_ERR_FORMAT, "h5.wrong_dims", "%s is of (%s), not of (%s): at %s", name,
                      have.data ? have.data : "", want.data, file->path);
    bp_buffer_clear(&have);
    bp_buffer_clear(&want);
    bp_h5_release(space);
    bp_h5_release(type);
    return err;
}

bp_err bp_h5_read_array(bp_h5 *file, const char *name, int dims, const int64_t *extent, float *data)
{
    bp_h5_shape shape;
    hid_t dataset;
    bp_err err = bp_h5_open_dataset(file, name, &dataset);

    if (err != BP_OK)
        return err;
    bp_h5_lock();
    err = check_sizes(file, name, dataset, dims, extent, &shape);
    if (err == BP_OK)
        err = bp_h5_walk_dataset(file, name, dataset, &shape);
    if (err == BP_OK &&
        !bp_h5_read_values(dataset, H5T_NATIVE_FLOAT, 0, (hsize_t)shape.count, data))
        err = bp_h5_fail(file, "can't read dataset", name);
    H5Dclose(dataset);
    bp_h5_unlock();
    return bp_err_advise(err, BP_H5_REMEDY);
}
