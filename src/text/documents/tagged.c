/* Sentences of words and tags, one word per line (conll). */
#include "text/documents/documents_priv.h"

#include "text/documents/conll.h"

#include <string.h>

static bp_err add_word(bp_documents *documents, const char *line, size_t bytes, int64_t number)
{
    bp_text_record *record = &documents->record;
    bp_err err;

    if (documents->start_count == 0)
        documents->document_line = number;
    documents_add_start(documents, record->joined.bytes);
    err = documents_keep_bad(documents, bp_conll_add(record, line, bytes));
    return err == BP_OK ? BP_OK : documents_wrap_line(documents, err, "correct the line");
}

/* Lines before the file's first word, which shows which of them are words. */
static bp_err add_held(bp_documents *documents)
{
    const char *at = documents->held.data;
    const char *end = documents->held.bytes > 0 ? at + documents->held.bytes : at;
    int64_t number = documents->held_line;
    bp_err err = BP_OK;

    for (; at < end && err == BP_OK; at += strlen(at) + 1, number++)
        if (documents->start_count > 0 || !bp_conll_is_comment(at, strlen(at), documents->columns))
            err = add_word(documents, at, strlen(at), number);
    documents->held.bytes = 0;
    return err;
}

/* A line that is not a gap: a word, or a comment before a sentence. */
static bp_err take_tagged(bp_documents *documents, const documents_span *line)
{
    bool may_be_comment =
        documents->start_count == 0 && line->text[0] == '#' && !memchr(line->text, 0, line->bytes);

    if (may_be_comment && documents->columns == 0) {
        if (documents->held.bytes == 0)
            documents->held_line = documents->line;
        bp_buffer_add(&documents->held, line->text, line->bytes);
        bp_buffer_add(&documents->held, "", 1);
        return BP_OK;
    }
    if (may_be_comment && bp_conll_is_comment(line->text, line->bytes, documents->columns))
        return BP_OK;
    if (documents->columns == 0 && bp_conll_is_universal(line->text, line->bytes))
        return documents_wrap_line(
            documents,
            BP_FAIL(BP_ERR_FORMAT, "conll.universal",
                    "this is CoNLL-U, whose first column numbers the words"),
            "keep the columns of word and tag, as by: grep -v '^#' FILE | cut -f2,4");
    documents->columns = bp_conll_columns(line->text, line->bytes);
    bp_err err = add_held(documents);
    return err == BP_OK ? add_word(documents, line->text, line->bytes, documents->line) : err;
}

bp_err documents_next_tagged(bp_documents *documents, documents_span *piece)
{
    bp_text_record *record = &documents->record;

    record->joined.bytes = record->tags.bytes = 0;
    documents->start_count = documents->document_line = 0;
    *piece = (documents_span){0};
    for (;;) {
        documents_span line;
        bp_err err = documents_next_span(documents, &line);

        if (err != BP_OK)
            return err;
        if (line.found && !bp_conll_is_gap(line.text, line.bytes)) {
            err = take_tagged(documents, &line);
            if (err != BP_OK)
                return err;
            continue;
        }
        documents->held.bytes = 0;
        if (documents->start_count > 0) {
            *piece = (documents_span){record->joined.data, record->joined.bytes, true, true};
            return BP_OK;
        }
        if (!line.found)
            return BP_OK;
    }
}
