/* Score folders as bagpipe-data reads them back: files that are sealed as ours are and yet are not
 * what scores have. Real ones are read in tests/jobs/test_compare.py. */
#include "bp_test.h"

#include "table/scores.h"

#include "io/h5/h5.h"
#include "io/h5/user_block.h"

#include <math.h>
#include <unistd.h>

enum { DOCUMENTS = 3 };

/* What a folder is made of; a test spoils one thing. */
typedef struct folder_plan {
    const char *kind;
    int version;
    double nll[DOCUMENTS];
    int64_t tokens[DOCUMENTS], bytes[DOCUMENTS], words[DOCUMENTS];
    int64_t corpus_start[3], starts;
    int64_t ids;  /* how many */
    int64_t rows; /* of /words */
    uint64_t hashes[DOCUMENTS];
    int64_t hash_rows; /* 0: a file of an older version */
    bp_h5_type hash_type;
    uint32_t codes[DOCUMENTS];
    const char *summary;
} folder_plan;

#define CORPORA "\"corpora\": {\"x\": {\"documents\": 2}, \"y\": {\"documents\": 1}}}"
static const char SUMMARY[] =
    "{\"documents\": 3, \"tokens\": 6, \"nll_nats\": 7.5, \"convention\": {}, " CORPORA;

static folder_plan good_plan(void)
{
    return (folder_plan){.kind = "score-documents",
                         .version = 1,
                         .nll = {1.5, 2, 4},
                         .tokens = {1, 2, 3},
                         .bytes = {5, 6, -1},
                         .words = {1, 1, -1},
                         .corpus_start = {0, 2, DOCUMENTS},
                         .starts = 3,
                         .ids = DOCUMENTS,
                         .rows = DOCUMENTS,
                         .hashes = {1, UINT64_MAX, 3},
                         .hash_rows = DOCUMENTS,
                         .hash_type = BP_H5_U64,
                         .codes = {1, 2, 0}, /* document 1 has no label */
                         .summary = SUMMARY};
}

static void write_documents(const folder_plan *plan, const char *path)
{
    static const char *const ids[DOCUMENTS] = {"first", "", "third"};
    static const char *const values[2] = {"news", "fiction"};
    bp_user_block block = {.version = plan->version};
    bp_h5 *file;

    bp_test_expect(bp_h5_create(&file, path), BP_OK);
    bp_test_expect(bp_h5_write(file, "corpus_start", BP_H5_I64, plan->corpus_start, plan->starts),
                   BP_OK);
    bp_test_expect(bp_h5_write(file, "nll", BP_H5_F64, plan->nll, DOCUMENTS), BP_OK);
    bp_test_expect(bp_h5_write(file, "tokens", BP_H5_I64, plan->tokens, DOCUMENTS), BP_OK);
    bp_test_expect(bp_h5_write(file, "bytes", BP_H5_I64, plan->bytes, DOCUMENTS), BP_OK);
    bp_test_expect(bp_h5_write(file, "words", BP_H5_I64, plan->words, plan->rows), BP_OK);
    if (plan->hash_rows > 0)
        bp_test_expect(
            bp_h5_write(file, "token_hash", plan->hash_type, plan->hashes, plan->hash_rows), BP_OK);
    if (plan->ids > 0)
        bp_test_expect(bp_h5_write_texts(file, "doc_id", ids, plan->ids), BP_OK);
    bp_test_expect(bp_h5_write(file, "labels/genre", BP_H5_U32, plan->codes, DOCUMENTS), BP_OK);
    bp_test_expect(bp_h5_write_texts(file, "label_names/genre", values, 2), BP_OK);
    bp_test_expect(bp_h5_close(&file), BP_OK);
    (void)snprintf(block.kind, sizeof block.kind, "%s", plan->kind);
    bp_test_expect(bp_user_block_seal(&block, path), BP_OK);
}

static bp_err load(score_folder *scores, const folder_plan *plan)
{
    bp_test_expect(bp_dir_make(bp_test_path("scores")), BP_OK);
    write_documents(plan, bp_test_path("scores/documents.h5"));
    bp_test_write("scores/summary.json", plan->summary, strlen(plan->summary));
    return score_folder_load(scores, bp_test_path("scores"));
}

static void expect(const folder_plan *plan, const char *said)
{
    score_folder scores;

    bp_test_expect(load(&scores, plan), BP_ERR_FORMAT);
    bp_test_message_has(said);
    score_folder_clear(&scores);
}

