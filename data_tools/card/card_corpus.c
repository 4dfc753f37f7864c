/* A data sheet: what a corpus holds, where it came from, how it was made. */
#include "card.h"

#include "base/files/fs.h"
#include "base/files/xxh.h"
#include "base/mem.h"
#include "base/sort.h"
#include "file_tool.h"
#include "io/corpus/corpus_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_MOST 20 /* values of a label, files */

/* ---- sources ---- */

typedef struct sources {
    json_t *facts;
    bp_h5 *h5;
} sources;

/* A list of /source as one fact. */
static bp_err add_source(sources *self, const char *dataset, const char *name)
{
    bp_h5_shape shape;
    bp_buffer line = {0};
    bp_err err = bp_h5_shape_of(self->h5, dataset, &shape);

    if (err == BP_OK && shape.is_text && shape.dims == 1 && shape.count > 0) {
        int64_t shown = shape.count < LISTED_MOST ? shape.count : LISTED_MOST;
        char *text = bp_alloc("tool.card", shown + 1, shape.width + 1);

        err = bp_h5_read_text(self->h5, dataset, shape.width, 0, text, shown);
        for (int64_t k = 0; k < shown && err == BP_OK; k++) {
            char *one = bp_sprintf("%.*s", (int)shape.width, text + (size_t)k * shape.width);
            json_t *value = card_text(one);

            bp_buffer_printf(&line, "%s%s", k > 0 ? ", " : "", json_string_value(value));
            json_decref(value);
            bp_free(one);
        }
        if (err == BP_OK)
            card_fact(self->facts, name, "%s%s", line.data ? line.data : "",
                      shape.count > shown ? ", ..." : "");
        bp_free(text);
    }
    bp_buffer_clear(&line);
    return err;
}

static const char *shown_name(const char *dataset)
{
    static const char *const names[][2] = {{"files", "files"},
                                           {"format", "format"},
                                           {"tool", "made by"},
                                           {"tokenizer_kind", "kind of tokenizer"},
                                           {"skipped_bad", "bad lines and documents left out"},
                                           {"left_out", "documents left out by lists of ids"}};

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcmp(names[k][0], dataset) == 0)
            return names[k][1];
    return dataset;
}

static bp_err add_sources(json_t *facts, const char *path)
{
    sources self = {.facts = facts};
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_h5_open(&self.h5, path); /* its bytes were checked when it was opened */

    if (err == BP_OK)
        err = bp_h5_names(self.h5, "source", &names, &count);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        char *dataset = bp_sprintf("source/%s", names[k]);

        err = add_source(&self, dataset, shown_name(names[k]));
        bp_free(dataset);
    }
    bp_names_free(&names, count);
    bp_h5_drop(&self.h5);
    return err;
}

static int64_t sum_of(const int64_t *values, int64_t count)
{
    int64_t sum = 0;

    for (int64_t k = 0; values && k < count; k++)
        sum += values[k];
    return sum;
}

/* What it holds, in numbers. */
static bp_err add_counts(json_t *facts, bp_corpus_file *file)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *bytes = NULL, *words = NULL, *split = NULL;
    bp_err err = bp_corpus_file_doc_counts(file, &bytes, &words, &split);

    card_fact(facts, "documents", "%s", grouped(info->documents));
    card_fact(facts, "tokens", "%s", grouped(info->tokens));
    if (err == BP_OK && bytes)
        card_fact(facts, "bytes of text", "%s", grouped(sum_of(bytes, info->documents)));
    if (err == BP_OK && words)
        card_fact(facts, "words", "%s", grouped(sum_of(words, info->documents)));
    card_fact(facts, "vocabulary", "%s", grouped(info->vocab_size));
    return err;
}

