/* The manifest of a checkpoint: its files with their hashes, its tensors and the pieces that tile
 * them. */
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces are compared pair by pair if they begin in the same row; this bounds the time for a
 * malicious list. */
#define COMPARISONS_MAX ((int64_t)1 << 26)

int64_t bp_manifest_limit_bytes = (int64_t)64 << 20, bp_manifest_plain_pieces = 16384;

void bp_digest_text(char out[33], const bp_digest *digest)
{
    static const char digits[] = "0123456789abcdef";

    for (int k = 0; k < 32; k++)
        out[k] = digits[digest->lane[k / 16] >> (60 - 4 * (k % 16)) & 15];
    out[32] = '\0';
}

static bool is_hex(const char *text, size_t length)
{
    return strlen(text) == length && strspn(text, "0123456789abcdef") == length;
}

/* ---- names --------------------------------------------------------------------------------------
 */

/* Names that can't form a path: a fixed pattern and two fixed names. */
static bool file_name_is_valid(const char *name)
{
    if (strcmp(name, "tokenizer.json") == 0 || strcmp(name, BP_CHECKPOINT_ATTACHMENT) == 0)
        return true;
    return strlen(name) == 14 && strncmp(name, "shard-", 6) == 0 &&
           strspn(name + 6, "0123456789") == 5 && strcmp(name + 11, ".h5") == 0;
}

static bool dataset_name_is_valid(const char *name)
{
    size_t length = strlen(name);

    if (length < 2 || length >= BP_PIECE_DATASET || name[0] != '/' || name[length - 1] == '/')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_./") == length &&
           !strstr(name, "//") && !strstr(name, "/./") && !strstr(name, "/../");
}

/* Files and tensors begin with their names, and are sorted by them. */
static int compare_names(const void *name, const void *entry)
{
    return strcmp(name, entry);
}

int64_t bp_manifest_find_file(const bp_manifest *manifest, const char *name)
{
    const bp_manifest_file *found =
        bsearch(name, manifest->files, (size_t)manifest->file_count, sizeof *found, compare_names);

    return found ? found - manifest->files : -1;
}

const bp_manifest_tensor *bp_manifest_find(const bp_manifest *manifest, const char *name)
{
    return bsearch(name, manifest->tensors, (size_t)manifest->tensor_count,
                   sizeof *manifest->tensors, compare_names);
}

bp_slice bp_manifest_slice(const bp_manifest_tensor *tensor, const bp_manifest_piece *piece)
{
    bp_slice slice = {.dims = tensor->dims};

    memcpy(slice.name, tensor->name, sizeof slice.name);
    memcpy(slice.shape, tensor->shape, sizeof slice.shape);
    memcpy(slice.extent, piece ? piece->extent : tensor->shape, sizeof slice.extent);
    if (piece)
        memcpy(slice.offset, piece->offset, sizeof slice.offset);
    return slice;
}

/* ---- tiles ---- */

/* Pairwise disjoint, and the volumes sum to the tensor's: no hole and no overlap. Pieces are sorted
 * by offset, so that each is compared only with those that begin before its last row. */
bp_err bp_manifest_check_tiles(const bp_manifest_tensor *tensor, const bp_manifest_piece *pieces)
{
    int64_t whole, volume, sum = 0, compared = 0;

    if (!bp_slice_volume(tensor->dims, tensor->shape, &whole))
        return BP_FAIL(BP_ERR_FORMAT, "manifest.too_large",
                       "tensor '%s' has more than 2^40 elements", tensor->name);
    for (int64_t i = 0; i < tensor->count; i++) {
        const bp_manifest_piece *a = &pieces[i];

        if (!bp_slice_volume(tensor->dims, a->extent, &volume) ||
            __builtin_add_overflow(sum, volume, &sum))
            return BP_FAIL(BP_ERR_FORMAT, "manifest.too_large",
                           "the pieces of tensor '%s' are too large", tensor->name);
        for (int64_t j = i + 1; j < tensor->count; j++) {
            int64_t offset[BP_TENSOR_DIMS] = {0}, extent[BP_TENSOR_DIMS];

            if (pieces[j].offset[0] >= a->offset[0] + a->extent[0])
                break;
            if (++compared > COMPARISONS_MAX)
                return BP_FAIL(BP_ERR_FORMAT, "manifest.too_large",
                               "tensor '%s' has %lld pieces, too many in one row", tensor->name,
                               (long long)tensor->count);
            if (bp_slice_intersect(tensor->dims, a->offset, a->extent, pieces[j].offset,
                                   pieces[j].extent, offset, extent))
                return BP_FAIL(BP_ERR_FORMAT, "manifest.overlap",
                               "two pieces of tensor '%s' overlap at (%lld, %lld, %lld, %lld)",
                               tensor->name, (long long)offset[0], (long long)offset[1],
                               (long long)offset[2], (long long)offset[3]);
        }
    }
    if (sum != whole)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.hole",
                       "the pieces of tensor '%s' leave a hole of %lld of its %lld elements",
                       tensor->name, (long long)(whole - sum), (long long)whole);
    return BP_OK;
}

