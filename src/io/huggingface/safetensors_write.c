/* Writing safetensors. */
#include "io/huggingface/safetensors.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN 8 /* where the data begins, as the reference writer has it */

struct bp_safetensors_writer {
    int fd;
    char *path;
    int64_t announced, written; /* values */
};

static bp_err volume_of(const bp_safetensor *tensor, int64_t *count)
{
    *count = 1;
    if (tensor->dims < 0 || tensor->dims > BP_SAFETENSORS_DIMS)
        return BP_FAIL(BP_ERR_SOFTWARE, "tensor '%s' has %d dimensions", tensor->name,
                       tensor->dims);
    for (int d = 0; d < tensor->dims; d++)
        if (tensor->shape[d] < 0 || __builtin_mul_overflow(*count, tensor->shape[d], count) ||
            *count > INT64_MAX / 16)
            return BP_FAIL(BP_ERR_SOFTWARE, "tensor '%s' is too large", tensor->name);
    return BP_OK;
}

/* {"dtype": "F32", "shape": [...], "data_offsets": [first, last]} */
static json_t *tensor_json(const bp_safetensor *tensor, int64_t first, int64_t last)
{
    json_t *shape = json_array();

    for (int d = 0; d < tensor->dims; d++)
        if (json_array_append_new(shape, json_integer(tensor->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                     (json_int_t)first, (json_int_t)last);
}

static bp_err make_header(bp_safetensors_writer *writer, const bp_safetensor *tensors,
                          int64_t count, const char *metadata, json_t **out)
{
    json_t *header = json_object();
    bp_err err = BP_OK;

    *out = header;
    if (metadata != NULL &&
        json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", metadata)) != 0)
        return bp_fail_memory("a safetensors header", count, 1);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        int64_t volume;

        err = volume_of(&tensors[k], &volume);
        if (err == BP_OK && json_object_get(header, tensors[k].name) != NULL)
            err = BP_FAIL(BP_ERR_SOFTWARE, "two tensors are named '%s'", tensors[k].name);
        if (err == BP_OK && json_object_set_new(header, tensors[k].name,
                                                tensor_json(&tensors[k], 4 * writer->announced,
                                                            4 * (writer->announced + volume))) != 0)
            err = bp_fail_memory("a safetensors header", count, 1);
        if (err == BP_OK && __builtin_add_overflow(writer->announced, volume, &writer->announced))
            err = BP_FAIL(BP_ERR_SOFTWARE, "the tensors are too large together");
    }
    return err;
}

/* Spaces fill the header up to a multiple of ALIGN. */
static bp_err write_header(const bp_safetensors_writer *writer, const json_t *header)
{
    static const char spaces[ALIGN] = {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '};
    char *text = json_dumps(header, JSON_COMPACT);
    size_t bytes, padding;
    unsigned char length[8];
    bp_err err = BP_OK;

    bytes = strlen(text);
    padding = (ALIGN - bytes % ALIGN) % ALIGN;
    for (int k = 0; k < 8; k++)
        length[k] = (unsigned char)((uint64_t)(bytes + padding) >> (8 * k) & 255);
    if (bp_write_all(writer->fd, length, sizeof length) != 0 ||
        bp_write_all(writer->fd, text, bytes) != 0 ||
        bp_write_all(writer->fd, spaces, padding) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't write", writer->path);
    free(text); /* jansson's */
    return err;
}

bp_err bp_safetensors_create(bp_safetensors_writer **out, const char *path,
                             const bp_safetensor *tensors, int64_t count, const char *metadata)
{
    bp_safetensors_writer *writer = bp_alloc("safetensors.writer", 1, sizeof *writer);
    json_t *header = NULL;
    bp_err err;

    *out = NULL;
    writer->fd = -1;
    writer->path = bp_strdup(path);
    err = BP_OK;
    if (err == BP_OK)
        err = make_header(writer, tensors, count, metadata, &header);
    if (err == BP_OK) {
        writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        err = writer->fd < 0 ? bp_fail_create("can't create", path) : write_header(writer, header);
    }
    json_decref(header);
    if (err != BP_OK)
        bp_safetensors_drop(&writer);
    *out = writer;
    return err;
}

bp_err bp_safetensors_write(bp_safetensors_writer *writer, const float *values, int64_t count)
{
    BP_ASSERT(count >= 0);
    if (count > writer->announced - writer->written)
        return BP_FAIL(BP_ERR_SOFTWARE, "more values than were announced: at %s", writer->path);
    if (bp_write_all(writer->fd, values, (size_t)count * sizeof *values) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't write", writer->path);
    writer->written += count;
    return BP_OK;
}

bp_err bp_safetensors_finish(bp_safetensors_writer **out)
{
    bp_safetensors_writer *writer = *out;
    bp_err err = BP_OK;

    if (writer->written != writer->announced)
        err = BP_FAIL(BP_ERR_SOFTWARE, "%lld values are missing: at %s",
                      (long long)(writer->announced - writer->written), writer->path);
    if (err == BP_OK && fsync(writer->fd) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", writer->path);
    if (close(writer->fd) != 0 && err == BP_OK)
        err = bp_fail_errno(BP_ERR_IO, "can't close", writer->path);
    writer->fd = -1;
    bp_safetensors_drop(out);
    return err;
}

void bp_safetensors_drop(bp_safetensors_writer **out)
{
    bp_safetensors_writer *writer = *out;

    if (writer == NULL)
        return;
    if (writer->fd >= 0)
        (void)close(writer->fd);
    bp_free(writer->path);
    bp_free(writer);
    *out = NULL;
}
