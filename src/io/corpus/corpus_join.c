/* Records become documents of a corpus, in their order: labels are checked, bad documents are
 * skipped and listed, the rest goes to the writer. On rank 0; called by corpus_build.c. */
#include "corpus_build_priv.h"

#include "base/config/json.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct bp_label_types { /* JSON types of one label's values */
    bp_dictionary values;
    char *types; /* [capacity]: bp_label_type of each value */
    int64_t capacity;
};

void bp_corpus_join_init(bp_corpus_join *join, const bp_corpus_build *build)
{
    *join = (bp_corpus_join){
        .build = build,
        .unknown_id = bp_tokenizer_unk(build->tokenizer),
        .labels = bp_alloc("io.build", build->label_count, sizeof *join->labels),
        .label_types = bp_alloc("io.build", build->label_count, sizeof *join->label_types)};
}

void bp_corpus_join_clear(bp_corpus_join *join)
{
    bp_corpus_writer_free(&join->writer);
    bp_free(join->labels);
    for (int k = 0; join->label_types && k < join->build->label_count; k++) {
        bp_dictionary_clear(&join->label_types[k].values);
        bp_free(join->label_types[k].types);
    }
    bp_free(join->label_types);
    bp_buffer_clear(&join->skip_list);
    bp_free(join->first_bad);
    bp_free(join->id);
}

/* Line in the file; 0 for a whole file. */
static int64_t line_of(const bp_corpus_join *join, const bp_record *record)
{
    return record->line > 0 ? join->line_base + record->line : 0;
}

/* "FILE:LINE", like the other ids of documents without their own. */
static const char *id_of(bp_corpus_join *join, const bp_record *record)
{
    const char *file = bp_text_source_id(join->build->paths[record->file]);
    int64_t bytes = (int64_t)strlen(file) + 24;

    if (!record->lacks_id)
        return bp_record_text(record);
    join->id = bp_grow("io.build", join->id, &join->id_capacity, bytes, 1);
    (void)snprintf(join->id, (size_t)join->id_capacity, "%s:%" PRId64, file, line_of(join, record));
    return join->id;
}

/* "1" and 1, or "true" and true, would become the same label value. */
static bp_err check_label(bp_corpus_join *join, const bp_record *record, int k, char type,
                          const char *text)
{
    static const char *const NAMES[] = {"", "a string", "a number", "true or false"};
    struct bp_label_types *known = &join->label_types[k];
    int64_t code;

    if (type == BP_LABEL_NONE)
        return BP_OK;
    code = bp_dictionary_code(&known->values, text);
    if (code == known->capacity) {
        known->capacity = code == 0 ? 16 : 2 * code;
        known->types = bp_realloc("io.build", known->types, known->capacity, 1);
        memset(known->types + code, BP_LABEL_NONE, (size_t)(known->capacity - code));
    }
    if (known->types[code] == BP_LABEL_NONE)
        known->types[code] = type;
    if (type == known->types[code])
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "label.mixed_types",
                   "label %s is '%.80s' as %s, and as %s in a line before: at %s, line %" PRId64
                   "; write its values as one type",
                   join->build->labels[k], text, NAMES[(int)type], NAMES[(int)known->types[code]],
                   bp_text_source_shown(join->build->paths[record->file]), line_of(join, record));
}

/* After the id and the labels. */
static const char *tags_of(const bp_corpus_join *join, const bp_record *record)
{
    const char *text = bp_record_text(record);

    text += strlen(text) + 1;
    for (int k = 0; k < join->build->label_count; k++)
        text += 1 + strlen(text + 1) + 1;
    return text;
}

static bp_err end_document(bp_corpus_join *join, const bp_record *record)
{
    const bp_text_counts counts = bp_text_tally_counts(&join->tally);
    const char *text = bp_record_text(record);
    bp_corpus_row row = {.bytes = join->tally.bytes,
                         .words = counts.words,
                         .words_split = counts.words_split,
                         .id = id_of(join, record),
                         .labels = join->labels,
                         .values = bp_record_values(record)};

    for (int k = 0; k < join->build->label_count; k++) {
        text += strlen(text) + 1;
        join->labels[k] = text + 1;
        text++;
    }
    if (join->build->format == BP_TEXT_SQUAD) {
        row.answer = record->answer;
        row.context = tags_of(join, record);
        row.answers = row.context + strlen(row.context) + 1;
    }
    join->built.documents++;
    join->built.bytes += row.bytes;
    join->built.words += row.words;
    join->built.invalid_bytes += counts.invalid_bytes;
    join->built.white_documents += row.bytes > 0 && row.words == 0;
    join->built.empty_documents += join->document_tokens == 0 ? 1 : 0;
    join->document_tokens = 0;
    memset(&join->tally, 0, sizeof join->tally);
    join->newlines = 0;
    return bp_corpus_writer_end(join->writer, &row);
}

static bp_err check_labels(bp_corpus_join *join, const bp_record *record)
{
    const char *text = bp_record_text(record);
    bp_err err = BP_OK;

    for (int k = 0; k < join->build->label_count && err == BP_OK; k++) {
        text += strlen(text) + 1;
        err = check_label(join, record, k, *text, text + 1);
        text++;
    }
    return err;
}

