/* Text to ids and back: every byte string, documents in pieces, words and characters.
 */
#include "base/fault.h"
#include "random_text.h"
#include "small_tokenizer.h"
#include "text/documents/text_source.h"

static bp_encoder *encoder_of(const bp_tokenizer *tokenizer)
{
    bp_encoder *encoder;

    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    return encoder;
}

/* ---- there and back ---- */

static void check_round_trip(bp_encoder *encoder, const bp_tokenizer *tokenizer, const char *text,
                             size_t bytes)
{
    bp_ids ids = {0};
    char *again;
    size_t again_bytes;

    bp_test_expect(bp_encode(encoder, text, bytes, &ids), BP_OK);
    bp_test_expect(bp_decode(tokenizer, ids.data, ids.count, &again, &again_bytes), BP_OK);
    assert_int_equal(again_bytes, bytes);
    assert_memory_equal(again, text, bytes);
    assert_int_equal(again[bytes], 0);
    bp_free(again);
    bp_ids_clear(&ids);
}

static void every_byte_string_comes_back(void **state)
{
    static char text[3000];
    bp_tokenizer *tokenizer;

    (void)state;
    bp_test_expect(small_parse(&tokenizer, &SMALL), BP_OK);
    bp_encoder *encoder = encoder_of(tokenizer);
    for (int k = 0; k < 65536; k++) { /* every pair of bytes */
        char pair[2] = {(char)(k >> 8), (char)k};

        check_round_trip(encoder, tokenizer, pair, 2);
    }
    for (uint64_t seed = 0; seed < 500; seed++) {
        random_text r = random_text_of(seed);
        size_t bytes = random_fill(&r, text, random_below(&r, sizeof text), true);

        check_round_trip(encoder, tokenizer, text, bytes);
    }
    check_round_trip(encoder, tokenizer, "", 0);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

static void check_ids(const small_parts *parts, const char *text, int count,
                      const uint32_t *expected)
{
    bp_tokenizer *tokenizer;
    bp_ids ids = {0};

    bp_test_expect(small_parse(&tokenizer, parts), BP_OK);
    bp_encoder *encoder = encoder_of(tokenizer);
    bp_test_expect(bp_encode(encoder, text, strlen(text), &ids), BP_OK);
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.data, expected, (size_t)count * sizeof *expected);
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

#define CHECK_IDS(parts, text, ...)                                                                \
    do {                                                                                           \
        static const uint32_t expected[] = {__VA_ARGS__};                                          \
        check_ids((parts), (text), (int)(sizeof expected / sizeof *expected), expected);           \
    } while (0)

enum { A = 'a' - 33, B = 'b' - 33, C = 'c' - 33, SPACE = 188 + 32, SPACE_A = 256, AB, ABC, EOD };

static void invalid_bytes_stand_alone(void **state)
{
    (void)state;
    CHECK_IDS(&SMALL,
              "ab\xFF"
              "ab",
              AB, 187, AB);
    CHECK_IDS(&SMALL,
              " \xFF"
              " a",
              SPACE, 187, SPACE_A);
    CHECK_IDS(&SMALL, "a\xF0\x9F\x98", A, 94 + 12 + 0xF0 - 174, 188 + 33 + 0x9F - 127,
              188 + 33 + 0x98 - 127);
}

static void settings_of_the_tokenizer_are_followed(void **state)
{
    small_parts parts = SMALL;

    (void)state;
    CHECK_IDS(&SMALL, "abc ab a", ABC, SPACE_A, B, SPACE_A); /* the merge of a space comes first */
    parts.pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}";
    CHECK_IDS(&parts, "a a", SPACE_A, SPACE_A);
    CHECK_IDS(&parts, " a a", SPACE_A, SPACE_A);
    parts = SMALL; /* without the pattern a merge may go over spaces: "c a" has one */
    parts.pre_tokenizer =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";
    parts.merges = "[\"\xC4\xA0 a\", \"a b\", \"ab c\", \"a \xC4\xA0\"]";
    parts.tokens = ", \"\xC4\xA0"
                   "a\": 256, \"ab\": 257, \"abc\": 258, \"<|endoftext|>\": 259, "
                   "\"a\xC4\xA0\": 260";
    CHECK_IDS(&parts, "aa b", A, 260, B);
    parts = SMALL; /* "abc" as a whole, where merges alone would not reach it */
    parts.merges = "[\"\xC4\xA0 a\", \"a b\"]";
    CHECK_IDS(&parts, "abc abc", AB, C, SPACE_A, B, C);
    parts.settings = "\"ignore_merges\": true, ";
    CHECK_IDS(&parts, "abc abc", ABC, SPACE_A, B, C);
}

