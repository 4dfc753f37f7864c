/* Encoding: a byte for the tokenizer, one for the length of pieces, then text. What a byte-level
 * BPE encodes it decodes to the same bytes; merging by the plain algorithm gives the same ids; and
 * so do pieces cut where they may be. */
#include "base/buffer.h"
#include "base/mem.h"
#include "fuzz.h"
#include "text/plain_bpe.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/vocab_load_priv.h"
#include "text/unicode/scan.h"
#include "text/unicode/tally.h"
#include "text/unicode/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINDS     4
#define PLAIN_MAX 64 /* bytes of a piece that the plain algorithm encodes too */

static bp_tokenizer *tokenizers[KINDS];
static bp_encoder *encoders[KINDS];

static const char *const MERGES[] = {"\xc4\xa0 t",
                                     "h e",
                                     "\xc4\xa0t he",
                                     "i n",
                                     "a a",
                                     "aa aa",
                                     "aa a",
                                     "\xc4\xa0 \xc4\xa0",
                                     "\xc4\xa0\xc4\xa0 \xc4\xa0\xc4\xa0",
                                     "\xc3\x83 \xc2\xa9",
                                     "1 2",
                                     "12 3",
                                     "\xc4\x8a \xc4\x8a"};
#define MERGE_COUNT ((int)(sizeof MERGES / sizeof MERGES[0]))

static void add_bpe(bp_buffer *out, const char *settings)
{
    bp_buffer_printf(out,
                     "{\"version\": \"1.0\", \"pre_tokenizer\": {\"type\": \"ByteLevel\", %s},"
                     " \"model\": {\"type\": \"BPE\", \"vocab\": {",
                     settings);
    for (int id = 0; id < 256; id++) {
        uint8_t byte = bp_byte_of_rank(id);
        char name[5] = {0};

        (void)bp_name_of_bytes(name, &byte, 1);
        bp_buffer_printf(out, "\"%s%s\": %d, ", byte == '"' || byte == '\\' ? "\\" : "", name, id);
    }
    for (int k = 0; k < MERGE_COUNT; k++) {
        const char *space = strchr(MERGES[k], ' ');

        bp_buffer_printf(out, "%s\"%.*s%s\": %d", k == 0 ? "" : ", ", (int)(space - MERGES[k]),
                         MERGES[k], space + 1, 256 + k);
    }
    bp_buffer_printf(out, "}, \"merges\": [");
    for (int k = 0; k < MERGE_COUNT; k++)
        bp_buffer_printf(out, "%s\"%s\"", k == 0 ? "" : ", ", MERGES[k]);
    bp_buffer_printf(out, "]}}");
}

/* Words or characters, of a few tokens. */
static bp_tokenizer *make_listed(bp_kind kind, const char *const *names, int count)
{
    bp_tokenizer *made;

    FUZZ_CHECK(bp_tokenizer_new(&made, kind) == BP_OK);
    for (int k = 0; k < count; k++)
        FUZZ_CHECK(bp_tokenizer_add(made, names[k], strlen(names[k])) == BP_OK);
    FUZZ_CHECK(bp_tokenizer_finish(made, NULL, 0, "fuzz") == BP_OK);
    return made;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const words[] = {"<unk>", "the", "in", "\xc3\xa9t\xc3\xa9", "a", "12"};
    static const char *const letters[] = {"<unk>", "a", " ", "\n", "\xc3\xa9", "t", "h", "e", "<"};
    static const char *const settings[] = {"\"add_prefix_space\": false",
                                           "\"add_prefix_space\": true, \"use_regex\": false"};

    (void)argc;
    (void)argv;
    for (int k = 0; k < 2; k++) {
        bp_buffer text = {0};

        add_bpe(&text, settings[k]);
        FUZZ_CHECK(bp_tokenizer_parse(&tokenizers[k], text.data, text.bytes, "fuzz") == BP_OK);
        bp_buffer_clear(&text);
    }
    tokenizers[2] = make_listed(BP_KIND_WORD, words, sizeof words / sizeof words[0]);
    tokenizers[3] = make_listed(BP_KIND_CHAR, letters, sizeof letters / sizeof letters[0]);
    return 0;
}

