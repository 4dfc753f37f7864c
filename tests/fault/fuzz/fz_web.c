/* Texts of the web: a byte for the form, WARC records or texts with a separator (whose length is
 * the next byte, and which comes before the text); then a file. Sound documents do not change by
 * keep_bad, shares or the length of pieces; separated texts are what a plain search finds; words
 * without case and punctuation are the same however the text is cut at white space. */
#include "base/buffer.h"
#include "base/files/fs.h"
#include "fuzz.h"
#include "text/documents/text_source.h"
#include "text/unicode/plain_words.h"

#include <string.h>

#define LIMIT_BYTES ((size_t)1 << 20)

typedef struct reading {
    bp_buffer all, words; /* of sound documents: texts, each after a mark; their words */
    int64_t documents, bad;
    bp_err err;
} reading;

static void add_words(bp_buffer *to, const char *text, size_t bytes)
{
    bp_buffer word = {0};
    size_t at = 0, before = 0;

    while (bp_plain_word(text, bytes, &at, &word)) {
        FUZZ_CHECK(at > before && at <= bytes && word.bytes > 0);
        before = at;
        bp_buffer_add(to, word.data, word.bytes);
        bp_buffer_add(to, " ", 1);
    }
    FUZZ_CHECK(at == bytes);
    bp_buffer_clear(&word);
}

static void take(reading *to, const bp_piece *piece)
{
    FUZZ_CHECK(piece->bytes <= LIMIT_BYTES && piece->id != NULL && piece->line >= 1);
    if (piece->fault) {
        FUZZ_CHECK(piece->fault[0] != '\0' && piece->bytes == 0 && piece->first && piece->last);
        to->bad++;
        return;
    }
    if (piece->first)
        bp_buffer_add(&to->all, "\xfe", 1);
    to->documents += piece->first;
    bp_buffer_add(&to->all, piece->text, piece->bytes);
    add_words(&to->words, piece->text, piece->bytes);
}

static reading read_all(const char *path, const bp_documents_options *options)
{
    reading out = {.err = BP_OK};
    bp_documents *documents;
    bp_piece piece;

    out.err = bp_documents_open(&documents, &path, 1, options);
    while (out.err == BP_OK && (out.err = bp_documents_next(documents, &piece)) == BP_OK &&
           piece.text != NULL) {
        take(&out, &piece);
        if (out.all.bytes > 8 * LIMIT_BYTES)
            out.err = BP_FAIL(BP_ERR_FORMAT, "test.too_much", "a bomb");
    }
    fuzz_check_error(out.err);
    FUZZ_CHECK(out.err == BP_OK || out.err == BP_ERR_FORMAT);
    bp_documents_close(&documents);
    return out;
}

static void clear(reading *r)
{
    bp_buffer_clear(&r->all);
    bp_buffer_clear(&r->words);
}

static bool same(const bp_buffer *a, const bp_buffer *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

/* Texts between separators, as a search from the beginning finds them. */
static void check_separated(const reading *got, const char *text, size_t bytes,
                            const char *separator)
{
    size_t length = strlen(separator);
    bp_buffer expected = {0};

    for (size_t at = bp_mark_bytes(text, bytes), end; at < bytes; at = end + length) {
        const char *found = memmem(text + at, bytes - at, separator, length);

        end = found ? (size_t)(found - text) : bytes;
        size_t white = at;
        while (white < end && memchr(" \t\r\n\f\v", text[white], 6))
            white++;
        bool is_last = !found && at > bp_mark_bytes(text, bytes);
        if (end > at && !(is_last && white == end)) {
            bp_buffer_add(&expected, "\xfe", 1);
            bp_buffer_add(&expected, text + at, end - at);
        }
        if (!found)
            break;
    }
    FUZZ_CHECK(same(&expected, &got->all));
    bp_buffer_clear(&expected);
}

static void compare(const char *path, bp_documents_options options)
{
    reading strict, lenient, small, shares[2];

    strict = read_all(path, &options);
    options.keep_bad = true;
    lenient = read_all(path, &options);
    options.piece_bytes = 64;
    small = read_all(path, &options);
    if (strict.err == BP_OK)
        FUZZ_CHECK(lenient.err == BP_OK && lenient.bad == 0 && same(&strict.all, &lenient.all));
    if (lenient.err == BP_OK && small.err == BP_OK)
        FUZZ_CHECK(small.bad == lenient.bad && same(&small.all, &lenient.all) &&
                   same(&small.words, &lenient.words));
    options.share_size = 2;
    options.share_documents = true;
    for (int rank = 0; rank < 2 && small.err == BP_OK; rank++) {
        options.share_rank = rank;
        shares[rank] = read_all(path, &options);
        FUZZ_CHECK(shares[rank].err == BP_OK);
    }
    if (small.err == BP_OK) {
        FUZZ_CHECK(shares[0].documents + shares[1].documents == small.documents);
        FUZZ_CHECK(shares[0].bad + shares[1].bad == small.bad);
        clear(&shares[0]);
        clear(&shares[1]);
    }
    clear(&strict);
    clear(&lenient);
    clear(&small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    bool is_separated = fuzz_below(&in, 2) == 1;
    bp_documents_options options = {.format = is_separated ? BP_TEXT_FILE : BP_TEXT_WARC,
                                    .cut = BP_CUT_SPACE,
                                    .limit_bytes = LIMIT_BYTES};
    char separator[17] = "\n\n";
    size_t length = is_separated ? (size_t)fuzz_below(&in, 16) : 0;
    const char *path;

    length = length < in.left ? length : in.left;
    if (length > 0 && !memchr(in.data, 0, length)) {
        memcpy(separator, in.data, length);
        separator[length] = '\0';
    }
    in.data = length > 0 ? in.data + length : in.data;
    in.left -= length;
    if (is_separated)
        options.separator = separator;
    fuzz_begin();
    path = fuzz_file(in.data, in.left);
    compare(path, options);
    if (is_separated && in.left >= 3 && in.data[0] != 0x1f && in.data[0] != 0x28 &&
        (in.data[0] & 0xf0) != 0x50) {
        reading whole = read_all(path, &options);

        if (whole.err == BP_OK)
            check_separated(&whole, (const char *)in.data, in.left, separator);
        clear(&whole);
    }
    fuzz_end();
    return 0;
}