static void add_hashes(json_t *facts, const bp_corpus_info *info)
{
    card_fact(facts, "XXH3-128 of the content", info->content_hash[0] ? "`%s`" : "%s",
              info->content_hash);
    card_fact(facts, "SHA-256 of the tokenizer", info->tokenizer_hash[0] ? "`%s`" : "%s",
              info->tokenizer_hash);
}

bp_err card_corpus_facts(json_t *facts, bp_corpus_file *file)
{
    bp_err err = add_counts(facts, file);

    add_hashes(facts, bp_corpus_file_info(file));
    return err == BP_OK ? add_sources(facts, bp_corpus_file_path(file)) : err;
}

/* ---- lengths, duplicates, labels ---- */

/* Shortest, 5 %, median, 95 %, longest. */
static void add_lengths(card *self, const char *name, const int64_t *values, int64_t count)
{
    static const double at[] = {0, 0.05, 0.5, 0.95, 1};
    int64_t *sorted = bp_alloc("tool.card", count, sizeof *sorted);
    json_t *cells = json_array();

    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, bp_by_int64);
    for (size_t k = 0; k < sizeof at / sizeof at[0]; k++)
        (void)json_array_append_new(
            cells, json_string(grouped(sorted[(int64_t)llround(at[k] * (double)(count - 1))])));
    (void)json_array_append_new(card_list(self, "lengths"),
                                json_pack("{s:s, s:o}", "name", name, "cells", cells));
    bp_free(sorted);
}

typedef struct document_hash {
    uint64_t low, high;
} document_hash;

static int by_hash(const void *a, const void *b)
{
    const document_hash *one = a, *other = b;

    return one->high != other->high ? BP_ORDER(one->high, other->high)
                                    : BP_ORDER(one->low, other->low);
}

/* Documents whose tokens are those of another, by hashes of 128 bits. */
static bp_err add_duplicates(json_t *facts, bp_corpus_file *file, const int64_t *start)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    document_hash *hashes = bp_alloc("tool.card", info->documents, sizeof *hashes);
    int32_t *tokens = NULL;
    int64_t capacity = 0, same = 0;
    bp_err err = BP_OK;

    for (int64_t d = 0; d < info->documents && err == BP_OK; d++) {
        int64_t count = start[d + 1] - start[d];

        tokens = bp_grow("tool.card", tokens, &capacity, count + 1, sizeof *tokens);
        err = bp_corpus_file_read(file, start[d], count, tokens);
        if (err == BP_OK) {
            const XXH128_hash_t hash = XXH3_128bits(tokens, (size_t)count * sizeof *tokens);

            hashes[d] = (document_hash){hash.low64, hash.high64};
        }
    }
    if (err == BP_OK && info->documents > 0) {
        qsort(hashes, (size_t)info->documents, sizeof *hashes, by_hash);
        for (int64_t d = 1; d < info->documents; d++)
            same += by_hash(&hashes[d - 1], &hashes[d]) == 0;
        card_fact(facts, "duplicates", "%s documents are equal to another one, token by token",
                  grouped(same));
    }
    bp_free(tokens);
    bp_free(hashes);
    return err;
}

static bp_err add_label(card *self, bp_corpus_file *file, int k)
{
    int64_t documents = bp_corpus_file_info(file)->documents, *counts;
    bp_corpus_label label;
    json_t *values = json_array();
    bp_err err = bp_corpus_file_label(file, k, &label);

    if (err != BP_OK) {
        json_decref(values);
        return err;
    }
    counts = bp_alloc("tool.card", label.value_count, sizeof *counts);
    for (int64_t d = 0; d < documents; d++)
        if (label.codes[d] < label.value_count)
            counts[label.codes[d]]++;
    for (int64_t v = 0; v < label.value_count && v < LISTED_MOST; v++) {
        char *share = bp_sprintf("%.1f %%", 100 * (double)counts[v] / (double)documents);

        (void)json_array_append_new(
            values, json_pack("{s:o, s:s, s:s}", "name",
                              card_text(label.values[v][0] ? label.values[v] : "(none)"), "count",
                              grouped(counts[v]), "share", share));
        bp_free(share);
    }
    if (label.value_count > LISTED_MOST)
        (void)json_array_append_new(
            values, json_pack("{s:s, s:s, s:s}", "name", "...", "count", "", "share", ""));
    (void)json_array_append_new(
        card_list(self, "labels"),
        json_pack("{s:o, s:o}", "name", card_text(label.name), "values", values));
    bp_free(counts);
    return BP_OK;
}