/* Skips a document. */
static bp_err skip(bp_corpus_join *join, const bp_record *record, const char *id, const char *fault)
{
    const bp_corpus_build *build = join->build;
    const char *file = bp_text_source_shown(build->paths[record->file]);
    int64_t number = line_of(join, record);
    json_t *line = json_object();
    char *text;
    bp_err err = BP_OK;

    join->built.skipped_bad++;
    (void)json_object_set_new(line, "file", bp_json_string(file));
    (void)json_object_set_new(line, "line", number > 0 ? json_integer(number) : json_null());
    if (id[0] != '\0')
        (void)json_object_set_new(line, "id", bp_json_string(id));
    (void)json_object_set_new(line, "reason", bp_json_string(fault));
    text = bp_json_line(line);
    bp_buffer_add(&join->skip_list, text, strlen(text));
    bp_free(text);
    json_decref(line);
    if (!join->first_bad) {
        char *place =
            number > 0 ? bp_sprintf("line %" PRId64, number) : bp_sprintf("question %.80s", id);

        join->first_bad =
            bp_sprintf("%.*s: at %s, %s", (int)(strcspn(fault, "[") - 1), fault, file, place);
        bp_free(place);
    }
    if (build->skip_count >= 0 && join->built.skipped_bad > build->skip_count)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.too_many_bad",
                      "more bad documents than the %" PRId64 " that --skip-bad allows; the first "
                      "one: %s; correct them, or allow more",
                      build->skip_count, join->first_bad);
    return err;
}

static bp_err add_piece(bp_corpus_join *join, const bp_record *record)
{
    const uint32_t *ids = bp_record_ids(record), *starts = bp_record_starts(record);
    const char *tag = tags_of(join, record);
    int64_t at = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < record->start_count && err == BP_OK; at = starts[k++]) {
        err = bp_corpus_writer_tokens(join->writer, ids + at, starts[k] - at);
        if (err == BP_OK)
            err = record->is_tagged ? bp_corpus_writer_tag(join->writer, tag)
                                    : bp_corpus_writer_segment(join->writer);
        tag += record->is_tagged ? strlen(tag) + 1 : 0;
    }
    if (err == BP_OK)
        err = bp_corpus_writer_tokens(join->writer, ids + at, record->id_count - at);
    join->built.segments += record->start_count;
    if (join->unknown_id >= 0)
        for (int64_t k = 0; k < record->id_count; k++)
            join->built.unknown += ids[k] == (uint32_t)join->unknown_id ? 1 : 0;
    join->document_tokens += record->id_count;
    if (record->tally.invalid_bytes > 0 && join->built.invalid_line == 0) {
        join->built.invalid_file =
            record->file + (join->build->format == BP_TEXT_PAIRS ? (int)record->invalid_at : 0);
        join->built.invalid_line =
            record->line > 0 ? line_of(join, record) : join->newlines + record->invalid_at + 1;
    }
    join->newlines += record->newlines;
    bp_text_tally_join(&join->tally, &record->tally);
    return err == BP_OK && record->last ? end_document(join, record) : err;
}

bp_err bp_corpus_join_take(bp_corpus_join *join, const bp_record *record)
{
    const char *id = bp_record_text(record);
    bp_err err;

    if (record->file != join->file)
        join->line_base = 0;
    join->file = record->file;
    if (record->kind == BP_RECORD_RANGE) {
        join->line_base += record->line;
        return BP_OK;
    }
    if (record->kind == BP_RECORD_LEFT_OUT) {
        join->built.left_out += record->last;
        return BP_OK;
    }
    if (record->kind == BP_RECORD_BAD)
        return skip(join, record, id_of(join, record), id + strlen(id) + 1);
    err = check_labels(join, record);
    if (err == BP_ERR_FORMAT && join->build->skips_bad)
        return skip(join, record, "", bp_err_message());
    return err == BP_OK ? add_piece(join, record) : err;
}

bp_err bp_corpus_join_check_skipped(const bp_corpus_join *join)
{
    const bp_corpus_build *build = join->build;
    int64_t bad = join->built.skipped_bad, all = bad + join->built.documents + join->built.left_out;

    if (join->built.left_out > 0 && join->built.documents == 0)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.all_left_out",
                       "all %" PRId64 " documents are left out: at %s; give ids as "
                       "'bagpipe-data inspect' and 'table' show them, a line each",
                       join->built.left_out, bp_text_source_shown(build->list));
    if (bad > 0 && bad == all)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.no_documents",
                       "all documents are bad, %" PRId64 "; the first one: %s; correct them", bad,
                       join->first_bad);
    /* both products are rounded: 36 of 100000 are 0.036 % */
    if (bad == 0 || build->skip_count >= 0 ||
        100 * (double)bad <= build->skip_percent * (double)all * (1 + 1e-12))
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "corpus.too_many_bad",
                   "%" PRId64 " of %" PRId64 " documents are bad, and --skip-bad allows %g %%; the "
                   "first one: %s; correct them, or allow more",
                   bad, all, build->skip_percent, join->first_bad);
}
