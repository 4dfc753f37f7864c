/* Documents of files, in pieces: between source.c, which gives bytes, and the encoder. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/documents/text_source.h"

#include "text/documents/conll.h"
#include "text/documents/record_priv.h"
#include "text/documents/sentences_priv.h"
#include "text/documents/squad_priv.h"
#include "text/unicode/context_words.h"
#include "text/unicode/unicode.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 22)

struct bp_documents {
    bp_documents_options options; /* without names of fields: record has them */
    char **paths;
    int count;
    int file; /* the one being read */
    bp_text_source *source;
    char *buffer; /* text not yet given: [at, end) of buffer[capacity] */
    size_t at, end, capacity;
    bool source_ended;
    int64_t line, document_line; /* the one read; of conll the first one of the document */
    bool inside;                 /* of a document: its first piece was given */
    int columns;                 /* of conll: of the file's last word; 0: there was none yet */
    bp_buffer held;              /* of conll: lines before the first word that may be comments */
    int64_t held_line;           /* the first one of these */
    char *fault;                 /* of the document at hand, with keep_bad; NULL: none */
    int64_t fault_line;
    int64_t past_bytes; /* of the files before */
    char *id;           /* [id_capacity] for formats without ids of their own */
    size_t id_capacity;
    bp_text_record record;
    bp_documents *target; /* of pairs: the other file */
    bp_squad squad;       /* the file being read */
    size_t *starts;       /* of texts or sentences of a piece [start_capacity] */
    int64_t start_count, start_capacity;
    bp_documents_stats stats;
};

bp_err bp_text_format_of(bp_text_format *out, const char *name, bool of_tasks)
{
    static const char *const names[] = {"text", "lines", "jsonl", "pairs", "tsv", "conll", "squad"};

    for (int k = 0; k < (of_tasks ? 7 : 3); k++)
        if (strcmp(name, names[k]) == 0) {
            *out = (bp_text_format)k;
            return BP_OK;
        }
    return BP_FAIL(BP_ERR_USAGE, "text.unknown_format",
                   "there is no text format '%s': at --format; choose text, lines%s", name,
                   of_tasks ? ", jsonl, pairs, tsv, conll or squad" : " or jsonl");
}

/* ---- opening ---- */

static void copy_paths(bp_documents *documents, const char *const *paths, int count)
{
    size_t longest = 0;

    documents->paths = bp_alloc("text.documents", count, sizeof *documents->paths);
    documents->count = count;
    for (int k = 0; k < count; k++) {
        size_t bytes = strlen(bp_text_source_id(paths[k]));

        longest = bytes > longest ? bytes : longest;
        documents->paths[k] = bp_strdup(paths[k]);
    }
    documents->id_capacity = longest + 24; /* ":" and a line number */
    documents->id = bp_alloc("text.documents", (int64_t)documents->id_capacity, 1);
}

static bp_err look_for_files(bp_documents *documents)
{
    bool known = true;

    for (int k = 0; k < documents->count; k++) {
        int64_t bytes;
        int fd;
        if (strcmp(documents->paths[k], BP_TEXT_STDIN) == 0) {
            BP_ASSERT(documents->options.share_size == 1); /* it reaches one rank */
            known = false;
            continue;
        }
        bp_err err = bp_file_open(documents->paths[k], &fd, &bytes);

        if (err != BP_OK)
            return err;
        (void)close(fd);
        documents->stats.total_bytes += bytes;
    }
    documents->stats.total_bytes *= known;
    return BP_OK;
}

bp_err bp_documents_open(bp_documents **out, const char *const *paths, int count,
                         const bp_documents_options *options)
{
    bp_documents *documents = bp_alloc("text.documents", 1, sizeof *documents);
    bp_err err;

    *out = NULL;
    bool is_pairs = options->format == BP_TEXT_PAIRS && count == 2;

    documents->options = *options;
    if (documents->options.piece_bytes == 0)
        documents->options.piece_bytes = BP_PIECE_BYTES;
    if (documents->options.limit_bytes == 0)
        documents->options.limit_bytes = BP_PIECE_LIMIT_BYTES;
    if (documents->options.share_size == 0)
        documents->options.share_size = 1;
    BP_ASSERT(options->field_count <= BP_FIELDS_MAX);
    copy_paths(documents, paths, is_pairs ? 1 : count);
    bp_text_record_init(&documents->record, options);
    documents->options.labels = documents->options.values = documents->options.fields = NULL;
    documents->options.text_field = NULL;
    err = look_for_files(documents);
    if (err == BP_OK && is_pairs)
        err = bp_documents_open(&documents->target, paths + 1, 1, options);
    if (err != BP_OK)
        bp_documents_close(&documents);
    *out = documents;
    return err;
}

