/* Tokenizers of Hugging Face's forms: the ids and the text of golden_ids.json, which the Rust
 * library returned (golden_ids.mjs). */
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "bp_test.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

#include <stdlib.h>
#include <string.h>

static json_t *golden;

static int load_golden(void **state)
{
    (void)state;
    return bp_json_load(&golden, BP_TEST_TEXT "/golden_ids.json", 1 << 20) == BP_OK ? 0 : 1;
}

static int drop_golden(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

/* The whole of a case: its parts, and a model with some settings of its own. */
static char *text_of(const json_t *one)
{
    json_t *root = json_deep_copy(json_object_get(one, "tokenizer"));
    json_t *model = json_deep_copy(json_object_get(
        json_object_get(golden, "models"), json_string_value(json_object_get(one, "model"))));
    char *text;

    json_object_update(model, json_object_get(one, "settings"));
    json_object_set_new(root, "model", model);
    text = bp_json_text(root);
    json_decref(root);
    return text;
}

static bp_tokenizer *open_case(const json_t *one)
{
    bp_tokenizer *tokenizer;
    char *text = text_of(one);

    if (bp_tokenizer_parse(&tokenizer, text, strlen(text), "golden") != BP_OK)
        fail_msg("%s: %s", json_string_value(json_object_get(one, "name")), bp_err_message());
    bp_free(text);
    return tokenizer;
}

/* Same ids, else both lists are shown. */
static void check_ids(const char *name, const json_t *row, const bp_ids *ids)
{
    const json_t *expected = json_object_get(row, "ids");
    bool same = (int64_t)json_array_size(expected) == ids->count;

    for (int64_t k = 0; same && k < ids->count; k++)
        same = json_integer_value(json_array_get(expected, (size_t)k)) == ids->data[k];
    if (same)
        return;
    print_error("%s: '%s'\n", name, json_string_value(json_object_get(row, "text")));
    for (int64_t k = 0; k < ids->count; k++)
        print_error(" %u", ids->data[k]);
    fail_msg("%s: other ids", name);
}

static void check_case(const json_t *one)
{
    const char *name = json_string_value(json_object_get(one, "name"));
    bp_tokenizer *tokenizer = open_case(one);
    bp_encoder *encoder;
    const json_t *row;
    size_t k;

    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_encoder_find_specials(encoder, true);
    json_array_foreach(json_object_get(one, "texts"), k, row)
    {
        const json_t *given = json_object_get(row, "text");
        const char *expected = json_string_value(json_object_get(row, "decoded"));
        bp_ids ids = {0};
        char *text;
        size_t bytes;

        bp_test_expect(
            bp_encode(encoder, json_string_value(given), json_string_length(given), &ids), BP_OK);
        check_ids(name, row, &ids);
        bp_test_expect(bp_decode(tokenizer, ids.data, ids.count, &text, &bytes), BP_OK);
        if (strcmp(text, expected) != 0)
            fail_msg("%s: decoded '%s', not '%s'", name, text, expected);
        bp_free(text);
        bp_ids_clear(&ids);
    }
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

static void ids_and_text_are_those_of_hugging_face(void **state)
{
    const json_t *one;
    size_t k;

    (void)state;
    assert_true(json_array_size(json_object_get(golden, "cases")) >= 20);
    json_array_foreach(json_object_get(golden, "cases"), k, one) check_case(one);
}

/* Export gives the bytes that came, and reading them again the same tokenizer. */
static void the_text_is_kept_as_it_came(void **state)
{
    const json_t *one;
    size_t k;

    (void)state;
    json_array_foreach(json_object_get(golden, "cases"), k, one)
    {
        bp_tokenizer *tokenizer = open_case(one), *again;
        char *given = text_of(one), *text = bp_tokenizer_text(tokenizer);

        if (strstr(given, "\"normalizer\": null") == NULL)
            assert_string_equal(text, given);
        bp_test_expect(bp_tokenizer_parse(&again, text, strlen(text), "again"), BP_OK);
        assert_string_equal(bp_tokenizer_hash(again), bp_tokenizer_hash(tokenizer));
        bp_free(given);
        bp_free(text);
        bp_tokenizer_free(&tokenizer);
        bp_tokenizer_free(&again);
    }
}

/* A document in pieces, cut where the tokenizer says, has the ids of the whole. */
static void check_pieces(const bp_tokenizer *tokenizer, bool specials, const char *text,
                         size_t bytes)
{
    bp_cut where = specials ? bp_tokenizer_cut_specials(tokenizer) : bp_tokenizer_cut(tokenizer);
    bp_encoder *encoder;
    bp_ids whole = {0};

    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_encoder_find_specials(encoder, specials);
    bp_test_expect(bp_encode(encoder, text, bytes, &whole), BP_OK);
    for (size_t look = 1; look <= bytes; look++) {
        size_t cut = bp_text_cut(where, text, look);
        bp_ids parts = {0};

        bp_test_expect(bp_encode_piece(encoder, text, cut, true, &parts), BP_OK);
        bp_test_expect(bp_encode_piece(encoder, text + cut, bytes - cut, cut == 0, &parts), BP_OK);
        assert_int_equal(parts.count, whole.count);
        assert_memory_equal(parts.data, whole.data, (size_t)whole.count * sizeof *whole.data);
        bp_ids_clear(&parts);
    }
    bp_ids_clear(&whole);
    bp_encoder_free(&encoder);
}

static void pieces_have_the_ids_of_the_whole(void **state)
{
    static const char special[] = "the <s> 12  </s>[MASK] the<mask>  other <|endoftext|><s>x \xff"
                                  "<pad> y [SEP]  <unk> ";
    static const char text[] = "the 12345's  other\n\n end!! \xc2\xa0x\xc2\x85"
                               "y the\vthe !\n\nHe  in\r\n a\xcc\x81 "
                               "\xff thing caf\xc3\xa9  \xe4\xba\xac nd\x01 and";
    const json_t *one;
    size_t k;

    (void)state;
    json_array_foreach(json_object_get(golden, "cases"), k, one)
    {
        bp_tokenizer *tokenizer = open_case(one);

        check_pieces(tokenizer, false, text, sizeof text - 1);
        check_pieces(tokenizer, true, special, sizeof special - 1);
        bp_tokenizer_free(&tokenizer);
    }
}

static const json_t *case_of(const char *name)
{
    const json_t *one;
    size_t k;

    json_array_foreach(json_object_get(golden, "cases"), k,
                       one) if (strcmp(json_string_value(json_object_get(one, "name")), name) ==
                                0) return one;
    fail_msg("no case '%s'", name);
    return NULL;
}

static void expect_roles(const char *name, const int64_t expected[BP_ROLES])
{
    bp_tokenizer *tokenizer = open_case(case_of(name));

    for (int role = 0; role < BP_ROLES; role++)
        if (bp_tokenizer_role(tokenizer, (bp_role)role) != expected[role])
            fail_msg("%s: %s is %lld", name, bp_role_name((bp_role)role),
                     (long long)bp_tokenizer_role(tokenizer, (bp_role)role));
    bp_tokenizer_free(&tokenizer);
}

static void special_tokens_have_roles(void **state)
{
    (void)state;
    expect_roles("bert", (int64_t[]){0, 1, 2, 3, 4, 3, -1, -1});
    expect_roles("t5: NFKC, words, U+2581", (int64_t[]){0, 2, -1, 1, -1, 1, -1, -1});
    expect_roles("llama2: characters, bytes for the rest", (int64_t[]){-1, 0, 1, 2, -1, 2, 1, 1});
    expect_roles("roberta: prefix space, mask takes the space before it",
                 (int64_t[]){-1, -1, 271, 272, 273, 272, -1, -1});
}

/* Without being asked for, special tokens' names are text. */
static void names_of_special_tokens_are_text(void **state)
{
    bp_tokenizer *tokenizer = open_case(case_of("bert"));
    bp_encoder *encoder;
    bp_ids ids = {0};

    (void)state;
    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_encode(encoder, "[MASK]", 6, &ids), BP_OK);
    for (int64_t k = 0; k < ids.count; k++)
        assert_int_not_equal(ids.data[k], 4);
    ids.count = 0;
    bp_encoder_find_specials(encoder, true);
    bp_test_expect(bp_encode(encoder, "[MASK]", 6, &ids), BP_OK);
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.data[0], 4);
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

/* Byte-level BPE after a pattern, whose matches are removed. */
static bp_err open_pattern(bp_tokenizer **out, const char *pattern)
{
    json_t *one = json_deep_copy(case_of("pattern: words"));
    json_t *pre = json_object_get(json_object_get(one, "tokenizer"), "pre_tokenizer");
    json_t *split = json_array_get(json_object_get(pre, "pretokenizers"), 0);
    char *text;
    bp_err err;

    json_object_set_new(json_object_get(split, "pattern"), "Regex", json_string(pattern));
    text = text_of(one);
    err = bp_tokenizer_parse(out, text, strlen(text), "pattern");
    bp_free(text);
    json_decref(one);
    return err;
}

static void expect_hash(const char *text, const bp_tokenizer *expected, bool same)
{
    bp_tokenizer *tokenizer;
    char of_text[BP_SHA256_HEX];

    bp_test_expect(bp_tokenizer_parse(&tokenizer, text, strlen(text), "respelled"), BP_OK);
    assert_int_equal(strcmp(bp_tokenizer_hash(tokenizer), bp_tokenizer_hash(expected)) == 0, same);
    bp_sha256_of(text, strlen(text), of_text); /* what files of older versions keep */
    assert_int_equal(bp_tokenizer_same_hash(of_text, bp_tokenizer_hash(expected)), same);
    bp_tokenizer_free(&tokenizer);
}

/* Saved again by another program: other blanks, other order, defaults told or left out. */
static void a_tokenizer_spelled_otherwise_is_the_same(void **state)
{
    const json_t *one;
    size_t k;

    (void)state;
    json_array_foreach(json_object_get(golden, "cases"), k, one)
    {
        bp_tokenizer *tokenizer = open_case(one);
        char *text = bp_tokenizer_text(tokenizer), *other;
        json_t *root = json_loads(text, 0, NULL);

        other = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
        expect_hash(other, tokenizer, true);
        free(other);
        json_object_set_new(root, "padding", json_pack("{s:s}", "strategy", "BatchLongest"));
        json_object_del(root, "post_processor");
        if (json_is_null(json_object_get(json_object_get(root, "model"), "unk_token")))
            json_object_del(json_object_get(root, "model"), "unk_token");
        other = json_dumps(root, JSON_COMPACT);
        if (json_is_null(json_object_get(json_object_get(one, "tokenizer"), "post_processor")))
            expect_hash(other, tokenizer, true);
        free(other);
        json_decref(root);
        bp_free(text);
        bp_tokenizer_free(&tokenizer);
    }
}

static void another_tokenizer_has_another_hash(void **state)
{
    json_t *one = json_deep_copy(case_of("pattern: words")), *split;
    bp_tokenizer *tokenizer = open_case(one);
    char *text;

    (void)state;
    split = json_array_get(
        json_object_get(json_object_get(json_object_get(one, "tokenizer"), "pre_tokenizer"),
                        "pretokenizers"),
        0);
    json_object_set_new(split, "invert", json_true());
    text = text_of(one);
    expect_hash(text, tokenizer, false);
    bp_free(text);
    bp_tokenizer_free(&tokenizer);
    json_decref(one);
}

/* A tokenizer of a case with another normalizer. */
static bp_tokenizer *open_normalized(const char *name, const char *normalizer)
{
    json_t *one = json_deep_copy(case_of(name));
    bp_tokenizer *tokenizer;

    json_object_set_new(json_object_get(one, "tokenizer"), "normalizer",
                        json_loads(normalizer, 0, NULL));
    tokenizer = open_case(one);
    json_decref(one);
    return tokenizer;
}

static void expect_same_ids(const bp_tokenizer *tokenizer, const char *text, const char *same)
{
    bp_encoder *encoder;
    bp_ids ids = {0}, expected = {0};

    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_encode(encoder, text, strlen(text), &ids), BP_OK);
    bp_test_expect(bp_encode(encoder, same, strlen(same), &expected), BP_OK);
    assert_int_equal(ids.count, expected.count);
    assert_memory_equal(ids.data, expected.data, (size_t)ids.count * sizeof *ids.data);
    bp_ids_clear(&ids);
    bp_ids_clear(&expected);
    bp_encoder_free(&encoder);
}