static void a_folder_is_read_as_it_was_written(void **state)
{
    (void)state;
    folder_plan plan = good_plan();
    score_folder scores;

    bp_test_expect(load(&scores, &plan), BP_OK);
    assert_int_equal(scores.documents, DOCUMENTS);
    assert_int_equal(scores.corpora, 2);
    assert_string_equal(scores.corpus_names[0], "x");
    assert_string_equal(scores.corpus_names[1], "y");
    assert_memory_equal(scores.corpus_start, plan.corpus_start, sizeof plan.corpus_start);
    assert_memory_equal(scores.nll, plan.nll, sizeof plan.nll);
    assert_memory_equal(scores.tokens, plan.tokens, sizeof plan.tokens);
    assert_memory_equal(scores.bytes, plan.bytes, sizeof plan.bytes);
    assert_memory_equal(scores.words, plan.words, sizeof plan.words);
    assert_memory_equal(scores.token_hash, plan.hashes, sizeof plan.hashes);
    assert_string_equal(scores.ids, "first");
    assert_string_equal(scores.ids + scores.id_width, "");
    assert_string_equal(scores.ids + 2 * scores.id_width, "third");
    const score_label *genre = score_folder_label(&scores, "genre");
    assert_non_null(genre);
    assert_null(score_folder_label(&scores, "author"));
    assert_string_equal(genre->values[genre->codes[0]], "fiction");
    assert_int_equal(genre->codes[1], -1);
    assert_string_equal(genre->values[genre->codes[2]], "news");
    score_folder_clear(&scores);
}

static void older_files_have_no_hashes(void **state)
{
    (void)state;
    folder_plan plan = good_plan();
    score_folder scores;

    plan.hash_rows = 0;
    bp_test_expect(load(&scores, &plan), BP_OK);
    assert_null(scores.token_hash);
    score_folder_clear(&scores);
}

static void columns_must_fit_together(void **state)
{
    (void)state;
    folder_plan plan = good_plan();

    plan.rows = 2;
    expect(&plan, "'words' ... [scores.damaged]");
    plan = good_plan();
    plan.hash_rows = 2;
    expect(&plan, "'token_hash' ... [scores.damaged]");
    plan = good_plan();
    plan.hash_type = BP_H5_F64;
    expect(&plan, "'token_hash' ... [scores.damaged]");
    plan = good_plan();
    plan.starts = 2;
    expect(&plan, "'corpus_start' ... [scores.damaged]");
    plan = good_plan();
    plan.ids = 2;
    expect(&plan, "'doc_id' ... [scores.damaged]");
    plan.ids = 0;
    expect(&plan, "doc_id");
}

static void numbers_must_be_possible(void **state)
{
    (void)state;
    folder_plan plan = good_plan();

    plan.nll[1] = NAN;
    expect(&plan, "'nll' ... [scores.damaged]");
    plan = good_plan();
    plan.tokens[2] = -1;
    expect(&plan, "'tokens' ... [scores.damaged]");
    plan = good_plan();
    plan.bytes[0] = -2;
    expect(&plan, "'bytes' ... [scores.damaged]");
    plan = good_plan();
    plan.corpus_start[1] = 4;
    expect(&plan, "'corpus_start' ... [scores.damaged]");
    plan.corpus_start[1] = 2;
    plan.corpus_start[2] = 2;
    expect(&plan, "'corpus_start' ... [scores.damaged]");
    plan = good_plan();
    plan.codes[0] = 3;
    expect(&plan, "'labels/genre' ... [scores.damaged]");
}

static void other_files_are_refused(void **state)
{
    (void)state;
    folder_plan plan = good_plan();

    plan.kind = "score-tokens";
    expect(&plan, "a file of kind 'score-tokens', not 'score-documents'");
    plan = good_plan();
    plan.version = 2;
    expect(&plan, "format_version 2 is newer than 1");
    plan = good_plan();
    plan.summary = "{\"tokens\": 6, \"nll_nats\": 7.5}";
    expect(&plan, "no summary of scores");
    plan.summary =
        "{\"documents\": 3, \"tokens\": 7, \"nll_nats\": 7.5, \"convention\": {}, " CORPORA;
    expect(&plan, "not of one run");
    plan.summary =
        "{\"documents\": 3, \"tokens\": 6, \"nll_nats\": 7.6, \"convention\": {}, " CORPORA;
    expect(&plan, "not of one run");
    plan.summary =
        "{\"documents\": 4, \"tokens\": 6, \"nll_nats\": 7.5, \"convention\": {}, " CORPORA;
    expect(&plan, "other numbers of documents");
    plan.summary = "{\"documents\": 3, \"tokens\": 6, \"nll_nats\": 7.5, \"convention\": {}, "
                   "\"corpora\": {\"x\": {\"documents\": 1}, \"y\": {\"documents\": 2}}}";
    expect(&plan, "other numbers of documents");
    plan.summary = "{\"documents\": 3, \"nll_nats\": 7.5, \"convention\": {}, " CORPORA;
    expect(&plan, "\"tokens\" is missing");
}

static void what_is_missing_is_an_input(void **state)
{
    (void)state;
    score_folder scores;

    bp_test_expect(score_folder_load(&scores, bp_test_path("none")), BP_ERR_INPUT);
    score_folder_clear(&scores);
    folder_plan plan = good_plan();
    bp_test_expect(load(&scores, &plan), BP_OK);
    score_folder_clear(&scores);
    assert_int_equal(unlink(bp_test_path("scores/documents.h5")), 0);
    bp_test_expect(score_folder_load(&scores, bp_test_path("scores")), BP_ERR_INPUT);
    score_folder_clear(&scores);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_read_as_it_was_written),
        cmocka_unit_test(older_files_have_no_hashes),
        cmocka_unit_test(columns_must_fit_together),
        cmocka_unit_test(numbers_must_be_possible),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(what_is_missing_is_an_input),
    };
    return BP_TEST_RUN(tests);
}
