/* tokenizer.json: what is read, what is refused and why, and the one way it is written. */
#include "small_tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer/vocab_load_priv.h"

static void the_canonical_text_reads_back_to_the_byte(void **state)
{
    bp_tokenizer *first, *second;

    (void)state;
    bp_test_expect(small_parse(&first, &SMALL), BP_OK);
    assert_int_equal(bp_tokenizer_size(first), 260);
    assert_int_equal(bp_tokenizer_eod(first), 259);
    assert_int_equal(bp_tokenizer_unk(first), -1);
    assert_string_equal(bp_tokenizer_kind(first), "bpe");
    assert_int_equal(bp_tokenizer_cut(first), BP_CUT_PATTERN);
    const char *path = bp_test_path("tokenizer.json");
    bp_test_expect(bp_tokenizer_save(first, path), BP_OK);
    bp_test_expect(bp_tokenizer_load(&second, path), BP_OK);
    char *a = bp_tokenizer_text(first), *b = bp_tokenizer_text(second), sha256[BP_SHA256_HEX];
    assert_string_equal(a, b);
    bp_test_expect(bp_sha256_of_file(path, sha256, NULL), BP_OK);
    assert_string_equal(bp_tokenizer_hash(first), sha256);
    assert_string_equal(bp_tokenizer_hash(second), sha256);
    bp_free(a);
    bp_free(b);
    bp_tokenizer_free(&first);
    bp_tokenizer_free(&second);
}

/* What can be spelled in several ways has one hash: merges as pairs, order of keys, added tokens
 * beside the vocabulary. */
static void other_spellings_are_the_same_tokenizer(void **state)
{
    small_parts other = SMALL;
    bp_tokenizer *a, *b;

    (void)state;
    other.merges = "[[\"\xC4\xA0\", \"a\"], [\"a\", \"b\"], [\"ab\", \"c\"]]";
    other.tokens = ", \"abc\": 258, \"\xC4\xA0"
                   "a\": 256, \"ab\": 257";
    other.settings = "\"unk_token\": \"<|endoftext|>\", \"end_of_word_suffix\": \"\", ";
    bp_test_expect(small_parse(&a, &SMALL), BP_OK);
    bp_test_expect(small_parse(&b, &other), BP_OK);
    assert_string_equal(bp_tokenizer_hash(a), bp_tokenizer_hash(b));
    bp_tokenizer_free(&a);
    bp_tokenizer_free(&b);
}

static void expect_refused(small_parts parts, const char *message)
{
    bp_tokenizer *tokenizer;

    bp_test_expect(small_parse(&tokenizer, &parts), BP_ERR_FORMAT);
    assert_null(tokenizer);
    bp_test_message_has(message);
    bp_test_message_has("small.json");
}

#define EXPECT_REFUSED(part, value, message)                                                       \
    do {                                                                                           \
        small_parts changed = SMALL;                                                               \
        changed.part = (value);                                                                    \
        expect_refused(changed, (message));                                                        \
    } while (0)

static void bad_vocabularies_are_refused(void **state)
{
    (void)state;
    EXPECT_REFUSED(tokens, ", \"ab\": 256, \"ab\": 257", "[json.invalid]");
    EXPECT_REFUSED(tokens, ", \"x1\": 256, \"x2\": 258, \"x3\": 258",
                   "258 ... [vocabulary.id_twice]");
    EXPECT_REFUSED(tokens, ", \"ab\": 257, \"abc\": 258, \"xx\": 4194304", "[vocabulary.bad_id]");
    EXPECT_REFUSED(tokens, ", \"ab\": -1", "[vocabulary.bad_id]");
    EXPECT_REFUSED(tokens, ", \"ab\": 2147483648", "[vocabulary.bad_id]");
    EXPECT_REFUSED(tokens, ", \"ab\": 99999999999999999999", "[json.invalid]");
    EXPECT_REFUSED(tokens, ", \"ab\": \"256\"", "[vocabulary.bad_id]");
    EXPECT_REFUSED(tokens, ", \"ab\": 1.5", "[vocabulary.bad_id]");
    EXPECT_REFUSED(tokens, ", \"\xFF\xFE\": 256", "[json.invalid]");
    EXPECT_REFUSED(tokens, ", \"\\ud800\": 256", "[json.invalid]");
    EXPECT_REFUSED(tokens,
                   ", \"\xC4\xA0"
                   "a\": 256, \"ab\": 257, \"abc\": 258, \"xx\": 259, \"<|endoftext|>\": 260",
                   "[vocabulary.contradiction]");
}

