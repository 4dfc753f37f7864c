/* Starts of documents in windows: those of the whole column, in any order, in the memory of one
 * window. */
#include "bp_test.h"

#include "data/document_starts.h"
#include "toy_corpus.h"

/* Three windows of one file, and a few documents of the next one. */
static const toy_corpus many = {
    .documents = 2 * BP_DOCUMENT_STARTS + 5, .length = 1, .vocab_size = 100, .eod_id = -1};
static const int64_t lengths[4] = {3, 0, 0, 2};
static const toy_corpus few = {.documents = 4, .lengths = lengths, .vocab_size = 100, .eod_id = 99};

static bp_corpus *open_both(void)
{
    bp_corpus *corpus;
    char list[2048];

    snprintf(list, sizeof list, "%s,%s", toy_write(&few, "few.h5"), toy_write(&few, "more.h5"));
    bp_test_expect(bp_corpus_open(&corpus, list), BP_OK);
    return corpus;
}

static void expect_document(bp_document_starts *starts, int64_t file, int64_t document,
                            int64_t begin, int64_t end)
{
    const int64_t *start;

    bp_test_expect(bp_document_starts_at(starts, file, document, &start), BP_OK);
    assert_int_equal(start[0], begin);
    assert_int_equal(start[1], end);
}

static void windows_move_from_file_to_file(void **state)
{
    bp_corpus *corpus = open_both();
    bp_document_starts *starts = bp_document_starts_new(corpus);

    (void)state;
    for (int64_t file = 1; file >= 0; file--) {
        expect_document(starts, file, 3, 6, 9);
        expect_document(starts, file, 0, 0, 4);
        expect_document(starts, file, 1, 4, 5);
        bp_test_expect(bp_document_starts_check(starts, file), BP_OK);
    }
    bp_document_starts_free(&starts);
    bp_document_starts_free(&starts);
    bp_corpus_close(&corpus);
}

static void many_documents_need_one_window(void **state)
{
    bp_corpus *corpus;
    bp_document_starts *starts;
    size_t before;

    (void)state;
    bp_test_expect(bp_corpus_open(&corpus, toy_write(&many, "many.h5")), BP_OK);
    before = bp_mem_now_bytes();
    starts = bp_document_starts_new(corpus);
    for (int64_t d = 0; d < many.documents; d++)
        expect_document(starts, 0, d, d, d + 1);
    for (int64_t d = many.documents - 1; d >= 0; d -= BP_DOCUMENT_STARTS - 1)
        expect_document(starts, 0, d, d, d + 1);
    bp_test_expect(bp_document_starts_check(starts, 0), BP_OK);
    expect_document(starts, 0, BP_DOCUMENT_STARTS, BP_DOCUMENT_STARTS, BP_DOCUMENT_STARTS + 1);
    assert_true(bp_mem_now_bytes() - before < (size_t)(BP_DOCUMENT_STARTS + 100) * sizeof(int64_t));
    bp_document_starts_free(&starts);
    bp_corpus_close(&corpus);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_move_from_file_to_file),
        cmocka_unit_test(many_documents_need_one_window),
    };
    return BP_TEST_RUN(tests);
}
