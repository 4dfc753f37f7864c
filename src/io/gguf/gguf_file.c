/* Opening a GGUF file: keys and the list of tensors. */
#include "io/gguf/gguf_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_BYTES    65536
#define MAX_NAME        4096
#define MAX_STRING      ((uint64_t)1 << 24)
#define MAX_VALUES      ((uint64_t)1 << 23) /* in all keys: three for each token, and merges */
#define MAX_KEYS        65536
#define MAX_TENSORS     100000
#define MAX_DEPTH       4
#define MAX_ALIGNMENT   65536
#define LEAST_OF_TENSOR 28 /* bytes in the list of a tensor without a name */
#define LEAST_OF_KEY    13
#define REMEDY          "get the file again, or give the folder with safetensors it was made from"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, VALUE_TYPES };

static const int64_t VALUE_BYTES[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

/* Tensor types of other programs, named in error messages. */
static const struct {
    uint32_t type;
    const char *name;
} OTHER_TYPES[] = {{2, "Q4_0"},  {3, "Q4_1"},    {6, "Q5_0"},    {7, "Q5_1"},   {9, "Q8_1"},
                   {10, "Q2_K"}, {11, "Q3_K"},   {12, "Q4_K"},   {13, "Q5_K"},  {14, "Q6_K"},
                   {15, "Q8_K"}, {20, "IQ4_NL"}, {23, "IQ4_XS"}, {24, "I8"},    {25, "I16"},
                   {26, "I32"},  {27, "I64"},    {28, "F64"},    {34, "TQ1_0"}, {39, "MXFP4"}};

/* The part of the file that is read sequentially. */
typedef struct cursor {
    const bp_gguf *file;
    int64_t at;      /* the next byte */
    uint64_t values; /* in all keys so far */
    int64_t from, held;
    unsigned char window[WINDOW_BYTES];
} cursor;

static bp_err refuse(const cursor *c, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "gguf.damaged",
                   "not a sound GGUF file: %s at byte %lld: at %s; " REMEDY, what, (long long)c->at,
                   c->file->path);
}

static int64_t left_of(const cursor *c)
{
    return c->file->bytes - c->at;
}

static bp_err take(cursor *c, void *out, int64_t bytes)
{
    unsigned char *to = out;

    if (bytes > left_of(c))
        return BP_FAIL(
            BP_ERR_FORMAT, "gguf.truncated",
            "the file ends after %lld bytes, in its keys or its list of tensors: at %s; " REMEDY,
            (long long)c->file->bytes, c->file->path);
    for (int64_t done = 0; done < bytes;) {
        int64_t in = c->at - c->from, some;

        if (in < 0 || in >= c->held) {
            c->from = c->at;
            c->held = left_of(c) < WINDOW_BYTES ? left_of(c) : WINDOW_BYTES;
            if (bp_pread_all(c->file->fd, c->window, (size_t)c->held, c->from) != 0)
                return bp_fail_errno(BP_ERR_IO, "can't read", c->file->path);
            in = 0;
        }
        some = c->held - in < bytes - done ? c->held - in : bytes - done;
        memcpy(to + done, c->window + in, (size_t)some);
        done += some;
        c->at += some;
    }
    return BP_OK;
}

static bp_err take_u64(cursor *c, uint64_t *out)
{
    return take(c, out, sizeof *out);
}

static bp_err take_u32(cursor *c, uint32_t *out)
{
    return take(c, out, sizeof *out);
}

/* UTF-8 without a zero byte, of at most `most` bytes. Free with bp_free(). */
static bp_err take_string(cursor *c, uint64_t most, char **out, size_t *bytes)
{
    uint64_t length;
    bp_err err = take_u64(c, &length);

    *out = NULL;
    if (err != BP_OK)
        return err;
    if (length > most || length > (uint64_t)left_of(c))
        return refuse(c, "a string is longer than the file, or than any that is known,");
    *out = bp_alloc("gguf.string", (int64_t)length + 1, 1);
    *bytes = (size_t)length;
    err = take(c, *out, (int64_t)length);
    if (err == BP_OK && memchr(*out, 0, *bytes))
        err = refuse(c, "a string has a zero byte, before the one");
    if (err != BP_OK) {
        bp_free(*out);
        *out = NULL;
    }
    return err;
}

/* ---- values ---- */

static json_t *number_json(int type, const unsigned char bytes[8])
{
    union {
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        float f32;
        uint64_t u64;
        int64_t i64;
        double f64;
    } is;

    memcpy(&is, bytes, sizeof is);
    switch (type) {
    case U8:
        return json_integer(bytes[0]);
    case I8:
        return json_integer((signed char)bytes[0]);
    case U16:
        return json_integer(is.u16);
    case I16:
        return json_integer(is.i16);
    case U32:
        return json_integer(is.u32);
    case I32:
        return json_integer(is.i32);
    case F32:
        return json_real((double)is.f32);
    case BOOL:
        return bytes[0] > 1 ? NULL : json_boolean(bytes[0]);
    case U64:
        return is.u64 > INT64_MAX ? NULL : json_integer((json_int_t)is.u64);
    case I64:
        return json_integer(is.i64);
    default:
        return json_real(is.f64);
    }
}