/* ---- the sheet ---- */

static const char *size_of(int64_t documents)
{
    static const char *const names[] = {"n<1K",     "1K<n<10K",   "10K<n<100K", "100K<n<1M",
                                        "1M<n<10M", "10M<n<100M", "100M<n<1B",  "n>1B"};
    int k = 0;

    for (int64_t least = 1000; documents >= least && k < 7; least *= 10)
        k++;
    return names[k];
}

static bp_err add_columns(card *self, bp_corpus_file *file, json_t *composition)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *start = NULL, *bytes, *words, *split;
    bp_err err = bp_corpus_file_doc_start(file, &start);

    if (err == BP_OK)
        err = bp_corpus_file_doc_counts(file, &bytes, &words, &split);
    if (err == BP_OK)
        err = add_duplicates(composition, file, start);
    if (err == BP_OK && info->documents > 0) {
        int64_t *tokens = bp_alloc("tool.card", info->documents, sizeof *tokens);

        for (int64_t d = 0; d < info->documents; d++)
            tokens[d] = start[d + 1] - start[d];
        add_lengths(self, "tokens", tokens, info->documents);
        if (bytes)
            add_lengths(self, "bytes", bytes, info->documents);
        if (words)
            add_lengths(self, "words", words, info->documents);
        bp_free(tokens);
    }
    for (int k = 0; k < info->labels && err == BP_OK; k++)
        err = add_label(self, file, k);
    for (int k = 0; k < info->values && err == BP_OK; k++) {
        bp_corpus_value value;

        err = bp_corpus_file_value(file, k, &value);
        if (err == BP_OK)
            card_fact(composition, "column of numbers", "%s", value.name);
    }
    if (info->has_tags)
        card_fact(composition, "tags of words", "%s kinds", grouped(info->tag_names));
    if (info->has_spans)
        card_fact(composition, "questions", "with contexts and answers");
    return err;
}

bp_err card_corpus(card *self)
{
    json_t *composition = card_list(self, "composition"),
           *collection = card_list(self, "collection"),
           *preprocessing = card_list(self, "preprocessing");
    const char *name = bp_path_base(self->path);
    bp_corpus_file *file = NULL;
    bp_err err = bp_corpus_file_open(&file, self->path);

    if (err != BP_OK)
        return err;
    const bp_corpus_info *info = bp_corpus_file_info(file);
    self->corpus_hash = bp_strdup(info->content_hash);
    err = add_counts(composition, file);
    if (err == BP_OK)
        err = add_columns(self, file, composition);
    if (err == BP_OK)
        err = add_sources(collection, self->path);
    card_fact(preprocessing, "tokens", "%s of a vocabulary of %s", grouped(info->tokens),
              grouped(info->vocab_size));
    card_fact(preprocessing, "ends of documents", "%s",
              info->eod_id < 0  ? "not marked"
              : info->open_ends ? "marked, not all"
                                : "marked");
    if (info->has_segments)
        card_fact(preprocessing, "texts or sentences", "%s", grouped(info->segments));
    add_hashes(preprocessing, info);
    (void)json_object_set_new(self->data, "name", card_text(name));
    (void)json_object_set_new(self->data, "yaml_name", card_yaml(name));
    (void)json_object_set_new(self->data, "size", card_yaml(size_of(info->documents)));
    card_corpus_questions(self);
    bp_corpus_file_close(&file);
    return err;
}
