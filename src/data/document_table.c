/* Documents, or runs of sentences, of a stream: where they lie, and what is known of them. */
#include "data/document_table.h"

#include "base/buffer.h"
#include "base/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Columns of one file. */
typedef struct file_columns {
    const int64_t *doc_start, *segments, *segment_start; /* the latter two NULL: no segments */
    const uint32_t *codes;
    int32_t *class_of; /* [values]: of a code, -1: no class */
    const float *values;
    const uint32_t *tags; /* [tokens] */
    int32_t *tag_of;      /* [tag names]: of a code, -1: none that was asked for */
    int64_t tag_names;
} file_columns;

typedef struct described {
    bp_document document;
    int64_t *starts; /* [most_segments + 1] */
    int32_t *tokens; /* [BP_DOCUMENT_MOST] of bp_document_table_read; NULL until then */
    int32_t *tags;   /* [BP_DOCUMENT_MOST]; NULL: none */
} described;

struct bp_document_table {
    bp_document_table_spec spec;
    bp_corpus *corpus;
    int64_t files, count, room, most_segments;
    int64_t *first_document; /* [files + 1] */
    file_columns *columns;   /* [files] */
    int64_t *first;          /* [count + 1] */
    int64_t *document;       /* [count] */
    int64_t *segment;        /* [count] runs: the first one, of the file's; NULL: whole documents */
    int64_t *file_first;     /* [files + 1] entries, with weights */
    described out[2];
    int next_out;
};

size_t bp_document_table_bytes(int64_t entries)
{
    return (size_t)entries * 3 * sizeof(int64_t);
}

/* ---- columns ---- */

static bp_err fail_column(bp_corpus_file *file, const char *kind, const char *name,
                          const char *option)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    bp_buffer have = {0};
    bool is_label = strcmp(kind, "label") == 0;
    bp_err err = BP_OK;

    for (int k = 0; k < (is_label ? info->labels : info->values) && err == BP_OK; k++) {
        bp_corpus_label label = {0};
        bp_corpus_value value = {0};

        err = is_label ? bp_corpus_file_label(file, k, &label)
                       : bp_corpus_file_value(file, k, &value);
        bp_buffer_printf(&have, "%s%s", k > 0 ? ", " : "", is_label ? label.name : value.name);
    }
    if (err == BP_OK)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.no_column",
                      "the corpus has no %s '%s' (it has: %s): at %s; make it with "
                      "bagpipe-data corpus %s %s",
                      kind, name, have.bytes > 0 ? have.data : "none", bp_corpus_file_path(file),
                      option, name);
    bp_buffer_clear(&have);
    return err;
}

static bp_err find_label(bp_corpus_file *file, const char *name, bp_corpus_label *label)
{
    bp_err err = BP_OK;

    for (int k = 0; k < bp_corpus_file_info(file)->labels && err == BP_OK; k++) {
        err = bp_corpus_file_label(file, k, label);
        if (err == BP_OK && strcmp(label->name, name) == 0)
            return BP_OK;
    }
    return err == BP_OK ? fail_column(file, "label", name, "--label") : err;
}

static bp_err find_value(bp_corpus_file *file, const char *name, bp_corpus_value *value)
{
    bp_err err = BP_OK;

    for (int k = 0; k < bp_corpus_file_info(file)->values && err == BP_OK; k++) {
        err = bp_corpus_file_value(file, k, value);
        if (err == BP_OK && strcmp(value->name, name) == 0)
            return BP_OK;
    }
    return err == BP_OK ? fail_column(file, "value", name, "--value") : err;
}