static bp_err take_number(cursor *c, uint32_t type, json_t **out)
{
    unsigned char bytes[8] = {0};
    bp_err err = take(c, bytes, VALUE_BYTES[type]);

    if (err != BP_OK)
        return err;
    *out = number_json((int)type, bytes);
    return *out ? BP_OK
                : refuse(c, "a value is not finite, no truth value, or beyond 63 bits, before the "
                            "one");
}

static bp_err take_text(cursor *c, json_t **out)
{
    size_t bytes;
    char *text;
    bp_err err = take_string(c, MAX_STRING, &text, &bytes);

    if (err != BP_OK)
        return err;
    *out = json_stringn(text, bytes);
    bp_free(text);
    return *out ? BP_OK : refuse(c, "a string is not UTF-8, before the one");
}

static bp_err take_value(cursor *c, uint32_t type, int depth, json_t **out);

static bp_err take_array(cursor *c, int depth, json_t **out)
{
    uint32_t type = 0;
    uint64_t count = 0;
    bp_err err = take_u32(c, &type);

    if (err == BP_OK)
        err = take_u64(c, &count);
    if (err == BP_OK && (type >= VALUE_TYPES || depth == MAX_DEPTH))
        return refuse(c, "a list is of an unknown type, or in too many others,");
    if (err == BP_OK &&
        (count > (uint64_t)(left_of(c) / VALUE_BYTES[type]) || (c->values += count) > MAX_VALUES))
        return refuse(c, "a list has more elements than the file has room for, or than any known,");
    *out = json_array();
    for (uint64_t k = 0; k < count && err == BP_OK; k++) {
        json_t *one = NULL;

        err = take_value(c, type, depth + 1, &one);
        if (err == BP_OK && json_array_append_new(*out, one) != 0)
            err = bp_fail_memory("a list of keys", (int64_t)count, 1);
    }
    if (err != BP_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return err;
}

static bp_err take_value(cursor *c, uint32_t type, int depth, json_t **out)
{
    *out = NULL;
    if (type >= VALUE_TYPES)
        return refuse(c, "a value is of an unknown type");
    return type == STRING  ? take_text(c, out)
           : type == ARRAY ? take_array(c, depth, out)
                           : take_number(c, type, out);
}

static bp_err take_key(cursor *c, json_t *keys)
{
    json_t *value = NULL;
    uint32_t type = 0;
    size_t bytes;
    char *name;
    bp_err err = take_string(c, MAX_NAME, &name, &bytes);

    if (err == BP_OK && json_object_getn(keys, name, bytes))
        err = refuse(c, "a key is there twice, before the one");
    if (err == BP_OK)
        err = take_u32(c, &type);
    if (err == BP_OK)
        err = take_value(c, type, 0, &value);
    if (err == BP_OK && json_object_set_new(keys, name, value) != 0)
        err = refuse(c, "a key's name is not UTF-8, before the one");
    bp_free(name);
    return err;
}

/* ---- tensors ---- */

int64_t bp_gguf_bytes(bp_gguf_type type, int64_t count)
{
    return type == BP_GGUF_F32    ? 4 * count
           : type == BP_GGUF_Q8_0 ? count / BP_GGUF_BLOCK * GGUF_BLOCK_BYTES
                                  : 2 * count;
}

static bp_err check_type(const cursor *c, const bp_gguf_tensor *tensor, uint32_t type)
{
    const char *name = "unknown";

    if (type == BP_GGUF_F32 || type == BP_GGUF_F16 || type == BP_GGUF_BF16)
        return BP_OK;
    if (type == BP_GGUF_Q8_0)
        return tensor->row % BP_GGUF_BLOCK == 0
                   ? BP_OK
                   : refuse(c, "a tensor of Q8_0 has rows of no whole number of blocks, before the "
                               "one");
    for (size_t k = 0; k < sizeof OTHER_TYPES / sizeof OTHER_TYPES[0]; k++)
        if (OTHER_TYPES[k].type == type)
            name = OTHER_TYPES[k].name;
    return BP_FAIL(
        BP_ERR_FORMAT, "gguf.other_type",
        "tensor '%.80s' is of type %u (%s), and F32, F16, BF16 and Q8_0 are read: at %s; "
        "give a file of one of those types",
        tensor->name, type, name, c->file->path);
}

static bp_err take_shape(cursor *c, bp_gguf_tensor *tensor)
{
    uint64_t sizes[BP_GGUF_DIMS] = {0};
    uint32_t dims;
    bp_err err = take_u32(c, &dims);

    if (err == BP_OK && (dims < 1 || dims > BP_GGUF_DIMS))
        return refuse(c, "a tensor has no dimensions, or more than 4,");
    tensor->dims = err == BP_OK ? (int)dims : 0;
    tensor->count = 1;
    for (int d = 0; d < tensor->dims && err == BP_OK; d++) {
        err = take_u64(c, &sizes[d]);
        if (err == BP_OK &&
            (sizes[d] < 1 || sizes[d] > INT64_MAX / 8 ||
             __builtin_mul_overflow(tensor->count, (int64_t)sizes[d], &tensor->count) ||
             tensor->count > INT64_MAX / 8))
            return refuse(c, "a tensor is empty, or larger than 2^60 values, before the one");
    }
    for (int d = 0; d < tensor->dims; d++) /* files have the innermost first */
        tensor->shape[d] = (int64_t)sizes[tensor->dims - 1 - d];
    tensor->row = (int64_t)sizes[0];
    return err;
}

static bp_err take_tensor(cursor *c, bp_gguf *file, int64_t alignment)
{
    bp_gguf_tensor *tensor = &file->tensors[file->count];
    uint32_t type = 0;
    uint64_t offset = 0;
    size_t bytes;
    char *name;
    bp_err err = take_string(c, MAX_NAME, &name, &bytes);

    if (err != BP_OK)
        return err;
    file->count++; /* the name is freed with the file */
    tensor->name = name;
    if (bytes == 0)
        return refuse(c, "a tensor has no name, before the one");
    err = take_shape(c, tensor);
    if (err == BP_OK)
        err = take_u32(c, &type);
    if (err == BP_OK)
        err = check_type(c, tensor, type);
    if (err == BP_OK)
        err = take_u64(c, &offset);
    if (err != BP_OK)
        return err;
    tensor->type = (bp_gguf_type)type;
    tensor->bytes = bp_gguf_bytes(tensor->type, tensor->count);
    tensor->place = (int64_t)offset; /* in the data, until the data's place is known */
    return offset > (uint64_t)file->bytes || offset % (uint64_t)alignment != 0 ||
                   tensor->bytes > file->bytes - (int64_t)offset
               ? refuse(c, "a tensor ends beyond the file, or is not aligned, before the one")
               : BP_OK;
}

static int compare_places(const void *a, const void *b)
{
    const bp_gguf_tensor *p = a, *q = b;

    return p->place != q->place ? (p->place < q->place ? -1 : 1) : strcmp(p->name, q->name);
}

static int compare_names(const void *a, const void *b)
{
    const bp_gguf_tensor *const *p = a, *const *q = b;

    return strcmp((*p)->name, (*q)->name);
}

static bp_err refuse_tensor(const bp_gguf *file, const char *tensor, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_tensor",
                   "not a sound GGUF file: tensor '%.80s' %s: at %s; " REMEDY, tensor, what,
                   file->path);
}

