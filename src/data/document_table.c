/* Documents, or runs of sentences, of a stream: their positions and columns. */
#include "data/document_table.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/sort.h"
#include "io/corpus/corpus_writer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct described {
    bp_document document;
    int64_t *starts; /* [most_segments + 1] */
    int32_t *tokens; /* [BP_DOCUMENT_MOST] of bp_document_table_read; NULL until then */
    int32_t *tags;   /* [BP_DOCUMENT_MOST]; NULL without tags */
} described;

struct bp_document_table {
    bp_document_table_spec spec;
    bp_corpus *corpus;
    int64_t files, count, capacity, most_segments;
    int64_t *first_document;  /* [files + 1] */
    bp_file_columns *columns; /* [files] */
    int64_t *first;           /* [count + 1] */
    int64_t *document;        /* [count] */
    int64_t
        *segment; /* [count] of runs the first one, of the file's; of windows the number; else -1 */
    int64_t *file_first; /* [files + 1] entries, with weights */
    described out[2];
    int next_out;
};

size_t bp_document_table_bytes(int64_t entries)
{
    return (size_t)entries * 3 * sizeof(int64_t);
}

static bp_err load_columns(bp_document_table *table, int64_t k)
{
    bp_corpus_file *file = bp_corpus_file_at(table->corpus, k);
    bp_file_columns *out = &table->columns[k];
    bp_err err = bp_file_columns_load(out, file, &table->spec.columns);

    if (err == BP_OK && table->spec.run_tokens > 0 && !out->segments)
        err = BP_FAIL(BP_ERR_CONFIG, "corpus.no_segments",
                      "the corpus does not mark where sentences begin: at %s; make it with "
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
    if (table->count + 1 >= table->capacity) {
        int64_t capacity = table->capacity == 0 ? 1024 : 2 * table->capacity;
        int64_t **lists[] = {&table->first, &table->document, &table->segment};

        for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
            int64_t *larger = bp_try_alloc("data.documents", capacity, sizeof *larger);

            if (!larger)
                return bp_fail_memory("the list of documents", capacity, sizeof *larger);
            if (table->count > 0)
                memcpy(larger, *lists[k], (size_t)table->count * sizeof *larger);
            bp_free(*lists[k]);
            *lists[k] = larger;
        }
        table->capacity = capacity;
    }
    table->first[table->count] = first;
    table->document[table->count] = document;
    table->segment[table->count++] = segment;
    return BP_OK;
}

/* Windows begin where their document does. */
static bp_err add_windows(bp_document_table *table, const bp_file_columns *c, int64_t d,
                          int64_t document, int64_t at)
{
    int64_t begin = c->doc_start[d],
            end = c->doc_start[d + 1] - (bp_corpus_eod(table->corpus) >= 0),
            context = c->segment_start[c->segments[d] + 1], windows;
    bp_err err = BP_OK;

    end = end - begin < BP_DOCUMENT_MOST ? end : begin + BP_DOCUMENT_MOST;
    windows = bp_windows_count(&table->spec.columns.windows, context - begin, end - context);
    for (int64_t w = 0; w < windows && err == BP_OK; w++)
        err = add_entry(table, at, document, w);
    return err;
}

/* Document d of file k, which begins at token `at` of the stream. */
static bp_err add_document(bp_document_table *table, int64_t k, int64_t d, int64_t at)
{
    const bp_file_columns *c = &table->columns[k];
    int64_t document = table->first_document[k] + d, run_tokens = table->spec.run_tokens;
    bp_err err = BP_OK;

    if (table->spec.columns.windows.positions > 0)
        return add_windows(table, c, d, document, at);
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

/* Adds entries of files [first, end), which are a stream or a part of it; of a bag, pass after
 * pass. */
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
    for (int64_t k = 0; k < table->files; k++)
        bp_file_columns_clear(&table->columns[k]);
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

/* For windows, tokens of their document. */
static int64_t all_tokens(const bp_document_table *table, int64_t entry)
{
    int64_t next = entry + 1;

    while (table->spec.columns.windows.positions > 0 && next < table->count &&
           table->segment[next] > 0)
        next++;
    return table->first[next] - table->first[entry];
}

int64_t bp_document_table_tokens(const bp_document_table *table, int64_t entry)
{
    int64_t tokens = all_tokens(table, entry);

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
    return bp_stretch_of(table->first_document, table->files, document);
}

int64_t bp_document_table_length(const bp_document_table *table, int64_t entry, bool apart,
                                 int64_t context)
{
    int64_t number = table->document[entry], k = file_of(table, number), longest = 0, sum = 0;
    const bp_file_columns *c = &table->columns[k];
    int64_t d = number - table->first_document[k];

    if (!apart || !c->segments)
        return bp_min(bp_document_table_tokens(table, entry), context);
    for (int64_t s = c->segments[d]; s < c->segments[d + 1]; s++) {
        int64_t end = s + 1 < c->segments[d + 1] ? c->segment_start[s + 1] : c->doc_start[d + 1],
                tokens = bp_min(end - c->segment_start[s], context);

        longest = tokens > longest ? tokens : longest;
        sum += tokens;
    }
    return longest * (2 * BP_DOCUMENT_MOST) + bp_min(sum, 2 * BP_DOCUMENT_MOST - 1);
}

/* Segments of the entry, which begins at token `begin` of the file. */
static void describe_segments(const bp_file_columns *c, int64_t d, int64_t first, int64_t begin,
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

static void describe_tags(const bp_file_columns *c, int64_t begin, described *out)
{
    for (int64_t t = 0; t < out->document.count; t++) {
        uint32_t code = c->tags[begin + t];

        out->tags[t] = code < c->tag_names ? c->tag_of[code] : BP_DOCUMENT_NO_WORD;
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
    int64_t all = all_tokens(table, entry);
    const bp_file_columns *c = &table->columns[k];
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
                                  .value = c->values ? c->values[d] : NAN};
    if (table->spec.columns.windows.positions > 0)
        out->document.window = table->segment[entry];
    if (c->spans)
        memcpy(out->document.answer, c->spans + d * BP_CORPUS_SPAN, sizeof out->document.answer);
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