static bp_err load_label(const bp_document_table *table, bp_corpus_file *file, file_columns *out)
{
    const bp_document_columns *asked = &table->spec.columns;
    bp_corpus_label label;
    bp_err err = find_label(file, asked->label, &label);

    if (err != BP_OK)
        return err;
    out->codes = label.codes;
    out->class_of = bp_alloc("data.classes", label.value_count, sizeof *out->class_of);
    for (int64_t v = 0; v < label.value_count; v++) {
        out->class_of[v] = -1;
        for (int64_t k = 0; k < asked->class_count; k++)
            if (strcmp(label.values[v], asked->classes[k]) == 0)
                out->class_of[v] = (int32_t)k;
    }
    return BP_OK;
}

static bp_err find_tags(bp_corpus_file *file, bp_corpus_label *tags)
{
    if (bp_corpus_file_info(file)->has_tags)
        return bp_corpus_file_tags(file, tags);
    return BP_FAIL(BP_ERR_FORMAT, "corpus.no_tags",
                   "the corpus has no tags of words: at %s; make it with bagpipe-data corpus "
                   "--format conll",
                   bp_corpus_file_path(file));
}

static bp_err load_tags(const bp_document_table *table, bp_corpus_file *file, file_columns *out)
{
    const bp_document_columns *asked = &table->spec.columns;
    bp_corpus_label tags;
    bp_err err = find_tags(file, &tags);

    if (err != BP_OK)
        return err;
    out->tags = tags.codes;
    out->tag_names = tags.value_count;
    out->tag_of = bp_alloc("data.classes", tags.value_count, sizeof *out->tag_of);
    for (int64_t v = 0; v < tags.value_count; v++) {
        out->tag_of[v] = -1;
        for (int64_t k = 0; k < asked->tag_count; k++)
            if (strcmp(tags.values[v], asked->tags[k]) == 0)
                out->tag_of[v] = (int32_t)k;
    }
    return BP_OK;
}

static bp_err load_columns(bp_document_table *table, int64_t k)
{
    const bp_document_table_spec *spec = &table->spec;
    bp_corpus_file *file = bp_corpus_file_at(table->corpus, k);
    file_columns *out = &table->columns[k];
    bp_corpus_value value;
    bp_err err = bp_corpus_file_doc_start(file, &out->doc_start);

    if (err == BP_OK)
        err = bp_corpus_file_segments(file, &out->segments, &out->segment_start);
    if (err == BP_OK && spec->columns.label)
        err = load_label(table, file, out);
    if (err == BP_OK && spec->columns.tags)
        err = load_tags(table, file, out);
    if (err == BP_OK && spec->columns.value) {
        err = find_value(file, spec->columns.value, &value);
        out->values = err == BP_OK ? value.values : NULL;
    }
    if (err == BP_OK && spec->run_tokens > 0 && !out->segments)
        err = BP_FAIL(BP_ERR_CONFIG, "corpus.no_segments",
                      "the corpus does not tell where sentences begin: at %s; make it with "
                      "bagpipe-data corpus --sentences lines (or punctuation)",
                      bp_corpus_file_path(file));
    if (err != BP_OK)
        return err;
    table->first_document[k + 1] = table->first_document[k] + bp_corpus_file_info(file)->documents;
    for (int64_t d = 0; out->segments && d < bp_corpus_file_info(file)->documents; d++) {
        int64_t segments = out->segments[d + 1] - out->segments[d];

        table->most_segments = segments > table->most_segments ? segments : table->most_segments;
    }
    return BP_OK;
}

/* ---- entries ---- */

static bp_err add_entry(bp_document_table *table, int64_t first, int64_t document, int64_t segment)
{
    if (table->count + 1 >= table->room) {
        int64_t room = table->room == 0 ? 1024 : 2 * table->room;
        int64_t **lists[] = {&table->first, &table->document, &table->segment};

        for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
            int64_t *larger = bp_try_alloc("data.documents", room, sizeof *larger);

            if (!larger)
                return bp_fail_memory("the list of documents", room, sizeof *larger);
            if (table->count > 0)
                memcpy(larger, *lists[k], (size_t)table->count * sizeof *larger);
            bp_free(*lists[k]);
            *lists[k] = larger;
        }
        table->room = room;
    }
    table->first[table->count] = first;
    table->document[table->count] = document;
    table->segment[table->count++] = segment;
    return BP_OK;
}