/* Adjacent, except for alignment. */
static bp_err place_tensors(bp_gguf *file, int64_t data, int64_t alignment)
{
    int64_t end = 0;

    for (int64_t k = 0; k < file->count; k++) {
        bp_gguf_tensor *tensor = &file->tensors[k];

        if (tensor->place < end)
            return refuse_tensor(file, tensor->name, "overlaps the one before it");
        if (tensor->place != bp_round_up(end, alignment))
            return refuse_tensor(file, tensor->name, "leaves a gap before it");
        end = tensor->place + tensor->bytes;
        tensor->place += data;
        if (end > file->bytes - data)
            return refuse_tensor(file, tensor->name, "ends beyond the file");
        file->by_name[k] = tensor;
    }
    if (file->bytes - data > bp_round_up(end, alignment))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.too_long",
                       "not a sound GGUF file: %lld bytes follow the last tensor: at %s; " REMEDY,
                       (long long)(file->bytes - data - end), file->path);
    if (file->count > 0)
        qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    for (int64_t k = 1; k < file->count; k++)
        if (strcmp(file->by_name[k - 1]->name, file->by_name[k]->name) == 0)
            return refuse_tensor(file, file->by_name[k]->name, "is there twice");
    return BP_OK;
}

/* ---- the whole file ---- */

