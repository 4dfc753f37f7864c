/* Columns of a corpus file: finding and reading them, in native files (with checksums, without
 * HDF5) and, while they are converted, in foreign ones. */
#include "corpus_file_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/corpus/corpus_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- finding ---- */

static bp_err find_column(bp_corpus_file *file, bp_h5 *h5, bool walk, const char *name,
                          bp_column *column)
{
    bp_err err = walk ? bp_h5_walk(h5, name) : BP_OK;

    if (err == BP_OK)
        err = bp_h5_shape_of(h5, name, &column->shape);
    if (err != BP_OK)
        return err;
    if (column->shape.dims != 1 || (!walk && column->shape.offset < 0 && column->shape.count > 0))
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_type",
                       "%s has another layout than was expected: at %s", name, file->path);
    column->name = bp_strdup(name);
    return BP_OK;
}

typedef enum content { INTEGERS, REALS, TEXT } content;

static bp_err expect(const bp_corpus_file *file, const bp_column *column, content kind,
                     int64_t count)
{
    static const char *const NAMES[] = {"integers", "real numbers", "fixed-length text"};
    const bp_h5_shape *shape = &column->shape;

    if (shape->is_text != (kind == TEXT) || shape->is_real != (kind == REALS))
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_type", "%s does not hold %s: at %s",
                       column->name, NAMES[kind], file->path);
    if (count >= 0 && shape->count != count)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_length",
                       "%s has %" PRId64 " values, not %" PRId64
                       ": at %s; give one for each document%s",
                       column->name, shape->count, count, file->path,
                       count > file->info.documents ? " and the end of the last" : "");
    return BP_OK;
}

static bp_err find_label(bp_corpus_file *file, bp_h5 *h5, bool walk, const char *name,
                         bp_label_column *label)
{
    char *codes = bp_sprintf("labels/%s", name);
    char *names = bp_sprintf("label_names/%s", name);
    bp_err err = BP_OK;

    label->name = bp_strdup(name);
    err = find_column(file, h5, walk, codes, &label->codes);
    if (err == BP_OK)
        err = find_column(file, h5, walk, names, &label->names);
    if (err == BP_OK)
        err = expect(file, &label->codes, INTEGERS, file->info.documents);
    if (err == BP_OK)
        err = expect(file, &label->names, TEXT, -1);
    bp_free(codes);
    bp_free(names);
    return err;
}

/* Names of the columns in a group; empty if there is no group. Free with bp_names_free(). */
static bp_err list_group(const bp_corpus_file *file, bp_h5 *h5, const char *group, char ***names,
                         int64_t *count)
{
    bool found;
    bp_err err = bp_h5_find(h5, group, &found);

    *names = NULL;
    *count = 0;
    if (err == BP_OK && found)
        err = bp_h5_names(h5, group, names, count);
    if (err == BP_OK && *count > 1000)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.too_many_labels", "%" PRId64 " columns in %s: at %s",
                      *count, group, file->path);
    return err;
}

static bp_err find_values(bp_corpus_file *file, bp_h5 *h5, bool walk)
{
    char **names;
    int64_t count;
    bp_err err = list_group(file, h5, "values", &names, &count);

    if (err == BP_OK)
        file->values = bp_alloc("io.labels", count, sizeof *file->values);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        bp_value_column *value = &file->values[k];
        char *path = bp_sprintf("values/%s", names[k]);

        file->info.values = (int)k + 1;
        value->name = bp_strdup(names[k]);
        err = find_column(file, h5, walk, path, &value->column);
        if (err == BP_OK)
            err = expect(file, &value->column, REALS, file->info.documents);
        bp_free(path);
    }
    bp_names_free(&names, count);
    return err;
}

static bp_err find_tags(bp_corpus_file *file, bp_h5 *h5, bool walk)
{
    bp_err err = bp_h5_find(h5, "tags", &file->info.has_tags);

    if (err != BP_OK || !file->info.has_tags || walk) /* a foreign file's are ignored */
        return err;
    err = find_column(file, h5, walk, "tags", &file->tags.codes);
    if (err == BP_OK)
        err = find_column(file, h5, walk, "tag_names", &file->tags.names);
    if (err == BP_OK)
        err = expect(file, &file->tags.codes, INTEGERS, -1);
    if (err == BP_OK)
        err = expect(file, &file->tags.names, TEXT, -1);
    file->info.tag_names = file->tags.names.shape.count;
    return err;
}

