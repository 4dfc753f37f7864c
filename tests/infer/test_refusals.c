/* What a scoring job refuses, with its code and the two values that do not fit. */
#include "bp_test_mpi.h"

#include "scoring_world.h"

static const toy_corpus plain = {.documents = 3, .length = 50, .vocab_size = 500, .eod_id = 499};

/* Opening alone: everything refused here is refused before the first window. */
static bp_err open_with(const bp_model_info *model, const char *corpus, const char *pairs)
{
    hash_job job;
    bp_err err =
        job_open(&job, MPI_COMM_SELF, &one_rank, model, bp_test_path("run"), corpus, pairs);

    job_close(&job);
    return err;
}

static void context_beyond_the_models_is_78(void **state)
{
    (void)state;
    const char *corpus = toy_write(&plain, "context.h5");

    bp_test_expect(open_with(&world_model, corpus, "score.context=64"), BP_OK);
    bp_test_expect(open_with(&world_model, corpus, "score.context=65"), BP_ERR_CONFIG);
    bp_test_message_has("[score.context_too_long]");
    bp_test_message_has("64");
}

static void strides_that_make_no_sense_are_78(void **state)
{
    (void)state;
    const char *corpus = toy_write(&plain, "stride.h5");

    bp_test_expect(open_with(&world_model, corpus, "score.stride=65"), BP_ERR_CONFIG);
    bp_test_message_has("[score.stride_too_long]");
    bp_test_message_has("score.stride = 65 ... [score.stride_too_long]");
    bp_test_expect(open_with(&world_model, corpus, "score.convention=stride score.stride=65"),
                   BP_ERR_CONFIG);
    bp_test_expect(open_with(&world_model, corpus, "score.convention=half score.stride=32"),
                   BP_ERR_CONFIG);
    bp_test_message_has("[score.stride_not_context]");
    bp_test_expect(open_with(&world_model, corpus, "score.convention=half score.stride=64"), BP_OK);
}

static void contexts_that_score_nothing_are_78(void **state)
{
    (void)state;
    const char *corpus = toy_write(&plain, "nothing.h5");

    bp_test_expect(open_with(&world_model, corpus, "score.context=1"), BP_OK);
    bp_test_expect(open_with(&world_model, corpus, "score.convention=stride score.context=1"),
                   BP_ERR_CONFIG);
    bp_test_message_has("[score.context_too_short]");
    bp_test_expect(open_with(&world_model, corpus, "score.convention=half score.context=2"),
                   BP_ERR_CONFIG);
    bp_test_expect(open_with(&world_model, corpus, "score.convention=half score.context=3"), BP_OK);
}

/* What needs no files is found by the configuration's check, all faults at once. */
static void check_finds_all_faults_of_the_keys(void **state)
{
    (void)state;
    bp_config *config =
        make_config("run", "c.h5", "score.convention=half score.context=2 score.stride=9");

    bp_score_check(config);
    bp_test_expect(bp_config_faults(config), BP_ERR_CONFIG);
    bp_test_message_has("score.context = 2 ... [score.context_too_short]");
    bp_test_message_has("score.stride = 9 ... [score.stride_too_long]");
    bp_config_free(&config);
    config = make_config("run", "c.h5", "score.context=8 score.stride=8");
    bp_score_check(config);
    bp_test_expect(bp_config_faults(config), BP_OK);
    bp_config_free(&config);
}

static void another_tokenizer_is_65_with_both_hashes(void **state)
{
    (void)state;
    toy_corpus other = plain;
    bp_model_info untold = world_model;

    other.hash = TOY_HASH_B;
    bp_test_expect(open_with(&world_model, toy_write(&other, "hash.h5"), ""), BP_ERR_FORMAT);
    bp_test_message_has(TOY_HASH_A);
    bp_test_message_has(TOY_HASH_B);
    bp_test_message_has("hash.h5 ... [tokenizer.mismatch]");
    untold.tokenizer_hash[0] = '\0'; /* vocab_size alone is checked then */
    bp_test_expect(open_with(&untold, bp_test_path("hash.h5"), ""), BP_OK);
}

static void another_vocabulary_is_65_with_both_sizes(void **state)
{
    (void)state;
    toy_corpus other = plain;

    other.vocab_size = 501;
    other.eod_id = 500;
    bp_test_expect(open_with(&world_model, toy_write(&other, "vocab.h5"), ""), BP_ERR_FORMAT);
    bp_test_message_has("501 and 500 ... [vocabulary.mismatch]");
    other.vocab_size = 400;
    other.eod_id = 399;
    bp_test_expect(open_with(&world_model, toy_write(&other, "fewer.h5"), ""), BP_OK);
}

static void another_end_of_document_token_is_65(void **state)
{
    (void)state;
    bp_model_info model = world_model;

    model.eod_id = 0;
    bp_test_expect(open_with(&model, toy_write(&plain, "eod.h5"), ""), BP_ERR_FORMAT);
    bp_test_message_has("499 and 0 ... [vocabulary.eod_mismatch]");
}

static void two_corpora_of_one_name_are_78(void **state)
{
    (void)state;
    char list[2 * PATH_MAX];

    bp_test_expect(bp_dir_make(bp_test_path("folder")), BP_OK);
    snprintf(list, sizeof(list), "%s,%s", toy_write(&plain, "same.h5"),
             toy_write(&plain, "folder/same.hdf5"));
    bp_test_expect(open_with(&world_model, list, ""), BP_ERR_CONFIG);
    bp_test_message_has("folder/same.hdf5 ... [corpus.same_name]");
}

static void missing_corpus_is_66(void **state)
{
    (void)state;
    bp_test_expect(open_with(&world_model, bp_test_path("none.h5"), ""), BP_ERR_INPUT);
}

/* An end-of-document token that only the model knows is its prefix; without any there is none. */
static void prefix_and_end_need_an_end_of_document_token(void **state)
{
    (void)state;
    toy_corpus bare = plain;
    bp_model_info model = world_model;
    hash_job job;

    bare.eod_id = -1;
    (void)toy_write(&bare, "bare.h5");
    bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &model, bp_test_path("run"),
                            bp_test_path("bare.h5"), "score.end=yes"),
                   BP_OK);
    assert_false(job.self.rule.prefix);
    assert_false(job.self.rule.end);
    job_close(&job);
    model.eod_id = 3;
    bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &model, bp_test_path("run"),
                            bp_test_path("bare.h5"), "score.end=yes"),
                   BP_OK);
    assert_true(job.self.rule.prefix);
    assert_true(job.self.rule.end);
    assert_int_equal(job.self.rule.eod, 3);
    job_close(&job);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_beyond_the_models_is_78),
        cmocka_unit_test(strides_that_make_no_sense_are_78),
        cmocka_unit_test(contexts_that_score_nothing_are_78),
        cmocka_unit_test(check_finds_all_faults_of_the_keys),
        cmocka_unit_test(another_tokenizer_is_65_with_both_hashes),
        cmocka_unit_test(another_vocabulary_is_65_with_both_sizes),
        cmocka_unit_test(another_end_of_document_token_is_65),
        cmocka_unit_test(two_corpora_of_one_name_are_78),
        cmocka_unit_test(missing_corpus_is_66),
        cmocka_unit_test(prefix_and_end_need_an_end_of_document_token),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
