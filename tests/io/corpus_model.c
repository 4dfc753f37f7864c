/* A small corpus whose every value is a function of its place. */
#include "corpus_model.h"

#include "base/mem.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t draw(int64_t document, int64_t k)
{
    bp_rng_key key = bp_rng_key_of(7, BP_RNG_TEST, 0, document, 0);

    return bp_rng_u64(&key, (uint64_t)k);
}

int64_t corpus_model_tokens(const corpus_model *model, int64_t document)
{
    if (document == 3)
        return 0;
    if (document == 4)
        return 1;
    return (int64_t)(draw(document, -1) % (uint64_t)(2 * model->mean_tokens + 1));
}

/* Small ids are frequent, as in text, so that chunks compress. */
uint32_t corpus_model_token(const corpus_model *model, int64_t document, int64_t k)
{
    uint64_t bits = draw(document, k);

    return (uint32_t)((bits >> 32) % (1 + (bits & 0xffffffff) % (uint64_t)(model->vocab_size)));
}

static const char *genre_of(int64_t document)
{
    static const char *const genres[5] = {"news", "", "fiction", "\xc3\xa9tude",
                                          "a longer name of a genre"};

    return genres[document % 5];
}

/* Tokens of segment s of a document. */
static int64_t segment_tokens(int64_t document, int64_t s)
{
    return (document + 3 * s) % 7;
}

static float value_of(int64_t document)
{
    return (float)(document % 11) - 0.25F;
}

static bp_err write_document(const corpus_model *model, bp_corpus_writer *writer, int64_t document)
{
    int64_t count = corpus_model_tokens(model, document);
    const float value = value_of(document);
    int64_t segment = 0, next = 0;
    const char *labels[2] = {genre_of(document), document % 2 == 0 ? "false" : "true"};
    char id[64];
    bp_corpus_row row = {.bytes = 5 * count,
                         .words = count,
                         .words_split = count + 1,
                         .id = id,
                         .labels = labels,
                         .values = &value};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        uint32_t token = corpus_model_token(model, document, k);
        for (; model->is_task && k == next && err == BP_OK; segment++) {
            err = bp_corpus_writer_segment(writer);
            next += segment_tokens(document, segment);
        }
        if (err == BP_OK)
            err = bp_corpus_writer_tokens(writer, &token, 1);
    }
    snprintf(id, sizeof id, "document-%" PRId64, document);
    return err == BP_OK ? bp_corpus_writer_end(writer, &row) : err;
}