static void text_that_looks_special_is_text(void **state)
{
    bp_tokenizer *tokenizer;
    small_parts parts = SMALL;
    bp_ids ids = {0};

    (void)state;
    parts.settings = "\"ignore_merges\": true, ";
    parts.pre_tokenizer =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";
    bp_test_expect(small_parse(&tokenizer, &parts), BP_OK);
    bp_encoder *encoder = encoder_of(tokenizer);
    bp_test_expect(bp_encode(encoder, "<|endoftext|>", 13, &ids), BP_OK);
    assert_int_equal(ids.count, 13);
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

/* ---- pieces ---- */

static const char WORDS[] =
    "{\"added_tokens\": [{\"id\": 5, \"content\": \"<|endoftext|>\", \"special\": true}], "
    "\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"model\": {\"type\": \"WordLevel\", "
    "\"vocab\": {\"<unk>\": 0, \"the\": 1, \".\": 2, \"d\xC3\xA9j\xC3\xA0\": 3, \"a\": 4}, "
    "\"unk_token\": \"<unk>\"}}";
static const char CHARACTERS[] =
    "{\"added_tokens\": [{\"id\": 5, \"content\": \"<|endoftext|>\", \"special\": true}], "
    "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[\\\\s\\\\S]\"}, "
    "\"behavior\": \"Isolated\", \"invert\": false}, \"model\": {\"type\": \"WordLevel\", "
    "\"vocab\": {\"<unk>\": 0, \"a\": 1, \"\\n\": 2, \"\xC3\xA9\": 3, \" \": 4}, "
    "\"unk_token\": \"<unk>\"}}";

static bp_tokenizer *parse(const char *text)
{
    bp_tokenizer *tokenizer;

    bp_test_expect(bp_tokenizer_parse(&tokenizer, text, strlen(text), "t.json"), BP_OK);
    return tokenizer;
}

/* Pieces as bp_documents cuts them, against the document as a whole. */
static void compare_pieces(const bp_tokenizer *tokenizer, const char *path, const char *text,
                           size_t bytes)
{
    bp_documents_options options = {
        .format = BP_TEXT_FILE, .cut = bp_tokenizer_cut(tokenizer), .piece_bytes = 40};
    bp_encoder *encoder = encoder_of(tokenizer);
    bp_documents *documents;
    bp_piece piece;
    bp_ids whole = {0}, parts = {0};

    bp_test_expect(bp_encode(encoder, text, bytes, &whole), BP_OK);
    bp_test_expect(bp_documents_open(&documents, &path, 1, &options), BP_OK);
    while (bp_documents_next(documents, &piece) == BP_OK && piece.text != NULL)
        bp_test_expect(bp_encode_piece(encoder, piece.text, piece.bytes, piece.first, &parts),
                       BP_OK);
    assert_int_equal(parts.count, whole.count);
    assert_memory_equal(parts.data, whole.data, (size_t)whole.count * sizeof *whole.data);
    bp_documents_close(&documents);
    bp_encoder_free(&encoder);
    bp_ids_clear(&whole);
    bp_ids_clear(&parts);
}

static void pieces_have_the_ids_of_the_whole(void **state)
{
    static char text[20000];
    small_parts spaced = SMALL, unsplit = SMALL;
    bp_tokenizer *tokenizers[5];

    (void)state;
    spaced.pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}";
    unsplit.pre_tokenizer =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}";
    bp_test_expect(small_parse(&tokenizers[0], &SMALL), BP_OK);
    bp_test_expect(small_parse(&tokenizers[1], &spaced), BP_OK);
    bp_test_expect(small_parse(&tokenizers[2], &unsplit), BP_OK);
    tokenizers[3] = parse(WORDS);
    tokenizers[4] = parse(CHARACTERS);
    for (uint64_t seed = 0; seed < 20; seed++) {
        random_text r = random_text_of(seed);
        size_t bytes = random_fill(&r, text, sizeof text, seed % 2 == 0);
        const char *path = bp_test_write("t", text, bytes);

        for (int k = 0; k < 5; k++)
            compare_pieces(tokenizers[k], path, text, bytes);
    }
    for (int k = 0; k < 5; k++)
        bp_tokenizer_free(&tokenizers[k]);
}

/* ---- words and characters ---- */

