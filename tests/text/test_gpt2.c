/* GPT-2's own vocabulary, and real text: the ids are OpenAI's, and the pieces those of the pattern.
 * Needs ../shared/data. */
#include "base/files/hash.h"
#include "bp_test.h"
#include "gpt2_ids.h"
#include "pattern_pieces.h"
#include "text/tokenizer/tokenizer.h"

static bp_tokenizer *load_gpt2(void)
{
    bp_tokenizer *tokenizer;

    bp_test_expect(bp_tokenizer_load_gpt2(&tokenizer, bp_test_shared("data/gpt2/vocab.json"),
                                          bp_test_shared("data/gpt2/merges.txt")),
                   BP_OK);
    return tokenizer;
}

static bp_encoder *encoder_of(const bp_tokenizer *tokenizer)
{
    bp_encoder *encoder;

    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    return encoder;
}

static void gpt2_ids_are_openais(void **state)
{
    bp_tokenizer *tokenizer = load_gpt2();
    bp_encoder *encoder = encoder_of(tokenizer);

    (void)state;
    assert_int_equal(bp_tokenizer_size(tokenizer), 50257);
    assert_int_equal(bp_tokenizer_eod(tokenizer), 50256);
    for (size_t k = 0; k < sizeof GPT2_IDS / sizeof *GPT2_IDS; k++) {
        bp_ids ids = {0};

        bp_test_expect(bp_encode(encoder, GPT2_IDS[k].text, GPT2_IDS[k].bytes, &ids), BP_OK);
        if (ids.count != GPT2_IDS[k].count ||
            (ids.count > 0 &&
             memcmp(ids.data, GPT2_IDS[k].ids, (size_t)ids.count * sizeof *ids.data) != 0))
            fail_msg("other ids for \"%s\"", GPT2_IDS[k].text);
        bp_ids_clear(&ids);
    }
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

/* A corpus that everybody has the tokens of; the hash is of the ids that npm's tiktoken 1.0.22
 * gives, as little-endian uint32. */
static void gpt2_ids_of_real_text_are_openais(void **state)
{
    static const struct {
        const char *file;
        int64_t count;
        const char *sha256;
    } known[] = {
        {"data/wikitext-2/test.txt", 295877,
         "b707897cad36e76a01d81962b984f94ba225c85ada8d207f1f0ff3faedb56381"},
        {"data/tang/test.jsonl", 605372,
         "a5ae136884f43861e40741990fb5b3fc4168a1fd24fa47193c3c8f8b93fecf0a"},
        {"data/shakespeare/input.txt", 338025,
         "0c00ab83dc7f46665805762aa7688fb7852f03f28c4a5d84061871e85ea7c815"},
    };
    bp_tokenizer *tokenizer = load_gpt2();
    bp_encoder *encoder = encoder_of(tokenizer);

    (void)state;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        char *text, sha256[BP_SHA256_HEX];
        size_t bytes;
        bp_ids ids = {0};

        bp_test_expect(bp_file_read(bp_test_shared(known[k].file), 1 << 28, &text, &bytes), BP_OK);
        bp_test_expect(bp_encode(encoder, text, bytes, &ids), BP_OK);
        assert_int_equal(ids.count, known[k].count);
        bp_sha256_of(ids.data, (size_t)ids.count * sizeof *ids.data, sha256);
        assert_string_equal(sha256, known[k].sha256);
        bp_free(text);
        bp_ids_clear(&ids);
    }
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

static void pieces_of_real_text_are_those_of_the_pattern(void **state)
{
    static const char *const files[] = {"data/wikitext-2/valid.txt", "data/tang/test.jsonl",
                                        "data/shakespeare/input.txt"};
    pattern_twin twin = pattern_twin_new(PATTERN_TWIN);

    (void)state;
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        char *text;
        size_t bytes;

        bp_test_expect(bp_file_read(bp_test_shared(files[k]), 1 << 28, &text, &bytes), BP_OK);
        if (twin.code != NULL)
            compare_with_pattern(&twin, text, bytes);
        bp_free(text);
    }
    pattern_twin_free(&twin);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_ids_are_openais),
        cmocka_unit_test(gpt2_ids_of_real_text_are_openais),
        cmocka_unit_test(pieces_of_real_text_are_those_of_the_pattern),
    };

    return BP_TEST_RUN(tests);
}