static bp_err find_labels(bp_corpus_file *file, bp_h5 *h5, bool walk)
{
    char **names;
    int64_t count;
    bp_err err = list_group(file, h5, "labels", &names, &count);

    if (err == BP_OK)
        file->labels = bp_alloc("io.labels", count, sizeof *file->labels);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        file->info.labels = (int)k + 1;
        err = find_label(file, h5, walk, names[k], &file->labels[k]);
    }
    bp_names_free(&names, count);
    return err;
}

/* Number of values of a column; -1: any number. */
static int64_t column_length(const bp_corpus_file *file, int kind)
{
    if (kind == BP_COLUMN_START || kind == BP_COLUMN_TOKENIZER || kind == BP_COLUMN_SEGMENTS ||
        kind == BP_COLUMN_SPAN_TEXTS)
        return -1;
    if (kind == BP_COLUMN_SPANS)
        return file->info.documents * BP_CORPUS_SPAN;
    return file->info.documents + (kind == BP_COLUMN_DOC_SEGMENTS ? 1 : 0);
}

bp_err bp_corpus_find_columns(bp_corpus_file *file, bp_h5 *h5, bool walk)
{
    static const char *const names[BP_COLUMN_KINDS] = {
        "doc_start",     "doc_bytes", "doc_words", "doc_words_split",  "doc_segments",
        "segment_start", "spans",     "doc_id",    "source/tokenizer", "span_texts"};
    bp_err err = BP_OK;

    for (int k = 0; k < BP_COLUMN_KINDS && err == BP_OK; k++) {
        bp_column *column = &file->columns[k];
        bool found = true;
        if (walk && (k == BP_COLUMN_SPANS || k == BP_COLUMN_SPAN_TEXTS))
            continue; /* a foreign file's are ignored */
        if (k != BP_COLUMN_START)
            err = bp_h5_find(h5, names[k], &found);
        if (err != BP_OK || !found)
            continue;
        err = find_column(file, h5, walk, names[k], column);
        if (err == BP_OK && k == BP_COLUMN_START) {
            file->info.documents = column->shape.count - 1;
            if (column->shape.count < 1)
                err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_doc_start",
                              "doc_start is empty: at %s; give the start of each document and the "
                              "end of the last",
                              file->path);
        }
        if (err == BP_OK)
            err =
                expect(file, column, k == BP_COLUMN_IDS ? TEXT : INTEGERS, column_length(file, k));
    }
    file->info.has_segments = file->columns[BP_COLUMN_SEGMENTS].name != NULL;
    file->info.segments = file->columns[BP_COLUMN_SEGMENTS].shape.count;
    if (err == BP_OK &&
        file->info.has_segments != (file->columns[BP_COLUMN_DOC_SEGMENTS].name != NULL))
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_segments",
                      "doc_segments and segment_start are not both there: at %s; give both or none",
                      file->path);
    file->info.has_spans =
        file->columns[BP_COLUMN_SPANS].name && file->columns[BP_COLUMN_SPAN_TEXTS].name;
    file->info.has_bytes = file->columns[BP_COLUMN_BYTES].name != NULL;
    file->info.has_words = file->columns[BP_COLUMN_WORDS].name != NULL;
    file->info.has_words_split = file->columns[BP_COLUMN_WORDS_SPLIT].name != NULL;
    file->info.has_ids = file->columns[BP_COLUMN_IDS].name != NULL;
    if (err == BP_OK)
        err = find_labels(file, h5, walk);
    if (err == BP_OK)
        err = find_values(file, h5, walk);
    return err == BP_OK ? find_tags(file, h5, walk) : err;
}

