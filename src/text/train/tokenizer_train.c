/* Training a tokenizer on all ranks: each counts the words of its share, rank 0 adds up and
 * builds the vocabulary. */
#include "text/train/tokenizer_train.h"
#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "text/train/tokenizer_train_priv.h"
#include "text/unicode/scan.h"
#include "text/unicode/unicode.h"

#include <string.h>

#define WORDS_TAG 1

/* ---- counting one share of the text ---- */

static bool is_countable(const uint8_t *word, size_t bytes)
{
    return bp_scan_valid(word, bytes) == bytes && (bytes > 1 || word[0] < 0x80) &&
           !memchr(word, 0, bytes);
}

static bool is_special(const uint8_t *word, size_t bytes)
{
    return (bytes == strlen(BP_UNK_TOKEN) && memcmp(word, BP_UNK_TOKEN, bytes) == 0) ||
           (bytes == strlen(BP_EOD_TOKEN) && memcmp(word, BP_EOD_TOKEN, bytes) == 0);
}

/* Length of the next piece, word or character; 0: of White_Space between words, *step of it. */
static size_t next_word(const uint8_t *classes, bp_kind kind, const uint8_t *text, size_t bytes,
                        size_t *step)
{
    uint32_t code_point;
    size_t length;

    switch (kind) {
    case BP_KIND_BPE:
        length = *step = bp_scan_piece(classes, text, bytes);
        break;
    case BP_KIND_WORD:
    case BP_KIND_UNIGRAM:
        length = *step = bp_scan_word(classes, text, bytes);
        if (length == 0)
            *step = bp_scan_space(classes, text, bytes);
        break;
    default:
        length = bp_utf8_decode(text, bytes, &code_point);
        *step = length == 0 ? 1 : length;
        break;
    }
    return length;
}

/* A newline comes, or nothing more of the document: cuts (BP_CUT_BLANK) do not change it. */
static bool ends_line(const uint8_t *text, size_t bytes, bool last)
{
    return bytes == 0 ? last : *text == '\n' || *text == '\r';
}

/* unigram: a word at the end of a line, with a newline after it. */
static bp_err count_ending(bp_strmap *words, const char *word, size_t bytes)
{
    bp_buffer text = {0};
    bp_err err;

    bp_buffer_add(&text, word, bytes);
    bp_buffer_add(&text, "\n", 1);
    err = bp_strmap_add(words, text.data, text.bytes, 1, NULL);
    bp_buffer_clear(&text);
    return err;
}

/* Count the pieces, words or characters of one part of a document, its last one or not; unigram:
 * words at the end of a line with a newline after them. Errors: BP_ERR_SYSTEM. */
static bp_err count_words(bp_strmap *words, bp_kind kind, const char *text, size_t bytes, bool last)
{
    const uint8_t *classes = bp_unicode_classes();
    const uint8_t *start = (const uint8_t *)text;
    bp_err err = BP_OK;

    for (size_t at = 0, step = 0; at < bytes && err == BP_OK; at += step) {
        size_t length = next_word(classes, kind, start + at, bytes - at, &step);

        if (kind == BP_KIND_BPE ? length < 2 /* nothing to merge */
                                : length == 0 || !is_countable(start + at, length) ||
                                      is_special(start + at, length))
            continue;
        if (kind == BP_KIND_UNIGRAM && ends_line(start + at + length, bytes - at - length, last))
            err = count_ending(words, text + at, length);
        else
            err = bp_strmap_add(words, text + at, length, 1, NULL);
    }
    return err;
}

static void report_reading(const bp_documents *documents, double *last)
{
    bp_documents_stats stats = bp_documents_stats_of(documents);
    double now = bp_clock_now();

    if (now - *last < 1)
        return;
    *last = now;
    if (stats.total_bytes == 0) {
        bp_log_progress("reading text: %.1f MB", 1e-6 * (double)stats.consumed_bytes);
        return;
    }
    bp_log_progress("reading text: %.0f %% of %.1f MB",
                    100.0 * (double)stats.consumed_bytes / (double)stats.total_bytes,
                    1e-6 * (double)stats.total_bytes);
}

static bp_cut cut_of(bp_kind kind)
{
    switch (kind) {
    case BP_KIND_BPE:
        return BP_CUT_PATTERN;
    case BP_KIND_CHAR:
        return BP_CUT_CHAR;
    case BP_KIND_UNIGRAM:
    case BP_KIND_WORDPIECE:
        return BP_CUT_BLANK;
    default:
        return BP_CUT_SPACE;
    }
}