/* Document d of file k, which begins at token `at` of the stream. */
static bp_err add_document(bp_document_table *table, int64_t k, int64_t d, int64_t at)
{
    const file_columns *c = &table->columns[k];
    int64_t document = table->first_document[k] + d, run_tokens = table->spec.run_tokens;
    bp_err err = BP_OK;

    if (run_tokens == 0)
        return add_entry(table, at, document, -1);
    for (int64_t s = c->segments[d], next; s < c->segments[d + 1] && err == BP_OK; s = next) {
        int64_t begin = c->segment_start[s];

        for (next = s + 1; next < c->segments[d + 1]; next++) {
            int64_t end =
                next + 1 < c->segments[d + 1] ? c->segment_start[next + 1] : c->doc_start[d + 1];
            if (end - begin > run_tokens)
                break;
        }
        err = add_entry(table, at + begin - c->doc_start[d], document, s);
    }
    return err;
}

/* Of files [first, end), which are one stream, or a part of it: pass after pass of a bag. */
static bp_err add_files(bp_document_table *table, int64_t first, int64_t end, int64_t *at)
{
    int64_t passes = 1;
    bp_err err = BP_OK;

    for (int64_t pass = 0; pass < passes; pass++)
        for (int64_t k = first; k < end; k++) {
            const int64_t *start = table->columns[k].doc_start;
            int64_t documents = table->first_document[k + 1] - table->first_document[k];

            for (int64_t d = 0; d < documents && err == BP_OK; d++) {
                int64_t drawn = bp_stream_drawn(table->spec.stream, table->first_document[k] + d);

                passes = drawn > passes ? drawn : passes;
                if (drawn <= pass)
                    continue;
                err = add_document(table, k, d, *at);
                *at += start[d + 1] - start[d];
            }
        }
    return err;
}

static bp_err list_entries(bp_document_table *table)
{
    bool is_weighted = bp_stream_weights(table->spec.stream) != NULL;
    int64_t at = 0;
    bp_err err = BP_OK;

    if (!is_weighted)
        err = add_files(table, 0, table->files, &at);
    for (int64_t k = 0; k < table->files && is_weighted && err == BP_OK; k++) {
        err = add_files(table, k, k + 1, &at);
        table->file_first[k + 1] = table->count;
    }
    if (err != BP_OK)
        return err;
    BP_ASSERT(at == bp_stream_tokens(table->spec.stream));
    if (table->count == 0)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.too_few_documents",
                       "the corpus has no document: at %s; give one with text",
                       bp_stream_path(table->spec.stream, 0));
    table->first[table->count] = at;
    return BP_OK;
}

bp_err bp_document_table_new(bp_document_table **out, const bp_document_table_spec *spec)
{
    bp_document_table *table = bp_alloc("data.documents", 1, sizeof *table);
    bp_err err = BP_OK;

    table->spec = *spec;
    table->corpus = bp_stream_corpus(spec->stream);
    table->files = bp_corpus_files(table->corpus);
    table->most_segments = 1;
    table->columns = bp_alloc("data.documents", table->files, sizeof *table->columns);
    table->first_document = bp_alloc("data.documents", table->files + 1, sizeof(int64_t));
    table->file_first = bp_alloc("data.documents", table->files + 1, sizeof(int64_t));
    for (int64_t k = 0; k < table->files && err == BP_OK; k++)
        err = load_columns(table, k);
    if (err == BP_OK)
        err = list_entries(table);
    for (int k = 0; k < 2 && spec->columns.tags; k++)
        table->out[k].tags = bp_alloc("data.documents", BP_DOCUMENT_MOST, sizeof(int32_t));
    for (int k = 0; k < 2; k++)
        table->out[k].starts =
            bp_alloc("data.documents", table->most_segments + 1, sizeof(int64_t));
    if (err != BP_OK)
        bp_document_table_free(&table);
    *out = table;
    return err;
}

