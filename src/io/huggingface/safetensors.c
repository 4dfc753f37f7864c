/* Reading safetensors. */
#include "io/huggingface/safetensors.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/huggingface/half.h"
#include "tensor/slice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH_BYTES 8
#define MAX_TENSORS  100000
#define MAX_NAME     4096
#define MAX_VALUES   (16 * MAX_TENSORS) /* in the JSON: a tensor of 8 dimensions has 15 */
#define PART_BYTES   ((int64_t)1 << 18)
#define REMEDY       "export it again"

struct bp_safetensors {
    int fd;
    char *path;
    json_t *header; /* holds the names */
    bp_safetensor *tensors;
    int64_t count;
    const bp_safetensor **by_name;
    char **renamed;               /* [count]; NULL: names are the header's */
    bp_safetensors_source source; /* of tensors of another form of file */
    int64_t data_place, data_bytes;
};

/* ---- element types ---- */

static const struct {
    const char *name;
    int64_t bytes;
} TYPES[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2},    {"F64", 8},     {"I64", 8},
             {"I32", 4}, {"I16", 2}, {"I8", 1},      {"U64", 8},     {"U32", 4},
             {"U16", 2}, {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1}};

int64_t bp_safetensors_element_bytes(const char *dtype)
{
    for (size_t k = 0; k < sizeof TYPES / sizeof TYPES[0]; k++)
        if (strcmp(TYPES[k].name, dtype) == 0)
            return TYPES[k].bytes;
    return 0;
}

/* ---- the header ---- */

static bp_err refuse(const bp_safetensors *file, const char *tensor, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "safetensors.bad_tensor",
                   "not a sound safetensors file: tensor '%.80s' %s: at %s", tensor, what,
                   file->path);
}

/* Two non-negative integers, first <= last. */
static bool parse_offsets(const json_t *list, int64_t *first, int64_t *last)
{
    const json_t *a = json_array_get(list, 0), *b = json_array_get(list, 1);

    if (!json_is_array(list) || json_array_size(list) != 2 || !json_is_integer(a) ||
        !json_is_integer(b))
        return false;
    *first = json_integer_value(a);
    *last = json_integer_value(b);
    return *first >= 0 && *last >= *first;
}

static bool parse_shape(const json_t *list, bp_safetensor *tensor)
{
    tensor->count = 1;
    if (!json_is_array(list) || json_array_size(list) > BP_SAFETENSORS_DIMS)
        return false;
    tensor->dims = (int)json_array_size(list);
    for (int d = 0; d < tensor->dims; d++) {
        const json_t *value = json_array_get(list, (size_t)d);

        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return false;
        tensor->shape[d] = json_integer_value(value);
        if (__builtin_mul_overflow(tensor->count, tensor->shape[d], &tensor->count))
            return false;
    }
    return true;
}

static bp_err parse_tensor(bp_safetensors *file, const char *name, const json_t *value)
{
    bp_safetensor *tensor = &file->tensors[file->count];
    int64_t last, expected;

    tensor->name = name;
    tensor->dtype = json_string_value(json_object_get(value, "dtype"));
    if (name[0] == '\0' || strlen(name) > MAX_NAME)
        return refuse(file, name, "has no name of 1 to 4096 bytes");
    if (!json_is_object(value) || !tensor->dtype)
        return refuse(file, name, "has no dtype");
    if (bp_safetensors_element_bytes(tensor->dtype) == 0)
        return BP_FAIL(BP_ERR_FORMAT, "safetensors.unknown_dtype",
                       "tensor '%.80s' has the unknown dtype '%.20s': at %s", name, tensor->dtype,
                       file->path);
    if (!parse_shape(json_object_get(value, "shape"), tensor))
        return refuse(file, name,
                      "has a shape that is not a list of up to 8 sizes, or is larger than 2^63");
    if (!parse_offsets(json_object_get(value, "data_offsets"), &tensor->first, &last))
        return refuse(file, name, "has no sound data_offsets");
    tensor->bytes = last - tensor->first;
    if (last > file->data_bytes)
        return refuse(file, name, "ends beyond the file");
    if (__builtin_mul_overflow(tensor->count, bp_safetensors_element_bytes(tensor->dtype),
                               &expected) ||
        expected != tensor->bytes)
        return refuse(file, name, "has a shape that is not what its data_offsets hold");
    file->count++;
    return BP_OK;
}