/* Special tokens, except the end-of-document one, which is known. */
static bp_err read_roles(bp_corpus_file *file, bp_h5 *h5)
{
    bp_corpus_info *info = &file->info;

    for (int role = 0; role < BP_ROLES; role++) {
        int64_t *id = &info->roles[role];
        char name[16];
        bp_err err = BP_OK;

        snprintf(name, sizeof name, "%s_id", bp_role_name((bp_role)role));
        *id = role == BP_ROLE_END ? info->eod_id : -1;
        if (role != BP_ROLE_END && bp_h5_has_attribute(h5, "/", name))
            err = bp_h5_get_int(h5, "/", name, id);
        if (err == BP_OK && (*id < -1 || *id >= info->vocab_size))
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_token",
                          "%s is %" PRId64 ", beyond the vocabulary of %" PRId64 ": at %s", name,
                          *id, info->vocab_size, file->path);
        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

bp_err bp_corpus_read_attributes(bp_corpus_file *file, bp_h5 *h5)
{
    bp_corpus_info *info = &file->info;
    bp_err err = bp_h5_get_int(h5, "/", "vocab_size", &info->vocab_size);

    info->eod_id = -1;
    if (err == BP_OK && (info->vocab_size < 1 || info->vocab_size > INT32_MAX))
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_vocab_size",
                      "vocab_size is %" PRId64 ": at %s; it goes from 1 to %" PRId32,
                      info->vocab_size, file->path, INT32_MAX);
    if (err == BP_OK && bp_h5_has_attribute(h5, "/", "eod_id"))
        err = bp_h5_get_int(h5, "/", "eod_id", &info->eod_id);
    if (err == BP_OK && (info->eod_id < -1 || info->eod_id >= info->vocab_size))
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_token",
                      "eod_id is %" PRId64 ", beyond the vocabulary of %" PRId64 ": at %s",
                      info->eod_id, info->vocab_size, file->path);
    if (err == BP_OK)
        err = read_roles(file, h5);
    info->open_ends = bp_h5_has_attribute(h5, "/", "open_ends");
    info->has_bos =
        bp_h5_has_attribute(h5, "/", "begins_with_bos") && info->roles[BP_ROLE_BOS] >= 0;
    if (err == BP_OK && bp_h5_has_attribute(h5, "/", "tokenizer_hash"))
        err = bp_h5_get_text(h5, "/", "tokenizer_hash", info->tokenizer_hash,
                             sizeof info->tokenizer_hash);
    return err;
}

/* ---- reading ---- */

/* Numbers as stored in our files: little-endian uint32 or uint64. */
static bp_err widen(const bp_corpus_file *file, const bp_column *column, int64_t count,
                    int64_t *values)
{
    if (column->shape.width == sizeof(uint32_t)) { /* in place, from the end */
        const uint32_t *narrow = (const uint32_t *)(const void *)values;
        for (int64_t k = count - 1; k >= 0; k--) {
            uint32_t value;
            memcpy(&value, &narrow[k], sizeof value);
            values[k] = value;
        }
        return BP_OK;
    }
    for (int64_t k = 0; k < count; k++)
        if (values[k] < 0)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.out_of_range",
                           "%s[%" PRId64 "] is out of range: at %s", column->name, k, file->path);
    return BP_OK;
}

bp_err bp_column_read_numbers(bp_corpus_file *file, const bp_column *column, int64_t first,
                              int64_t count, int64_t *values)
{
    const bp_h5_shape *shape = &column->shape;
    bp_err err;

    BP_ASSERT(first >= 0 && count >= 0 && first + count <= shape->count);
    if (file->h5)
        return bp_h5_read(file->h5, column->name, BP_H5_I64, first, values, count);
    if (shape->is_signed || (shape->width != sizeof(uint32_t) && shape->width != sizeof(uint64_t)))
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_type",
                       "%s has another type than was expected: at %s", column->name, file->path);
    err = bp_extents_load(&file->extents, file->fd, shape->offset + first * (int64_t)shape->width,
                          values, count * (int64_t)shape->width, column->name, file->path);
    return err == BP_OK ? widen(file, column, count, values) : err;
}

bp_err bp_column_read_reals(bp_corpus_file *file, const bp_column *column, float *values)
{
    const bp_h5_shape *shape = &column->shape;

    if (file->h5)
        return bp_h5_read(file->h5, column->name, BP_H5_F32, 0, values, shape->count);
    if (shape->width != sizeof *values)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_type",
                       "%s has another type than was expected: at %s", column->name, file->path);
    return bp_extents_load(&file->extents, file->fd, shape->offset, values,
                           shape->count * (int64_t)shape->width, column->name, file->path);
}

bp_err bp_column_read_text(bp_corpus_file *file, const bp_column *column, int64_t first,
                           int64_t count, char *text)
{
    const bp_h5_shape *shape = &column->shape;

    BP_ASSERT(first >= 0 && count >= 0 && first + count <= shape->count);
    if (file->h5)
        return bp_h5_read_text(file->h5, column->name, shape->width, first, text, count);
    return bp_extents_load(&file->extents, file->fd, shape->offset + first * (int64_t)shape->width,
                           text, count * (int64_t)shape->width, column->name, file->path);
}

bp_err bp_column_read_bytes(bp_corpus_file *file, const bp_column *column, char *bytes)
{
    const bp_h5_shape *shape = &column->shape;

    if (file->h5)
        return bp_h5_read(file->h5, column->name, BP_H5_U8, 0, bytes, shape->count);
    if (shape->width != 1)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_type",
                       "%s has another type than was expected: at %s", column->name, file->path);
    return bp_extents_load(&file->extents, file->fd, shape->offset, bytes, shape->count,
                           column->name, file->path);
}