/* ---- parsing ---- */

/* A shard of ours may have the hash of its user block in place of SHA-256, since version 2. */
static bp_err parse_hash(bp_manifest_file *file, const json_t *entry, const char *path)
{
    bool quick = json_object_get(entry, "xxh3_128") != NULL;
    char *hash = quick ? file->xxh3 : file->sha256;
    size_t digits = (quick ? sizeof file->xxh3 : sizeof file->sha256) - 1;
    const char *text;

    file->xxh3[0] = file->sha256[0] = '\0';
    if (quick && json_object_get(entry, "sha256"))
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_file",
                       "'%.80s' has both 'sha256' and 'xxh3_128': in %s", file->name, path);
    bp_err err = bp_json_get_string(entry, quick ? "xxh3_128" : "sha256", &text, path);
    if (err == BP_OK && !is_hex(text, digits))
        err = BP_FAIL(BP_ERR_FORMAT, "manifest.bad_file",
                      "the hash of %s is not %zu hexadecimal digits: in %s", file->name, digits,
                      path);
    if (err == BP_OK)
        memcpy(hash, text, digits + 1);
    return err;
}

static bp_err parse_file(bp_manifest *manifest, const json_t *entry, const char *path)
{
    bp_manifest_file *file = &manifest->files[manifest->file_count];
    const char *name;
    bp_err err = bp_json_get_string(entry, "name", &name, path);

    if (err == BP_OK)
        err = bp_json_get_int(entry, "bytes", &file->bytes, path);
    if (err != BP_OK)
        return err;
    if (!file_name_is_valid(name))
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_file",
                       "'%.80s' is not a name for a file of a checkpoint (shard-NNNNN.h5, "
                       "tokenizer.json, model.bin): in %s",
                       name, path);
    if (file->bytes < 0)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_file", "the size of %s is wrong: in %s", name,
                       path);
    if (manifest->file_count > 0 && strcmp(file[-1].name, name) >= 0)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.not_sorted",
                       "file '%s' is listed twice or out of order: in %s", name, path);
    memcpy(file->name, name, strlen(name) + 1);
    err = parse_hash(file, entry, path);
    if (err == BP_OK)
        manifest->file_count++;
    return err;
}

static bp_err parse_extents(int64_t out[BP_TENSOR_DIMS], const json_t *entry, const char *key,
                            int dims, const char *tensor)
{
    const json_t *list = json_object_get(entry, key);

    if (!json_is_array(list) || json_array_size(list) != (size_t)dims)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_piece",
                       "'%s' of tensor '%s' is not a list of %d integers", key, tensor, dims);
    memset(out, 0, BP_TENSOR_DIMS * sizeof *out);
    for (int d = 0; d < dims; d++) {
        const json_t *value = json_array_get(list, (size_t)d);

        if (!json_is_integer(value))
            return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_piece",
                           "'%s' of tensor '%s' is not a list of integers", key, tensor);
        out[d] = json_integer_value(value);
    }
    return BP_OK;
}

void bp_piece_dataset(char out[BP_PIECE_DATASET], const char *tensor, int64_t number)
{
    (void)snprintf(out, BP_PIECE_DATASET, "/%.*s/p%" PRId64, BP_TENSOR_NAME, tensor, number);
}