static void vocabularies_beyond_the_limits_are_refused(void **state)
{
    static char tokens[70000];
    bp_tokenizer *tokenizer;

    (void)state;
    EXPECT_REFUSED(tokens, ", \"ab\": 257, \"abc\": 258, \"\": 256", "[vocabulary.empty_token]");
    (void)snprintf(tokens, sizeof tokens, ", \"%065537d\": 256", 0);
    EXPECT_REFUSED(tokens, tokens, "65537 bytes ... [vocabulary.token_too_long]");
    bp_tokenizer_size_limit = 259;
    EXPECT_REFUSED(tokens, SMALL.tokens, "260 tokens ... 259 ... [vocabulary.too_large]");
    bp_tokenizer_size_limit = 260;
    bp_test_expect(small_parse(&tokenizer, &SMALL), BP_OK);
    bp_tokenizer_free(&tokenizer);
    bp_tokenizer_size_limit = (int64_t)1 << 22;
}

static void bad_merges_are_refused(void **state)
{
    (void)state;
    EXPECT_REFUSED(merges, "[\"\xC4\xA0 a\", \"zz b\"]", "[merges.unknown_part]");
    EXPECT_REFUSED(merges, "[\"a zz\"]", "[merges.unknown_part]");
    EXPECT_REFUSED(merges, "[\"b a\"]", "[merges.unknown_part]");
    EXPECT_REFUSED(merges, "[\"a b\", \"\xC4\xA0 a\", \"a b\"]",
                   "merge 2 ... merge 0 ... [merges.twice]");
    EXPECT_REFUSED(merges, "[\"ab\"]", "[merges.bad_pair]");
    EXPECT_REFUSED(merges, "[\"a b c\"]", "[merges.bad_pair]");
    EXPECT_REFUSED(merges, "[[\"a\", \"b\", \"c\"]]", "merge 0 ... [merges.bad_pair]");
    EXPECT_REFUSED(merges, "[[\"a\", 5]]", "merge 0 ... [merges.bad_pair]");
    EXPECT_REFUSED(merges, "[7]", "merge 0 ... [merges.bad_pair]");
    EXPECT_REFUSED(merges, "{}", "[merges.bad_pair]");
}

static void what_is_not_done_exactly_is_refused_by_name(void **state)
{
    (void)state;
    EXPECT_REFUSED(version, "\"2.0\"", "2.0");
    EXPECT_REFUSED(version, "2", "version");
    EXPECT_REFUSED(normalizer, "{\"type\": \"Other\"}", "Other ... [tokenizer.unsupported]");
    EXPECT_REFUSED(pre_tokenizer, "{\"type\": \"UnicodeScripts\"}", "UnicodeScripts");
    EXPECT_REFUSED(pre_tokenizer,
                   "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": 7}",
                   "behavior ... Split is 7 ... [tokenizer.bad_component]");
    EXPECT_REFUSED(pre_tokenizer, "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}}",
                   "Split has no ... behavior");
    EXPECT_REFUSED(pre_tokenizer, "{\"type\": \"Metaspace\", \"prepend_scheme\": [1]}",
                   "prepend_scheme ... is [1]");
    EXPECT_REFUSED(pre_tokenizer, "{\"type\": \"ByteLevel\"}", "add_prefix_space");
    EXPECT_REFUSED(pre_tokenizer,
                   "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": 1}",
                   "use_regex");
    EXPECT_REFUSED(settings, "\"dropout\": 0.1, ", "dropout");
    EXPECT_REFUSED(added, "[{\"id\": 300, \"content\": \"<x>\"}]", "300 ... [vocabulary.bad_id]");
    EXPECT_REFUSED(added, "[{\"id\": 259, \"special\": true}]", "[tokenizer.bad_added_token]");
    EXPECT_REFUSED(added, "[{\"content\": \"<|endoftext|>\", \"special\": true}]",
                   "[vocabulary.contradiction]");
    EXPECT_REFUSED(added, "{}", "[tokenizer.bad_added_token]");
}

static void expect_text_refused(const char *text, const char *message)
{
    bp_tokenizer *tokenizer;

    bp_test_expect(bp_tokenizer_parse(&tokenizer, text, strlen(text), "t.json"), BP_ERR_FORMAT);
    assert_null(tokenizer);
    bp_test_message_has(message);
    bp_test_message_has("t.json");
}