void bp_document_table_free(bp_document_table **out)
{
    bp_document_table *table = *out;

    if (!table)
        return;
    for (int64_t k = 0; k < table->files; k++) {
        bp_free(table->columns[k].class_of);
        bp_free(table->columns[k].tag_of);
    }
    for (int k = 0; k < 2; k++) {
        bp_free(table->out[k].starts);
        bp_free(table->out[k].tokens);
        bp_free(table->out[k].tags);
    }
    bp_free(table->columns);
    bp_free(table->first_document);
    bp_free(table->file_first);
    bp_free(table->first);
    bp_free(table->document);
    bp_free(table->segment);
    bp_free(table);
    *out = NULL;
}

int64_t bp_document_table_count(const bp_document_table *table)
{
    return table->count;
}

const int64_t *bp_document_table_first(const bp_document_table *table)
{
    return table->first;
}

int64_t bp_document_table_document(const bp_document_table *table, int64_t entry)
{
    return table->document[entry];
}

int64_t bp_document_table_tokens(const bp_document_table *table, int64_t entry)
{
    int64_t tokens = table->first[entry + 1] - table->first[entry];

    return tokens < BP_DOCUMENT_MOST ? tokens : BP_DOCUMENT_MOST;
}

void bp_document_table_file(const bp_document_table *table, int64_t k, int64_t *first,
                            int64_t *count)
{
    BP_ASSERT(bp_stream_weights(table->spec.stream) && k >= 0 && k < table->files);
    *first = table->file_first[k];
    *count = table->file_first[k + 1] - *first;
}

/* ---- one entry ---- */

