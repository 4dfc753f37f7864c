/* A corpus: lists, globs, and files that do not belong together. */
#include "bp_test.h"

#include "data/corpus.h"
#include "toy_corpus.h"

static const toy_corpus plain = {.documents = 3, .length = 10, .vocab_size = 100, .eod_id = 99};

static bp_err open_and_close(const char *list)
{
    bp_corpus *corpus = (bp_corpus *)1;
    bp_err err = bp_corpus_open(&corpus, list);

    if (err != BP_OK)
        assert_null(corpus);
    bp_corpus_close(&corpus);
    assert_null(corpus);
    return err;
}

static void list_is_opened_in_the_order_given(void **state)
{
    toy_corpus longer = plain;
    bp_corpus *corpus;
    char list[2048];

    longer.documents = 5;
    snprintf(list, sizeof(list), "%s , %s", toy_write(&longer, "b.h5"), toy_write(&plain, "a.h5"));
    bp_test_expect(bp_corpus_open(&corpus, list), BP_OK);
    assert_int_equal(bp_corpus_files(corpus), 2);
    assert_int_equal(bp_corpus_documents(corpus), 8);
    assert_int_equal(bp_corpus_tokens(corpus), 88);
    assert_int_equal(bp_corpus_vocab_size(corpus), 100);
    assert_int_equal(bp_corpus_eod(corpus), 99);
    assert_string_equal(bp_corpus_tokenizer_hash(corpus), TOY_HASH_A);
    assert_int_equal(bp_corpus_file_info(bp_corpus_file_at(corpus, 0))->documents, 5);
    bp_corpus_close(&corpus);
}

static void glob_is_sorted_by_name(void **state)
{
    toy_corpus longer = plain;
    bp_corpus *corpus;

    longer.documents = 5;
    toy_write(&longer, "g2.h5");
    toy_write(&plain, "g1.h5");
    bp_test_expect(bp_corpus_open(&corpus, bp_test_path("g?.h5")), BP_OK);
    assert_int_equal(bp_corpus_files(corpus), 2);
    assert_int_equal(bp_corpus_file_info(bp_corpus_file_at(corpus, 0))->documents, 3);
    bp_corpus_close(&corpus);
}

static void name_that_exists_is_no_pattern_and_no_list(void **state)
{
    bp_test_expect(open_and_close(toy_write(&plain, "a[1].h5")), BP_OK);
    bp_test_expect(open_and_close(toy_write(&plain, "a,b.h5")), BP_OK);
}

static void missing_files_are_66(void **state)
{
    bp_test_expect(open_and_close(bp_test_path("none*.h5")), BP_ERR_INPUT);
    bp_test_message_has("none*.h5 ... [corpus.no_match]");
    bp_test_expect(open_and_close(bp_test_path("none.h5")), BP_ERR_INPUT);
    bp_test_message_has("none.h5 ... [file.missing]");
}

static void empty_items_are_78(void **state)
{
    char list[2048];

    bp_test_expect(open_and_close(""), BP_ERR_CONFIG);
    bp_test_expect(open_and_close("  "), BP_ERR_CONFIG);
    snprintf(list, sizeof(list), "%s,", toy_write(&plain, "e.h5"));
    bp_test_expect(open_and_close(list), BP_ERR_CONFIG);
}

static void other_vocabularies_are_78_with_both_values(void **state)
{
    toy_corpus other = plain;
    char list[2048];
    const char *first = toy_write(&plain, "first.h5");

    other.vocab_size = 101;
    snprintf(list, sizeof(list), "%s,%s", first, toy_write(&other, "vocab.h5"));
    bp_test_expect(open_and_close(list), BP_ERR_CONFIG);
    bp_test_message_has("[corpus.mismatch]");
    bp_test_message_has("100 and 101 ... [corpus.mismatch]");
    other = plain;
    other.eod_id = -1;
    snprintf(list, sizeof(list), "%s,%s", first, toy_write(&other, "eod.h5"));
    bp_test_expect(open_and_close(list), BP_ERR_CONFIG);
    bp_test_message_has("[corpus.mismatch]");
    bp_test_message_has("99 and -1 ... [corpus.mismatch]");
    other = plain;
    other.hash = TOY_HASH_B;
    snprintf(list, sizeof(list), "%s,%s", first, toy_write(&other, "hash.h5"));
    bp_test_expect(open_and_close(list), BP_ERR_CONFIG);
    bp_test_message_has(TOY_HASH_B);
}

static void hash_tells_content_and_order_not_path(void **state)
{
    toy_corpus other = plain;
    char lists[4][4096], hashes[4][BP_SHA256_HEX];
    const char *a = toy_write(&plain, "h1.h5"), *copy = toy_write(&plain, "copy.h5"), *b;

    other.salt = 1;
    b = toy_write(&other, "h2.h5");
    snprintf(lists[0], sizeof(lists[0]), "%s,%s", a, b);
    snprintf(lists[1], sizeof(lists[1]), "%s,%s", copy, b);
    snprintf(lists[2], sizeof(lists[2]), "%s,%s", b, a);
    snprintf(lists[3], sizeof(lists[3]), "%s", a);
    for (int i = 0; i < 4; i++) {
        bp_corpus *corpus;

        bp_test_expect(bp_corpus_open(&corpus, lists[i]), BP_OK);
        memcpy(hashes[i], bp_corpus_hash(corpus), BP_SHA256_HEX);
        bp_corpus_close(&corpus);
    }
    assert_string_equal(hashes[0], hashes[1]);
    assert_string_not_equal(hashes[0], hashes[2]);
    assert_string_not_equal(hashes[0], hashes[3]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_opened_in_the_order_given),
        cmocka_unit_test(glob_is_sorted_by_name),
        cmocka_unit_test(name_that_exists_is_no_pattern_and_no_list),
        cmocka_unit_test(missing_files_are_66),
        cmocka_unit_test(empty_items_are_78),
        cmocka_unit_test(other_vocabularies_are_78_with_both_values),
        cmocka_unit_test(hash_tells_content_and_order_not_path),
    };
    return BP_TEST_RUN(tests);
}
