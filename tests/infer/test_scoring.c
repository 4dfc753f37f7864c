/* The scoring loop: what it writes is what plain loops give, on any mesh. test_scoring_faults.c
 * stops it. */
#include "bp_test_mpi.h"

#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include "scoring_files.h"

/* ---- plain loops ---- */

#define CAPACITY 50000 /* for the tokens of a document */

/* One document: values[c][k] = statistic c of stored token k, NaN where not scored; sums[c] of
 * them.
 */
static void plain_document(const bp_score_rule *rule, const toy_corpus *corpus, int64_t d,
                           int64_t statistics, float *values, double *sums, int64_t *tokens)
{
    int64_t n = toy_length(corpus, d), line = bp_score_line(rule, n);

    *tokens = 0;
    for (int64_t c = 0; c < statistics; c++) {
        sums[c] = 0;
        for (int64_t k = 0; k <= n; k++)
            values[c * CAPACITY + k] = NAN;
    }
    for (int64_t w = 0; w < bp_score_window_count(rule, line); w++) {
        bp_score_window window = bp_score_window_at(rule, line, w);
        uint64_t history = 0;

        for (int64_t j = 0; j < window.inputs; j++) {
            int64_t place = window.first + j - rule->prefix; /* of the input in the text */
            int32_t target = toy_token(corpus, d, place + 1);

            history =
                hash_step(history, place < 0 ? (int32_t)rule->eod : toy_token(corpus, d, place));
            if (j < window.inputs - window.scored)
                continue;
            for (int64_t c = 0; c < statistics; c++) {
                float value =
                    c == 0 ? hash_logprob(history, target) : hash_value(history, target, c);

                values[c * CAPACITY + place + 1] = value;
                sums[c] += (double)value;
            }
            (*tokens)++;
        }
    }
}

static bool same_value(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b;
}

/* Row `row` of a statistic in a file: a dataset, or a column of the members' grid. */
static void read_statistic(bp_h5 *file, int64_t statistic, int64_t members, int64_t row,
                           double *out, int64_t count)
{
    double *grid;

    if (statistic < BP_MODEL_MEMBER) {
        bp_test_expect(
            bp_h5_read(file, bp_model_statistic_name(statistic), BP_H5_F64, row, out, count),
            BP_OK);
        return;
    }
    grid = bp_alloc("test", count * members, sizeof(*grid));
    assert_non_null(grid);
    bp_test_expect(
        bp_h5_read(file, "member_logprob", BP_H5_F64, row * members, grid, count * members), BP_OK);
    for (int64_t k = 0; k < count; k++)
        out[k] = grid[k * members + statistic - BP_MODEL_MEMBER];
    bp_free(grid);
}

static void check_document(bp_h5 *file, int64_t row, const bp_model_info *model, const double *sums,
                           int64_t tokens, const bp_corpus_row *text, int64_t kind)
{
    int64_t got_tokens, got_bytes;
    double got_nll;
    uint32_t got_kind;

    bp_test_expect(bp_h5_read(file, "nll", BP_H5_F64, row, &got_nll, 1), BP_OK);
    bp_test_expect(bp_h5_read(file, "tokens", BP_H5_I64, row, &got_tokens, 1), BP_OK);
    bp_test_expect(bp_h5_read(file, "bytes", BP_H5_I64, row, &got_bytes, 1), BP_OK);
    bp_test_expect(bp_h5_read(file, "labels/kind", BP_H5_U32, row, &got_kind, 1), BP_OK);
    assert_true(-sums[0] == got_nll); /* steps of 2^-21: both sums are exact */
    assert_int_equal(tokens, got_tokens);
    assert_int_equal(got_bytes, text->bytes);
    assert_int_equal(got_kind, kind);
    assert_int_equal(bp_h5_has(file, "logprob"), model->members > 0);
    for (int64_t c = 0; model->members > 0 && c < model->statistics; c++) {
        double mean;

        read_statistic(file, c, model->members, row, &mean, 1);
        assert_true(same_value(sums[c] / (double)tokens, mean));
    }
}

static void check_names(bp_h5 *file, const bp_model_info *model)
{
    char names[9];

    assert_int_equal(bp_h5_has(file, "member_names"), model->members > 0);
    assert_int_equal(bp_h5_has(file, "member_logprob"), model->members > 0);
    if (model->members == 0)
        return;
    bp_test_expect(bp_h5_read_text(file, "member_names", 3, 0, names, 3), BP_OK);
    assert_memory_equal(names, "m00m01m02", 9);
}

