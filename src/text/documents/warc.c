/* Records of WARC files (ISO 28500): Common Crawl's WET files keep the text of a page as a record
 * of the type conversion. Each record has lines "Name: value", an empty line, and that many bytes.
 */
#include "text/documents/documents_priv.h"

#include "base/mem.h"
#include "text/unicode/characters.h"

#include <string.h>
#include <strings.h>

#define HEAD_BYTES ((size_t)1 << 16) /* the longest head of a record */
#define MEND       "mend the file, or leave the record out"

/* Values of a head, borrowed from the text ahead. */
typedef struct warc_head {
    size_t bytes;   /* of the head with its empty line */
    size_t content; /* bytes after it */
    bool converted; /* WARC-Type: conversion */
    const char *uri;
    size_t uri_bytes;
} warc_head;

/* Is this line "NAME: value"? Names are case-insensitive. */
static bool is_named(const char *line, size_t bytes, const char *name, const char **value,
                     size_t *value_bytes)
{
    size_t length = strlen(name);

    if (bytes <= length || line[length] != ':' || strncasecmp(line, name, length) != 0)
        return false;
    *value = line + length + 1;
    *value_bytes = bytes - length - 1;
    while (*value_bytes > 0 && (**value == ' ' || **value == '\t'))
        ++*value, --*value_bytes;
    while (*value_bytes > 0 && strchr(" \t\r", (*value)[*value_bytes - 1]))
        --*value_bytes;
    return true;
}

/* The end of the head: an empty line. 0 if there is none. */
static size_t head_bytes(const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes;

    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        at++;
        if (at < end && *at == '\n')
            return (size_t)(at + 1 - text);
        if (at + 1 < end && at[0] == '\r' && at[1] == '\n')
            return (size_t)(at + 2 - text);
    }
    return 0;
}

static bool read_length(const char *value, size_t bytes, size_t *out)
{
    size_t number = 0;

    for (size_t k = 0; k < bytes; k++) {
        if (value[k] < '0' || value[k] > '9' || number > ((size_t)1 << 56))
            return false;
        number = 10 * number + (size_t)(value[k] - '0');
    }
    *out = number;
    return bytes > 0;
}

static bp_err read_head(const bp_documents *documents, warc_head *head)
{
    const char *text = documents->buffer + documents->at, *value;
    size_t have = documents->end - documents->at, value_bytes;
    bool has_length = false;

    *head = (warc_head){0};
    if (have < 6 || (memcmp(text, "WARC/1", 6) != 0 && memcmp(text, "WARC/0", 6) != 0))
        return BP_FAIL(BP_ERR_FORMAT, "warc.bad_record",
                       "a record does not begin with WARC/1.0 or another known version");
    head->bytes = head_bytes(text, have < HEAD_BYTES ? have : HEAD_BYTES);
    if (head->bytes == 0)
        return BP_FAIL(BP_ERR_FORMAT, "warc.bad_record", "the head of a record does not end");
    for (const char *line = text, *end = text + head->bytes; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t bytes = (size_t)(newline - line);

        if (is_named(line, bytes, "Content-Length", &value, &value_bytes))
            has_length = read_length(value, value_bytes, &head->content);
        else if (is_named(line, bytes, "WARC-Type", &value, &value_bytes))
            head->converted = value_bytes == 10 && strncasecmp(value, "conversion", 10) == 0;
        else if (is_named(line, bytes, "WARC-Target-URI", &value, &value_bytes))
            head->uri = value, head->uri_bytes = value_bytes;
        line = newline + 1;
    }
    return has_length ? BP_OK
                      : BP_FAIL(BP_ERR_FORMAT, "warc.bad_record",
                                "a record has no Content-Length that is a number");
}

/* Skips unused bytes. */
static bp_err pass_bytes(bp_documents *documents, size_t bytes, bool *ended)
{
    bp_err err = BP_OK;

    *ended = false;
    while (bytes > 0 && err == BP_OK && !*ended) {
        err = documents_look_ahead(documents, bytes < HEAD_BYTES ? bytes : HEAD_BYTES);
        size_t have = documents->end - documents->at, now = bytes < have ? bytes : have;

        documents_pass(documents, now);
        bytes -= now;
        *ended = now == 0;
    }
    return err;
}

