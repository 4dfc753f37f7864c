/* Stop texts: the list, the tokenizer, and where they are found. */
#include "bp_test.h"

#include "infer/generate/search/stops.h"

/* A tokenizer of these words, each a token. */
static bp_tokenizer *words(void)
{
    static const char text[] =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": "
        "[{\"id\": 3, \"content\": \"<unk>\", \"single_word\": false, \"lstrip\": false, "
        "\"rstrip\": false, \"normalized\": false, \"special\": true}, {\"id\": 4, \"content\": "
        "\"<|endoftext|>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": true}], \"normalizer\": null, \"pre_tokenizer\": "
        "{\"type\": \"WhitespaceSplit\"}, \"post_processor\": null, \"decoder\": null, \"model\": "
        "{\"type\": \"WordLevel\", \"vocab\": {\"the\": 0, \"end\": 1, \"here\": 2, \"<unk>\": 3, "
        "\"<|endoftext|>\": 4}, \"unk_token\": \"<unk>\"}}";
    bp_tokenizer *tokenizer;

    bp_test_expect(bp_tokenizer_parse(&tokenizer, text, strlen(text), "words"), BP_OK);
    return tokenizer;
}

static void a_list_is_read(void **state)
{
    bp_stops stops;

    (void)state;
    bp_test_expect(bp_stops_read(&stops, "the end,\\n\\n,a\\,b,\\x41\\\\"), BP_OK);
    assert_int_equal(stops.count, 4);
    assert_string_equal(stops.texts[0], "the end");
    assert_string_equal(stops.texts[1], "\n\n");
    assert_string_equal(stops.texts[2], "a,b");
    assert_string_equal(stops.texts[3], "A\\");
    assert_int_equal(stops.bytes[1], 2);
    bp_stops_clear(&stops);
}

static void a_wrong_list_is_refused(void **state)
{
    static const char *const wrong[] = {"", ",", "a,,b", "a,", "\\q", "a\\", "\\x4", "\\xgg"};
    bp_stops stops;

    (void)state;
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        bp_test_expect(bp_stops_read(&stops, wrong[k]), BP_ERR_CONFIG);
        bp_test_message_has("generate.stop");
        bp_stops_clear(&stops);
    }
}

static void a_text_that_cannot_be_encoded_is_refused(void **state)
{
    static const char *const wrong[] = {"never", "the  end", "the end\\n", "the,never"};
    bp_tokenizer *tokenizer = words();
    bp_stops stops;

    (void)state;
    bp_test_expect(bp_stops_read(&stops, "the end,here"), BP_OK);
    bp_test_expect(bp_stops_use(&stops, tokenizer), BP_OK);
    bp_stops_clear(&stops);
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        bp_test_expect(bp_stops_read(&stops, wrong[k]), BP_OK);
        bp_test_expect(bp_stops_use(&stops, tokenizer), BP_ERR_CONFIG);
        bp_test_message_has("[generate.stop_not_encodable]");
        bp_stops_clear(&stops);
    }
    bp_tokenizer_free(&tokenizer);
}

static void the_first_one_is_found_across_tokens(void **state)
{
    static const int32_t hit[] = {2, 0, 1, 2}, missed[] = {1, 0, 2};
    bp_tokenizer *tokenizer = words();
    bp_stops stops;

    (void)state;
    bp_test_expect(bp_stops_read(&stops, "end,the end"), BP_OK);
    bp_test_expect(bp_stops_use(&stops, tokenizer), BP_OK);
    assert_int_equal(bp_stops_find(&stops, "here the end here", 17), 5);
    assert_int_equal(bp_stops_find(&stops, "here the e", 10), -1);
    assert_true(bp_stops_hit(&stops, hit, 4));
    assert_false(bp_stops_hit(&stops, hit, 2));
    assert_true(bp_stops_hit(&stops, missed, 1)); /* "end" */
    assert_false(bp_stops_hit(&stops, missed + 1, 2));
    bp_stops_clear(&stops);
    bp_tokenizer_free(&tokenizer);
}

/* A model may have more outcomes than its tokenizer tokens. */
static void ids_without_text_hide_no_stop(void **state)
{
    static const int32_t tokens[] = {9, 2, 0, 7, 1};
    bp_tokenizer *tokenizer = words();
    bp_stops stops;

    (void)state;
    bp_test_expect(bp_stops_read(&stops, "the end"), BP_OK);
    bp_test_expect(bp_stops_use(&stops, tokenizer), BP_OK);
    assert_true(bp_stops_hit(&stops, tokens, 5));
    assert_false(bp_stops_hit(&stops, tokens, 4));
    bp_stops_clear(&stops);
    bp_tokenizer_free(&tokenizer);
}

/* Token by token, as a text grows, the window of the last tokens tells what the whole text does. */
static void a_long_text_is_looked_at_as_if_whole(void **state)
{
    enum { MOST = 400 };
    bp_tokenizer *tokenizer = words();
    int32_t tokens[MOST];
    bp_stops stops;

    (void)state;
    bp_test_expect(bp_stops_read(&stops,
                                 "end end the the end here the end end here here,the the the "
                                 "the the here"),
                   BP_OK);
    bp_test_expect(bp_stops_use(&stops, tokenizer), BP_OK);
    for (uint32_t seed = 1; seed <= 40; seed++) {
        uint32_t random = seed;
        bool hit = false;

        for (int64_t n = 1; n <= MOST && !hit; n++) {
            char *text;
            size_t bytes;

            random = random * 1664525U + 1013904223U;
            tokens[n - 1] = (int32_t)((random >> 16) % 3);
            bp_test_expect(bp_decode(tokenizer, (const uint32_t *)tokens, n, &text, &bytes), BP_OK);
            hit = bp_stops_find(&stops, text, bytes) >= 0;
            assert_int_equal(bp_stops_hit(&stops, tokens, n), hit);
            bp_free(text);
        }
    }
    bp_stops_clear(&stops);
    bp_tokenizer_free(&tokenizer);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_read),
        cmocka_unit_test(a_wrong_list_is_refused),
        cmocka_unit_test(a_text_that_cannot_be_encoded_is_refused),
        cmocka_unit_test(the_first_one_is_found_across_tokens),
        cmocka_unit_test(ids_without_text_hide_no_stop),
        cmocka_unit_test(a_long_text_is_looked_at_as_if_whole)};

    return BP_TEST_RUN(tests);
}