void bp_documents_close(bp_documents **documents)
{
    bp_documents *d = *documents;

    if (!d)
        return;
    for (int k = 0; k < d->count; k++)
        bp_free(d->paths[k]);
    bp_free(d->paths);
    bp_free(d->id);
    bp_free(d->buffer);
    bp_text_source_close(&d->source);
    bp_text_record_clear(&d->record);
    bp_documents_close(&d->target);
    bp_squad_close(&d->squad);
    bp_buffer_clear(&d->held);
    bp_free(d->fault);
    bp_free(d->starts);
    bp_free(d);
    *documents = NULL;
}

bp_documents_stats bp_documents_stats_of(const bp_documents *documents)
{
    bp_documents_stats stats = documents->stats;

    stats.consumed_bytes = documents->past_bytes;
    if (documents->source)
        stats.consumed_bytes += bp_text_source_consumed(documents->source);
    return stats;
}

/* ---- the text ahead ---- */

static bp_err fail_limit(const bp_documents *documents)
{
    return BP_FAIL(BP_ERR_FORMAT, "text.no_cut",
                   "%zu bytes of text without a place to cut it: at %s, line %lld; break it into "
                   "shorter lines",
                   documents->options.limit_bytes,
                   bp_text_source_shown(documents->paths[documents->file]),
                   (long long)documents->line);
}

static void grow_buffer(bp_documents *documents, size_t bytes)
{
    size_t capacity = documents->capacity < READ_BYTES ? READ_BYTES : documents->capacity;
    char *larger;

    while (capacity < bytes)
        capacity *= 2;
    if (capacity == documents->capacity)
        return;
    larger = bp_realloc("text.documents", documents->buffer, (int64_t)capacity, 1);
    documents->buffer = larger;
    documents->capacity = capacity;
}

/* Have at least `bytes` of text ahead, or all that is left of the file. */
static bp_err look_ahead(bp_documents *documents, size_t bytes)
{
    size_t have = documents->end - documents->at, got;
    bp_err err;

    if (have >= bytes || documents->source_ended)
        return BP_OK;
    if (documents->at > 0)
        memmove(documents->buffer, documents->buffer + documents->at, have);
    documents->at = 0;
    documents->end = have;
    grow_buffer(documents, bytes);
    err = bp_text_source_read(documents->source, documents->buffer + have,
                              documents->capacity - have, &got);
    documents->source_ended = got < documents->capacity - have;
    documents->end += got;
    documents->stats.text_bytes += (int64_t)got;
    return err;
}

static bp_err skip_mark(bp_documents *documents)
{
    bp_err err = look_ahead(documents, BP_MARK_BYTES);

    if (err == BP_OK)
        documents->at += bp_mark_bytes(documents->buffer, documents->end);
    return err;
}

/* ---- one piece ---- */

typedef struct span {
    const char *text;
    size_t bytes;
    bool found, last; /* last: it ends its document */
} span;

/* The next piece of a document that ends after `whole` bytes, if `known`; else it goes on beyond
 * what is ahead. Cuts depend only on the text: the target doubles from piece_bytes until there is
 * one. */
static void cut_piece(const bp_documents *documents, span *piece, size_t target, size_t whole,
                      bool known)
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

