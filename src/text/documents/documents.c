/* Documents of files, in pieces: between spans.c, which cuts text, and the encoder. */
#include "text/documents/documents_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "text/documents/sentences_priv.h"
#include "text/unicode/context_words.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bp_err bp_text_format_of(bp_text_format *out, const char *name, bool of_tasks)
{
    static const char *const names[] = {"text", "lines", "jsonl", "pairs",
                                        "tsv",  "conll", "squad", "warc"};

    for (int k = 0; k < (int)(sizeof names / sizeof names[0]); k++)
        if (strcmp(name, names[k]) == 0 && (of_tasks || k < BP_TEXT_PAIRS || k == BP_TEXT_WARC)) {
            *out = (bp_text_format)k;
            return BP_OK;
        }
    if (of_tasks && strcmp(name, "csv") == 0)
        return BP_FAIL(BP_ERR_USAGE, "text.unknown_format",
                       "there is no text format 'csv': at --format; write columns with tabs and "
                       "without quotes (R: write.table(x, F, sep='\\t', quote=FALSE, "
                       "row.names=FALSE)), and choose tsv");
    return BP_FAIL(BP_ERR_USAGE, "text.unknown_format",
                   "there is no text format '%s': at --format; choose text, lines%s or warc", name,
                   of_tasks ? ", jsonl, pairs, tsv, conll, squad" : ", jsonl");
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
    documents->options.text_field = documents->options.separator = NULL;
    if (options->separator) {
        BP_ASSERT(options->format == BP_TEXT_FILE && options->separator[0] != '\0');
        documents->separator = bp_strdup(options->separator);
        documents->separator_bytes = strlen(options->separator);
    }
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
    bp_free(d->separator);
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

/* ---- attributes of a piece ---- */

static bp_err wrap_squad(const bp_documents *documents, bp_err err)
{
    return bp_err_advise(bp_err_wrap(err, "%s: at %s", bp_err_text(),
                                     bp_text_source_shown(documents->paths[documents->file])),
                         "correct it, or leave the question out");
}

/* The next question, of a file that is read whole. */
static bp_err next_question(bp_documents *documents, documents_span *piece)
{
    bp_text_record *record = &documents->record;
    bp_err err = BP_OK;

    *piece = (documents_span){.last = true};
    for (size_t bytes = DOCUMENTS_READ_BYTES; !documents->source_ended && err == BP_OK; bytes *= 2)
        err = documents->end > documents->options.limit_bytes
                  ? documents_fail_limit(documents)
                  : documents_look_ahead(documents, bytes + 1);
    if (err != BP_OK)
        return err;
    if (!documents->squad.root)
        err = bp_squad_open(&documents->squad, documents->buffer + documents->at,
                            documents->end - documents->at);
    if (err == BP_OK)
        err = bp_squad_next(&documents->squad, record, &piece->found);
    if (piece->found)
        err = documents_keep_bad(documents, err);
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
    documents_add_start(documents, 0);
    for (size_t at = record->starts[1]; at < piece->bytes;
         at = bp_context_word(piece->text, piece->bytes, at))
        documents_add_start(documents, at);
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
        documents_add_start(documents, at);
        at = bp_sentence_next(documents->options.sentences, piece->text, piece->bytes, at);
        if (at == 0)
            break;
    }
    piece->starts = documents->starts;
    piece->start_count = documents->start_count;
}

static bp_err parse(bp_documents *documents, const documents_span *found,
                    const documents_span *target)
{
    bp_text_record *record = &documents->record;

    if (documents->options.format == BP_TEXT_JSONL)
        return bp_jsonl_parse(record, found->text, found->bytes);
    if (documents->options.format == BP_TEXT_TSV)
        return bp_tsv_parse(record, found->text, found->bytes);
    return bp_pair_join(record, (const char *const[2]){found->text, target->text},
                        (const size_t[2]){found->bytes, target->bytes});
}

/* The id of a document that has none of its own. */
static void write_id(bp_documents *documents, int64_t line)
{
    const char *base = bp_text_source_id(documents->paths[documents->file]);
    bool is_file = documents->options.format == BP_TEXT_FILE;

    if (is_file && !documents->separator)
        (void)snprintf(documents->id, documents->id_capacity, "%s", base);
    else
        (void)snprintf(documents->id, documents->id_capacity, "%s:%lld", base,
                       (long long)(is_file ? documents->parts : line));
}