/* Invalid bytes do not cut a text: it is normalized once. */
static void text_of_invalid_bytes_is_normalized_once(void **state)
{
    static const char text[] = "the\xE9 on\xFF\x80\xE9 the\xCC\x81";
    bp_tokenizer *tokenizer = open_case(case_of("llama2: characters, bytes for the rest"));
    bp_encoder *encoder;
    bp_ids ids = {0};
    char *back;
    size_t bytes;

    (void)state;
    assert_true(bp_tokenizer_keeps_bytes(tokenizer));
    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_encode(encoder, text, sizeof text - 1, &ids), BP_OK);
    bp_test_expect(bp_decode(tokenizer, ids.data, ids.count, &back, &bytes), BP_OK);
    assert_int_equal(bytes, sizeof text - 1);
    assert_memory_equal(back, text, bytes);
    bp_free(back);
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);

    tokenizer = open_normalized("bert", "{\"type\": \"Lowercase\"}");
    assert_false(bp_tokenizer_keeps_bytes(tokenizer));
    expect_same_ids(tokenizer, "The\xE9 \xFF other", "the\xF3\x80\x80\x80 \xF3\x80\x80\x80 other");
    bp_tokenizer_free(&tokenizer);

    tokenizer = open_normalized("pattern: words",
                                "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"^-|!$\"}, "
                                "\"content\": \"=\"}");
    expect_same_ids(tokenizer, "-\xFF-!\xFF!", "=\xFF-!\xFF=");
    bp_tokenizer_free(&tokenizer);

    tokenizer = open_normalized("pattern: words", "{\"type\": \"Strip\", \"strip_left\": true, "
                                                  "\"strip_right\": true}");
    expect_same_ids(tokenizer, "  + \xFF \xFE +  ", "+ \xFF \xFE +");
    bp_tokenizer_free(&tokenizer);
}

