/* One native corpus file: opening it, its tokens by way of corpus_chunks.c, its columns. */
#include "io/corpus/corpus_file.h"

#include "corpus_file_priv.h"

#include "base/fs.h"
#include "base/mem.h"
#include "io/corpus/corpus_text.h"
#include "io/h5/user_block.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ID_RUN_BYTES ((int64_t)1 << 20)

/* ---- open and close ---- */

/* Bytes of the name without its suffix. */
static int stem_bytes(const char *path)
{
    const char *base = bp_path_base(path), *dot = strrchr(base, '.');

    return (int)(dot != NULL && dot != base ? dot - path : (ptrdiff_t)strlen(path));
}

static bp_err open_checked(bp_corpus_file *file)
{
    bp_user_block block;
    bp_err err = bp_path_is_dir(file->path) ? bp_corpus_refuse_folder(file->path)
                                            : bp_file_open(file->path, &file->fd, NULL);

    if (err == BP_OK)
        err = bp_corpus_refuse_text(file->fd, file->path);
    if (err == BP_OK)
        err = bp_user_block_read_fd(&block, file->fd, file->path);
    if (err == BP_OK && block.kind[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT,
                       "a foreign HDF5 file: at %s; convert it once: bagpipe-data corpus --format "
                       "hdf5 --out %.*s-native.h5 %s",
                       file->path, stem_bytes(file->path), file->path, file->path);
    return err == BP_OK ? bp_corpus_open_native(file) : err;
}

bp_err bp_corpus_file_open(bp_corpus_file **out, const char *path)
{
    bp_corpus_file *file = bp_alloc("io.corpus_file", 1, sizeof *file);
    bp_err err;

    *out = NULL;
    file->fd = -1;
    file->path = bp_strdup(path);
    err = open_checked(file);
    if (err != BP_OK)
        bp_corpus_file_close(&file);
    *out = file;
    return bp_err_advise(err, BP_H5_REMEDY);
}

static void free_label(bp_label_column *label)
{
    bp_free(label->name);
    bp_free(label->codes.name);
    bp_free(label->names.name);
    bp_free(label->loaded_codes);
    bp_free(label->text);
    bp_free(label->values);
}

void bp_corpus_file_close(bp_corpus_file **out)
{
    bp_corpus_file *file = *out;

    if (file == NULL)
        return;
    bp_chunks_free(&file->chunks);
    bp_extents_clear(&file->extents);
    for (int k = 0; k < BP_COLUMN_KINDS; k++)
        bp_free(file->columns[k].name);
    for (int k = 0; k < BP_COLUMN_IDS; k++)
        bp_free(file->loaded[k]);
    for (int k = 0; k < file->info.labels; k++)
        free_label(&file->labels[k]);
    bp_free(file->labels);
    bp_free(file->ids);
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

/* ---- documents ---- */

bp_err bp_corpus_check_starts(const bp_corpus_file *file, int64_t first, int64_t count,
                              const int64_t *starts, int64_t *before)
{
    int64_t documents = file->info.documents;

    for (int64_t k = 0; k < count; k++) {
        if (first + k == 0 && starts[k] != 0)
            return BP_FAIL(BP_ERR_FORMAT,
                           "doc_start begins with %" PRId64 ", not 0: at %s, doc_start[0]",
                           starts[k], file->path);
        if (first + k > 0 && starts[k] < *before)
            return BP_FAIL(BP_ERR_FORMAT,
                           "doc_start is not sorted, %" PRId64 " after %" PRId64
                           ": at %s, doc_start[%" PRId64 "]; sort the documents",
                           starts[k], *before, file->path, first + k);
        *before = starts[k];
    }
    if (first + count == documents + 1 && *before != file->info.tokens)
        return BP_FAIL(BP_ERR_FORMAT,
                       "doc_start ends with %" PRId64 ", but there are %" PRId64
                       " tokens: at %s, doc_start[%" PRId64 "]",
                       *before, file->info.tokens, file->path, documents);
    return BP_OK;
}

static bp_err load(bp_corpus_file *file, bp_column_kind kind)
{
    const bp_column *column = &file->columns[kind];
    int64_t count = column->shape.count, before = 0;
    int64_t *values;
    bp_err err;

    if (column->name == NULL || file->loaded[kind] != NULL)
        return BP_OK;
    values = bp_try_alloc("io.column", count, sizeof *values);
    if (values == NULL)
        return bp_fail_memory(column->name, count, sizeof *values);
    err = bp_column_read_numbers(file, column, 0, count, values);
    if (err == BP_OK && kind == BP_COLUMN_START)
        err = bp_corpus_check_starts(file, 0, count, values, &before);
    for (int64_t d = 0; d < count && err == BP_OK; d++)
        if (values[d] < 0)
            err = BP_FAIL(BP_ERR_FORMAT, "%s is %" PRId64 ": at %s, %s[%" PRId64 "]", column->name,
                          values[d], file->path, column->name, d);
    if (err == BP_OK)
        file->loaded[kind] = values;
    else
        bp_free(values);
    return err;
}

bp_err bp_corpus_file_doc_start(bp_corpus_file *file, const int64_t **doc_start)
{
    bp_err err = load(file, BP_COLUMN_START);

    *doc_start = file->loaded[BP_COLUMN_START];
    return bp_err_advise(err, BP_H5_REMEDY);
}

bp_err bp_corpus_file_doc_counts(bp_corpus_file *file, const int64_t **bytes, const int64_t **words,
                                 const int64_t **words_split)
{
    bp_err err = load(file, BP_COLUMN_BYTES);

    if (err == BP_OK)
        err = load(file, BP_COLUMN_WORDS);
    if (err == BP_OK)
        err = load(file, BP_COLUMN_WORDS_SPLIT);
    *bytes = file->loaded[BP_COLUMN_BYTES];
    *words = file->loaded[BP_COLUMN_WORDS];
    *words_split = file->loaded[BP_COLUMN_WORDS_SPLIT];
    return bp_err_advise(err, BP_H5_REMEDY);
}

/* The run of ids that document d is in. */
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
    if (file->ids == NULL)
        file->ids = bp_alloc("io.ids", run, column->shape.width);
    file->ids_count = 0;
    err = bp_column_read_text(file, column, first, left < run ? left : run, file->ids);
    if (err == BP_OK) {
        file->ids_first = first;
        file->ids_count = left < run ? left : run;
    }
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

static bp_err load_codes(bp_corpus_file *file, bp_label_column *label)
{
    int64_t documents = file->info.documents, values = label->names.shape.count;
    int64_t *wide = bp_alloc("io.codes", documents, sizeof *wide);
    uint32_t *codes = bp_alloc("io.codes", documents, sizeof *codes);
    bp_err err = BP_OK;

    err = bp_column_read_numbers(file, &label->codes, 0, documents, wide);
    for (int64_t d = 0; d < documents && err == BP_OK; d++) {
        codes[d] = (uint32_t)wide[d];
        if (wide[d] < 0 || wide[d] >= values)
            err = BP_FAIL(BP_ERR_FORMAT,
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
    bp_err err;

    err = bp_column_read_text(file, &label->names, 0, count, padded);
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
    if (label->values == NULL)
        err = load_values(file, label);
    if (err == BP_OK && label->loaded_codes == NULL)
        err = load_codes(file, label);
    *out = (bp_corpus_label){label->name, label->loaded_codes, label->values,
                             label->names.shape.count};
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
    if (column->name == NULL)
        return BP_OK;
    *text = bp_alloc("io.tokenizer", count + 1, 1);
    err = bp_column_read_bytes(file, column, *text);
    if (err == BP_OK)
        *bytes = (size_t)count;
    else
        bp_free(*text);
    if (err != BP_OK)
        *text = NULL;
    return bp_err_advise(err, BP_H5_REMEDY);
}
