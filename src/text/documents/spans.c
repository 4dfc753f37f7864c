/* The text ahead in a file, and its division into lines and pieces. */
#include "text/documents/documents_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "text/documents/sentences_priv.h"

#include <string.h>

#define RANGE_READ_BYTES ((size_t)1 << 16) /* of a range at a time */

/* ---- the text ahead ---- */

/* The current line's number in the file. Counts the newlines before a range only now, from where
 * counting stopped. */
static bp_err count_lines_before(bp_documents *documents)
{
    const char *path = documents->paths[documents->range.file];
    int64_t last = documents->range.first - 1; /* a newline there begins a line of the range */
    bp_text_source *source = NULL;
    char *block;
    bp_err err;

    if (last < 0)
        return BP_OK;
    err = bp_text_source_open_range(&source, path, documents->counted_to, last);
    block = bp_alloc("text.documents", RANGE_READ_BYTES, 1);
    while (err == BP_OK && documents->counted_to < last) {
        int64_t left = last - documents->counted_to;
        size_t wanted = left < (int64_t)RANGE_READ_BYTES ? (size_t)left : RANGE_READ_BYTES, got = 0;
        const char *at = block;

        err = bp_text_source_read(source, block, wanted, &got);
        for (; (at = memchr(at, '\n', (size_t)(block + got - at))); at++)
            documents->newlines_before++;
        documents->counted_to += (int64_t)got;
        if (got < wanted)
            break; /* the file became shorter */
    }
    documents->line_before = documents->newlines_before + 1;
    bp_free(block);
    bp_text_source_close(&source);
    return err;
}

static bp_err find_line(bp_documents *documents)
{
    bp_err err = BP_OK;

    if (documents->options.has_ranges && !documents->options.counts_lines)
        err = count_lines_before(documents);
    documents->line += documents->line_before;
    documents->line_before = 0;
    return err;
}

bp_err documents_fail_limit(bp_documents *documents)
{
    bp_err err = find_line(documents);

    return err != BP_OK
               ? err
               : BP_FAIL(
                     BP_ERR_FORMAT, "text.no_cut",
                     "%zu bytes of text without a place to cut it: at %s, line %lld; break it into "
                     "shorter lines",
                     documents->options.limit_bytes,
                     bp_text_source_shown(documents->paths[documents->file]),
                     (long long)documents->line);
}

static void grow_buffer(bp_documents *documents, size_t bytes)
{
    size_t capacity =
        documents->capacity < DOCUMENTS_READ_BYTES ? DOCUMENTS_READ_BYTES : documents->capacity;
    char *larger;

    while (capacity < bytes)
        capacity *= 2;
    if (capacity == documents->capacity)
        return;
    larger = bp_realloc("text.documents", documents->buffer, (int64_t)capacity, 1);
    documents->buffer = larger;
    documents->capacity = capacity;
}

bp_err documents_look_ahead(bp_documents *documents, size_t bytes)
{
    size_t have = documents->end - documents->at, got, wanted;
    bp_err err;

    if (have >= bytes || documents->source_ended)
        return BP_OK;
    if (documents->at > 0)
        memmove(documents->buffer, documents->buffer + documents->at, have);
    documents->at = 0;
    documents->end = have;
    grow_buffer(documents, bytes);
    wanted = documents->options.has_ranges ? bytes - have : documents->capacity - have;
    err = bp_text_source_read(documents->source, documents->buffer + have, wanted, &got);
    documents->source_ended = got < wanted;
    documents->end += got;
    documents->read_bytes += (int64_t)got;
    documents->stats.text_bytes += (int64_t)got;
    return err;
}

static bp_err skip_mark(bp_documents *documents)
{
    bp_err err = documents_look_ahead(documents, BP_MARK_BYTES);

    if (err == BP_OK)
        documents->at += bp_mark_bytes(documents->buffer, documents->end);
    return err;
}

/* ---- one piece ---- */

/* The next piece of a document that ends after `whole` bytes, if `known`; else it continues beyond
 * the text ahead. Cuts depend only on the text: the target doubles from piece_bytes until there is
 * a cut. */
static void cut_piece(const bp_documents *documents, documents_span *piece, size_t target,
                      size_t whole, bool known)
{
    const char *text = documents->buffer + documents->at;

    piece->text = text;
    if (known && whole <= target) {
        piece->bytes = whole;
        piece->found = piece->last = true;
        return;
    }
    piece->bytes = documents->options.sentences != BP_SENTENCES_NONE
                       ? bp_sentence_cut(documents->options.sentences, text, target)
                       : bp_text_cut(documents->options.cut, text, target);
    piece->found = piece->bytes > 0;
    piece->last = false;
}

void documents_pass(bp_documents *documents, size_t bytes)
{
    const char *at = documents->buffer + documents->at, *end = at + bytes;

    documents->at += bytes;
    for (; bytes > 0 && (at = memchr(at, '\n', (size_t)(end - at))); at++)
        documents->newlines++;
}

