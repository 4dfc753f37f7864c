/* One native corpus file: opening it, its tokens through corpus_chunks.c, its columns. */
#include "io/corpus/corpus_file.h"

#include "corpus_file_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/corpus/corpus_text.h"
#include "io/corpus/corpus_writer.h"
#include "io/h5/user_block.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ID_RUN_BYTES ((int64_t)1 << 20)

#define WHOLE_BYTES  ((int64_t)256 << 20)

int64_t bp_corpus_hash_whole_bytes = WHOLE_BYTES;

bool bp_corpus_file_hash_whole(bool whole)
{
    bool before = bp_corpus_hash_whole_bytes > 0;

    bp_corpus_hash_whole_bytes = whole ? WHOLE_BYTES : 0;
    return before;
}

/* ---- checks before HDF5 reads a file, and their results ---- */

static bp_err damaged(const bp_corpus_file *file, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "corpus.damaged", "damaged: at %s, in %s; make it anew",
                   file->path, what);
}

/* The user block, the table of checksums, and everything that the table does not cover. */
static bp_err check_bytes(bp_corpus_file *file, bp_user_block *block)
{
    int64_t offset, rows;
    char outside[BP_USER_BLOCK_HASH], found[BP_USER_BLOCK_HASH];
    char again[BP_USER_BLOCK_DETAIL];
    bp_err err = bp_user_block_expect(block, BP_CORPUS_KIND, BP_CORPUS_VERSION, file->path);

    if (err != BP_OK)
        return err;
    if (sscanf(block->detail, "checksums %18" SCNd64 " %18" SCNd64 " outside %32[0-9a-f]", &offset,
               &rows, outside) != 3)
        return damaged(file, "the user block (bytes 0 to 511)");
    snprintf(again, sizeof again, "checksums %" PRId64 " %" PRId64 " outside %s", offset, rows,
             outside);
    if (strcmp(again, block->detail) != 0)
        return damaged(file, "the user block (bytes 0 to 511)");
    snprintf(file->info.content_hash, sizeof file->info.content_hash, "%s", block->hash);
    if (block->bytes <= bp_corpus_hash_whole_bytes)
        err = bp_user_block_verify_fd(block, file->fd, file->path);
    if (err == BP_OK)
        err = bp_extents_read(&file->extents, file->fd, offset, rows, block->bytes, file->path);
    if (err == BP_OK)
        err = bp_extents_outside(&file->extents, file->fd, block->bytes, file->path, found);
    if (err == BP_OK && strcmp(found, outside) != 0)
        err = damaged(file, "HDF5's structures (the bytes that /checksums does not cover)");
    return err;
}

static bp_err read_tokenizer(const char *path, char **text, size_t *bytes)
{
    bp_corpus_file *file;
    bp_err err = bp_corpus_file_open(&file, path);

    *text = NULL;
    if (err == BP_OK)
        err = bp_corpus_file_tokenizer(file, text, bytes);
    bp_corpus_file_close(&file);
    return err;
}

static bp_err read_structure(bp_corpus_file *file, bp_h5 *h5, bp_h5_shape *tokens)
{
    int64_t version = 0;
    bp_err err = bp_h5_get_int(h5, "/", "format_version", &version);

    if (err == BP_OK && version != BP_CORPUS_VERSION)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.unknown_version",
                      "format_version %" PRId64
                      " is not %d, which this bagpipe reads: at %s; use a newer bagpipe",
                      version, BP_CORPUS_VERSION, file->path);
    if (err == BP_OK)
        err = bp_corpus_read_attributes(file, h5);
    if (err == BP_OK && file->info.tokenizer_hash[0] != '\0')
        bp_tokenizer_hash_is_of(file->info.tokenizer_hash, file->path, read_tokenizer);
    if (err == BP_OK)
        err = bp_h5_shape_of(h5, "tokens", tokens);
    if (err == BP_OK)
        err = bp_corpus_find_columns(file, h5, false);
    return err;
}

static bp_err start_chunks(bp_corpus_file *file, const bp_h5_shape *tokens)
{
    int64_t chunks = (tokens->count + BP_CORPUS_CHUNK_TOKENS - 1) / BP_CORPUS_CHUNK_TOKENS;
    bp_chunks_spec spec = {.fd = file->fd,
                           .path = file->path,
                           .extents = file->extents.rows,
                           .tokens = tokens->count,
                           .vocab_size = file->info.vocab_size,
                           .token_bytes = tokens->width};

    if (tokens->dims != 1 || tokens->is_text || tokens->is_real || tokens->is_signed ||
        tokens->width * BP_CORPUS_CHUNK_TOKENS != bp_corpus_chunk_bytes(file->info.vocab_size) ||
        chunks > file->extents.count)
        return damaged(
            file, "/tokens, which has another type or length than its vocabulary and checksums");
    file->info.tokens = tokens->count;
    return bp_chunks_new(&file->chunks, &spec);
}

