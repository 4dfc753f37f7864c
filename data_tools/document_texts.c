/* Documents of texts and of corpora. */
#include "document_texts.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "file_tool.h"
#include "io/corpus/corpus_file.h"

#include <string.h>

typedef struct reading {
    int rank, size;
    int64_t before; /* documents of the files before */
    int64_t documents;
    double reported; /* when progress was last reported */
    bp_err (*take)(void *context, const document_piece *piece);
    void *context;
} reading;

static bp_err give(const reading *r, document_piece *piece)
{
    if (bp_signals_stop_asked())
        return bp_fail_stopped("nothing was kept; run the command again");
    return r->take(r->context, piece);
}

static void log_progress(reading *r, const bp_documents *documents, const char *path)
{
    if (r->rank != 0 || !bp_log_progress_due(r->reported))
        return;
    const bp_documents_stats stats = bp_documents_stats_of(documents);
    r->reported = bp_clock_now();
    bp_log_progress("%s: %.1f of %.1f MB", shown_path(bp_text_source_shown(path)),
                    1e-6 * (double)stats.consumed_bytes, 1e-6 * (double)stats.total_bytes);
}

static bp_err read_text(reading *r, const document_texts *texts, int file)
{
    const char *path = texts->paths[file];
    bp_documents_options options = texts->options;
    bp_documents *documents = NULL;
    bp_piece piece = {.text = ""};
    bool every = texts->every_piece && options.format == BP_TEXT_FILE && !options.separator;
    size_t at = 0;

    if (!every) {
        options.share_rank = r->rank;
        options.share_size = r->size;
    }
    options.share_documents = true;
    options.cut = BP_CUT_SPACE;
    bp_err err = bp_documents_open(&documents, &path, 1, &options);
    while (err == BP_OK && piece.text) {
        err = bp_documents_next(documents, &piece);
        if (err != BP_OK || !piece.text)
            break;
        at = piece.first ? 0 : at;
        err = give(r, &(document_piece){.text = piece.text,
                                        .bytes = piece.bytes,
                                        .document = r->before + piece.document,
                                        .file = file,
                                        .at = at,
                                        .first = piece.first,
                                        .last = piece.last,
                                        .is_mine = !every || piece.number % r->size == r->rank,
                                        .id = piece.id});
        at += piece.bytes;
        log_progress(r, documents, path);
    }
    r->documents = err == BP_OK ? bp_documents_stats_of(documents).documents : 0;
    bp_documents_close(&documents);
    return err;
}

/* ---- corpora ---- */

typedef struct decoding {
    bp_corpus_file *file;
    const bp_corpus_info *info;
    bp_tokenizer *tokenizer;
    const int64_t *start, *doc_segments, *segment_start;
    int32_t *tokens; /* [capacity], of a document */
    int64_t capacity;
    bp_buffer text;
} decoding;

static bp_err load_tokenizer(decoding *d, const char *path)
{
    char *text = NULL;
    size_t bytes;
    bp_err err = bp_corpus_file_tokenizer(d->file, &text, &bytes);

    if (err == BP_OK && !text)
        err = BP_FAIL(BP_ERR_FORMAT, "overlap.no_tokenizer",
                      "the corpus keeps no tokenizer, and so no words: at %s; give its text, or "
                      "convert it with --tokenizer",
                      path);
    if (err == BP_OK)
        err = bp_tokenizer_parse(&d->tokenizer, text, bytes, path);
    bp_free(text);
    return err;
}

/* Tokens [first, end) of the document as text, with white space after them. */
static bp_err decode_part(decoding *d, int64_t first, int64_t end)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err =
        bp_decode(d->tokenizer, (const uint32_t *)d->tokens + first, end - first, &text, &bytes);

    if (err == BP_OK) {
        bp_buffer_add(&d->text, text, bytes);
        bp_buffer_add(&d->text, "\n", 1);
    }
    bp_free(text);
    return err;
}