/* Keeps a name from another program. */
static void take_dataset(bp_manifest *manifest, const char *tensor, const char *dataset,
                         bp_manifest_piece *piece)
{
    size_t length = strlen(tensor), bytes = strlen(dataset) + 1;
    char again[BP_PIECE_DATASET];

    if (strncmp(dataset + 1, tensor, length) == 0 && strncmp(dataset + 1 + length, "/p", 2) == 0) {
        piece->dataset = strtoll(dataset + length + 3, NULL, 10);
        if (piece->dataset >= 0)
            bp_piece_dataset(again, tensor, piece->dataset);
        if (piece->dataset >= 0 && strcmp(again, dataset) == 0)
            return;
    }
    piece->dataset = -1 - manifest->name_bytes;
    manifest->names = bp_grow("manifest.names", manifest->names, &manifest->name_capacity,
                              manifest->name_bytes + (int64_t)bytes, 1);
    memcpy(manifest->names + manifest->name_bytes, dataset, bytes);
    manifest->name_bytes += (int64_t)bytes;
}

void bp_manifest_dataset(char out[BP_PIECE_DATASET], const bp_manifest *manifest,
                         const bp_manifest_tensor *tensor, const bp_manifest_piece *piece)
{
    if (piece->dataset >= 0)
        bp_piece_dataset(out, tensor->name, piece->dataset);
    else
        (void)snprintf(out, BP_PIECE_DATASET, "%s", manifest->names + (-1 - piece->dataset));
}

static bp_err parse_object(bp_manifest *manifest, const bp_manifest_tensor *tensor,
                           const json_t *entry, bp_manifest_piece *piece, const char *path)
{
    const char *file, *dataset;
    bp_err err = bp_json_get_string(entry, "file", &file, path);

    if (err == BP_OK)
        err = bp_json_get_string(entry, "dataset", &dataset, path);
    if (err == BP_OK)
        err = parse_extents(piece->offset, entry, "offset", tensor->dims, tensor->name);
    if (err == BP_OK)
        err = parse_extents(piece->extent, entry, "extent", tensor->dims, tensor->name);
    if (err != BP_OK)
        return err;
    piece->file = bp_manifest_find_file(manifest, file);
    if (piece->file < 0)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.unlisted_file",
                       "tensor '%s' has a piece in '%.80s', which is not listed: in %s",
                       tensor->name, file, path);
    if (!dataset_name_is_valid(dataset))
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_piece",
                       "'%.80s' is not a dataset name: tensor '%s' in %s", dataset, tensor->name,
                       path);
    take_dataset(manifest, tensor->name, dataset, piece);
    return BP_OK;
}

/* [file, number of the dataset, offset..., extent...] */
static bp_err parse_integers(const bp_manifest *manifest, const bp_manifest_tensor *tensor,
                             const json_t *entry, bp_manifest_piece *piece)
{
    size_t dims = (size_t)tensor->dims, count = json_array_size(entry);
    int64_t values[2 + 2 * BP_TENSOR_DIMS] = {0};
    bool good = count == 2 + 2 * dims;

    for (size_t k = 0; good && k < count; k++) {
        good = json_is_integer(json_array_get(entry, k));
        values[k] = json_integer_value(json_array_get(entry, k));
    }
    if (!good || values[1] < 0)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_piece",
                       "a piece of tensor '%s' is not a list of %zu integers", tensor->name,
                       2 + 2 * dims);
    if (values[0] < 0 || values[0] >= manifest->file_count)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.unlisted_file",
                       "tensor '%s' has a piece in file %lld, and %lld are listed", tensor->name,
                       (long long)values[0], (long long)manifest->file_count);
    piece->file = values[0];
    piece->dataset = values[1];
    memset(piece->offset, 0, sizeof piece->offset);
    memset(piece->extent, 0, sizeof piece->extent);
    memcpy(piece->offset, values + 2, dims * sizeof *values);
    memcpy(piece->extent, values + 2 + dims, dims * sizeof *values);
    return BP_OK;
}

static bp_err parse_piece(bp_manifest *manifest, const bp_manifest_tensor *tensor,
                          const json_t *entry, const char *path)
{
    bp_manifest_piece *piece = &manifest->pieces[manifest->piece_count];
    bp_slice slice;
    bp_err err = json_is_array(entry) ? parse_integers(manifest, tensor, entry, piece)
                                      : parse_object(manifest, tensor, entry, piece, path);

    if (err != BP_OK)
        return err;
    slice = bp_manifest_slice(tensor, piece);
    err = bp_slice_check(&slice);
    manifest->piece_count += err == BP_OK;
    return err;
}