/* Compare the files of a run with plain loops over both corpora. On one rank. */
static void check_files(const char *dir, const bp_score_rule *rule, const bp_model_info *model)
{
    const toy_corpus *both[2] = {&toy, &small};
    bp_h5 *tokens_file, *documents_file;
    bp_user_block block;
    int64_t token_at = 0, document_at = 0, statistics = model->statistics;
    uint64_t hash;
    float *want = bp_alloc("test", statistics * CAPACITY, sizeof(*want));
    double *got = bp_alloc("test", CAPACITY, sizeof(*got)), sums[BP_MODEL_MEMBER + 3];

    assert_true(want && got);
    bp_test_expect(bp_user_block_verify(&block, score_path(dir, "tokens.h5")), BP_OK);
    bp_test_expect(bp_user_block_expect(&block, "score-tokens", 1, dir), BP_OK);
    bp_test_expect(bp_user_block_verify(&block, score_path(dir, "documents.h5")), BP_OK);
    bp_test_expect(bp_user_block_expect(&block, "score-documents", 1, dir), BP_OK);
    bp_test_expect(bp_h5_open(&tokens_file, score_path(dir, "tokens.h5")), BP_OK);
    bp_test_expect(bp_h5_open(&documents_file, score_path(dir, "documents.h5")), BP_OK);
    check_names(tokens_file, model);
    check_names(documents_file, model);
    for (int k = 0; k < 2; k++) {
        for (int64_t d = 0; d < both[k]->documents; d++, document_at++) {
            int64_t n = toy_length(both[k], d), tokens;
            bp_corpus_row text = toy_row(both[k], d);

            plain_document(rule, both[k], d, statistics, want, sums, &tokens);
            for (int64_t c = 0; c < statistics; c++) {
                read_statistic(tokens_file, c, model->members, token_at, got, n + 1);
                for (int64_t i = 0; i <= n; i++)
                    assert_true(same_value((double)want[c * CAPACITY + i], got[i]));
            }
            check_document(documents_file, document_at, model, sums, tokens, &text, d % 3);
            bp_test_expect(
                bp_h5_read(documents_file, "token_hash", BP_H5_U64, document_at, &hash, 1), BP_OK);
            assert_true(hash == toy_hash(both[k], d));
            token_at += n + 1;
        }
    }
    bp_h5_drop(&documents_file);
    bp_h5_drop(&tokens_file);
    bp_free(got);
    bp_free(want);
}

/* ---- what is written ---- */

typedef struct setting {
    const char *pairs;
    bp_score_rule rule;
} setting;

static const setting settings[] = {
    {"score.tokens=yes", {BP_SCORE_ROLLING, 64, 64, true, false, 499}},
    {"score.tokens=yes score.stride=17 score.end=yes", {BP_SCORE_ROLLING, 64, 17, true, true, 499}},
    {"score.tokens=yes score.prefix=none", {BP_SCORE_ROLLING, 64, 64, false, false, 499}},
    {"score.tokens=yes score.prefix=none score.end=yes score.context=40",
     {BP_SCORE_ROLLING, 40, 40, false, true, 499}},
    {"score.tokens=yes score.context=1", {BP_SCORE_ROLLING, 1, 1, true, false, 499}},
    {"score.tokens=yes score.convention=stride", {BP_SCORE_STRIDE, 64, 32, false, false, 499}},
    {"score.tokens=yes score.convention=stride score.stride=64 score.end=yes",
     {BP_SCORE_STRIDE, 64, 64, false, true, 499}},
    {"score.tokens=yes score.convention=half", {BP_SCORE_HALF, 64, 64, false, false, 499}},
    {"score.tokens=yes score.convention=half score.context=5",
     {BP_SCORE_HALF, 5, 5, false, false, 499}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static void files_are_the_plain_loops_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < SETTINGS; i++) {
        const char *dir = run_dir();
        bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};

        bp_test_check_err(
            WORLD, job_run(WORLD, &shape, &world_model, dir, corpora, settings[i].pairs), BP_OK);
        if (bp_comm_is_root(WORLD))
            check_files(dir, &settings[i].rule, &world_model);
        BP_MPI(MPI_Barrier(WORLD));
    }
}

static const setting pieces[] = {
    {"score.tokens=yes",
     {BP_SCORE_ROLLING, BP_MODEL_UNLIMITED, BP_MODEL_UNLIMITED, true, false, 499}},
    {"score.tokens=yes score.prefix=none score.end=yes score.context=0",
     {BP_SCORE_ROLLING, BP_MODEL_UNLIMITED, BP_MODEL_UNLIMITED, false, true, 499}},
    {"score.tokens=yes score.context=700 score.stride=100",
     {BP_SCORE_ROLLING, 700, 100, true, false, 499}},
    {"score.tokens=yes score.context=600 score.convention=stride",
     {BP_SCORE_STRIDE, 600, 300, false, false, 499}},
};
#define PIECES (sizeof(pieces) / sizeof(pieces[0]))