/* ---- open and close ---- */

/* Bytes of the name without its suffix. */
static int stem_bytes(const char *path)
{
    const char *base = bp_path_base(path), *dot = strrchr(base, '.');

    return (int)(dot && dot != base ? dot - path : (ptrdiff_t)strlen(path));
}

static bp_err open_checked(bp_corpus_file *file)
{
    bp_user_block block;
    bp_h5_shape tokens;
    bp_h5 *h5 = NULL;
    bp_err err = bp_path_is_dir(file->path) ? bp_corpus_refuse_folder(file->path)
                                            : bp_file_open(file->path, &file->fd, NULL);

    if (err == BP_OK)
        err = bp_corpus_refuse_text(file->fd, file->path);
    if (err == BP_OK)
        err = bp_user_block_read_fd(&block, file->fd, file->path);
    if (err == BP_OK && block.kind[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "corpus.foreign",
                       "a foreign HDF5 file: at %s; convert it once: bagpipe-data corpus --format "
                       "hdf5 --out %.*s-native.h5 %s",
                       file->path, stem_bytes(file->path), file->path, file->path);
    if (err == BP_OK)
        err = check_bytes(file, &block);
    if (err == BP_OK)
        err = bp_h5_open_fd(&h5, file->fd, file->path);
    if (err == BP_OK)
        err = read_structure(file, h5, &tokens);
    bp_h5_drop(&h5); /* from here on everything is read from known places */
    return err == BP_OK ? start_chunks(file, &tokens) : err;
}

bp_err bp_corpus_file_open(bp_corpus_file **out, const char *path)
{
    bp_corpus_file *file = bp_alloc("io.corpus_file", 1, sizeof *file);
    bp_err err;

    file->fd = -1;
    file->path = bp_strdup(path);
    err = open_checked(file);
    if (err != BP_OK)
        bp_corpus_file_close(&file);
    *out = file;
    return bp_err_advise(err, BP_H5_REMEDY);
}

void bp_corpus_file_close(bp_corpus_file **out)
{
    bp_corpus_file *file = *out;

    if (!file)
        return;
    bp_chunks_free(&file->chunks);
    bp_extents_clear(&file->extents);
    for (int k = 0; k < BP_COLUMN_KINDS; k++)
        bp_free(file->columns[k].name);
    for (int k = 0; k < BP_COLUMN_IDS; k++)
        bp_free(file->loaded[k]);
    for (int k = 0; k < file->info.labels; k++) {
        bp_free(file->labels[k].name);
        bp_free(file->labels[k].codes.name);
        bp_free(file->labels[k].names.name);
        bp_free(file->labels[k].loaded_codes);
        bp_free(file->labels[k].text);
        bp_free(file->labels[k].values);
    }
    for (int k = 0; k < file->info.values; k++) {
        bp_free(file->values[k].name);
        bp_free(file->values[k].column.name);
        bp_free(file->values[k].loaded);
    }
    bp_free(file->tags.codes.name);
    bp_free(file->tags.names.name);
    bp_free(file->tags.loaded_codes);
    bp_free(file->tags.text);
    bp_free(file->tags.values);
    bp_free(file->values);
    bp_free(file->labels);
    bp_free(file->ids);
    bp_free(file->span_texts);
    if (file->fd >= 0)
        (void)close(file->fd); /* only read from */
    bp_free(file->path);
    bp_free(file);
    *out = NULL;
}

const bp_corpus_info *bp_corpus_file_info(const bp_corpus_file *file)
{
    return &file->info;
}

const char *bp_corpus_file_path(const bp_corpus_file *file)
{
    return file->path;
}

/* ---- tokens ---- */

bp_err bp_corpus_file_read(bp_corpus_file *file, int64_t first, int64_t count, int32_t *tokens)
{
    BP_ASSERT(first >= 0 && count >= 0 && first <= file->info.tokens - count);
    bp_err err = bp_chunks_read(file->chunks, first, count, tokens);

    return bp_err_advise(err, BP_H5_REMEDY);
}

/* ---- documents' ids ---- */

/* The run of ids that contains document d. */
static bp_err load_ids(bp_corpus_file *file, int64_t document)
{
    const bp_column *column = &file->columns[BP_COLUMN_IDS];
    int64_t run = ID_RUN_BYTES / (int64_t)column->shape.width;
    int64_t first = document - document % run;
    int64_t left = file->info.documents - first;
    bp_err err;

    if (file->ids_count > 0 && document >= file->ids_first &&
        document < file->ids_first + file->ids_count)
        return BP_OK;
    if (!file->ids)
        file->ids = bp_alloc("io.ids", run, column->shape.width);
    err = bp_column_read_text(file, column, first, left < run ? left : run, file->ids);
    file->ids_first = first;
    file->ids_count = err == BP_OK ? (left < run ? left : run) : 0;
    return err;
}

bp_err bp_corpus_file_doc_id(bp_corpus_file *file, int64_t document, char *out, size_t out_bytes)
{
    size_t width = file->columns[BP_COLUMN_IDS].shape.width;
    bp_err err;

    BP_ASSERT(document >= 0 && document < file->info.documents && out_bytes > 0);
    out[0] = '\0';
    if (!file->info.has_ids)
        return BP_OK;
    err = load_ids(file, document);
    if (err == BP_OK)
        snprintf(out, out_bytes, "%.*s", (int)width,
                 file->ids + (size_t)(document - file->ids_first) * width);
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* ---- labels ---- */

/* Codes below the number of names; tags may also be "none". */
static bp_err load_codes(bp_corpus_file *file, bp_label_column *label, bool may_lack)
{
    int64_t count = label->codes.shape.count, values = label->names.shape.count;
    int64_t *wide = bp_try_alloc("io.codes", count, sizeof *wide);
    uint32_t *codes = bp_try_alloc("io.codes", count, sizeof *codes);
    bp_err err = !wide || !codes
                     ? bp_fail_memory(label->codes.name, count, sizeof *wide + sizeof *codes)
                     : bp_column_read_numbers(file, &label->codes, 0, count, wide);
    for (int64_t d = 0; d < count && err == BP_OK; d++) {
        codes[d] = (uint32_t)wide[d];
        if ((wide[d] < 0 || wide[d] >= values) && !(may_lack && wide[d] == BP_CORPUS_NO_TAG))
            err = BP_FAIL(BP_ERR_FORMAT, "label.unknown_code",
                          "code %" PRId64 " has no name among %" PRId64 ": at %s, %s[%" PRId64 "]",
                          wide[d], values, file->path, label->codes.name, d);
    }
    bp_free(wide);
    if (err == BP_OK)
        label->loaded_codes = codes;
    else
        bp_free(codes);
    return err;
}

/* Zero-padded values of a fixed width to C strings. */
static bp_err load_values(bp_corpus_file *file, bp_label_column *label)
{
    int64_t count = label->names.shape.count;
    size_t width = label->names.shape.width;
    char *padded = bp_alloc("io.values", count, width);
    char *text = bp_alloc("io.values", count, width + 1);
    const char **values = bp_alloc("io.values", count, sizeof *values);
    bp_err err = bp_column_read_text(file, &label->names, 0, count, padded);

    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        memcpy(text + (size_t)k * (width + 1), padded + (size_t)k * width, width);
        values[k] = text + (size_t)k * (width + 1);
    }
    bp_free(padded);
    if (err == BP_OK) {
        label->text = text;
        label->values = values;
    } else {
        bp_free(text);
        bp_free(values);
    }
    return err;
}

bp_err bp_corpus_file_label(bp_corpus_file *file, int k, bp_corpus_label *out)
{
    bp_label_column *label;
    bp_err err = BP_OK;

    BP_ASSERT(k >= 0 && k < file->info.labels);
    label = &file->labels[k];
    if (!label->values)
        err = load_values(file, label);
    if (err == BP_OK && !label->loaded_codes)
        err = load_codes(file, label, false);
    *out = (bp_corpus_label){label->name, label->loaded_codes, label->values,
                             label->names.shape.count};
    return bp_err_advise(err, BP_H5_REMEDY);
}

bp_err bp_corpus_file_tags(bp_corpus_file *file, bp_corpus_label *out)
{
    bp_label_column *tags = &file->tags;
    bp_err err = BP_OK;

    *out = (bp_corpus_label){0};
    if (!tags->codes.name)
        return BP_OK;
    if (tags->codes.shape.count != file->info.tokens)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_length",
                       "tags has %" PRId64 " values, not %" PRId64 ": at %s; give one a token",
                       tags->codes.shape.count, file->info.tokens, file->path);
    if (!tags->values)
        err = load_values(file, tags);
    if (err == BP_OK && !tags->loaded_codes)
        err = load_codes(file, tags, true);
    *out = (bp_corpus_label){"tags", tags->loaded_codes, tags->values, tags->names.shape.count};
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* ---- spans ---- */

static bp_err check_spans(const bp_corpus_file *file)
{
    const int64_t *starts = file->loaded[BP_COLUMN_START], *spans = file->loaded[BP_COLUMN_SPANS];
    int64_t bytes = file->columns[BP_COLUMN_SPAN_TEXTS].shape.count;
    bool is_sound = bytes == 0 || file->span_texts[bytes - 1] == '\0';

    for (int64_t d = 0; d < file->info.documents && is_sound; d++) {
        const int64_t *one = spans + d * BP_CORPUS_SPAN;

        is_sound = one[BP_SPAN_FIRST] <= one[BP_SPAN_END] &&
                   one[BP_SPAN_END] <= starts[d + 1] - starts[d] && one[BP_SPAN_CONTEXT] < bytes &&
                   one[BP_SPAN_ANSWERS] < bytes;
    }
    return is_sound
               ? BP_OK
               : BP_FAIL(BP_ERR_FORMAT, "corpus.bad_spans",
                         "spans are out of their documents or texts: at %s, spans", file->path);
}

bp_err bp_corpus_file_spans(bp_corpus_file *file, const int64_t **spans, const char **texts)
{
    const bp_column *column = &file->columns[BP_COLUMN_SPAN_TEXTS];
    bp_err err = BP_OK;

    *spans = NULL;
    *texts = NULL;
    if (!file->info.has_spans)
        return BP_OK;
    if (!file->span_texts) {
        file->span_texts = bp_try_alloc("io.column", column->shape.count + 1, 1);
        err = !file->span_texts ? bp_fail_memory(column->name, column->shape.count, 1)
                                : bp_column_read_bytes(file, column, file->span_texts);
        if (err == BP_OK)
            err = bp_corpus_load_numbers(file, BP_COLUMN_START);
        if (err == BP_OK)
            err = bp_corpus_load_numbers(file, BP_COLUMN_SPANS);
        if (err == BP_OK)
            err = check_spans(file);
        if (err != BP_OK) {
            bp_free(file->span_texts);
            file->span_texts = NULL;
        }
    }
    *spans = err == BP_OK ? file->loaded[BP_COLUMN_SPANS] : NULL;
    *texts = file->span_texts;
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* ---- values ---- */

static bp_err load_reals(bp_corpus_file *file, bp_value_column *value)
{
    float *values = bp_alloc("io.values", file->info.documents, sizeof *values);
    bp_err err = bp_column_read_reals(file, &value->column, values);

    for (int64_t d = 0; d < file->info.documents && err == BP_OK; d++)
        if (!isfinite(values[d]))
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_value",
                          "a value is not a finite number: at %s, %s[%" PRId64 "]", file->path,
                          value->column.name, d);
    if (err == BP_OK)
        value->loaded = values;
    else
        bp_free(values);
    return err;
}

bp_err bp_corpus_file_value(bp_corpus_file *file, int k, bp_corpus_value *out)
{
    bp_value_column *value;
    bp_err err = BP_OK;

    BP_ASSERT(k >= 0 && k < file->info.values);
    value = &file->values[k];
    if (!value->loaded)
        err = load_reals(file, value);
    *out = (bp_corpus_value){value->name, value->loaded};
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* ---- the tokenizer ---- */

bp_err bp_corpus_file_tokenizer(bp_corpus_file *file, char **text, size_t *bytes)
{
    const bp_column *column = &file->columns[BP_COLUMN_TOKENIZER];
    int64_t count = column->shape.count;
    bp_err err;

    *text = NULL;
    *bytes = 0;
    if (!column->name)
        return BP_OK;
    *text = bp_alloc("io.tokenizer", count + 1, 1);
    err = bp_column_read_bytes(file, column, *text);
    *bytes = (size_t)count;
    if (err != BP_OK) {
        bp_free(*text);
        *text = NULL;
    }
    return bp_err_advise(err, BP_H5_REMEDY);
}