static bp_err check_metadata(const bp_safetensors *file, const json_t *metadata)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return BP_FAIL(BP_ERR_FORMAT, "safetensors.bad_metadata",
                       "__metadata__ is not an object: at %s", file->path);
    json_object_foreach((json_t *)metadata, key, value) /* not changed */
    {
        if (!json_is_string(value))
            return BP_FAIL(BP_ERR_FORMAT, "safetensors.bad_metadata",
                           "__metadata__ holds something other than strings: at %s", file->path);
    }
    return BP_OK;
}

static bp_err parse_tensors(bp_safetensors *file)
{
    int64_t members = (int64_t)json_object_size(file->header);
    const char *key;
    json_t *value;
    bp_err err = BP_OK;

    if (members > MAX_TENSORS)
        return BP_FAIL(BP_ERR_FORMAT, "safetensors.too_many_tensors", "more than %d tensors: at %s",
                       MAX_TENSORS, file->path);
    file->tensors = bp_alloc("safetensors.tensors", members, sizeof *file->tensors);
    file->by_name = bp_alloc("safetensors.by_name", members, sizeof *file->by_name);
    json_object_foreach(file->header, key, value)
    {
        if (err == BP_OK)
            err = strcmp(key, "__metadata__") == 0 ? check_metadata(file, value)
                                                   : parse_tensor(file, key, value);
    }
    return err;
}

static int compare_places(const void *a, const void *b)
{
    const bp_safetensor *p = a, *q = b;

    if (p->first != q->first)
        return p->first < q->first ? -1 : 1;
    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? -1 : 1;
    return strcmp(p->name, q->name);
}

static int compare_names(const void *a, const void *b)
{
    const bp_safetensor *const *p = a, *const *q = b;

    return strcmp((*p)->name, (*q)->name);
}

/* Checks that tensors are adjacent from the first byte of the data to its last. */
static bp_err check_places(const bp_safetensors *file)
{
    int64_t end = 0;

    for (int64_t k = 0; k < file->count; k++) {
        const bp_safetensor *tensor = &file->tensors[k];

        if (tensor->first < end)
            return refuse(file, tensor->name, "overlaps the one before it");
        if (tensor->first > end)
            return refuse(file, tensor->name, "leaves a gap before it");
        end = tensor->first + tensor->bytes;
    }
    if (end != file->data_bytes)
        return BP_FAIL(BP_ERR_FORMAT, "safetensors.too_long",
                       "not a sound safetensors file: %lld bytes follow the last tensor: at %s",
                       (long long)(file->data_bytes - end), file->path);
    return BP_OK;
}

static uint64_t little_endian(const unsigned char *bytes)
{
    uint64_t value = 0;

    for (int k = LENGTH_BYTES - 1; k >= 0; k--)
        value = value << 8 | bytes[k];
    return value;
}