#define WORD_LEVEL(pre, model)                                                                     \
    "{\"pre_tokenizer\": " pre ", \"model\": {\"type\": \"WordLevel\", " model "}}"

static void other_models_are_refused(void **state)
{
    (void)state;
    expect_text_refused("", "[json.invalid]");
    expect_text_refused("[]", "model");
    expect_text_refused("{}", "model");
    expect_text_refused("{\"model\": {\"type\": \"Neural\"}}", "Neural");
    expect_text_refused("{\"model\": {\"type\": \"Unigram\"}}", "[vocabulary.missing]");
    expect_text_refused("{\"model\": {}}", "none");
    expect_text_refused(
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
        " \"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}",
        "[vocabulary.missing]");
    expect_text_refused("{\"model\": {\"type\": \"BPE\", \"merges\": []}}", "[vocabulary.missing]");
    expect_text_refused(
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
        " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}}",
        "0x00");
    expect_text_refused(WORD_LEVEL("{\"type\": \"WhitespaceSplit\"}",
                                   "\"unk_token\": \"<unk>\", \"vocab\": {\"a\": 0}"),
                        "\"<unk>\" ... [vocabulary.no_special]");
    expect_text_refused(WORD_LEVEL("{\"type\": \"Whitespace\"}",
                                   "\"unk_token\": \"[UNK]\", \"vocab\": {\"<unk>\": 0}"),
                        "[UNK]");
}

/* Cut anywhere, the text is refused, and with one byte changed it is read or refused: never a
 * crash. */
static void damaged_text_is_refused_or_read(void **state)
{
    bp_buffer text = small_text(&SMALL);
    bp_tokenizer *tokenizer;

    (void)state;
    for (size_t bytes = 0; bytes < text.bytes; bytes += bytes < 700 ? 1 : 37)
        bp_test_expect(bp_tokenizer_parse(&tokenizer, text.data, bytes, "t.json"), BP_ERR_FORMAT);
    for (size_t at = 0; at < text.bytes; at += at < 700 || at + 300 > text.bytes ? 1 : 37) {
        char kept = text.data[at];
        bp_err err;

        text.data[at] ^= 0x04;
        err = bp_tokenizer_parse(&tokenizer, text.data, text.bytes, "t.json");
        assert_true(err == BP_OK || err == BP_ERR_FORMAT);
        bp_tokenizer_free(&tokenizer);
        text.data[at] = kept;
    }
    bp_buffer_clear(&text);
}

static void missing_files_are_reported(void **state)
{
    bp_tokenizer *tokenizer;
    const char *none = bp_test_path("none.json");

    (void)state;
    bp_test_expect(bp_tokenizer_load(&tokenizer, none), BP_ERR_INPUT);
    bp_test_message_has("none.json ... [file.missing]");
    bp_test_expect(bp_tokenizer_load(&tokenizer, bp_test_folder()), BP_ERR_INPUT);
    bp_test_expect(bp_tokenizer_load_gpt2(&tokenizer, none, none), BP_ERR_INPUT);
    assert_null(tokenizer);
    bp_test_expect(small_parse(&tokenizer, &SMALL), BP_OK);
    bp_test_expect(bp_tokenizer_save(tokenizer, bp_test_path("none/t.json")), BP_ERR_CREATE);
    bp_tokenizer_free(&tokenizer);
}

/* ---- GPT-2's pair of files ---- */

static const char *write_vocab(const char *tokens)
{
    bp_buffer text = {0};

    bp_buffer_printf(&text, "{");
    small_add_bytes(&text);
    bp_buffer_printf(&text, "%s}", tokens);
    const char *path = bp_test_write("vocab.json", text.data, text.bytes);
    bp_buffer_clear(&text);
    return path;
}

static const char *write_merges(const char *text)
{
    return bp_test_write("merges.txt", text, strlen(text));
}

static void a_pair_of_files_is_the_same_tokenizer(void **state)
{
    static const char *const spellings[] = {"#version: 0.2\n\xC4\xA0 a\na b\nab c\n",
                                            "\xC4\xA0 a\na b\nab c",
                                            "#version: 0.2\r\n\xC4\xA0 a\r\na b\r\nab c\r\n\r\n"};
    bp_tokenizer *pair, *small;

    (void)state;
    bp_test_expect(small_parse(&small, &SMALL), BP_OK);
    for (size_t k = 0; k < 3; k++) {
        const char *vocab = write_vocab(SMALL.tokens), *merges = write_merges(spellings[k]);

        bp_test_expect(bp_tokenizer_load_gpt2(&pair, vocab, merges), BP_OK);
        assert_string_equal(bp_tokenizer_hash(pair), bp_tokenizer_hash(small));
        bp_tokenizer_free(&pair);
    }
    bp_tokenizer_free(&small);
}