static bp_err next_of_file(bp_documents *documents, span *piece)
{
    for (size_t target = documents->options.piece_bytes; !piece->found; target *= 2) {
        bp_err err = target > documents->options.limit_bytes ? fail_limit(documents)
                                                             : look_ahead(documents, target + 1);
        if (err != BP_OK)
            return err;
        cut_piece(documents, piece, target, documents->end - documents->at,
                  documents->source_ended);
    }
    documents->at += piece->bytes;
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

static bp_err next_of_line(bp_documents *documents, span *piece)
{
    for (size_t target = documents->options.piece_bytes; !piece->found; target *= 2) {
        size_t whole, step;
        bp_err err = target > documents->options.limit_bytes ? fail_limit(documents)
                                                             : look_ahead(documents, target + 2);
        if (err != BP_OK)
            return err;
        bool ended = find_line_end(documents, target, &whole, &step);
        if (documents->options.format == BP_TEXT_LINES || ended) /* other lines are never cut */
            cut_piece(documents, piece, target, whole, ended);
        if (piece->found)
            documents->at += piece->last ? step : piece->bytes;
    }
    return BP_OK;
}

/* ---- files and lines ---- */

/* What is wrong with the line at hand, with its place. */
static bp_err wrap_line(const bp_documents *documents, bp_err err, const char *remedy)
{
    const char *path = bp_text_source_shown(documents->paths[documents->file]);

    return bp_err_advise(
        bp_err_wrap(err, "%s: at %s, line %lld", bp_err_text(), path, (long long)documents->line),
        remedy);
}

/* An error in a document, which is to be given with its fault: no error. */
static bp_err keep_bad(bp_documents *documents, bp_err err)
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
    span line = {0};
    bp_err err = next_of_line(documents, &line);

    documents->line = 1;
    if (err == BP_OK)
        err = bp_tsv_head(&documents->record, line.text, line.bytes);
    return err == BP_OK
               ? BP_OK
               : wrap_line(documents, err, "name the columns as --fields, --label and --value do");
}

/* The next file, or NULL as source after the last. */
static bp_err next_source(bp_documents *documents)
{
    bp_err err;

    if (documents->source) {
        documents->past_bytes += bp_text_source_consumed(documents->source);
        bp_text_source_close(&documents->source);
        documents->file++;
    }
    documents->at = documents->end = 0;
    documents->source_ended = false;
    documents->line = 0;
    documents->inside = false;
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

static bool is_blank(const span *piece)
{
    for (size_t k = 0; k < piece->bytes; k++)
        if (!strchr(" \t\r", piece->text[k]) || piece->text[k] == 0)
            return false;
    return true;
}

/* The next piece of the file as it is; not found: the file has no more. */
static bp_err next_span(bp_documents *documents, span *piece)
{
    bool by_line = documents->options.format != BP_TEXT_FILE;

    for (;;) {
        bp_err err = look_ahead(documents, 1);

        *piece = (span){0};
        if (err != BP_OK)
            return err;
        if (documents->at == documents->end && documents->source_ended && !documents->inside &&
            (by_line || documents->line > 0))
            return BP_OK;
        if (!documents->inside)
            documents->line++; /* of a whole file: it has begun */
        err = by_line ? next_of_line(documents, piece) : next_of_file(documents, piece);
        if (err != BP_OK)
            return err;
        bool empty =
            documents->options.format == BP_TEXT_JSONL ? is_blank(piece) : piece->bytes == 0;
        if (!by_line || documents->inside || !empty || documents->options.format == BP_TEXT_PAIRS ||
            documents->options.format == BP_TEXT_CONLL)
            return BP_OK;
        documents->stats.skipped_lines++;
    }
}

/* ---- attributes of a piece ---- */

static void add_start(bp_documents *documents, size_t at)
{
    documents->starts = bp_grow("text.starts", documents->starts, &documents->start_capacity,
                                documents->start_count + 1, sizeof at);
    documents->starts[documents->start_count++] = at;
}

static bp_err add_word(bp_documents *documents, const char *line, size_t bytes, int64_t number)
{
    bp_text_record *record = &documents->record;
    bp_err err;

    if (documents->start_count == 0)
        documents->document_line = number;
    add_start(documents, record->joined.bytes);
    err = keep_bad(documents, bp_conll_add(record, line, bytes));
    return err == BP_OK ? BP_OK : wrap_line(documents, err, "correct the line");
}

/* Lines before the file's first word: which of them are words is known by it. */
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

/* A line that is no gap: a word, or a comment, which is before a sentence. */
static bp_err take_tagged(bp_documents *documents, const span *line)
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
    documents->columns = bp_conll_columns(line->text, line->bytes);
    bp_err err = add_held(documents);
    return err == BP_OK ? add_word(documents, line->text, line->bytes, documents->line) : err;
}