/* Of a model without a limit: a document is one window, and no piece forgets what was before. */
static void a_document_is_one_window_in_pieces(void **state)
{
    (void)state;
    bp_model_info model = hash_unlimited();

    for (size_t i = 0; i < PIECES; i++) {
        const char *dir = run_dir(), *alone = run_dir();
        bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
        hash_job job;

        bp_test_check_err(
            WORLD, job_open(&job, WORLD, &shape, &model, dir, corpora, pieces[i].pairs), BP_OK);
        bp_test_check_err(WORLD, job_do_units(&job), BP_OK);
        bp_test_check_err(WORLD, job_merge(&job), BP_OK);
        bp_test_check(WORLD,
                      bp_all_sum_int(job.model ? job.model->resumed : 0, WORLD) >= 40000 / 256);
        job_close(&job);
        if (bp_comm_is_root(WORLD)) {
            check_files(dir, &pieces[i].rule, &model);
            bp_test_expect(
                job_run(MPI_COMM_SELF, &one_rank, &model, alone, corpora, pieces[i].pairs), BP_OK);
        }
        check_same_files(alone, dir);
    }
}

static void without_a_limit_only_rolling_has_windows(void **state)
{
    (void)state;
    static const char *const refused[] = {"score.convention=stride", "score.convention=half",
                                          "score.stride=20", "score.context=0 score.stride=20"};
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    bp_model_info model = hash_unlimited();

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        bp_test_check_err(WORLD, job_run(WORLD, &shape, &model, run_dir(), corpora, refused[i]),
                          BP_ERR_CONFIG);
        bp_test_message_has("score.context = 0");
    }
    bp_test_check_err(WORLD,
                      job_run(WORLD, &shape, &world_model, run_dir(), corpora, "score.context=0"),
                      BP_ERR_CONFIG);
    bp_test_message_has("score.context = 0");
}

static void files_of_an_ensemble_have_all_statistics(void **state)
{
    (void)state;
    bp_model_info model = hash_ensemble();

    for (size_t i = 1; i < SETTINGS; i += 5) {
        const char *dir = run_dir();
        bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};

        bp_test_check_err(WORLD, job_run(WORLD, &shape, &model, dir, corpora, settings[i].pairs),
                          BP_OK);
        if (bp_comm_is_root(WORLD))
            check_files(dir, &settings[i].rule, &model);
        BP_MPI(MPI_Barrier(WORLD));
    }
}

/* Side by side (mesh.members), split over tensor ranks, data ranks, a dedicated coordinator. */
static void bytes_of_an_ensemble_are_those_of_one_rank_on_any_mesh(void **state)
{
    (void)state;
    bp_model_info model = hash_ensemble();
    const char *alone = run_dir(), *pairs = settings[1].pairs;

    if (bp_comm_is_root(WORLD))
        bp_test_expect(job_run(MPI_COMM_SELF, &one_rank, &model, alone, corpora, pairs), BP_OK);
    for (int kind = 0; kind < 4; kind++) {
        bp_mesh_shape shape = {1 + (kind > 0), 1, 0, 1 + (kind == 2),
                               kind == 3 ? BP_COORDINATOR_DEDICATED : BP_COORDINATOR_SHARED};
        bp_mesh_shape fitted = shape;
        const char *dir = run_dir();

        if (bp_mesh_shape_fit(&fitted, bp_comm_size(WORLD)) != BP_OK)
            continue;
        bp_test_check_err(WORLD, job_run(WORLD, &shape, &model, dir, corpora, pairs), BP_OK);
        check_same_files(alone, dir);
    }
}

static void bytes_are_those_of_one_rank_on_any_mesh(void **state)
{
    (void)state;
    for (size_t i = 0; i < SETTINGS; i += 4) {
        const char *alone = run_dir();

        if (bp_comm_is_root(WORLD))
            bp_test_expect(
                job_run(MPI_COMM_SELF, &one_rank, &world_model, alone, corpora, settings[i].pairs),
                BP_OK);
        for (int tensor = 1; tensor <= 2; tensor++) {
            for (int dedicated = 0; dedicated < 2; dedicated++) {
                bp_mesh_shape shape = {
                    1, 1, 0, tensor, dedicated ? BP_COORDINATOR_DEDICATED : BP_COORDINATOR_SHARED};
                bp_mesh_shape fitted = shape;
                const char *dir = run_dir();

                if (bp_mesh_shape_fit(&fitted, bp_comm_size(WORLD)) != BP_OK)
                    continue;
                bp_test_check_err(
                    WORLD, job_run(WORLD, &shape, &world_model, dir, corpora, settings[i].pairs),
                    BP_OK);
                check_same_files(alone, dir);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpora_are_made),
        cmocka_unit_test(files_are_the_plain_loops_files),
        cmocka_unit_test(bytes_are_those_of_one_rank_on_any_mesh),
        cmocka_unit_test(a_document_is_one_window_in_pieces),
        cmocka_unit_test(without_a_limit_only_rolling_has_windows),
        cmocka_unit_test(files_of_an_ensemble_have_all_statistics),
        cmocka_unit_test(bytes_of_an_ensemble_are_those_of_one_rank_on_any_mesh),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