/* Invalid bytes are hidden as characters of a block that the text has not: of one that has them all
 * there is none. */
static void text_of_every_block_hides_no_byte(void **state)
{
    enum { FIRST = 0x40000, BLOCKS = 5120 };
    bp_tokenizer *tokenizer = open_normalized("bert", "{\"type\": \"Lowercase\"}");
    static char text[4 * BLOCKS + 1];
    bp_encoder *encoder;
    bp_ids ids = {0};

    (void)state;
    for (uint32_t k = 0; k < BLOCKS; k++)
        (void)bp_utf8_encode((uint8_t *)text + 4 * k, FIRST + 0x80 * k);
    text[4 * BLOCKS] = '\xFF';
    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_encode(encoder, text, sizeof text - 1, &ids), BP_OK); /* it is valid */
    bp_test_expect(bp_encode(encoder, text, sizeof text, &ids), BP_ERR_FORMAT);
    assert_non_null(strstr(bp_err_message(), "[text.not_utf8_hidden]"));
    bp_test_expect(bp_encode(encoder, text + 4, sizeof text - 4, &ids),
                   BP_OK); /* a block is free */
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

static void a_pattern_that_takes_too_long_is_an_error(void **state)
{
    bp_tokenizer *tokenizer;
    bp_encoder *encoder;
    bp_ids ids = {0};
    char text[202];

    (void)state;
    memset(text, 'a', sizeof text - 2);
    memcpy(text + sizeof text - 2, "b", 2);
    bp_test_expect(open_pattern(&tokenizer, "(a|aa)+$"), BP_OK);
    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_encode(encoder, text, strlen(text), &ids), BP_ERR_FORMAT);
    assert_non_null(strstr(bp_err_message(), "tokenizer.regex_gave_up"));
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

static void wrong_patterns_are_named(void **state)
{
    static const char *const wrong[] = {"", "(", "[a", "\\p{Nothing}", "(?s:.)", "*"};
    bp_tokenizer *tokenizer;

    (void)state;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        bp_test_expect(open_pattern(&tokenizer, wrong[k]), BP_ERR_FORMAT);
        assert_non_null(strstr(bp_err_message(), "tokenizer.bad_regex"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_text_are_those_of_hugging_face),
        cmocka_unit_test(the_text_is_kept_as_it_came),
        cmocka_unit_test(pieces_have_the_ids_of_the_whole),
        cmocka_unit_test(special_tokens_have_roles),
        cmocka_unit_test(names_of_special_tokens_are_text),
        cmocka_unit_test(a_tokenizer_spelled_otherwise_is_the_same),
        cmocka_unit_test(another_tokenizer_has_another_hash),
        cmocka_unit_test(text_of_invalid_bytes_is_normalized_once),
        cmocka_unit_test(text_of_every_block_hides_no_byte),
        cmocka_unit_test(a_pattern_that_takes_too_long_is_an_error),
        cmocka_unit_test(wrong_patterns_are_named),
    };

    return cmocka_run_group_tests(tests, load_golden, drop_golden);
}