/* The end of the document within the first `target` bytes: *whole without and *step with its
 * separator. A cut before `target` is not inside a separator. */
static bool find_document_end(bp_documents *documents, size_t target, size_t *whole, size_t *step)
{
    const char *text = documents->buffer + documents->at, *found = NULL;
    size_t have = documents->end - documents->at, bytes = documents->separator_bytes;

    if (bytes > 0 && have > 0)
        found = memmem(text, have < target + bytes ? have : target + bytes, documents->separator,
                       bytes);
    documents->is_separated = found != NULL;
    *whole = found ? (size_t)(found - text) : have;
    *step = found ? *whole + bytes : have;
    return found || (documents->source_ended && have <= target);
}

static bp_err next_of_file(bp_documents *documents, documents_span *piece)
{
    for (size_t target = documents->options.piece_bytes; !piece->found; target *= 2) {
        size_t whole, step;
        bp_err err = target > documents->options.limit_bytes
                         ? documents_fail_limit(documents)
                         : documents_look_ahead(documents, target + documents->separator_bytes + 1);
        if (err != BP_OK)
            return err;
        bool known = find_document_end(documents, target, &whole, &step);
        cut_piece(documents, piece, target, whole, known);
        if (piece->found && documents->separator)
            documents_pass(documents, piece->last ? step : piece->bytes);
        else if (piece->found)
            documents->at += piece->bytes;
    }
    return BP_OK;
}

/* The end of the line within the first `target` bytes and its newline: *whole without and *step
 * with it. */
static bool find_line_end(const bp_documents *documents, size_t target, size_t *whole, size_t *step)
{
    const char *text = documents->buffer + documents->at;
    size_t have = documents->end - documents->at;
    const char *newline = memchr(text, '\n', have < target + 1 ? have : target + 1);

    if (!newline) {
        *whole = *step = have;
        return documents->source_ended && have <= target;
    }
    *whole = (size_t)(newline - text);
    *step = *whole + 1;
    if (*whole > 0 && newline[-1] == '\r')
        --*whole;
    return true;
}

/* Reads until `target` bytes and a line end are ahead; in a range only up to its end. */
static bp_err look_for_end(bp_documents *documents, size_t target)
{
    size_t whole, step;
    bp_err err = BP_OK;

    if (!documents->options.has_ranges)
        return documents_look_ahead(documents, target + 2);
    while (err == BP_OK && !find_line_end(documents, target, &whole, &step)) {
        size_t have = documents->end - documents->at, more = have + RANGE_READ_BYTES;

        if (have >= target + 2 || documents->source_ended)
            break;
        err = documents_look_ahead(documents, more < target + 2 ? more : target + 2);
    }
    return err;
}

static bp_err next_of_line(bp_documents *documents, documents_span *piece)
{
    for (size_t target = documents->options.piece_bytes; !piece->found; target *= 2) {
        size_t whole, step;
        bool ended = false;
        bp_err err = target > documents->options.limit_bytes ? documents_fail_limit(documents)
                                                             : look_for_end(documents, target);
        if (err != BP_OK)
            return err;
        ended = find_line_end(documents, target, &whole, &step);
        if (documents->options.format == BP_TEXT_LINES || ended) /* other lines are never cut */
            cut_piece(documents, piece, target, whole, ended);
        if (piece->found)
            documents->at += piece->last ? step : piece->bytes;
    }
    return BP_OK;
}

/* ---- files and lines ---- */

bp_err documents_wrap_line(bp_documents *documents, bp_err err, const char *remedy)
{
    const char *path = bp_text_source_shown(documents->paths[documents->file]);
    bp_err found = find_line(documents);

    if (found != BP_OK)
        return found;
    return bp_err_advise(
        bp_err_wrap(err, "%s: at %s, line %lld", bp_err_text(), path, (long long)documents->line),
        remedy);
}

bp_err documents_keep_bad(bp_documents *documents, bp_err err)
{
    if (err != BP_ERR_FORMAT || !documents->options.keep_bad)
        return err;
    if (!documents->fault) { /* the first one */
        documents->fault = bp_strdup(bp_err_message());
        documents->fault_line = documents->line;
    }
    return BP_OK;
}

/* The first line of a table. */
static bp_err read_head(bp_documents *documents)
{
    documents_span line = {0};
    bp_err err = next_of_line(documents, &line);

    documents->line = 1;
    if (err == BP_OK)
        err = bp_tsv_head(&documents->record, line.text, line.bytes);
    return err == BP_OK
               ? BP_OK
               : documents_wrap_line(documents, err,
                                     "name the columns as --fields, --label and --value do");
}

bp_err documents_next_source(bp_documents *documents)
{
    bp_err err;

    if (documents->source) {
        documents->past_bytes += bp_text_source_consumed(documents->source);
        bp_text_source_close(&documents->source);
        documents->file++;
    }
    documents->at = documents->end = 0;
    documents->source_ended = false;
    documents->line = documents->parts = documents->newlines = 0;
    documents->inside = documents->is_separated = false;
    documents->columns = 0;
    documents->held.bytes = 0;
    if (documents->file == documents->count)
        return BP_OK;
    err = bp_text_source_open(&documents->source, documents->paths[documents->file]);
    if (err == BP_OK)
        err = skip_mark(documents);
    if (err == BP_OK && documents->options.format == BP_TEXT_TSV)
        err = read_head(documents);
    return err;
}