/* Every rank reads all files and counts each size-th piece. */
static bp_err count_share(bp_strmap *words, bp_kind kind, MPI_Comm comm, const char *const *paths,
                          int count, const bp_trainer_options *options, bp_trainer_report *report)
{
    bp_documents_options reading = {.format = options->format,
                                    .text_field = options->text_field,
                                    .separator = options->separator,
                                    .cut = cut_of(kind),
                                    .share_rank = bp_comm_rank(comm),
                                    .share_size = bp_comm_size(comm),
                                    .piece_bytes = options->piece_bytes};
    bp_documents *documents = NULL;
    bp_documents_stats stats;
    bp_word_cutter *cutter = NULL;
    bp_piece piece;
    double last = bp_clock_now();
    bp_err err = kind == BP_KIND_WORDPIECE ? bp_word_cutter_new(&cutter, !options->cased) : BP_OK;

    if (err == BP_OK)
        err = bp_documents_open(&documents, paths, count, &reading);
    if (err != BP_OK) {
        bp_word_cutter_free(&cutter);
        return err;
    }
    while ((err = bp_documents_next(documents, &piece)) == BP_OK && piece.text) {
        err = cutter ? bp_word_cutter_count(cutter, words, piece.text, piece.bytes)
                     : count_words(words, kind, piece.text, piece.bytes, piece.last);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_fail_stopped(BP_TRAINING_STOPPED);
        if (err != BP_OK)
            break;
        if (options->progress)
            report_reading(documents, &last);
    }
    stats = bp_documents_stats_of(documents);
    report->documents = stats.documents;
    report->skipped_lines = stats.skipped_lines;
    report->text_bytes = stats.text_bytes;
    bp_documents_close(&documents);
    bp_word_cutter_free(&cutter);
    return err;
}

/* ---- all shares to rank 0 ---- */

typedef struct packed_word { /* its bytes follow */
    int64_t count;
    int64_t bytes;
} packed_word;

static void pack(bp_buffer *packed, const bp_strmap *words)
{
    for (int64_t k = 0; k < words->count; k++) {
        packed_word word = {words->entries[k].value, words->entries[k].bytes};

        bp_buffer_add(packed, &word, sizeof word);
        bp_buffer_add(packed, bp_strmap_key(words, k), words->entries[k].bytes);
    }
}

static bp_err add_packed(bp_strmap *words, const char *packed, int64_t bytes)
{
    bp_err err = BP_OK;

    for (int64_t at = 0; at < bytes && err == BP_OK;) {
        packed_word word;

        memcpy(&word, packed + at, sizeof word);
        at += (int64_t)sizeof word;
        err = bp_strmap_add(words, packed + at, (size_t)word.bytes, word.count, NULL);
        at += word.bytes;
    }
    return err;
}

/* Rank 0 takes the tables one after another; once it fails it goes on receiving, to no use. */
static bp_err take_tables(bp_strmap *words, char *scratch, const int64_t *bytes, MPI_Comm comm)
{
    bp_err err = BP_OK;

    for (int rank = 1; rank < bp_comm_size(comm); rank++) {
        bp_recv(scratch, bytes[rank], rank, WORDS_TAG, comm);
        if (err == BP_OK)
            err = add_packed(words, scratch, bytes[rank]);
    }
    return err;
}

static int64_t largest(const int64_t *bytes, int count)
{
    int64_t most = 0;

    for (int k = 0; k < count; k++)
        most = bytes[k] > most ? bytes[k] : most;
    return most;
}

/* Add the words of all ranks to those of rank 0. Collective. */
static bp_err gather_words(bp_strmap *words, MPI_Comm comm)
{
    int size = bp_comm_size(comm);
    bool root = bp_comm_is_root(comm);
    bp_buffer packed = {0};
    char *scratch = NULL;
    int64_t mine;
    int64_t *bytes = bp_alloc("text.trainer", size, sizeof *bytes);
    bp_err err = BP_OK;

    if (!root)
        pack(&packed, words);
    mine = (int64_t)packed.bytes;
    BP_MPI(MPI_Gather(&mine, 1, MPI_INT64_T, bytes, 1, MPI_INT64_T, 0, comm));
    if (root)
        scratch = bp_try_alloc("text.trainer", largest(bytes, size), 1);
    if (root && !scratch)
        err = bp_fail_memory("the words of a rank", largest(bytes, size), 1);
    err = bp_agree(comm, err);
    if (err == BP_OK) {
        if (root)
            err = take_tables(words, scratch, bytes, comm);
        else
            bp_send(packed.data, (int64_t)packed.bytes, 0, WORDS_TAG, comm);
        err = bp_agree(comm, err);
    }
    bp_free(scratch);
    bp_free(bytes);
    bp_buffer_clear(&packed);
    return err;
}