static int64_t file_of(const bp_document_table *table, int64_t document)
{
    int64_t low = 0, high = table->files;

    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (table->first_document[middle] <= document)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t bp_document_table_length(const bp_document_table *table, int64_t entry)
{
    int64_t number = table->document[entry], k = file_of(table, number), longest = 0,
            tokens = bp_document_table_tokens(table, entry);
    const file_columns *c = &table->columns[k];
    int64_t d = number - table->first_document[k];

    for (int64_t s = c->segments ? c->segments[d] : 0; c->segments && s < c->segments[d + 1]; s++) {
        int64_t end = s + 1 < c->segments[d + 1] ? c->segment_start[s + 1] : c->doc_start[d + 1];

        longest = end - c->segment_start[s] > longest ? end - c->segment_start[s] : longest;
    }
    longest = longest > 0 && longest < tokens ? longest : tokens;
    return longest * (2 * BP_DOCUMENT_MOST) + tokens;
}

/* Segments of the entry, which begins at token `begin` of the file. */
static void describe_segments(const file_columns *c, int64_t d, int64_t first, int64_t begin,
                              described *out)
{
    bp_document *document = &out->document;

    document->segments = 1;
    out->starts[0] = 0;
    for (int64_t s = first + 1; c->segments && s < c->segments[d + 1]; s++) {
        int64_t at = c->segment_start[s] - begin;

        if (at > document->count || (document->is_run && at == document->count))
            break;
        out->starts[document->segments++] = at;
    }
    out->starts[document->segments] = document->count;
    document->starts = out->starts;
}

static void describe_tags(const file_columns *c, int64_t begin, described *out)
{
    for (int64_t t = 0; t < out->document.count; t++) {
        uint32_t code = c->tags[begin + t];

        out->tags[t] = code < c->tag_names ? c->tag_of[code] : -1;
    }
    out->document.tags = out->tags;
}

const bp_document *bp_document_table_describe(bp_document_table *table, int64_t entry,
                                              const int32_t *tokens, const bp_document *other)
{
    described *out = &table->out[table->next_out];
    int64_t number = table->document[entry], k = file_of(table, number);
    int64_t d = number - table->first_document[k], eod = bp_corpus_eod(table->corpus);
    int64_t tokens_read = bp_document_table_tokens(table, entry);
    int64_t all = table->first[entry + 1] - table->first[entry];
    const file_columns *c = &table->columns[k];
    bool is_run = table->spec.run_tokens > 0;
    int64_t first = is_run ? table->segment[entry] : c->segments ? c->segments[d] : 0;

    table->next_out = 1 - table->next_out;
    out->document = (bp_document){.tokens = tokens,
                                  .count = tokens_read,
                                  .number = number,
                                  .other = other,
                                  .is_run = is_run,
                                  .is_cut = tokens_read < all,
                                  .label = c->codes ? c->class_of[c->codes[d]] : -1,
                                  .value = c->values ? c->values[d] : 0};
    if (tokens_read == all && all > 0 && eod >= 0 && tokens[all - 1] == eod)
        out->document.count--;
    if (c->tags)
        describe_tags(c, c->segments ? c->segment_start[first] : c->doc_start[d], out);
    describe_segments(c, d, first, c->segments ? c->segment_start[first] : c->doc_start[d], out);
    return &out->document;
}

bp_err bp_document_table_read(bp_document_table *table, int64_t entry, const bp_document *other,
                              const bp_document **out)
{
    described *next = &table->out[table->next_out];
    bp_err err;

    if (!next->tokens)
        next->tokens = bp_alloc("data.documents", BP_DOCUMENT_MOST, sizeof *next->tokens);
    err = bp_stream_read(table->spec.stream, table->first[entry],
                         bp_document_table_tokens(table, entry), next->tokens);
    *out = err == BP_OK ? bp_document_table_describe(table, entry, next->tokens, other) : NULL;
    return err;
}

int64_t bp_document_table_other(const bp_document_table *table, int64_t entry, int64_t first,
                                int64_t count, const bp_rng_key *key)
{
    for (int draw = 0; draw < BP_OTHER_DRAWS; draw++) {
        int64_t other = first + bp_rng_below(key, (uint64_t)draw, count);

        if (table->document[other] != table->document[entry])
            return other;
    }
    return -1;
}

/* ---- classes ---- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_class(char ***names, int64_t *count, const char *value)
{
    for (int64_t k = 0; k < *count; k++)
        if (strcmp((*names)[k], value) == 0)
            return;
    *names = bp_realloc("data.classes", *names, *count + 1, sizeof **names);
    (*names)[(*count)++] = bp_strdup(value);
}

bp_err bp_corpus_classes(const bp_corpus *corpus, const char *name, char ***names, int64_t *count)
{
    bp_err err = BP_OK;

    *names = NULL;
    *count = 0;
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++) {
        bp_corpus_label label;

        err = find_label(bp_corpus_file_at(corpus, k), name, &label);
        for (int64_t v = 0; err == BP_OK && v < label.value_count; v++)
            if (label.values[v][0] != '\0')
                add_class(names, count, label.values[v]);
    }
    if (err == BP_OK && *count > 1)
        qsort(*names, (size_t)*count, sizeof **names, by_bytes);
    if (err != BP_OK)
        bp_names_free(names, *count);
    return err;
}

bp_err bp_corpus_tags(const bp_corpus *corpus, char ***names, int64_t *count)
{
    bp_err err = BP_OK;

    *names = NULL;
    *count = 0;
    for (int64_t k = 0; k < bp_corpus_files(corpus) && err == BP_OK; k++) {
        bp_corpus_label tags;

        err = find_tags(bp_corpus_file_at(corpus, k), &tags);
        for (int64_t v = 0; err == BP_OK && v < tags.value_count; v++)
            add_class(names, count, tags.values[v]);
    }
    if (err == BP_OK && *count > 1)
        qsort(*names, (size_t)*count, sizeof **names, by_bytes);
    if (err != BP_OK)
        bp_names_free(names, *count);
    return err;
}
