/* Sources of text: a byte for the format, one for the cut, one for the length of pieces; then a
 * file: plain, gzip or zstd. Pieces of any length put together are the same documents, two shares
 * together are all pieces, and a plain file of lines has the lines that a loop over its bytes
 * finds. */
#include "base/buffer.h"
#include "base/mem.h"
#include "fuzz.h"
#include "text/documents/text_source.h"

#include <string.h>

#define LIMIT_BYTES ((size_t)1 << 20) /* what bombs may grow to here */

static const char *const LABELS[] = {"genre", "year"};

typedef struct reading {
    bp_buffer all;    /* of each document: id, labels, text */
    bp_buffer pieces; /* of each piece: number, line, text */
    int64_t documents;
    bp_err err;
} reading;

static void take(reading *to, const bp_piece *piece)
{
    FUZZ_CHECK(piece->bytes <= LIMIT_BYTES && piece->document >= 0 && piece->number >= 0);
    FUZZ_CHECK(piece->first || piece->document == to->documents - 1);
    for (int64_t k = 0; piece->starts != NULL && k < piece->start_count; k++)
        FUZZ_CHECK(k == 0 ? piece->starts[k] == 0
                          : piece->starts[k] > piece->starts[k - 1] &&
                                piece->starts[k] < piece->bytes);
    if (piece->first) {
        bp_buffer_printf(&to->all, "\n%s|%s|%s|", piece->id, piece->labels[0], piece->labels[1]);
        to->documents = piece->document + 1;
    }
    bp_buffer_add(&to->all, piece->text, piece->bytes);
    bp_buffer_printf(&to->pieces, "%lld %lld ", (long long)piece->number, (long long)piece->line);
    bp_buffer_add(&to->pieces, piece->text, piece->bytes);
}

static reading read_all(const char *path, bp_documents_options options)
{
    reading out = {.documents = 0};
    bp_documents *documents;
    bp_piece piece;

    options.labels = LABELS;
    options.label_count = 2;
    options.limit_bytes = LIMIT_BYTES;
    out.err = bp_documents_open(&documents, &path, 1, &options);
    while (out.err == BP_OK && (out.err = bp_documents_next(documents, &piece)) == BP_OK &&
           piece.text != NULL) {
        take(&out, &piece);
        if (out.all.bytes > 8 * LIMIT_BYTES) {
            out.err = BP_ERR_FORMAT; /* a bomb of many documents */
            (void)bp_fail(out.err, "test.too_much", "too much");
        }
    }
    fuzz_check_error(out.err);
    if (out.err == BP_OK)
        FUZZ_CHECK(bp_documents_stats_of(documents).text_bytes >= 0);
    bp_documents_close(&documents);
    return out;
}

static void clear(reading *t)
{
    bp_buffer_clear(&t->all);
    bp_buffer_clear(&t->pieces);
}

static bool same(const bp_buffer *a, const bp_buffer *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

/* Lines of plain bytes that are not empty. */
static int64_t count_lines(const uint8_t *data, size_t bytes)
{
    int64_t lines = 0;

    for (size_t at = 0; at < bytes;) {
        const uint8_t *end = memchr(data + at, '\n', bytes - at);
        size_t length = end == NULL ? bytes - at : (size_t)(end - data) - at;

        at += length + 1;
        if (end != NULL && length > 0 && end[-1] == '\r')
            length--;
        lines += length > 0;
    }
    return lines;
}

static bool is_plain(const uint8_t *data, size_t bytes)
{
    return bytes < 3 || !(data[0] == 0x1f || data[0] == 0x28 || (data[0] & 0xf0) == 0x50);
}

/* Pieces of both shares, in order of their numbers, as one reader has them. */
static void check_shares(const char *path, bp_documents_options options, const reading *whole)
{
    int64_t pieces = 0;

    options.share_size = 2;
    for (int rank = 0; rank < 2; rank++) {
        bp_documents *documents;
        bp_piece piece;
        const char *labels[2] = {LABELS[0], LABELS[1]};
        bp_err err;

        options.share_rank = rank;
        options.labels = labels;
        options.label_count = 2;
        options.limit_bytes = LIMIT_BYTES;
        err = bp_documents_open(&documents, &path, 1, &options);
        while (err == BP_OK && (err = bp_documents_next(documents, &piece)) == BP_OK &&
               piece.text != NULL) {
            FUZZ_CHECK(piece.number % 2 == rank);
            pieces++;
        }
        FUZZ_CHECK(err == BP_OK);
        FUZZ_CHECK(bp_documents_stats_of(documents).documents == whole->documents);
        if (rank == 1)
            FUZZ_CHECK(bp_documents_stats_of(documents).pieces == pieces);
        bp_documents_close(&documents);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    int form = fuzz_below(&in, 4); /* the last one is SQuAD's */
    bp_documents_options options = {.format = form < 3 ? (bp_text_format)form : BP_TEXT_SQUAD,
                                    .cut = (bp_cut)fuzz_below(&in, 4),
                                    .piece_bytes = 1 << 14};
    size_t piece_bytes = (size_t)fuzz_u8(&in) + 8;
    int rule = fuzz_below(&in, 6); /* mostly none */
    const char *path;
    reading whole, parts;

    options.sentences = rule < 3 && form < 3 ? (bp_sentences)rule : BP_SENTENCES_NONE;
    fuzz_begin();
    path = fuzz_file(in.data, in.left);
    whole = read_all(path, options);
    options.piece_bytes = piece_bytes;
    parts = read_all(path, options);
    if (whole.err == BP_OK) {
        FUZZ_CHECK(parts.err == BP_OK && whole.documents == parts.documents);
        FUZZ_CHECK(same(&whole.all, &parts.all));
        check_shares(path, options, &whole);
        if (options.format == BP_TEXT_LINES && is_plain(in.data, in.left))
            FUZZ_CHECK(whole.documents == count_lines(in.data, in.left));
    }
    clear(&whole);
    clear(&parts);
    fuzz_end();
    return 0;
}