/* ---- the whole ---- */

static bp_err check_options(const bp_trainer_options *options, bp_kind *kind)
{
    static const char *const names[] = {"bpe", "word", "char", "unigram", "wordpiece"};
    static const int64_t smallest[] = {BP_TRAINER_BPE_SIZE, BP_TRAINER_WORD_SIZE,
                                       BP_TRAINER_WORD_SIZE, BP_TRAINER_UNIGRAM_SIZE,
                                       BP_TRAINER_PIECE_SIZE};

    for (int k = 0; k < 5; k++)
        if (strcmp(options->kind, names[k]) == 0) {
            int64_t least = smallest[k] + options->sentinels + options->special_count;
            bool all = options->size == 0 && smallest[k] == BP_TRAINER_WORD_SIZE;

            *kind = (bp_kind)k;
            if ((!all && options->size < least) || options->size > INT32_MAX)
                return BP_FAIL(BP_ERR_USAGE, "tokenizer.bad_size",
                               "a %s vocabulary of %lld tokens: at --size; from %lld to %d are "
                               "possible",
                               names[k], (long long)options->size, (long long)least, INT32_MAX);
            return BP_OK;
        }
    return BP_FAIL(BP_ERR_USAGE, "tokenizer.unknown_kind",
                   "there is no kind of tokenizer '%s': at --kind; choose bpe, wordpiece, unigram, "
                   "word or char",
                   options->kind);
}

/* Only on rank 0. */
static bp_err build(bp_tokenizer **out, bp_kind kind, const bp_strmap *words,
                    const bp_trainer_options *options, bp_trainer_report *report)
{
    int64_t merges = 0;
    bp_err err;

    if (report->text_bytes == 0)
        return BP_FAIL(BP_ERR_FORMAT, "text.none",
                       "there is no text to train on: in the files given");
    if (kind == BP_KIND_BPE)
        err = bp_build_bpe(out, words, options);
    else if (kind == BP_KIND_WORDPIECE)
        err = bp_build_wordpiece(out, words, options, &merges);
    else if (kind == BP_KIND_UNIGRAM)
        err = bp_build_unigram(out, words, options->size,
                               &(bp_unigram_options){options->sentinels, options->specials,
                                                     options->special_count, options->progress});
    else
        err = bp_build_words(out, kind, words, options);
    if (err != BP_OK)
        return err;
    report->words = words->count;
    report->size = bp_tokenizer_size(*out);
    report->merges = merges + (*out)->merges.count;
    return BP_OK;
}

/* What rank 0 has, to all others. Collective. */
static bp_err share_tokenizer(bp_tokenizer **out, bp_trainer_report *report, MPI_Comm comm)
{
    bool root = bp_comm_is_root(comm);
    char *text = root ? bp_tokenizer_text(*out) : NULL;
    int64_t bytes = root ? (int64_t)strlen(text) : 0;
    bp_err err = BP_OK;

    bp_bcast_bytes(&bytes, (int64_t)sizeof bytes, 0, comm);
    bp_bcast_bytes(report, (int64_t)sizeof *report, 0, comm);
    if (!root)
        text = bp_alloc("text.trainer", bytes, 1);
    bp_bcast_bytes(text, bytes, 0, comm);
    if (!root)
        err = bp_tokenizer_parse(out, text, (size_t)bytes, "a trained tokenizer");
    bp_free(text);
    return bp_agree(comm, err);
}

bp_err bp_tokenizer_train(bp_tokenizer **out, MPI_Comm comm, const char *const *paths, int count,
                          const bp_trainer_options *options, bp_trainer_report *report)
{
    bp_strmap words = {0};
    bp_kind kind = BP_KIND_BPE;
    double start = bp_clock_now(), counted;
    bp_err err = check_options(options, &kind);

    *out = NULL;
    *report = (bp_trainer_report){0};
    if (err == BP_OK)
        err = count_share(&words, kind, comm, paths, count, options, report);
    err = bp_agree(comm, err);
    if (err == BP_OK)
        err = gather_words(&words, comm);
    counted = bp_clock_now();
    if (err == BP_OK) {
        if (bp_comm_is_root(comm))
            err = build(out, kind, &words, options, report);
        err = bp_agree(comm, err);
    }
    bp_strmap_clear(&words);
    report->count_seconds = counted - start;
    report->build_seconds = bp_clock_now() - counted;
    if (err == BP_OK)
        err = share_tokenizer(out, report, comm);
    if (err != BP_OK)
        bp_tokenizer_free(out);
    return err;
}
