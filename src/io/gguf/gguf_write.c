/* Writing GGUF files. */
#include "io/gguf/gguf_priv.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "io/huggingface/half.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT   32
#define PART_VALUES 16384 /* whole blocks */

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10 };

struct bp_gguf_writer {
    int fd;
    char *path;
    bp_gguf_tensor *tensors; /* with their places */
    int64_t count, next;
};

/* ---- keys ---- */

static void add_u32(bp_buffer *out, uint32_t value)
{
    bp_buffer_add(out, &value, sizeof value);
}

static void add_u64(bp_buffer *out, uint64_t value)
{
    bp_buffer_add(out, &value, sizeof value);
}

static void add_string(bp_buffer *out, const char *text, size_t bytes)
{
    add_u64(out, bytes);
    bp_buffer_add(out, text, bytes);
}

static uint32_t type_of(const json_t *value, bool in_list)
{
    if (json_is_string(value))
        return STRING;
    if (json_is_boolean(value))
        return BOOL;
    if (json_is_array(value))
        return ARRAY;
    if (!json_is_integer(value))
        return F32;
    return in_list ? I32 : json_integer_value(value) > UINT32_MAX ? U64 : U32;
}

static void add_one(bp_buffer *out, const json_t *value, uint32_t type)
{
    float real = (float)json_number_value(value);
    uint8_t flag = json_is_true(value);

    switch (type) {
    case STRING:
        add_string(out, json_string_value(value), json_string_length(value));
        break;
    case BOOL:
        bp_buffer_add(out, &flag, 1);
        break;
    case F32:
        bp_buffer_add(out, &real, sizeof real);
        break;
    case U64:
        add_u64(out, (uint64_t)json_integer_value(value));
        break;
    default:
        add_u32(out, (uint32_t)json_integer_value(value));
    }
}

static void add_value(bp_buffer *out, const json_t *value)
{
    uint32_t type = type_of(value, false), inner;
    const json_t *one;
    size_t k;

    add_u32(out, type);
    if (type != ARRAY) {
        add_one(out, value, type);
        return;
    }
    inner = type_of(json_array_get(value, 0), true);
    add_u32(out, inner);
    add_u64(out, json_array_size(value));
    json_array_foreach(value, k, one) add_one(out, one, inner);
}

static void add_tensor(bp_buffer *out, const bp_gguf_tensor *tensor)
{
    add_string(out, tensor->name, strlen(tensor->name));
    add_u32(out, (uint32_t)tensor->dims);
    for (int d = tensor->dims - 1; d >= 0; d--)
        add_u64(out, (uint64_t)tensor->shape[d]);
    add_u32(out, tensor->type);
    add_u64(out, (uint64_t)tensor->place);
}

static bp_err put(const bp_gguf_writer *writer, const void *data, size_t bytes)
{
    return bp_write_all(writer->fd, data, bytes) == 0
               ? BP_OK
               : bp_fail_errno(BP_ERR_IO, "can't write", writer->path);
}

static bp_err pad(const bp_gguf_writer *writer, int64_t bytes)
{
    static const char ZEROS[ALIGNMENT] = {0};

    return put(writer, ZEROS, (size_t)(bp_round_up(bytes, ALIGNMENT) - bytes));
}

static bp_err write_head(const bp_gguf_writer *writer, const json_t *keys)
{
    bp_buffer head = {0};
    const char *key;
    json_t *value;
    bp_err err;

    bp_buffer_add(&head, "GGUF", 4);
    add_u32(&head, 3);
    add_u64(&head, (uint64_t)writer->count);
    add_u64(&head, json_object_size(keys));
    json_object_foreach((json_t *)keys, key, value) /* not changed */
    {
        add_string(&head, key, strlen(key));
        add_value(&head, value);
    }
    for (int64_t k = 0; k < writer->count; k++)
        add_tensor(&head, &writer->tensors[k]);
    err = put(writer, head.data, head.bytes);
    if (err == BP_OK)
        err = pad(writer, (int64_t)head.bytes);
    bp_buffer_clear(&head);
    return err;
}