static bp_err describe(bp_documents *documents, bp_piece *piece, const documents_span *found,
                       const documents_span *target)
{
    const bp_documents_options *options = &documents->options;
    bp_text_record *record = &documents->record;
    bp_err err = BP_OK;

    piece->text = found->text;
    piece->bytes = found->bytes;
    piece->labels = (const char *const *)record->labels;
    piece->label_types = record->types;
    piece->values = record->values;
    piece->id = options->has_ranges && !options->counts_lines ? NULL : documents->id;
    if (options->format == BP_TEXT_CONLL)
        piece->line = documents->document_line;
    if (piece->id)
        write_id(documents, piece->line);
    if (options->format >= BP_TEXT_JSONL && options->format < BP_TEXT_CONLL) {
        err = documents_keep_bad(documents, parse(documents, found, target));
        if (err == BP_OK && documents->fault)
            return BP_OK;
        if (err != BP_OK)
            return documents_wrap_line(
                documents, err,
                record->lacks_text
                    ? "correct the line, or name the field of the text (--text-field)"
                    : "correct the line");
        piece->text = record->text;
        piece->bytes = record->text_bytes;
        if (record->id)
            piece->id = record->id;
    }
    if (options->format == BP_TEXT_WARC && record->id)
        piece->id = record->id;
    if (options->sentences != BP_SENTENCES_NONE) {
        find_sentences(documents, piece);
    } else if (options->format == BP_TEXT_CONLL) {
        piece->starts = documents->starts;
        piece->start_count = documents->start_count;
        piece->tags = record->tags.data;
        piece->tags_bytes = record->tags.bytes;
    } else if (options->format == BP_TEXT_SQUAD) {
        find_words(documents, piece);
    } else if (options->format == BP_TEXT_PAIRS || options->format == BP_TEXT_TSV) {
        piece->starts = record->starts;
        piece->start_count = options->format == BP_TEXT_PAIRS ? 2 : record->field_count;
        piece->apart = true;
    }
    return BP_OK;
}

/* The current document is invalid. */
static void give_fault(const bp_documents *documents, bp_piece *piece)
{
    bool is_squad = documents->options.format == BP_TEXT_SQUAD;
    bool has_id = is_squad || documents->options.format == BP_TEXT_WARC;

    piece->fault = documents->fault;
    piece->text = "";
    piece->bytes = 0;
    piece->id = has_id && documents->record.id ? documents->record.id : "";
    piece->line = is_squad ? 0 : documents->fault_line;
    piece->starts = NULL;
    piece->tags = piece->spans = NULL;
}

/* Only blank lines remain in the file from which `line` was read. */
static bp_err ends_blank(bp_documents *documents, documents_span *line, bool *ends)
{
    bp_err err = BP_OK;

    while (err == BP_OK && line->found && documents_is_blank(line))
        err = documents_next_span(documents, line);
    *ends = !line->found;
    return err;
}

/* The line of the other file; both end together, except for blank lines at the end of one. *source
 * is not found then. */
static bp_err next_target(bp_documents *documents, documents_span *source, documents_span *line)
{
    bp_documents *target = documents->target;
    bool has_source = source->found, ends = false;
    int64_t number;
    bp_err err = !target->source && target->file == 0 ? documents_next_source(target) : BP_OK;

    if (err == BP_OK)
        err = documents_next_span(target, line);
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

static bp_err end_range(const bp_documents *documents, bp_piece *piece)
{
    *piece = (bp_piece){.range_ended = true, .file = documents->file, .line = documents->line};
    return BP_OK;
}

bp_err bp_documents_next(bp_documents *documents, bp_piece *piece)
{
    const bp_documents_options *options = &documents->options;
    documents_span found = {0}, target = {0};

    *piece = (bp_piece){0};
    for (;;) {
        bp_err err = !documents->source ? documents_next_source(documents) : BP_OK;

        bp_free(documents->fault);
        documents->fault = NULL;

        if (err != BP_OK || !documents->source)
            return err;
        if (options->has_ranges && documents_range_ended(documents))
            return end_range(documents, piece);
        err = options->format == BP_TEXT_CONLL   ? documents_next_tagged(documents, &found)
              : options->format == BP_TEXT_SQUAD ? next_question(documents, &found)
              : options->format == BP_TEXT_WARC  ? documents_next_warc(documents, &found)
                                                 : documents_next_span(documents, &found);
        if (err == BP_OK && documents->target)
            err = next_target(documents, &found, &target);
        if (err != BP_OK)
            return err;
        if (!found.found && options->has_ranges)
            return end_range(documents, piece);
        if (!found.found) {
            err = documents_next_source(documents);
            if (err != BP_OK || !documents->source)
                return err;
            continue;
        }
        if (documents->target && documents_is_blank(&found) && documents_is_blank(&target)) {
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
        piece->line =
            options->format == BP_TEXT_FILE && !documents->separator ? 0 : documents->line;
        int64_t share = options->share_documents ? piece->document : piece->number;
        if (share % options->share_size != options->share_rank)
            continue;
        err = !documents->fault ? describe(documents, piece, &found, &target) : BP_OK;
        if (documents->fault)
            give_fault(documents, piece);
        return err;
    }
}
