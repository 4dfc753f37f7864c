/* Whether two score folders are of one text: what their hashes of tokens tell, and what is said
 * where there are none. Real folders are compared in tests/jobs/test_compare.py. */
#include "bp_test.h"

#include "compare/comparison.h"

#include "base/mem.h"

enum { DOCUMENTS = 3 };

#define SUMMARY                                                                                    \
    "{\"bytes\": 18, \"words\": 3, \"convention\": {\"name\": \"full\", \"prefix\": \"eod\","      \
    " \"context\": 8, \"stride\": 8, \"end\": false, \"tokenizer_hash\": \"%s\"}}"

static double nll[DOCUMENTS] = {1, 2, 3};
static int64_t tokens[DOCUMENTS] = {4, 5, 6}, bytes[DOCUMENTS] = {5, 6, 7},
               words[DOCUMENTS] = {1, 1, 1}, corpus_start[] = {0, DOCUMENTS};
static uint64_t hashes[DOCUMENTS] = {7, UINT64_MAX, 9}, others[DOCUMENTS] = {7, 8, 9};
static const char *names[] = {"x"};
static char ids[] = "a\0b\0c";

static score_folder folder(const char *given, const char *tokenizer, uint64_t *token_hash)
{
    char *text = bp_sprintf(SUMMARY, tokenizer);
    json_t *summary = json_loads(text, 0, NULL);

    assert_non_null(summary);
    bp_free(text);
    return (score_folder){.given = given,
                          .summary_path = "summary.json",
                          .summary = summary,
                          .corpora = 1,
                          .documents = DOCUMENTS,
                          .corpus_names = names,
                          .corpus_start = corpus_start,
                          .nll = nll,
                          .tokens = tokens,
                          .bytes = bytes,
                          .words = words,
                          .token_hash = token_hash,
                          .ids = ids,
                          .id_width = 2};
}

/* *c is left with what comparison_check said; end() it. */
static bp_err begin(comparison *c, const char *const tokenizers[2], uint64_t *a, uint64_t *b)
{
    *c = (comparison){.scores = {folder("A", tokenizers[0], a), folder("B", tokenizers[1], b)}};
    return comparison_check(c);
}

/* What the folders borrow is no comparison_clear's to free. */
static void end(comparison *c)
{
    for (int side = 0; side < 2; side++) {
        json_decref(c->scores[side].summary);
        c->scores[side] = (score_folder){0};
    }
    comparison_clear(c);
}

static const char *const one[2] = {"t", "t"}, *const two[2] = {"t", "u"},
                         *const untold[2] = {"", ""};

static void equal_hashes_tell_equal_texts(void **state)
{
    comparison c;

    (void)state;
    bp_test_expect(begin(&c, one, hashes, hashes), BP_OK);
    assert_int_equal(c.evidence, EVIDENCE_TOKEN_HASH);
    assert_int_equal(c.unit, UNIT_TOKEN);
    assert_int_equal(c.remark_count, 0);
    end(&c);
}

static void the_first_document_of_another_hash_is_named(void **state)
{
    comparison c;

    (void)state;
    bp_test_expect(begin(&c, one, hashes, others), BP_ERR_FORMAT);
    bp_test_message_has("the texts differ: document 1 ('b') of corpus 'x' has other tokens in A");
    end(&c);
}

static void hashes_of_two_tokenizers_tell_nothing(void **state)
{
    comparison c;

    (void)state;
    bp_test_expect(begin(&c, two, hashes, others), BP_OK);
    assert_int_equal(c.evidence, EVIDENCE_COUNTS);
    assert_int_equal(c.unit, UNIT_BYTE);
    end(&c);
}

static void without_hashes_counts_do_and_that_is_said(void **state)
{
    static const char *const said[] = {"A is of an older", "B is of an older",
                                       "A and B are of an older"};

    (void)state;
    for (int k = 0; k < 3; k++) {
        comparison c;

        bp_test_expect(begin(&c, one, k == 1 ? hashes : NULL, k == 0 ? hashes : NULL), BP_OK);
        assert_int_equal(c.evidence, EVIDENCE_COUNTS);
        assert_int_equal(c.unit, UNIT_TOKEN);
        assert_int_equal(c.remark_count, 1);
        assert_non_null(strstr(c.remarks[0], said[k]));
        end(&c);
    }
}

static void other_hashes_of_unknown_tokenizers_are_taken_for_other_tokens(void **state)
{
    comparison c;

    (void)state;
    bp_test_expect(begin(&c, untold, hashes, others), BP_OK);
    assert_int_equal(c.evidence, EVIDENCE_COUNTS);
    assert_int_equal(c.unit, UNIT_BYTE);
    end(&c);
    bp_test_expect(begin(&c, untold, hashes, hashes), BP_OK);
    assert_int_equal(c.evidence, EVIDENCE_TOKEN_HASH);
    assert_int_equal(c.unit, UNIT_TOKEN);
    end(&c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_hashes_tell_equal_texts),
        cmocka_unit_test(the_first_document_of_another_hash_is_named),
        cmocka_unit_test(hashes_of_two_tokenizers_tell_nothing),
        cmocka_unit_test(without_hashes_counts_do_and_that_is_said),
        cmocka_unit_test(other_hashes_of_unknown_tokenizers_are_taken_for_other_tokens),
    };
    return BP_TEST_RUN(tests);
}
