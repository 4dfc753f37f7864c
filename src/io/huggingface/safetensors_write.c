/* Writing safetensors. */
#include "io/huggingface/safetensors.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/huggingface/half.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN       8 /* alignment of the data, as in the reference writer */
#define PART_HALVES 131072

struct bp_safetensors_writer {
    int fd;
    char *path;
    bp_safetensor *tensors; /* as announced; count is set */
    int64_t count, at;      /* the tensor being written, and its number of values written */
    int64_t written;
    int64_t left;  /* remaining values of all tensors */
    int64_t bytes; /* of all */
};

static bp_err volume_of(const bp_safetensor *tensor, int64_t *count)
{
    *count = 1;
    if (tensor->dims < 0 || tensor->dims > BP_SAFETENSORS_DIMS)
        return BP_FAIL(BP_ERR_SOFTWARE, "export.bad_tensor", "tensor '%s' has %d dimensions",
                       tensor->name, tensor->dims);
    for (int d = 0; d < tensor->dims; d++)
        if (tensor->shape[d] < 0 || __builtin_mul_overflow(*count, tensor->shape[d], count) ||
            *count > INT64_MAX / 16)
            return BP_FAIL(BP_ERR_SOFTWARE, "export.bad_tensor", "tensor '%s' is too large",
                           tensor->name);
    return BP_OK;
}

/* {"dtype": "F32", "shape": [...], "data_offsets": [first, last]} */
static json_t *tensor_json(const bp_safetensor *tensor)
{
    json_t *shape = json_array();

    for (int d = 0; d < tensor->dims; d++)
        if (json_array_append_new(shape, json_integer(tensor->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", tensor->dtype, "shape", shape, "data_offsets",
                     (json_int_t)tensor->first, (json_int_t)(tensor->first + tensor->bytes));
}

/* Its place after the earlier ones. */
static bp_err announce(bp_safetensors_writer *writer, const bp_safetensor *spec)
{
    bp_safetensor *tensor = &writer->tensors[writer->count];
    const char *dtype = spec->dtype ? spec->dtype : "F32";
    int64_t count;
    bp_err err = volume_of(spec, &count);

    if (err != BP_OK)
        return err;
    if (strcmp(dtype, "F32") != 0 && strcmp(dtype, "F16") != 0 && strcmp(dtype, "BF16") != 0)
        return BP_FAIL(BP_ERR_SOFTWARE, "export.bad_tensor", "tensor '%s' can't be written as %s",
                       spec->name, dtype);
    *tensor = *spec;
    tensor->dtype = dtype;
    tensor->count = count;
    tensor->first = writer->bytes;
    tensor->bytes = count * bp_safetensors_element_bytes(dtype);
    if (__builtin_add_overflow(writer->bytes, tensor->bytes, &writer->bytes))
        return BP_FAIL(BP_ERR_SOFTWARE, "export.bad_tensor", "the tensors are too large together");
    writer->left += count;
    writer->count++;
    return BP_OK;
}

static bp_err make_header(bp_safetensors_writer *writer, const bp_safetensor *tensors,
                          int64_t count, const char *metadata, json_t **out)
{
    json_t *header = json_object();
    bp_err err = BP_OK;

    *out = header;
    writer->tensors = bp_alloc("safetensors.writer", count, sizeof *writer->tensors);
    if (metadata &&
        json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", metadata)) != 0)
        return bp_fail_memory("a safetensors header", count, 1);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        err = announce(writer, &tensors[k]);
        if (err == BP_OK && json_object_get(header, tensors[k].name))
            err = BP_FAIL(BP_ERR_SOFTWARE, "export.bad_tensor", "two tensors are named '%s'",
                          tensors[k].name);
        if (err == BP_OK &&
            json_object_set_new(header, tensors[k].name, tensor_json(&writer->tensors[k])) != 0)
            err = bp_fail_memory("a safetensors header", count, 1);
    }
    return err;
}

/* Pads the header with spaces to a multiple of ALIGN. */
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

static bp_err put(const bp_safetensors_writer *writer, const void *data, size_t bytes)
{
    return bp_write_all(writer->fd, data, bytes) == 0
               ? BP_OK
               : bp_fail_errno(BP_ERR_IO, "can't write", writer->path);
}

static bp_err refuse_overflow(const bp_safetensor *tensor, float value)
{
    return BP_FAIL(BP_ERR_FORMAT, "export.out_of_range",
                   "a value of %g is beyond the largest of %s: at tensor '%.80s'; export the model "
                   "as F32 or BF16",
                   (double)value, tensor->dtype, tensor->name);
}

/* Values of one tensor of 16 bits each. */
static bp_err put_halves(const bp_safetensors_writer *writer, const bp_safetensor *tensor,
                         const float *values, int64_t count)
{
    const bool f16 = strcmp(tensor->dtype, "F16") == 0;
    const unsigned infinity = f16 ? 0x7c00u : 0x7f80u;
    uint16_t *halves = bp_alloc("safetensors.halves", PART_HALVES, sizeof *halves);
    bp_err err = BP_OK;

    for (int64_t done = 0; done < count && err == BP_OK; done += PART_HALVES) {
        int64_t take = count - done < PART_HALVES ? count - done : PART_HALVES;

        for (int64_t k = 0; k < take && err == BP_OK; k++) {
            float value = values[done + k];

            halves[k] = f16 ? bp_f16_of_float(value) : bp_bf16_of_float(value);
            if ((halves[k] & 0x7fffu) == infinity && isfinite(value))
                err = refuse_overflow(tensor, value);
        }
        if (err == BP_OK)
            err = put(writer, halves, (size_t)take * sizeof *halves);
    }
    bp_free(halves);
    return err;
}

bp_err bp_safetensors_write(bp_safetensors_writer *writer, const float *values, int64_t count)
{
    bp_err err = BP_OK;

    BP_ASSERT(count >= 0);
    if (count > writer->left)
        return BP_FAIL(BP_ERR_SOFTWARE, "export.not_whole",
                       "more values than were announced: at %s", writer->path);
    while (count > 0 && err == BP_OK) {
        const bp_safetensor *tensor = &writer->tensors[writer->at];
        int64_t rest = tensor->count - writer->written, take = count < rest ? count : rest;
        if (strcmp(tensor->dtype, "F32") == 0)
            err = put(writer, values, (size_t)take * sizeof *values);
        else
            err = put_halves(writer, tensor, values, take);
        values += take;
        count -= take;
        writer->written += take;
        writer->left -= take;
        if (writer->written == tensor->count) {
            writer->at++;
            writer->written = 0;
        }
    }
    return err;
}

bp_err bp_safetensors_finish(bp_safetensors_writer **out)
{
    bp_safetensors_writer *writer = *out;
    bp_err err = BP_OK;

    if (writer->left != 0)
        err = BP_FAIL(BP_ERR_SOFTWARE, "export.not_whole", "%lld values are missing: at %s",
                      (long long)writer->left, writer->path);
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

    if (!writer)
        return;
    if (writer->fd >= 0)
        (void)close(writer->fd);
    bp_free(writer->tensors);
    bp_free(writer->path);
    bp_free(writer);
    *out = NULL;
}