bp_err corpus_model_write(const corpus_model *model, const char *path)
{
    static const char *const labels[2] = {"genre", "odd"};
    static const char *const values[1] = {"level"};
    static const char *const files[2] = {"a.txt", "b.txt"};
    const bp_corpus_source source = {"files", files, 2};
    bp_corpus_spec spec = {.vocab_size = model->vocab_size,
                           .eod_id = model->eod_id,
                           .tokenizer_hash =
                               "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                           .tokenizer = "{\"model\": null}",
                           .labels = labels,
                           .label_count = 2,
                           .values = values,
                           .value_count = model->is_task ? 1 : 0,
                           .has_segments = model->is_task,
                           .has_ids = true,
                           .sources = &source,
                           .source_count = 1};
    bp_corpus_writer *writer;
    bp_err err = bp_corpus_writer_new(&writer, path, &spec);

    for (int64_t d = 0; d < model->documents && err == BP_OK; d++)
        err = write_document(model, writer, d);
    if (err == BP_OK)
        err = bp_corpus_writer_commit(writer);
    bp_corpus_writer_free(&writer);
    return err;
}

static bp_err compare_tokens(const corpus_model *model, bp_corpus_file *file,
                             const int64_t *doc_start)
{
    for (int64_t d = 0; d < model->documents; d++) {
        int64_t count = corpus_model_tokens(model, d) + (model->eod_id >= 0 ? 1 : 0);
        int32_t *tokens = bp_alloc("test.tokens", count, sizeof *tokens);
        assert_int_equal(doc_start[d + 1] - doc_start[d], count);
        bp_err err = bp_corpus_file_read(file, doc_start[d], count, tokens);
        for (int64_t k = 0; k < count && err == BP_OK; k++)
            assert_int_equal(tokens[k], model->eod_id >= 0 && k == count - 1
                                            ? (uint32_t)model->eod_id
                                            : corpus_model_token(model, d, k));
        bp_free(tokens);
        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

static bp_err compare_columns(const corpus_model *model, bp_corpus_file *file)
{
    const int64_t *bytes, *words, *words_split;
    bp_corpus_label genre, odd;
    bp_err err = bp_corpus_file_doc_counts(file, &bytes, &words, &words_split);

    if (err == BP_OK)
        err = bp_corpus_file_label(file, 0, &genre);
    if (err == BP_OK)
        err = bp_corpus_file_label(file, 1, &odd);
    if (err != BP_OK)
        return err;
    assert_string_equal(genre.name, "genre");
    assert_string_equal(odd.name, "odd");
    for (int64_t d = 0; d < model->documents && err == BP_OK; d++) {
        int64_t count = corpus_model_tokens(model, d);
        char id[64], expected[64];
        assert_int_equal(bytes[d], 5 * count);
        assert_int_equal(words[d], count);
        assert_int_equal(words_split[d], count + 1);
        assert_string_equal(genre.values[genre.codes[d]], genre_of(d));
        assert_string_equal(odd.values[odd.codes[d]], d % 2 == 0 ? "false" : "true");
        err = bp_corpus_file_doc_id(file, d, id, sizeof id);
        snprintf(expected, sizeof expected, "document-%" PRId64, d);
        if (err == BP_OK)
            assert_string_equal(id, expected);
    }
    return err;
}

static bp_err compare_task(const corpus_model *model, bp_corpus_file *file,
                           const int64_t *doc_start)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *segments, *starts;
    bp_corpus_value level;
    int64_t at = 0;
    bp_err err = bp_corpus_file_segments(file, &segments, &starts);

    assert_int_equal(info->has_segments, model->is_task);
    assert_int_equal(info->values, model->is_task ? 1 : 0);
    if (!model->is_task || err != BP_OK)
        return err;
    err = bp_corpus_file_value(file, 0, &level);
    for (int64_t d = 0; d < model->documents && err == BP_OK; d++) {
        int64_t count = corpus_model_tokens(model, d), next = 0, s = 0;

        assert_int_equal(segments[d], at);
        do {
            assert_int_equal(starts[at++], doc_start[d] + next);
            next += segment_tokens(d, s++);
        } while (next < count);
        assert_true(level.values[d] == value_of(d));
    }
    if (err == BP_OK)
        assert_int_equal(segments[model->documents], at);
    return err;
}

/* In parts that share a value, as callers read who do not hold all of them. */
static bp_err read_start_parts(bp_corpus_file *file, int64_t *starts)
{
    int64_t documents = bp_corpus_file_info(file)->documents;
    bp_err err = BP_OK;

    for (int64_t first = 0; first < documents && err == BP_OK; first += 7) {
        int64_t left = documents - first;

        err = bp_corpus_file_read_doc_start(file, first, 1 + (left < 7 ? left : 7), starts + first);
    }
    return err;
}

bp_err corpus_model_read(const corpus_model *model, const char *path)
{
    bp_corpus_file *file;
    const int64_t *doc_start = NULL;
    int64_t *parts;
    char *tokenizer = NULL;
    size_t bytes;
    bp_err err = bp_corpus_file_open(&file, path);

    if (err != BP_OK)
        return err;
    assert_int_equal(bp_corpus_file_info(file)->documents, model->documents);
    assert_int_equal(bp_corpus_file_info(file)->vocab_size, model->vocab_size);
    assert_int_equal(bp_corpus_file_info(file)->eod_id, model->eod_id);
    parts = bp_alloc("test.starts", model->documents + 1, sizeof *parts);
    err = read_start_parts(file, parts);
    if (err == BP_OK)
        err = bp_corpus_file_doc_start(file, &doc_start);
    if (err == BP_OK)
        assert_memory_equal(parts, doc_start, (size_t)(model->documents + 1) * sizeof *parts);
    bp_free(parts);
    if (err == BP_OK)
        err = compare_tokens(model, file, doc_start);
    if (err == BP_OK)
        err = compare_columns(model, file);
    if (err == BP_OK)
        err = compare_task(model, file, doc_start);
    if (err == BP_OK)
        err = bp_corpus_file_tokenizer(file, &tokenizer, &bytes);
    if (err == BP_OK)
        assert_string_equal(tokenizer, "{\"model\": null}");
    bp_free(tokenizer);
    bp_corpus_file_close(&file);
    return err;
}