static bp_err take_head(cursor *c, uint64_t *tensors, uint64_t *keys)
{
    char magic[4] = {0};
    uint32_t version = 0;
    bp_err err = take(c, magic, sizeof magic);

    if (err == BP_OK && memcmp(magic, "GGUF", sizeof magic) != 0)
        return refuse(c, "it does not begin with GGUF,");
    if (err == BP_OK)
        err = take_u32(c, &version);
    if (err == BP_OK && version != 2 && version != 3)
        return BP_FAIL(BP_ERR_FORMAT, "gguf.unknown_version",
                       "the file is of GGUF version %u%s, and little-endian ones of 2 and 3 are "
                       "read: at %s; convert its model again",
                       version, version > 0xFFFF ? ", or big-endian" : "", c->file->path);
    if (err == BP_OK)
        err = take_u64(c, tensors);
    if (err == BP_OK)
        err = take_u64(c, keys);
    if (err == BP_OK && (*tensors > MAX_TENSORS || *keys > MAX_KEYS ||
                         *tensors > (uint64_t)left_of(c) / LEAST_OF_TENSOR ||
                         *keys > (uint64_t)left_of(c) / LEAST_OF_KEY))
        err =
            refuse(c, "it has more keys or tensors than the file has room for, or than any known,");
    return err;
}

static bp_err find_alignment(const bp_gguf *file, int64_t *alignment)
{
    const json_t *value = json_object_get(file->keys, "general.alignment");

    *alignment = value ? json_integer_value(value) : 32;
    return *alignment > 0 && *alignment <= MAX_ALIGNMENT && (*alignment & (*alignment - 1)) == 0
               ? BP_OK
               : BP_FAIL(BP_ERR_FORMAT, "gguf.bad_alignment",
                         "general.alignment is not a power of two from 1 to %d: at %s; " REMEDY,
                         MAX_ALIGNMENT, file->path);
}

static bp_err read_all(bp_gguf *file, cursor *c)
{
    uint64_t tensors = 0, keys = 0;
    int64_t alignment = 1;
    bp_err err = take_head(c, &tensors, &keys);

    file->keys = json_object();
    for (uint64_t k = 0; k < keys && err == BP_OK; k++)
        err = take_key(c, file->keys);
    if (err == BP_OK)
        err = find_alignment(file, &alignment);
    if (err != BP_OK)
        return err;
    file->tensors = bp_alloc("gguf.tensors", (int64_t)tensors, sizeof *file->tensors);
    file->by_name = bp_alloc("gguf.tensors", (int64_t)tensors, sizeof *file->by_name);
    for (uint64_t k = 0; k < tensors && err == BP_OK; k++)
        err = take_tensor(c, file, alignment);
    if (err != BP_OK)
        return err;
    if (file->count > 0)
        qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_places);
    return place_tensors(file, file->count > 0 ? bp_round_up(c->at, alignment) : c->at, alignment);
}

bp_err bp_gguf_open(bp_gguf **out, const char *path)
{
    bp_gguf *file = bp_alloc("gguf", 1, sizeof *file);
    cursor *c = bp_alloc("gguf.window", 1, sizeof *c);
    bp_err err;

    *out = NULL;
    file->fd = -1;
    file->path = bp_strdup(path);
    c->file = file;
    err = bp_file_open(path, &file->fd, &file->bytes);
    if (err == BP_OK)
        err = read_all(file, c);
    if (err != BP_OK)
        bp_gguf_close(&file);
    bp_free(c);
    *out = file;
    return err;
}

void bp_gguf_close(bp_gguf **out)
{
    bp_gguf *file = *out;

    if (!file)
        return;
    if (file->fd >= 0)
        (void)close(file->fd); /* only read from */
    for (int64_t k = 0; k < file->count; k++)
        bp_free((char *)file->tensors[k].name);
    bp_free(file->tensors);
    bp_free(file->by_name);
    json_decref(file->keys);
    bp_free(file->path);
    bp_free(file);
    *out = NULL;
}

bool bp_gguf_is(const char *path)
{
    char magic[4];
    int fd;
    bool is = bp_file_open(path, &fd, NULL) == BP_OK &&
              bp_pread_all(fd, magic, sizeof magic, 0) == 0 &&
              memcmp(magic, "GGUF", sizeof magic) == 0;

    if (fd >= 0)
        (void)close(fd);
    return is;
}

const char *bp_gguf_path(const bp_gguf *file)
{
    return file->path;
}

const json_t *bp_gguf_keys(const bp_gguf *file)
{
    return file->keys;
}

int64_t bp_gguf_count(const bp_gguf *file)
{
    return file->count;
}

const bp_gguf_tensor *bp_gguf_at(const bp_gguf *file, int64_t k)
{
    BP_ASSERT(k >= 0 && k < file->count);
    return &file->tensors[k];
}

const bp_gguf_tensor *bp_gguf_find(const bp_gguf *file, const char *name)
{
    bp_gguf_tensor key = {.name = name};
    const bp_gguf_tensor *wanted = &key, **found;

    if (file->count == 0)
        return NULL;
    found =
        bsearch(&wanted, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    return found ? *found : NULL;
}