/* ---- ranges ---- */

static int64_t place_of(const bp_documents *documents)
{
    return documents->read_bytes - (int64_t)(documents->end - documents->at);
}

bool documents_range_ended(const bp_documents *documents)
{
    return !documents->inside && place_of(documents) >= documents->range.end;
}

/* Past the line that began before the range. */
static bp_err skip_line(bp_documents *documents)
{
    bp_err err = BP_OK;

    while (err == BP_OK && !documents_range_ended(documents)) {
        size_t have = documents->end - documents->at;
        const char *newline =
            have > 0 ? memchr(documents->buffer + documents->at, '\n', have) : NULL;

        documents->at = newline ? (size_t)(newline - documents->buffer) + 1 : documents->end;
        if (newline || documents->source_ended)
            break;
        err = documents_look_ahead(documents, RANGE_READ_BYTES);
    }
    return err;
}

bp_err bp_documents_read_range(bp_documents *documents, const bp_text_range *range)
{
    bool is_next = range->file == documents->range.file && range->first >= documents->counted_to;
    bp_err err = BP_OK;

    BP_ASSERT(documents->options.has_ranges && range->file < documents->count);
    bp_text_source_close(&documents->source);
    documents->at = documents->end = 0;
    documents->source_ended = false;
    documents->inside = false;
    documents->range = *range;
    documents->file = (int)range->file;
    documents->line = documents->line_before = 0;
    if (!is_next)
        documents->counted_to = documents->newlines_before = 0;
    if (documents->options.counts_lines)
        err = count_lines_before(documents);
    documents->line = documents->line_before;
    documents->line_before = 0;
    documents->read_bytes = range->first > 0 ? range->first - 1 : 0;
    if (err == BP_OK)
        err = bp_text_source_open_range(&documents->source, documents->paths[range->file],
                                        documents->read_bytes, range->end);
    if (err == BP_OK)
        err = range->first > 0 ? skip_line(documents) : skip_mark(documents);
    return err;
}

bool documents_is_blank(const documents_span *piece)
{
    for (size_t k = 0; k < piece->bytes; k++)
        if (!strchr(" \t\r", piece->text[k]) || piece->text[k] == 0)
            return false;
    return true;
}

static bool is_white(const documents_span *piece)
{
    size_t k = 0;

    while (k < piece->bytes && piece->text[k] != '\0' && strchr(" \t\r\n\f\v", piece->text[k]))
        k++;
    return k == piece->bytes;
}

/* Is this text between or after separators not a document? */
static bool is_no_part(const bp_documents *documents, const documents_span *piece)
{
    if (!documents->separator || documents->inside || !piece->last)
        return false;
    if (documents->is_separated || documents->parts == 1)
        return piece->bytes == 0;
    return is_white(piece);
}

/* The next part of a whole file, which is a single part without separators. */
static bp_err next_part(bp_documents *documents, documents_span *piece)
{
    for (;;) {
        bp_err err = documents_look_ahead(documents, 1);

        *piece = (documents_span){0};
        if (err != BP_OK)
            return err;
        if (documents->at == documents->end && documents->source_ended && !documents->inside &&
            documents->parts > 0)
            return BP_OK;
        if (!documents->inside) {
            documents->parts++;
            documents->line = documents->newlines + 1;
        }
        err = next_of_file(documents, piece);
        if (err != BP_OK || !is_no_part(documents, piece))
            return err;
        documents->stats.skipped_lines++;
    }
}

bp_err documents_next_span(bp_documents *documents, documents_span *piece)
{
    bp_text_format format = documents->options.format;

    if (format == BP_TEXT_FILE)
        return next_part(documents, piece);
    for (;;) {
        bp_err err = documents_look_ahead(documents, 1);

        *piece = (documents_span){0};
        if (err != BP_OK)
            return err;
        if (documents->at == documents->end && documents->source_ended && !documents->inside)
            return BP_OK;
        if (documents->options.has_ranges && documents_range_ended(documents))
            return BP_OK; /* empty lines to its end: the rest is another range's */
        if (!documents->inside)
            documents->line++;
        err = next_of_line(documents, piece);
        if (err != BP_OK)
            return err;
        bool empty = format == BP_TEXT_JSONL ? documents_is_blank(piece) : piece->bytes == 0;
        if (documents->inside || !empty || format == BP_TEXT_PAIRS || format == BP_TEXT_CONLL)
            return BP_OK;
        documents->stats.skipped_lines++;
    }
}

void documents_add_start(bp_documents *documents, size_t at)
{
    documents->starts = bp_grow("text.starts", documents->starts, &documents->start_capacity,
                                documents->start_count + 1, sizeof at);
    documents->starts[documents->start_count++] = at;
}
