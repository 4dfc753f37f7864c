/* bagpipe-data table --form npy. Source: NumPy's format version 1.0 (numpy.lib.format). */
#include "table_npy.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEAD_BYTES  128 /* of a file, a multiple of 64 */
#define BLOCK_BYTES (1 << 20)

/* As it is stored: the type to read, and NumPy's name of it. */
typedef struct npy_type {
    bool is_real, is_signed;
    size_t width;
    bp_h5_type type;
    const char *name;
} npy_type;

static const npy_type TYPES[] = {
    {true, true, 4, BP_H5_F32, "<f4"},   {true, true, 8, BP_H5_F64, "<f8"},
    {false, false, 1, BP_H5_U8, "|u1"},  {false, false, 2, BP_H5_U16, "<u2"},
    {false, false, 4, BP_H5_U32, "<u4"}, {false, false, 8, BP_H5_U64, "<u8"},
    {false, true, 8, BP_H5_I64, "<i8"}};

static const npy_type *type_of(const bp_h5_shape *shape)
{
    for (size_t k = 0; k < sizeof TYPES / sizeof TYPES[0]; k++)
        if (TYPES[k].is_real == shape->is_real && TYPES[k].width == shape->width &&
            (shape->is_real || TYPES[k].is_signed == shape->is_signed))
            return &TYPES[k];
    return NULL;
}

static bp_err write_head(bp_draft *draft, const char *type, const bp_h5_shape *shape)
{
    char head[HEAD_BYTES + 1] = "\x93NUMPY\x01", sizes[64];
    int64_t rows = shape->count / shape->columns;

    head[8] = HEAD_BYTES - 10;
    (void)snprintf(sizes, sizeof sizes, "%" PRId64 ",", rows);
    if (shape->dims == 2)
        (void)snprintf(sizes, sizeof sizes, "%" PRId64 ", %" PRId64, rows, shape->columns);
    int used = snprintf(head + 10, HEAD_BYTES - 10,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, sizes);

    memset(head + 10 + used, ' ', (size_t)(HEAD_BYTES - 11 - used));
    head[HEAD_BYTES - 1] = '\n';
    return bp_draft_write(draft, head, HEAD_BYTES);
}

/* Values in whole rows, a block at a time; `type` NULL: text. */
static bp_err copy(bp_h5 *h5, const char *name, const bp_h5_shape *shape, const npy_type *type,
                   bp_draft *draft)
{
    int64_t values = BLOCK_BYTES / (int64_t)shape->width / shape->columns;

    values = (values < 1 ? 1 : values) * shape->columns;
    char *block = bp_alloc("tool.npy", values, shape->width);
    bp_err err = BP_OK;

    for (int64_t at = 0; at < shape->count && err == BP_OK; at += values) {
        int64_t now = shape->count - at < values ? shape->count - at : values;

        err = type ? bp_h5_read(h5, name, type->type, at, block, now)
                   : bp_h5_read_text(h5, name, shape->width, at, block, now);
        if (err == BP_OK)
            err = bp_draft_write(draft, block, (size_t)now * shape->width);
    }
    bp_free(block);
    return err;
}

static bp_err write_dataset(bp_h5 *h5, const char *path, const char *name, const char *out)
{
    bp_draft draft;
    bp_h5_shape shape;
    char text[32];
    bp_err err;

    if (!bp_h5_has(h5, name) || bp_h5_is_group(h5, name))
        return BP_FAIL(BP_ERR_FORMAT, "table.no_dataset",
                       "there is no dataset %s: at %s; bagpipe-data inspect names those that there "
                       "are",
                       shown_path(name), path);
    err = bp_h5_shape_of(h5, name, &shape);
    const npy_type *type = err == BP_OK && !shape.is_text ? type_of(&shape) : NULL;

    if (err == BP_OK && !type && !shape.is_text)
        err = BP_FAIL(BP_ERR_FORMAT, "table.no_dataset",
                      "dataset %s has values of a type that is not written: at %s; name another",
                      shown_path(name), path);
    if (err != BP_OK)
        return err;
    (void)snprintf(text, sizeof text, "|S%zu", shape.width);
    err = bp_draft_open(&draft, out);
    if (err != BP_OK)
        return err;
    err = write_head(&draft, type ? type->name : text, &shape);
    if (err == BP_OK)
        err = copy(h5, name, &shape, type, &draft);
    if (err == BP_OK)
        err = bp_draft_commit(&draft);
    bp_draft_drop(&draft);
    return err;
}

bp_err table_write_npy(const char *path, const char *name, const char *out)
{
    bp_user_block block;
    bp_h5 *h5 = NULL;
    bp_err err = bp_user_block_verify(&block, path); /* before HDF5 sees it */

    if (err == BP_OK)
        err = bp_h5_open(&h5, path);
    if (err == BP_OK)
        err = write_dataset(h5, path, name, out);
    bp_h5_drop(&h5);
    if (err == BP_OK)
        bp_log("%s: dataset %s of %s", out, name, path);
    return err;
}