/* A sentence of words and tags: the lines up to one without a word. Its line is its first one. */
static bp_err next_tagged(bp_documents *documents, span *piece)
{
    bp_text_record *record = &documents->record;

    record->joined.bytes = record->tags.bytes = 0;
    documents->start_count = documents->document_line = 0;
    *piece = (span){0};
    for (;;) {
        span line;
        bp_err err = next_span(documents, &line);

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
            *piece = (span){record->joined.data, record->joined.bytes, true, true};
            return BP_OK;
        }
        if (!line.found)
            return BP_OK;
    }
}

static bp_err wrap_squad(const bp_documents *documents, bp_err err)
{
    return bp_err_advise(bp_err_wrap(err, "%s: at %s", bp_err_text(),
                                     bp_text_source_shown(documents->paths[documents->file])),
                         "correct it, or leave the question out");
}

/* The next question, of a file that is read whole. */
static bp_err next_question(bp_documents *documents, span *piece)
{
    bp_text_record *record = &documents->record;
    bp_err err = BP_OK;

    *piece = (span){.last = true};
    for (size_t bytes = READ_BYTES; !documents->source_ended && err == BP_OK; bytes *= 2)
        err = documents->end > documents->options.limit_bytes ? fail_limit(documents)
                                                              : look_ahead(documents, bytes + 1);
    if (err != BP_OK)
        return err;
    if (!documents->squad.root)
        err = bp_squad_open(&documents->squad, documents->buffer + documents->at,
                            documents->end - documents->at);
    if (err == BP_OK)
        err = bp_squad_next(&documents->squad, record, &piece->found);
    if (piece->found)
        err = keep_bad(documents, err);
    if (err != BP_OK)
        return wrap_squad(documents, err);
    if (!piece->found)
        bp_squad_close(&documents->squad);
    piece->text = record->joined.data;
    piece->bytes = record->joined.bytes;
    return BP_OK;
}

/* The question, and the words of its context. */
static void find_words(bp_documents *documents, bp_piece *piece)
{
    const bp_text_record *record = &documents->record;

    documents->start_count = 0;
    add_start(documents, 0);
    for (size_t at = record->starts[1]; at < piece->bytes;
         at = bp_context_word(piece->text, piece->bytes, at))
        add_start(documents, at);
    piece->starts = documents->starts;
    piece->start_count = documents->start_count;
    piece->id = record->id;
    piece->spans = record->tags.data;
    piece->spans_bytes = record->tags.bytes;
    piece->answer[0] = record->answer[0];
    piece->answer[1] = record->answer[1];
}

static void find_sentences(bp_documents *documents, bp_piece *piece)
{
    documents->start_count = 0;
    for (size_t at = 0; at < piece->bytes || at == 0;) {
        add_start(documents, at);
        at = bp_sentence_next(documents->options.sentences, piece->text, piece->bytes, at);
        if (at == 0)
            break;
    }
    piece->starts = documents->starts;
    piece->start_count = documents->start_count;
}

static bp_err parse(bp_documents *documents, const span *found, const span *target)
{
    bp_text_record *record = &documents->record;

    if (documents->options.format == BP_TEXT_JSONL)
        return bp_jsonl_parse(record, found->text, found->bytes);
    if (documents->options.format == BP_TEXT_TSV)
        return bp_tsv_parse(record, found->text, found->bytes);
    return bp_pair_join(record, (const char *const[2]){found->text, target->text},
                        (const size_t[2]){found->bytes, target->bytes});
}

static bp_err describe(bp_documents *documents, bp_piece *piece, const span *found,
                       const span *target)
{
    const bp_documents_options *options = &documents->options;
    bp_text_record *record = &documents->record;
    const char *base = bp_text_source_id(documents->paths[documents->file]);
    bp_err err = BP_OK;

    piece->text = found->text;
    piece->bytes = found->bytes;
    piece->labels = (const char *const *)record->labels;
    piece->label_types = record->types;
    piece->values = record->values;
    piece->id = documents->id;
    if (options->format == BP_TEXT_CONLL)
        piece->line = documents->document_line;
    if (options->format == BP_TEXT_FILE)
        (void)snprintf(documents->id, documents->id_capacity, "%s", base);
    else
        (void)snprintf(documents->id, documents->id_capacity, "%s:%lld", base,
                       (long long)piece->line);
    if (options->format >= BP_TEXT_JSONL && options->format < BP_TEXT_CONLL) {
        err = keep_bad(documents, parse(documents, found, target));
        if (err == BP_OK && documents->fault)
            return BP_OK;
        if (err != BP_OK)
            return wrap_line(documents, err,
                             record->lacks_text
                                 ? "correct the line, or name the field of the text (--text-field)"
                                 : "correct the line");
        piece->text = record->text;
        piece->bytes = record->text_bytes;
        if (record->id)
            piece->id = record->id;
    }
    if (options->sentences != BP_SENTENCES_NONE) {
        find_sentences(documents, piece);
    } else if (options->format == BP_TEXT_CONLL) {
        piece->starts = documents->starts;
        piece->start_count = documents->start_count;
        piece->tags = record->tags.data;
        piece->tags_bytes = record->tags.bytes;
    } else if (options->format == BP_TEXT_SQUAD) {
        find_words(documents, piece);
    } else if (options->format >= BP_TEXT_PAIRS) {
        piece->starts = record->starts;
        piece->start_count = options->format == BP_TEXT_PAIRS ? 2 : record->field_count;
        piece->apart = true;
    }
    return BP_OK;
}