static void check_words(const char *json, const char *kind, const char *text, int count,
                        const uint32_t *expected, const char *decoded)
{
    bp_tokenizer *tokenizer = parse(json);
    bp_encoder *encoder = encoder_of(tokenizer);
    bp_ids ids = {0};
    char *again;
    size_t bytes;

    assert_string_equal(bp_tokenizer_kind(tokenizer), kind);
    assert_int_equal(bp_tokenizer_eod(tokenizer), 5);
    assert_int_equal(bp_tokenizer_unk(tokenizer), 0);
    bp_test_expect(bp_encode(encoder, text, strlen(text), &ids), BP_OK);
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.data, expected, (size_t)count * sizeof *expected);
    bp_test_expect(bp_decode(tokenizer, ids.data, ids.count, &again, &bytes), BP_OK);
    assert_string_equal(again, decoded);
    bp_free(again);
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

static void words_are_parted_by_white_space(void **state)
{
    static const uint32_t ids[] = {1, 3, 0, 4, 2, 0, 0, 0};

    (void)state;
    check_words(WORDS, "word",
                " the\n\nd\xC3\xA9j\xC3\xA0\xE3\x80\x80The a\xC2\xA0. <unk> <|endoftext|>\ta\xFF ",
                8, ids, "the d\xC3\xA9j\xC3\xA0 <unk> a . <unk> <unk> <unk>");
}

static void characters_are_code_points(void **state)
{
    static const uint32_t ids[] = {1, 3, 2, 4, 0, 0, 0, 1};

    (void)state;
    check_words(CHARACTERS, "char",
                "a\xC3\xA9\n b\xF0\x9F\x98\x80\xC3"
                "a",
                8, ids, "a\xC3\xA9\n <unk><unk><unk>a");
}

static void ids_beyond_the_vocabulary_are_reported(void **state)
{
    static const uint32_t ids[] = {1, 6};
    bp_tokenizer *tokenizer = parse(WORDS);
    char *text;
    size_t bytes;

    (void)state;
    bp_test_expect(bp_decode(tokenizer, ids, 2, &text, &bytes), BP_ERR_FORMAT);
    bp_test_message_has("6 ... [vocabulary.unknown_id]");
    assert_null(text);
    assert_int_equal(bytes, 0);
    bp_tokenizer_free(&tokenizer);
}

/* An added token that text around it hides (single_word) is no piece of the model: as with Hugging
 * Face's tokenizers, "cats" is not "cat" and "##s". */
static void added_tokens_are_no_pieces(void **state)
{
    static const char text[] =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": "
        "[{\"id\": 0, \"content\": \"[UNK]\", \"single_word\": false, \"lstrip\": false, "
        "\"rstrip\": false, \"normalized\": false, \"special\": true}, {\"id\": 4, \"content\": "
        "\"cat\", \"single_word\": true, \"lstrip\": false, \"rstrip\": false, \"normalized\": "
        "false, \"special\": false}], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
        "\"WhitespaceSplit\"}, \"post_processor\": null, \"decoder\": {\"type\": \"WordPiece\", "
        "\"prefix\": \"##\", \"cleanup\": false}, \"model\": {\"type\": \"WordPiece\", "
        "\"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
        "\"max_input_chars_per_word\": 100, \"vocab\": {\"[UNK]\": 0, \"##s\": 1, \"dog\": 2, "
        "\"c\": 3}}}";
    static const uint32_t want[] = {4, 2, 1, 0};
    bp_tokenizer *tokenizer;
    bp_encoder *encoder;
    bp_ids ids = {0};

    (void)state;
    bp_test_expect(bp_tokenizer_parse(&tokenizer, text, strlen(text), "added"), BP_OK);
    encoder = encoder_of(tokenizer);
    bp_test_expect(bp_encode(encoder, "cat dogs cats", 13, &ids), BP_OK);
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.data, want, sizeof want);
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_string_comes_back),
        cmocka_unit_test(invalid_bytes_stand_alone),
        cmocka_unit_test(settings_of_the_tokenizer_are_followed),
        cmocka_unit_test(text_that_looks_special_is_text),
        cmocka_unit_test(pieces_have_the_ids_of_the_whole),
        cmocka_unit_test(words_are_parted_by_white_space),
        cmocka_unit_test(characters_are_code_points),
        cmocka_unit_test(ids_beyond_the_vocabulary_are_reported),
        cmocka_unit_test(added_tokens_are_no_pieces),
    };

    return BP_TEST_RUN(tests);
}