static void bad_pairs_are_refused(void **state)
{
    bp_tokenizer *tokenizer;
    const char *good = write_vocab(SMALL.tokens);

    (void)state;
    bp_test_expect(bp_tokenizer_load_gpt2(&tokenizer, good, write_merges("a b\nb zz\n")),
                   BP_ERR_FORMAT);
    bp_test_message_has("[merges.unknown_part]");
    bp_test_message_has("merges.txt, line 2 ... [merges.unknown_part]");
    bp_test_expect(bp_tokenizer_load_gpt2(&tokenizer, good, write_merges("#version\nab\n")),
                   BP_ERR_FORMAT);
    bp_test_message_has("line 2 ... [merges.bad_pair]");
    bp_test_expect(bp_tokenizer_load_gpt2(&tokenizer, good, bp_test_path("none")), BP_ERR_INPUT);
    bp_test_expect(bp_tokenizer_load_gpt2(&tokenizer, write_vocab(""), write_merges("")),
                   BP_ERR_FORMAT);
    bp_test_message_has("[vocabulary.no_special]");
    bp_test_expect(
        bp_tokenizer_load_gpt2(&tokenizer, bp_test_write("v", "[]", 2), write_merges("")),
        BP_ERR_FORMAT);
    assert_null(tokenizer);
}

/* ---- tokens for people ---- */

static void expect_token_text(const bp_tokenizer *tokenizer, int64_t id, const char *expected)
{
    bp_buffer text = {0};

    bp_test_expect(bp_tokenizer_token_text(tokenizer, id, &text), BP_OK);
    assert_non_null(text.data);
    assert_string_equal(text.data, expected);
    bp_buffer_clear(&text);
}

/* The token of a byte, in the order of GPT-2's letters. */
static int64_t byte_id(uint8_t byte)
{
    int64_t id = 0;

    while (bp_byte_of_rank((int)id) != byte)
        id++;
    return id;
}

static void the_text_of_a_token_is_one_line_of_utf8(void **state)
{
    small_parts parts = SMALL;
    bp_tokenizer *tokenizer;

    (void)state;
    /* by GPT-2's letters: e acute; its first byte and a; U+2028; U+0085; a tab and a backslash */
    parts.tokens = ", \"\xC3\x83\xC2\xA9\": 256, \"\xC3\x83"
                   "a\": 257, \"\xC3\xA2\xC4\xA2\xC2\xA8\": 258, \"\xC3\x82\xC4\xA7\": 260, "
                   "\"\xC4\x89\\\\\": 261, \"<|endoftext|>\": 259";
    parts.merges = "[]";
    bp_test_expect(small_parse(&tokenizer, &parts), BP_OK);
    expect_token_text(tokenizer, byte_id('a'), "a");
    expect_token_text(tokenizer, byte_id(' '), " ");
    expect_token_text(tokenizer, byte_id('\\'), "\\\\");
    expect_token_text(tokenizer, byte_id('\n'), "\\n");
    expect_token_text(tokenizer, byte_id('\t'), "\\t");
    expect_token_text(tokenizer, byte_id('\r'), "\\r");
    expect_token_text(tokenizer, byte_id(0), "\\x00");
    expect_token_text(tokenizer, byte_id(0x7F), "\\x7F");
    expect_token_text(tokenizer, byte_id(0xC3), "\\xC3");
    expect_token_text(tokenizer, 256, "\xC3\xA9");
    expect_token_text(tokenizer, 257,
                      "\\xC3"
                      "a");
    expect_token_text(tokenizer, 258, "\\xE2\\x80\\xA8");
    expect_token_text(tokenizer, 260, "\\xC2\\x85");
    expect_token_text(tokenizer, 261, "\\t\\\\");
    expect_token_text(tokenizer, 259, "<|endoftext|>");
    bp_tokenizer_free(&tokenizer);
}