/* The header's text, of *bytes bytes. Compares its length with the file's before allocating. */
static bp_err read_header(bp_safetensors *file, int64_t file_bytes, char **text, size_t *bytes)
{
    unsigned char length[LENGTH_BYTES];
    char beginning[128];
    uint64_t header;

    if (file_bytes < LENGTH_BYTES + 2)
        return BP_FAIL(BP_ERR_FORMAT, "safetensors.truncated",
                       "%lld bytes are not a safetensors file: at %s", (long long)file_bytes,
                       file->path);
    if (bp_pread_all(file->fd, length, sizeof length, 0) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", file->path);
    header = little_endian(length);
    if (header > (uint64_t)BP_SAFETENSORS_MAX_HEADER && file_bytes >= (int64_t)sizeof beginning &&
        bp_pread_all(file->fd, beginning, sizeof beginning, 0) == 0 &&
        bp_is_lfs_pointer(beginning, sizeof beginning))
        return bp_fail_lfs_pointer(file->path);
    if (header > (uint64_t)BP_SAFETENSORS_MAX_HEADER)
        return BP_FAIL(
            BP_ERR_FORMAT, "safetensors.bad_header",
            "the header of a safetensors file would have %llu bytes, 100 MiB is the limit: at %s",
            (unsigned long long)header, file->path);
    if (header < 2 || (int64_t)header > file_bytes - LENGTH_BYTES)
        return BP_FAIL(
            BP_ERR_FORMAT, "safetensors.truncated",
            "the header of a safetensors file would have %llu bytes, and the file has %lld: at %s",
            (unsigned long long)header, (long long)file_bytes, file->path);
    *bytes = (size_t)header;
    *text = bp_alloc("safetensors.header", (int64_t)header, 1);
    if (bp_pread_all(file->fd, *text, *bytes, LENGTH_BYTES) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", file->path);
    if (**text != '{')
        return BP_FAIL(BP_ERR_FORMAT, "safetensors.bad_header",
                       "the header of a safetensors file does not begin with '{': at %s",
                       file->path);
    file->data_place = LENGTH_BYTES + (int64_t)header;
    file->data_bytes = file_bytes - file->data_place;
    return BP_OK;
}

/* A parsed value takes ten times its text, so values are counted first, by commas outside strings.
 */
static bp_err check_values(const bp_safetensors *file, const char *text, size_t bytes)
{
    int64_t values = 1;
    bool quoted = false;

    for (size_t k = 0; k < bytes; k++) {
        if (quoted && text[k] == '\\')
            k++;
        else if (text[k] == '"')
            quoted = !quoted;
        else if (!quoted && (text[k] == ',' || text[k] == '[' || text[k] == '{'))
            values++;
    }
    return values <= MAX_VALUES ? BP_OK
                                : BP_FAIL(BP_ERR_FORMAT, "safetensors.bad_header",
                                          "the header of a safetensors file holds %lld values, far "
                                          "more than %d tensors have: at %s",
                                          (long long)values, MAX_TENSORS, file->path);
}

static bp_err open_file(bp_safetensors *file, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t file_bytes;
    bp_err err;

    file->path = bp_strdup(path);
    err = bp_file_open(path, &file->fd, &file_bytes);
    if (err == BP_OK)
        err = read_header(file, file_bytes, &text, &bytes);
    if (err == BP_OK)
        err = check_values(file, text, bytes);
    if (err == BP_OK)
        err = bp_json_parse(&file->header, text, bytes, path);
    bp_free(text);
    if (err == BP_OK)
        err = parse_tensors(file);
    if (err != BP_OK)
        return err;
    if (file->count > 0)
        qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_places);
    for (int64_t k = 0; k < file->count; k++)
        file->by_name[k] = &file->tensors[k];
    if (file->count > 0)
        qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    return check_places(file);
}

bp_err bp_safetensors_open(bp_safetensors **out, const char *path)
{
    bp_safetensors *file = bp_alloc("safetensors", 1, sizeof *file);
    bp_err err;

    *out = NULL;
    file->fd = -1;
    err = open_file(file, path);
    if (err != BP_OK)
        bp_safetensors_close(&file);
    *out = file;
    return bp_err_advise(err, REMEDY);
}

bp_safetensors *bp_safetensors_of(const char *path, const bp_safetensor *tensors, int64_t count,
                                  bp_safetensors_source source)
{
    bp_safetensors *file = bp_alloc("safetensors", 1, sizeof *file);

    file->fd = -1;
    file->path = bp_strdup(path);
    file->source = source;
    file->count = count;
    file->tensors = bp_alloc("safetensors.tensors", count, sizeof *file->tensors);
    file->by_name = bp_alloc("safetensors.by_name", count, sizeof *file->by_name);
    file->header = json_object(); /* holds the names */
    for (int64_t k = 0; k < count; k++) {
        (void)json_object_set_new(file->header, tensors[k].name, json_null());
        file->tensors[k] = tensors[k];
        file->tensors[k].name =
            json_object_iter_key(json_object_iter_at(file->header, tensors[k].name));
        file->by_name[k] = &file->tensors[k];
    }
    if (count > 0)
        qsort(file->by_name, (size_t)count, sizeof *file->by_name, compare_names);
    return file;
}

void bp_safetensors_close(bp_safetensors **out)
{
    bp_safetensors *file = *out;

    if (!file)
        return;
    if (file->fd >= 0)
        (void)close(file->fd); /* only read from */
    if (file->source.close)
        file->source.close(file->source.context);
    json_decref(file->header);
    for (int64_t k = 0; file->renamed && k < file->count; k++)
        bp_free(file->renamed[k]);
    bp_free(file->renamed);
    bp_free(file->tensors);
    bp_free(file->by_name);
    bp_free(file->path);
    bp_free(file);
    *out = NULL;
}

int64_t bp_safetensors_count(const bp_safetensors *file)
{
    return file->count;
}

const bp_safetensor *bp_safetensors_at(const bp_safetensors *file, int64_t k)
{
    BP_ASSERT(k >= 0 && k < file->count);
    return &file->tensors[k];
}

const bp_safetensor *bp_safetensors_find(const bp_safetensors *file, const char *name)
{
    bp_safetensor key = {.name = name};
    const bp_safetensor *wanted = &key, **found;

    if (file->count == 0)
        return NULL;
    found =
        bsearch(&wanted, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    return !found ? NULL : *found;
}

bool bp_safetensors_rename(bp_safetensors *file, void (*rename)(char *name))
{
    bool unique = true;

    BP_ASSERT(!file->renamed);
    file->renamed = bp_alloc("safetensors.names", file->count, sizeof *file->renamed);
    for (int64_t k = 0; k < file->count; k++) {
        file->renamed[k] = bp_strdup(file->tensors[k].name);
        rename(file->renamed[k]);
        file->tensors[k].name = file->renamed[k];
    }
    if (file->count > 0)
        qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    for (int64_t k = 1; k < file->count; k++)
        unique = unique && strcmp(file->by_name[k - 1]->name, file->by_name[k]->name) != 0;
    return unique;
}

const char *bp_safetensors_path(const bp_safetensors *file)
{
    return file->path;
}

/* ---- values ---- */

/* Doubles to the nearest float32, or 16-bit floats exactly. */
static void convert(float *out, const unsigned char *bytes, const char *dtype, int64_t count)
{
    const bool f16 = strcmp(dtype, "F16") == 0;

    if (strcmp(dtype, "F64") == 0) {
        for (int64_t k = 0; k < count; k++) {
            double wide;

            memcpy(&wide, bytes + k * (int64_t)sizeof wide, sizeof wide);
            out[k] = (float)wide;
        }
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        uint16_t half;

        memcpy(&half, bytes + k * (int64_t)sizeof half, sizeof half);
        out[k] = f16 ? bp_float_of_f16(half) : bp_float_of_bf16(half);
    }
}

/* Element `first` + k is out[k]. */
static bp_err check_finite(const bp_safetensors *file, const bp_safetensor *tensor, int64_t first,
                           int64_t count, const float *out)
{
    int64_t k = 0;

    if (bp_are_finite(out, count))
        return BP_OK;
    while (isfinite(out[k]))
        k++;
    return BP_FAIL(BP_ERR_FORMAT, "safetensors.not_finite",
                   "tensor '%.80s' holds a value that is not finite in float32 (element %lld): at "
                   "%s; " REMEDY,
                   tensor->name, (long long)(first + k), file->path);
}

static bp_err read_bytes(const bp_safetensors *file, void *out, int64_t place, int64_t bytes)
{
    return bp_pread_all(file->fd, out, (size_t)bytes, file->data_place + place) == 0
               ? BP_OK
               : bp_fail_errno(BP_ERR_IO, "can't read", file->path);
}

/* float32 directly into place, in parts that stay in the cache until checked. */
bp_err bp_safetensors_read(bp_safetensors *file, const bp_safetensor *tensor, int64_t first,
                           int64_t count, float *out)
{
    unsigned char part[PART_BYTES];
    bool in_place = strcmp(tensor->dtype, "F32") == 0;
    int64_t size = bp_safetensors_element_bytes(tensor->dtype), chunk = PART_BYTES / size;
    bp_err err = BP_OK;

    BP_ASSERT(first >= 0 && count >= 0 && first <= tensor->count && count <= tensor->count - first);
    if (file->source.read) {
        err = file->source.read(file->source.context, tensor, first, count, out);
        return err == BP_OK ? check_finite(file, tensor, first, count, out) : err;
    }
    if (!in_place && strcmp(tensor->dtype, "F64") != 0 && strcmp(tensor->dtype, "F16") != 0 &&
        strcmp(tensor->dtype, "BF16") != 0)
        return BP_FAIL(BP_ERR_FORMAT, "safetensors.unknown_dtype",
                       "tensor '%.80s' has dtype %s; F32, F16, BF16 and F64 can be read: at "
                       "%s; export it as one of those",
                       tensor->name, tensor->dtype, file->path);
    for (int64_t done = 0; done < count && err == BP_OK; done += chunk) {
        int64_t take = count - done < chunk ? count - done : chunk;

        err = read_bytes(file, in_place ? (void *)(out + done) : part,
                         tensor->first + (first + done) * size, take * size);
        if (err == BP_OK && !in_place)
            convert(out + done, part, tensor->dtype, take);
        if (err == BP_OK)
            err = check_finite(file, tensor, first + done, take, out + done);
    }
    return err;
}