/* The ids of one piece of the pattern, by the plain algorithm. */
static int64_t encode_plainly(const bp_tokenizer *tokenizer, const uint8_t *piece, size_t bytes,
                              uint32_t *ids)
{
    bp_merge merges[MERGE_COUNT];

    for (int k = 0; k < MERGE_COUNT; k++)
        FUZZ_CHECK(bp_read_merge(tokenizer, &merges[k], MERGES[k], strlen(MERGES[k]),
                                 strcspn(MERGES[k], " ")) == BP_OK);
    for (size_t k = 0; k < bytes; k++)
        ids[k] = tokenizer->merges.byte_ids[piece[k]];
    return plain_bpe_encode(merges, MERGE_COUNT, ids, (int64_t)bytes);
}

static void check_plainly(const bp_tokenizer *tokenizer, const uint8_t *text, size_t bytes,
                          const bp_ids *ids)
{
    const uint8_t *classes = bp_unicode_classes();
    uint32_t plain[PLAIN_MAX];
    int64_t at = 0;

    for (size_t k = 0, length; k < bytes; k += length) {
        int64_t count;

        length = bp_scan_piece(classes, text + k, bytes - k);
        if (length > PLAIN_MAX)
            return;
        count = encode_plainly(tokenizer, text + k, length, plain);
        FUZZ_CHECK(at + count <= ids->count);
        FUZZ_CHECK(memcmp(plain, ids->data + at, (size_t)count * sizeof *plain) == 0);
        at += count;
    }
    FUZZ_CHECK(at == ids->count);
}

/* The same document in pieces of about `piece_bytes` bytes, wherever they may be cut. */
static void check_pieces(int kind, const char *text, size_t bytes, size_t piece_bytes,
                         const bp_ids *ids)
{
    bp_cut cut = bp_tokenizer_cut(tokenizers[kind]);
    bp_text_tally whole = {0}, parts = {0};
    bp_text_counts counts[2];
    bp_ids again = {0};

    for (size_t at = 0, length; at < bytes || at == 0; at += length) {
        length = bytes - at;
        for (size_t look = piece_bytes; look < length; look += piece_bytes) {
            size_t cut_at = bp_text_cut(cut, text + at, look);

            FUZZ_CHECK(cut_at <= look);
            if (cut_at > 0) {
                length = cut_at;
                break;
            }
        }
        FUZZ_CHECK(bp_encode_piece(encoders[kind], text + at, length, at == 0, &again) == BP_OK);
        bp_text_tally_add(&parts, text + at, length);
        if (bytes == 0)
            break;
    }
    FUZZ_CHECK(again.count == ids->count);
    FUZZ_CHECK(again.count == 0 ||
               memcmp(again.data, ids->data, (size_t)ids->count * sizeof *ids->data) == 0);
    bp_ids_clear(&again);
    bp_text_tally_add(&whole, text, bytes);
    counts[0] = bp_text_tally_counts(&whole);
    counts[1] = bp_text_tally_counts(&parts);
    FUZZ_CHECK(memcmp(&counts[0], &counts[1], sizeof counts[0]) == 0);
}

static void check_decoded(int kind, const char *text, size_t bytes, const bp_ids *ids)
{
    bool spaced = kind == 1 && bytes > 0 && text[0] != ' ';
    size_t decoded_bytes;
    char *decoded;

    FUZZ_CHECK(bp_decode(tokenizers[kind], ids->data, ids->count, &decoded, &decoded_bytes) ==
               BP_OK);
    if (kind < 2)
        FUZZ_CHECK(decoded_bytes == bytes + spaced && memcmp(decoded + spaced, text, bytes) == 0);
    bp_free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    int kind = fuzz_below(&in, KINDS);
    size_t piece_bytes = (size_t)fuzz_u8(&in) + 1;
    const char *text = (const char *)in.data;
    bp_ids ids = {0};

    fuzz_begin();
    FUZZ_CHECK(bp_encoder_new(&encoders[kind], tokenizers[kind]) == BP_OK);
    FUZZ_CHECK(bp_encode(encoders[kind], text, in.left, &ids) == BP_OK);
    check_decoded(kind, text, in.left, &ids);
    if (kind == 0)
        check_plainly(tokenizers[kind], in.data, in.left, &ids);
    check_pieces(kind, text, in.left, piece_bytes, &ids);
    bp_encoder_free(&encoders[kind]);
    bp_ids_clear(&ids);
    fuzz_end();
    return 0;
}