static void a_token_beyond_the_vocabulary_has_no_text(void **state)
{
    bp_tokenizer *tokenizer;
    bp_buffer text = {0};

    (void)state;
    bp_test_expect(small_parse(&tokenizer, &SMALL), BP_OK);
    bp_test_expect(bp_tokenizer_token_text(tokenizer, 260, &text), BP_ERR_FORMAT);
    bp_test_message_has("token id 260 ... [vocabulary.unknown_id]");
    bp_test_expect(bp_tokenizer_token_text(tokenizer, -1, &text), BP_ERR_FORMAT);
    assert_int_equal(text.bytes, 0);
    bp_tokenizer_free(&tokenizer);
}

static void words_are_their_own_text(void **state)
{
    static const char JSON[] =
        WORD_LEVEL("{\"type\": \"WhitespaceSplit\"}",
                   "\"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, \"\xC4\xA0w\": 1}");
    bp_tokenizer *tokenizer;

    (void)state;
    bp_test_expect(bp_tokenizer_parse(&tokenizer, JSON, strlen(JSON), "words.json"), BP_OK);
    expect_token_text(tokenizer, 0, "<unk>");
    expect_token_text(tokenizer, 1, "\xC4\xA0w"); /* not GPT-2's letter for a space */
    bp_tokenizer_free(&tokenizer);
}

/* ---- frames, for other programs ---- */

static void expect_framed(const bp_tokenizer *tokenizer, const bp_text_frame *frame,
                          const char *part)
{
    char *text = NULL, *own = bp_tokenizer_text(tokenizer), *again;
    bp_tokenizer *read;

    bp_test_expect(bp_tokenizer_framed_text(&text, tokenizer, frame), BP_OK);
    if (part)
        assert_non_null(strstr(text, part));
    else
        assert_string_equal(text, own);
    bp_test_expect(bp_tokenizer_parse(&read, text, strlen(text), "framed.json"), BP_OK);
    again = bp_tokenizer_text(read);
    assert_string_equal(again, own);
    assert_string_equal(bp_tokenizer_hash(read), bp_tokenizer_hash(tokenizer));
    for (int role = 0; role < BP_ROLES; role++)
        assert_int_equal(bp_tokenizer_role(read, (bp_role)role),
                         bp_tokenizer_role(tokenizer, (bp_role)role));
    bp_tokenizer_free(&read);
    bp_free(again);
    bp_free(own);
    bp_free(text);
}

static void a_frame_is_written_and_what_was_there_comes_back(void **state)
{
    static const char VOCAB[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n";
    bp_tokenizer *plain, *bert;
    char *text;

    (void)state;
    bp_test_expect(small_parse(&plain, &SMALL), BP_OK);
    expect_framed(plain, &(bp_text_frame){-1, 259, false}, "\"TemplateProcessing\"");
    bp_test_expect(bp_tokenizer_framed_text(&text, plain, &(bp_text_frame){-1, 260, false}),
                   BP_ERR_FORMAT);
    assert_null(text);
    bp_test_expect(
        bp_tokenizer_load_bert(&bert, bp_test_write("vocab.txt", VOCAB, sizeof VOCAB - 1), true),
        BP_OK);
    expect_framed(bert, &(bp_text_frame){2, 3, true}, NULL);
    expect_framed(bert, &(bp_text_frame){2, 3, false}, "\"bagpipe\"");
    expect_framed(bert, &(bp_text_frame){-1, 3, false}, "\"bagpipe\"");
    bp_tokenizer_free(&bert);
    bp_tokenizer_free(&plain);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_canonical_text_reads_back_to_the_byte),
        cmocka_unit_test(other_spellings_are_the_same_tokenizer),
        cmocka_unit_test(bad_vocabularies_are_refused),
        cmocka_unit_test(vocabularies_beyond_the_limits_are_refused),
        cmocka_unit_test(bad_merges_are_refused),
        cmocka_unit_test(what_is_not_done_exactly_is_refused_by_name),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(damaged_text_is_refused_or_read),
        cmocka_unit_test(missing_files_are_reported),
        cmocka_unit_test(a_pair_of_files_is_the_same_tokenizer),
        cmocka_unit_test(bad_pairs_are_refused),
        cmocka_unit_test(the_text_of_a_token_is_one_line_of_utf8),
        cmocka_unit_test(a_token_beyond_the_vocabulary_has_no_text),
        cmocka_unit_test(words_are_their_own_text),
        cmocka_unit_test(a_frame_is_written_and_what_was_there_comes_back),
    };

    return BP_TEST_RUN(tests);
}