static int compare_offsets(const void *a, const void *b)
{
    const bp_manifest_piece *p = a, *q = b;

    for (int d = 0; d < BP_TENSOR_DIMS; d++)
        if (p->offset[d] != q->offset[d])
            return p->offset[d] < q->offset[d] ? -1 : 1;
    return 0;
}

static bp_err parse_shape(bp_manifest_tensor *tensor, const json_t *entry, const char *path)
{
    const json_t *shape = json_object_get(entry, "shape");
    bp_slice whole;
    bp_err err;

    if (!json_is_array(shape) || json_array_size(shape) < 1 ||
        json_array_size(shape) > BP_TENSOR_DIMS)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_tensor",
                       "'shape' of tensor '%s' is not a list of 1 to %d integers: in %s",
                       tensor->name, BP_TENSOR_DIMS, path);
    tensor->dims = (int)json_array_size(shape);
    err = parse_extents(tensor->shape, entry, "shape", tensor->dims, tensor->name);
    if (err != BP_OK)
        return err;
    whole = bp_manifest_slice(tensor, NULL);
    return bp_slice_check(&whole);
}

static bp_err parse_head(bp_manifest *manifest, const json_t *entry, const char *path)
{
    bp_manifest_tensor *tensor = &manifest->tensors[manifest->tensor_count];
    const char *name, *dtype, *digest;
    char half[17] = "";
    bp_err err = bp_json_get_string(entry, "name", &name, path);

    if (err == BP_OK)
        err = bp_json_get_string(entry, "dtype", &dtype, path);
    if (err == BP_OK)
        err = bp_json_get_string(entry, "digest", &digest, path);
    if (err != BP_OK)
        return err;
    if (!bp_tensor_name_is_valid(name))
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_tensor", "'%.80s' is not a tensor name: in %s",
                       name, path);
    if (strcmp(dtype, "float32") != 0)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.unknown_dtype",
                       "tensor '%s' has dtype '%.20s', only float32 is known: in %s", name, dtype,
                       path);
    if (manifest->tensor_count > 0 && strcmp(tensor[-1].name, name) >= 0)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.not_sorted",
                       "tensor '%s' is listed twice or out of order: in %s", name, path);
    if (!is_hex(digest, 32))
        return BP_FAIL(BP_ERR_FORMAT, "manifest.bad_tensor",
                       "the digest of tensor '%s' is not 32 hexadecimal digits", name);
    for (int lane = 0; lane < 2; lane++) {
        memcpy(half, digest + 16 * lane, 16);
        tensor->digest.lane[lane] = strtoull(half, NULL, 16);
    }
    memcpy(tensor->name, name, strlen(name) + 1);
    return parse_shape(tensor, entry, path);
}

static bp_err parse_tensor(bp_manifest *manifest, const json_t *entry, const char *path)
{
    bp_manifest_tensor *tensor = &manifest->tensors[manifest->tensor_count];
    const json_t *pieces = json_object_get(entry, "pieces");
    bp_err err = parse_head(manifest, entry, path);

    if (err == BP_OK && !json_is_array(pieces))
        err = BP_FAIL(BP_ERR_FORMAT, "manifest.bad_tensor",
                      "tensor '%s' has no list of pieces: in %s", tensor->name, path);
    if (err != BP_OK)
        return err;
    tensor->first = manifest->piece_count;
    tensor->count = (int64_t)json_array_size(pieces);
    for (int64_t k = 0; k < tensor->count && err == BP_OK; k++)
        err = parse_piece(manifest, tensor, json_array_get(pieces, (size_t)k), path);
    if (err != BP_OK)
        return err;
    if (tensor->count > 0)
        qsort(manifest->pieces + tensor->first, (size_t)tensor->count, sizeof *manifest->pieces,
              compare_offsets);
    err = bp_manifest_check_tiles(tensor, manifest->pieces + tensor->first);
    if (err == BP_OK)
        manifest->tensor_count++;
    return err == BP_OK ? err : bp_err_prefix(err, "%s", path);
}