/* Advances to the first line of the next record. */
static bp_err find_next(bp_documents *documents)
{
    for (;;) {
        bp_err err = documents_look_ahead(documents, HEAD_BYTES);
        const char *text = documents->buffer + documents->at;
        size_t have = documents->end - documents->at;

        if (err != BP_OK)
            return err;
        const char *found = have > 1 ? memmem(text + 1, have - 1, "\nWARC/", 6) : NULL;
        if (found) {
            documents_pass(documents, (size_t)(found + 1 - text));
            return BP_OK;
        }
        documents_pass(documents, have > 6 && !documents->source_ended ? have - 6 : have);
        if (documents->at == documents->end && documents->source_ended)
            return BP_OK;
    }
}

/* Line ends between two records; the next one's head is ahead then. */
static bp_err pass_line_ends(bp_documents *documents)
{
    for (;;) {
        bp_err err = documents_look_ahead(documents, HEAD_BYTES);
        const char *text = documents->buffer + documents->at;
        size_t have = documents->end - documents->at, k = 0;

        while (k < have && (text[k] == '\r' || text[k] == '\n'))
            k++;
        documents_pass(documents, k);
        if (err != BP_OK)
            return err;
        if (k < have || documents->source_ended)
            return documents_look_ahead(documents, HEAD_BYTES);
    }
}

static void set_id(bp_text_record *record, const warc_head *head)
{
    bp_free(record->id);
    record->id = NULL;
    if (head->uri_bytes > 0 && head->uri_bytes <= BP_TEXT_FIELD_BYTES &&
        !memchr(head->uri, '\0', head->uri_bytes) && bp_text_is_utf8(head->uri, head->uri_bytes))
        bp_text_record_set(&record->id, head->uri, head->uri_bytes);
}

/* The whole text after a head. */
static bp_err take_text(bp_documents *documents, const warc_head *head, documents_span *piece)
{
    size_t bytes = head->bytes + head->content;
    bool ended;
    bp_err err;

    if (head->content > documents->options.limit_bytes) {
        err = documents_keep_bad(documents, BP_FAIL(BP_ERR_FORMAT, "warc.too_long",
                                                    "a record has %zu bytes, more than %zu",
                                                    head->content, documents->options.limit_bytes));
        piece->text = "";
        piece->found = piece->last = true;
        return err == BP_OK ? pass_bytes(documents, bytes, &ended) : err;
    }
    err = documents_look_ahead(documents, bytes);
    if (err != BP_OK)
        return err;
    size_t have = documents->end - documents->at;
    if (have < bytes)
        err = documents_keep_bad(documents, BP_FAIL(BP_ERR_FORMAT, "warc.truncated",
                                                    "the file ends %zu bytes before a record does",
                                                    bytes - have));
    *piece = (documents_span){documents->buffer + documents->at + head->bytes,
                              have < bytes ? 0 : head->content, true, true};
    documents_pass(documents, have < bytes ? have : bytes);
    return err;
}

/* A record, if it is a text; *bad: where the next one begins is not known. */
static bp_err next_record(bp_documents *documents, documents_span *piece, bool *bad)
{
    warc_head head;
    bool ended = false;
    bp_err err = read_head(documents, &head);

    *bad = err != BP_OK;
    if (err != BP_OK) {
        *piece = (documents_span){"", 0, true, true};
        bp_free(documents->record.id);
        documents->record.id = NULL;
        return documents_keep_bad(documents, err);
    }
    if (head.converted) {
        set_id(&documents->record, &head);
        return take_text(documents, &head, piece);
    }
    err = pass_bytes(documents, head.bytes + head.content, &ended);
    if (err == BP_OK && ended && head.bytes + head.content > 0) {
        *piece = (documents_span){"", 0, true, true};
        err = documents_keep_bad(documents, BP_FAIL(BP_ERR_FORMAT, "warc.truncated",
                                                    "the file ends before a record does"));
    }
    return err;
}

bp_err documents_next_warc(bp_documents *documents, documents_span *piece)
{
    bp_err err;
    bool bad = false;

    *piece = (documents_span){0};
    do {
        err = pass_line_ends(documents);
        if (err == BP_OK && documents->at == documents->end && documents->source_ended)
            return BP_OK;
        documents->line = documents->newlines + 1;
        if (err == BP_OK)
            err = next_record(documents, piece, &bad);
        if (err != BP_OK)
            return documents_wrap_line(documents, err, MEND);
        if (bad)
            err = find_next(documents);
    } while (err == BP_OK && !piece->found);
    return err;
}