/* The document at hand is none. */
static void give_fault(const bp_documents *documents, bp_piece *piece)
{
    bool has_id = documents->options.format == BP_TEXT_SQUAD;

    piece->fault = documents->fault;
    piece->text = "";
    piece->bytes = 0;
    piece->id = has_id && documents->record.id ? documents->record.id : "";
    piece->line = has_id ? 0 : documents->fault_line;
    piece->starts = NULL;
    piece->tags = piece->spans = NULL;
}

/* Nothing but blank lines is left of the file of which `line` was read. */
static bp_err ends_blank(bp_documents *documents, span *line, bool *ends)
{
    bp_err err = BP_OK;

    while (err == BP_OK && line->found && is_blank(line))
        err = next_span(documents, line);
    *ends = !line->found;
    return err;
}

/* The line of the other file; both end together, but for blank lines at the end of one. *source is
 * not found then. */
static bp_err next_target(bp_documents *documents, span *source, span *line)
{
    bp_documents *target = documents->target;
    bool has_source = source->found, ends = false;
    int64_t number;
    bp_err err = !target->source && target->file == 0 ? next_source(target) : BP_OK;

    if (err == BP_OK)
        err = next_span(target, line);
    if (err != BP_OK || line->found == has_source)
        return err;
    number = (has_source ? documents : target)->line;
    err = ends_blank(has_source ? documents : target, has_source ? source : line, &ends);
    if (err != BP_OK || ends)
        return err;
    return BP_FAIL(BP_ERR_FORMAT, "pairs.length",
                   "the file ends with line %lld, and %s goes on: at %s; give files of as many "
                   "lines",
                   (long long)number - 1,
                   bp_text_source_shown((has_source ? documents : target)->paths[0]),
                   bp_text_source_shown((has_source ? target : documents)->paths[0]));
}

bp_err bp_documents_next(bp_documents *documents, bp_piece *piece)
{
    const bp_documents_options *options = &documents->options;
    span found = {0}, target = {0};

    *piece = (bp_piece){0};
    for (;;) {
        bp_err err = !documents->source ? next_source(documents) : BP_OK;

        bp_free(documents->fault);
        documents->fault = NULL;

        if (err != BP_OK || !documents->source)
            return err;
        err = options->format == BP_TEXT_CONLL   ? next_tagged(documents, &found)
              : options->format == BP_TEXT_SQUAD ? next_question(documents, &found)
                                                 : next_span(documents, &found);
        if (err == BP_OK && documents->target)
            err = next_target(documents, &found, &target);
        if (err != BP_OK)
            return err;
        if (!found.found) {
            err = next_source(documents);
            if (err != BP_OK || !documents->source)
                return err;
            continue;
        }
        if (documents->target && is_blank(&found) && is_blank(&target)) {
            documents->stats.skipped_lines++; /* of both */
            continue;
        }
        piece->first = !documents->inside;
        piece->last = found.last;
        documents->inside = !found.last;
        documents->stats.documents += piece->first;
        piece->number = documents->stats.pieces++;
        piece->document = documents->stats.documents - 1;
        piece->file = documents->file;
        piece->line = options->format == BP_TEXT_FILE ? 0 : documents->line;
        if (piece->number % options->share_size != options->share_rank)
            continue;
        err = !documents->fault ? describe(documents, piece, &found, &target) : BP_OK;
        if (documents->fault)
            give_fault(documents, piece);
        return err;
    }
}