static bp_err parse_lists(bp_manifest *manifest, const json_t *root, const char *path)
{
    const json_t *files = json_object_get(root, "files"),
                 *tensors = json_object_get(root, "tensors");
    int64_t pieces = 0;
    bp_err err = BP_OK;

    if (!json_is_array(files) || !json_is_array(tensors))
        return BP_FAIL(BP_ERR_FORMAT, "manifest.wrong_type",
                       "'files' or 'tensors' is not a list: in %s", path);
    for (size_t k = 0; k < json_array_size(tensors) && pieces <= BP_PIECES_MAX; k++)
        pieces += (int64_t)json_array_size(json_object_get(json_array_get(tensors, k), "pieces"));
    if (pieces > BP_PIECES_MAX)
        return BP_FAIL(BP_ERR_FORMAT, "manifest.too_large",
                       "there are more than %lld pieces: in %s", (long long)BP_PIECES_MAX, path);
    manifest->files =
        bp_alloc("manifest.files", (int64_t)json_array_size(files), sizeof *manifest->files);
    manifest->tensors =
        bp_alloc("manifest.tensors", (int64_t)json_array_size(tensors), sizeof *manifest->tensors);
    manifest->pieces = bp_alloc("manifest.pieces", pieces, sizeof *manifest->pieces);
    for (size_t k = 0; k < json_array_size(files) && err == BP_OK; k++)
        err = parse_file(manifest, json_array_get(files, k), path);
    for (size_t k = 0; k < json_array_size(tensors) && err == BP_OK; k++)
        err = parse_tensor(manifest, json_array_get(tensors, k), path);
    return err;
}

static bp_err check_version(bool *foreign, const json_t *root, const char *path)
{
    const char *format;
    int64_t version;
    bp_err err = bp_json_get_string(root, "format", &format, path);

    if (err == BP_OK && strcmp(format, BP_MANIFEST_FORMAT) != 0)
        err = BP_FAIL(BP_ERR_FORMAT, "manifest.wrong_format",
                      "'format' is '%.40s', not '" BP_MANIFEST_FORMAT "': in %s", format, path);
    if (err == BP_OK)
        err = bp_json_get_int(root, "format_version", &version, path);
    if (err == BP_OK && (version < 1 || version > BP_MANIFEST_VERSION)) {
        *foreign = true;
        err = BP_FAIL(BP_ERR_FORMAT, "manifest.unknown_version",
                      "format_version %lld of the checkpoint is unknown, this program reads "
                      "1 to %d: at %s; use the bagpipe that wrote it, or a newer one",
                      (long long)version, BP_MANIFEST_VERSION, path);
    }
    return err;
}

bp_err bp_manifest_parse(bp_manifest **out, bool *foreign, const char *text, size_t bytes,
                         const char *path)
{
    bp_manifest *manifest = bp_alloc("manifest", 1, sizeof *manifest);
    json_t *root = NULL;
    bp_err err;

    *out = NULL;
    *foreign = false;
    err = bp_json_parse(&root, text, bytes, path);
    if (err == BP_OK)
        err = check_version(foreign, root, path);
    if (err == BP_OK)
        err = parse_lists(manifest, root, path);
    if (err == BP_OK && !json_is_object(json_object_get(root, "state")))
        err =
            BP_FAIL(BP_ERR_FORMAT, "manifest.wrong_type", "'state' is not an object: in %s", path);
    if (err == BP_OK)
        manifest->state = json_incref(json_object_get(root, "state"));
    json_decref(root);
    if (err != BP_OK)
        bp_manifest_free(&manifest);
    *out = manifest;
    return err;
}

void bp_manifest_free(bp_manifest **manifest)
{
    if (!*manifest)
        return;
    bp_free((*manifest)->files);
    bp_free((*manifest)->tensors);
    bp_free((*manifest)->pieces);
    bp_free((*manifest)->names);
    json_decref((*manifest)->state);
    bp_free(*manifest);
    *manifest = NULL;
}

#define TOKENIZER_LIMIT ((int64_t)1 << 28)

static bp_err read_tokenizer(const char *path, char **text, size_t *bytes)
{
    return bp_file_read(path, TOKENIZER_LIMIT, text, bytes);
}

void bp_checkpoint_note_tokenizer(const json_t *state, const char *path)
{
    const char *hash = json_string_value(json_object_get(state, "tokenizer_hash"));

    if (hash && hash[0] != '\0')
        bp_tokenizer_hash_is_of(hash, path, read_tokenizer);
}
