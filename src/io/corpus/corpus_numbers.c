/* Columns of numbers of a corpus file: where documents and their segments begin, and their counts.
 * Loaded whole, or read in part. */
#include "corpus_file_priv.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* Values [first, first + count) of doc_start: sorted, from 0 to the number of tokens. */
static bp_err check_starts(const bp_corpus_file *file, int64_t first, int64_t count,
                           const int64_t *starts)
{
    int64_t tokens = file->info.tokens, end = first + count - 1;

    if (first == 0 && starts[0] != 0)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_doc_start",
                       "doc_start begins with %" PRId64 ", not 0: at %s, doc_start[0]", starts[0],
                       file->path);
    for (int64_t k = 1; k < count; k++)
        if (starts[k] < starts[k - 1])
            return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_doc_start",
                           "doc_start is not sorted, %" PRId64 " after %" PRId64
                           ": at %s, doc_start[%" PRId64 "]; sort the documents",
                           starts[k], starts[k - 1], file->path, first + k);
    if (end == file->info.documents ? starts[count - 1] != tokens : starts[count - 1] > tokens)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_doc_start",
                       "doc_start %s %" PRId64 ", but there are %" PRId64
                       " tokens: at %s, doc_start[%" PRId64 "]",
                       end == file->info.documents ? "ends with" : "has", starts[count - 1], tokens,
                       file->path, end);
    return BP_OK;
}

/* Each document has at least one segment; segments begin inside it, the first at its start. */
static bp_err check_segments(const bp_corpus_file *file)
{
    const int64_t *starts = file->loaded[BP_COLUMN_START];
    const int64_t *segments = file->loaded[BP_COLUMN_DOC_SEGMENTS];
    const int64_t *begins = file->loaded[BP_COLUMN_SEGMENTS];
    int64_t documents = file->info.documents, count = file->info.segments;
    bool is_sound = segments[0] == 0 && segments[documents] == count;

    for (int64_t d = 0; d < documents && is_sound; d++) {
        int64_t first = segments[d], end = segments[d + 1];

        is_sound = first < end && end <= count && begins[first] == starts[d] &&
                   begins[end - 1] <= starts[d + 1];
        for (int64_t s = first + 1; s < end && is_sound; s++)
            is_sound = begins[s] >= begins[s - 1];
        if (!is_sound)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_segments",
                           "segments of document %" PRId64
                           " are not within it, from its beginning and in order: at %s, "
                           "segment_start",
                           d, file->path);
    }
    return is_sound ? BP_OK
                    : BP_FAIL(BP_ERR_FORMAT, "corpus.bad_segments",
                              "doc_segments does not go from 0 to the %" PRId64
                              " segments: at %s, doc_segments",
                              count, file->path);
}

static bp_err read_numbers(bp_corpus_file *file, bp_column_kind kind, int64_t first, int64_t count,
                           int64_t *values)
{
    const bp_column *column = &file->columns[kind];
    bp_err err;

    if (!column->name)
        return BP_OK;
    err = bp_column_read_numbers(file, column, first, count, values);
    if (err == BP_OK && kind == BP_COLUMN_START)
        err = check_starts(file, first, count, values);
    for (int64_t d = 0; d < count && err == BP_OK; d++)
        if (values[d] < 0)
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.out_of_range",
                          "%s is %" PRId64 ": at %s, %s[%" PRId64 "]", column->name, values[d],
                          file->path, column->name, first + d);
    return err;
}

bp_err bp_corpus_load_numbers(bp_corpus_file *file, bp_column_kind kind)
{
    const bp_column *column = &file->columns[kind];
    int64_t count = column->shape.count;
    int64_t *values;

    if (!column->name || file->loaded[kind])
        return BP_OK;
    values = bp_try_alloc("io.column", count, sizeof *values);
    if (!values)
        return bp_fail_memory(column->name, count, sizeof *values);
    bp_err err = read_numbers(file, kind, 0, count, values);
    if (err == BP_OK)
        file->loaded[kind] = values;
    else
        bp_free(values);
    return err;
}

bp_err bp_corpus_file_doc_start(bp_corpus_file *file, const int64_t **doc_start)
{
    bp_err err = bp_corpus_load_numbers(file, BP_COLUMN_START);

    *doc_start = file->loaded[BP_COLUMN_START];
    return bp_err_advise(err, BP_H5_REMEDY);
}

bp_err bp_corpus_file_read_doc_start(bp_corpus_file *file, int64_t first, int64_t count,
                                     int64_t *starts)
{
    const int64_t *loaded = file->loaded[BP_COLUMN_START];
    bp_err err = BP_OK;

    BP_ASSERT(first >= 0 && count > 0 && first + count <= file->info.documents + 1);
    if (loaded)
        memcpy(starts, loaded + first, (size_t)count * sizeof *starts);
    else
        err = read_numbers(file, BP_COLUMN_START, first, count, starts);
    return bp_err_advise(err, BP_H5_REMEDY);
}

bp_err bp_corpus_file_segments(bp_corpus_file *file, const int64_t **doc_segments,
                               const int64_t **segment_start)
{
    bool is_new = !file->loaded[BP_COLUMN_SEGMENTS];
    bp_err err = bp_corpus_load_numbers(file, BP_COLUMN_START);

    if (err == BP_OK)
        err = bp_corpus_load_numbers(file, BP_COLUMN_DOC_SEGMENTS);
    if (err == BP_OK)
        err = bp_corpus_load_numbers(file, BP_COLUMN_SEGMENTS);
    if (err == BP_OK && is_new && file->info.has_segments)
        err = check_segments(file);
    *doc_segments = err == BP_OK ? file->loaded[BP_COLUMN_DOC_SEGMENTS] : NULL;
    *segment_start = err == BP_OK ? file->loaded[BP_COLUMN_SEGMENTS] : NULL;
    return bp_err_advise(err, BP_H5_REMEDY);
}

bp_err bp_corpus_file_doc_counts(bp_corpus_file *file, const int64_t **bytes, const int64_t **words,
                                 const int64_t **words_split)
{
    bp_err err = bp_corpus_load_numbers(file, BP_COLUMN_BYTES);

    if (err == BP_OK)
        err = bp_corpus_load_numbers(file, BP_COLUMN_WORDS);
    if (err == BP_OK)
        err = bp_corpus_load_numbers(file, BP_COLUMN_WORDS_SPLIT);
    *bytes = file->loaded[BP_COLUMN_BYTES];
    *words = file->loaded[BP_COLUMN_WORDS];
    *words_split = file->loaded[BP_COLUMN_WORDS_SPLIT];
    return bp_err_advise(err, BP_H5_REMEDY);
}

bp_err bp_corpus_file_read_counts(bp_corpus_file *file, int64_t first, int64_t count,
                                  int64_t *bytes, int64_t *words, int64_t *words_split)
{
    bp_err err = read_numbers(file, BP_COLUMN_BYTES, first, count, bytes);

    if (err == BP_OK)
        err = read_numbers(file, BP_COLUMN_WORDS, first, count, words);
    if (err == BP_OK)
        err = read_numbers(file, BP_COLUMN_WORDS_SPLIT, first, count, words_split);
    return bp_err_advise(err, BP_H5_REMEDY);
}