bp_err bp_gguf_create(bp_gguf_writer **out, const char *path, const json_t *keys,
                      const bp_gguf_tensor *tensors, int64_t count)
{
    bp_gguf_writer *writer = bp_alloc("gguf.writer", 1, sizeof *writer);
    int64_t place = 0;
    bp_err err;

    *out = NULL;
    writer->path = bp_strdup(path);
    writer->count = count;
    writer->tensors = bp_alloc("gguf.writer", count, sizeof *writer->tensors);
    for (int64_t k = 0; k < count; k++) {
        bp_gguf_tensor *tensor = &writer->tensors[k];

        *tensor = tensors[k];
        tensor->count = 1;
        for (int d = 0; d < tensor->dims; d++)
            tensor->count *= tensor->shape[d];
        tensor->bytes = bp_gguf_bytes(tensor->type, tensor->count);
        tensor->place = place;
        place = bp_round_up(place + tensor->bytes, ALIGNMENT);
    }
    writer->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    err = writer->fd < 0 ? bp_fail_create("can't create", path) : write_head(writer, keys);
    if (err != BP_OK)
        bp_gguf_drop(&writer);
    *out = writer;
    return err;
}

/* ---- values ---- */

static void put_half(unsigned char *out, uint16_t half)
{
    out[0] = (unsigned char)(half & 255);
    out[1] = (unsigned char)(half >> 8);
}

static bool to_halves(unsigned char *out, const float *values, int64_t count, bp_gguf_type type)
{
    bool fits = true;

    for (int64_t k = 0; k < count; k++) {
        uint16_t half =
            type == BP_GGUF_F16 ? bp_f16_of_float(values[k]) : bp_bf16_of_float(values[k]);

        fits =
            fits && isfinite(type == BP_GGUF_F16 ? bp_float_of_f16(half) : bp_float_of_bf16(half));
        put_half(out + 2 * k, half);
    }
    return fits;
}

static bool to_blocks(unsigned char *out, const float *values, int64_t count)
{
    bool fits = true;

    for (int64_t b = 0; b < count; b += BP_GGUF_BLOCK, out += GGUF_BLOCK_BYTES) {
        float largest = 0, d, inverse;
        uint16_t half;

        for (int k = 0; k < BP_GGUF_BLOCK; k++)
            largest = fmaxf(largest, fabsf(values[b + k]));
        d = largest / 127;
        inverse = d > 0 ? 1 / d : 0;
        half = bp_f16_of_float(d);
        fits = fits && isfinite(bp_float_of_f16(half));
        put_half(out, half);
        for (int k = 0; k < BP_GGUF_BLOCK; k++)
            out[2 + k] = (unsigned char)(int8_t)roundf(values[b + k] * inverse);
    }
    return fits;
}

bp_err bp_gguf_write(bp_gguf_writer *writer, const float *values)
{
    const bp_gguf_tensor *tensor = &writer->tensors[writer->next++];
    unsigned char part[sizeof(float) * PART_VALUES];
    bp_err err = BP_OK;
    bool fits = true;

    BP_ASSERT(writer->next <= writer->count);
    for (int64_t done = 0, take; done < tensor->count && err == BP_OK && fits; done += take) {
        take = tensor->count - done < PART_VALUES ? tensor->count - done : PART_VALUES;
        if (tensor->type == BP_GGUF_F32)
            memcpy(part, values + done, (size_t)take * sizeof *values);
        else if (tensor->type == BP_GGUF_Q8_0)
            fits = to_blocks(part, values + done, take);
        else
            fits = to_halves(part, values + done, take, tensor->type);
        err = put(writer, part, (size_t)bp_gguf_bytes(tensor->type, take));
    }
    if (err == BP_OK && !fits)
        return BP_FAIL(BP_ERR_FORMAT, "export.beyond_type",
                       "tensor '%.80s' holds a value that is beyond the type's largest one: at %s; "
                       "give another --type",
                       tensor->name, writer->path);
    return err == BP_OK ? pad(writer, tensor->bytes) : err;
}

bp_err bp_gguf_finish(bp_gguf_writer **writer)
{
    bp_gguf_writer *self = *writer;
    bp_err err = BP_OK;

    BP_ASSERT(self->next == self->count);
    if (fsync(self->fd) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't write", self->path);
    if (close(self->fd) != 0 && err == BP_OK)
        err = bp_fail_errno(BP_ERR_IO, "can't write", self->path);
    self->fd = -1;
    bp_gguf_drop(writer);
    return err;
}

void bp_gguf_drop(bp_gguf_writer **writer)
{
    if (!*writer)
        return;
    if ((*writer)->fd >= 0)
        (void)close((*writer)->fd);
    bp_free((*writer)->tensors);
    bp_free((*writer)->path);
    bp_free(*writer);
    *writer = NULL;
}