/* Text by text, for tokens of two texts make no word. */
static bp_err decode(decoding *d, int64_t document)
{
    int64_t first = d->start[document], count = d->start[document + 1] - first, at = 0;
    int64_t last = d->doc_segments ? d->doc_segments[document + 1] : 0;
    bp_err err;

    d->text.bytes = 0;
    d->tokens = bp_grow("tool.texts", d->tokens, &d->capacity, count, sizeof *d->tokens);
    err = bp_corpus_file_read(d->file, first, count, d->tokens);
    if (err != BP_OK)
        return err;
    if (count > 0 && d->info->eod_id >= 0 && d->tokens[count - 1] == d->info->eod_id)
        count--;
    if (count > 0 && d->info->has_bos && d->tokens[0] == d->info->roles[BP_ROLE_BOS])
        at = 1;
    for (int64_t s = d->doc_segments ? d->doc_segments[document] + 1 : 0; s < last && err == BP_OK;
         s++) {
        int64_t end = d->segment_start[s] - first;

        if (end <= at)
            continue;
        err = decode_part(d, at, end);
        at = end;
    }
    return err == BP_OK && at < count ? decode_part(d, at, count) : err;
}

static bp_err read_corpus(reading *r, const char *path, int file)
{
    decoding d = {.file = NULL};
    char id[BP_TEXT_FIELD_BYTES + 1];
    bp_err err = bp_corpus_file_open(&d.file, path);

    if (err == BP_OK)
        err = load_tokenizer(&d, path);
    if (err == BP_OK)
        err = bp_corpus_file_doc_start(d.file, &d.start);
    if (err == BP_OK)
        err = bp_corpus_file_segments(d.file, &d.doc_segments, &d.segment_start);
    if (err == BP_OK) {
        d.info = bp_corpus_file_info(d.file);
        r->documents = d.info->documents;
    }
    int64_t first = r->documents * r->rank / r->size;
    int64_t end = r->documents * (r->rank + 1) / r->size;
    for (int64_t k = first; k < end && err == BP_OK; k++) {
        err = decode(&d, k);
        if (err == BP_OK)
            err = bp_corpus_file_doc_id(d.file, k, id, sizeof id);
        if (err == BP_OK)
            err = give(r, &(document_piece){.text = d.text.bytes > 0 ? d.text.data : "",
                                            .bytes = d.text.bytes,
                                            .document = r->before + k,
                                            .file = file,
                                            .first = true,
                                            .last = true,
                                            .is_mine = true,
                                            .id = id});
    }
    bp_buffer_clear(&d.text);
    bp_free(d.tokens);
    bp_tokenizer_free(&d.tokenizer);
    bp_corpus_file_close(&d.file);
    return err;
}

bp_err document_texts_format(document_texts *texts, const char *format, const char *field,
                             const char *option)
{
    texts->options.text_field = field;
    if (field && (!format || strcmp(format, "jsonl") != 0))
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "field '%s' needs objects: at --%s; use the format jsonl", field, option);
    texts->options.format = BP_TEXT_FILE;
    return format ? bp_text_format_of(&texts->options.format, format, false) : BP_OK;
}

void document_texts_warn(const document_texts *texts)
{
    for (int k = 0; k < texts->path_count; k++)
        if (texts->options.format == BP_TEXT_FILE && strstr(texts->paths[k], ".jsonl"))
            BP_WARN("corpus.no_format",
                    "without --format the whole file is one document of text: at %s; give "
                    "--format jsonl",
                    shown_path(texts->paths[k]));
}

bool document_is_corpus(const char *path)
{
    return bp_has_suffix(path, ".h5") || bp_has_suffix(path, ".hdf5");
}

bp_err document_texts_read(const document_texts *texts, int rank, int size, int64_t **first,
                           bp_err (*take)(void *context, const document_piece *piece),
                           void *context)
{
    reading r = {
        .rank = rank, .size = size, .take = take, .context = context, .reported = bp_clock_now()};
    bp_err err = BP_OK;

    *first = bp_alloc("tool.texts", texts->path_count + 1, sizeof **first);
    for (int k = 0; k < texts->path_count && err == BP_OK; k++) {
        const char *path = texts->paths[k];

        r.documents = 0;
        err = document_is_corpus(path) ? read_corpus(&r, path, k) : read_text(&r, texts, k);
        r.before += r.documents;
        (*first)[k + 1] = r.before;
    }
    return err;
}
