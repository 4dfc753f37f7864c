/* Documents of tasks and their bad ones: a byte for the format, one for options; then a file (of
 * pairs two, parted by the first 0xFE). With keep_bad the sound documents are those without it,
 * both shares together have all pieces, and what is told of a piece lies within its text. */
#include "base/buffer.h"
#include "fuzz.h"
#include "text/documents/text_source.h"

#include <string.h>

#define LIMIT_BYTES ((size_t)1 << 20)

static const char *const FIELDS[] = {"b", "a"}, *const LABELS[] = {"class"},
                         *const VALUES[] = {"n"};

typedef struct reading {
    bp_buffer all; /* of sound documents: id, line, text, tags, label, value */
    int64_t sound, bad;
    bp_err err;
} reading;

static void check_piece(const bp_piece *piece, bp_text_format format)
{
    FUZZ_CHECK(piece->bytes <= LIMIT_BYTES && piece->id != NULL);
    FUZZ_CHECK(piece->answer[0] <= piece->answer[1] && piece->answer[1] <= piece->bytes);
    for (int64_t k = 0; piece->starts != NULL && k < piece->start_count; k++)
        FUZZ_CHECK(k == 0 ? piece->starts[k] == 0
                          : piece->starts[k] >= piece->starts[k - 1] &&
                                piece->starts[k] <= piece->bytes);
    if (format == BP_TEXT_CONLL) {
        int64_t tags = 0;

        for (size_t k = 0; k < piece->tags_bytes; k++)
            tags += piece->tags[k] == '\0';
        FUZZ_CHECK(piece->start_count > 0 && tags == piece->start_count);
    }
}

static void take(reading *to, const bp_piece *piece, const bp_documents_options *options)
{
    if (piece->fault != NULL) {
        FUZZ_CHECK(options->keep_bad && piece->fault[0] != '\0' && piece->bytes == 0);
        FUZZ_CHECK(piece->first && piece->last && piece->line >= 0);
        to->bad++;
        return;
    }
    check_piece(piece, options->format);
    bp_buffer_printf(&to->all, "\n%s|%lld|", piece->id, (long long)piece->line);
    bp_buffer_add(&to->all, piece->text, piece->bytes);
    bp_buffer_add(&to->all, piece->tags, piece->tags_bytes);
    bp_buffer_add(&to->all, piece->spans, piece->spans_bytes);
    if (options->label_count > 0)
        bp_buffer_printf(&to->all, "|%s|%a", piece->labels[0], (double)piece->values[0]);
    to->sound++;
}

static reading read_all(const char *const *paths, int count, const bp_documents_options *options)
{
    reading out = {.sound = 0};
    bp_documents *documents;
    bp_piece piece;

    out.err = bp_documents_open(&documents, paths, count, options);
    while (out.err == BP_OK && (out.err = bp_documents_next(documents, &piece)) == BP_OK &&
           piece.text != NULL)
        take(&out, &piece, options);
    fuzz_check_error(out.err);
    FUZZ_CHECK(out.err == BP_OK || out.err == BP_ERR_FORMAT);
    bp_documents_close(&documents);
    return out;
}

static void compare(const char *const *paths, int count, bp_documents_options options)
{
    reading strict, lenient, shares[2];

    options.keep_bad = false;
    strict = read_all(paths, count, &options);
    options.keep_bad = true;
    lenient = read_all(paths, count, &options);
    if (strict.err == BP_OK) {
        FUZZ_CHECK(lenient.err == BP_OK && lenient.bad == 0);
        FUZZ_CHECK(lenient.all.bytes == strict.all.bytes);
        FUZZ_CHECK(strict.all.bytes == 0 ||
                   memcmp(lenient.all.data, strict.all.data, strict.all.bytes) == 0);
    }
    FUZZ_CHECK(lenient.err != BP_OK || (strict.err == BP_OK) == (lenient.bad == 0));
    options.share_size = 2;
    for (int rank = 0; rank < 2 && lenient.err == BP_OK; rank++) {
        options.share_rank = rank;
        shares[rank] = read_all(paths, count, &options);
        FUZZ_CHECK(shares[rank].err == BP_OK);
    }
    if (lenient.err == BP_OK) {
        FUZZ_CHECK(shares[0].sound + shares[1].sound == lenient.sound);
        FUZZ_CHECK(shares[0].bad + shares[1].bad == lenient.bad);
        bp_buffer_clear(&shares[0].all);
        bp_buffer_clear(&shares[1].all);
    }
    bp_buffer_clear(&strict.all);
    bp_buffer_clear(&lenient.all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const bp_text_format formats[] = {BP_TEXT_TSV, BP_TEXT_CONLL, BP_TEXT_PAIRS,
                                             BP_TEXT_SQUAD, BP_TEXT_JSONL};
    fuzz_bytes in = {data, bytes};
    bp_documents_options options = {.format = formats[fuzz_below(&in, 5)],
                                    .no_tags = fuzz_below(&in, 2) == 1,
                                    .limit_bytes = LIMIT_BYTES};
    bool is_table = options.format == BP_TEXT_TSV;
    const uint8_t *cut = in.left > 0 ? memchr(in.data, 0xFE, in.left) : NULL;
    size_t first = options.format == BP_TEXT_PAIRS && cut ? (size_t)(cut - in.data) : in.left;
    const char *paths[2];

    if (is_table) {
        options.fields = FIELDS;
        options.field_count = 2;
    }
    if (is_table || options.format == BP_TEXT_JSONL) {
        options.labels = LABELS;
        options.values = VALUES;
        options.label_count = options.value_count = 1;
    }
    fuzz_begin();
    paths[0] = fuzz_file_named("one", in.data, first);
    paths[1] = fuzz_file_named("other", in.data + (first < in.left ? first + 1 : first),
                               in.left - (first < in.left ? first + 1 : first));
    compare(paths, options.format == BP_TEXT_PAIRS ? 2 : 1, options);
    fuzz_end();
    return 0;
}
