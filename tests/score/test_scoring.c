/* The scoring loop: what it writes is what plain loops give, on any mesh, in one go or several. */
#include "bp_test_mpi.h"

#include "base/fault.h"
#include "base/signals.h"
#include "scoring_world.h"
#include "store/h5.h"
#include "store/user_block.h"

#define WORLD MPI_COMM_WORLD

/* Documents of all kinds: empty, one token, shorter and longer than a window, longer than a work
 * unit. */
enum { DOCUMENTS = 900 };
static int64_t lengths[DOCUMENTS];
static const toy_corpus toy = {
    .documents = DOCUMENTS, .lengths = lengths, .vocab_size = 500, .eod_id = 499};
static const toy_corpus small = {
    .documents = 7, .length = 63, .vocab_size = 500, .eod_id = 499, .salt = 1};
static char corpora[2 * PATH_MAX];

static void corpora_are_made(void **state)
{
    (void)state;
    for (int64_t d = 0; d < DOCUMENTS; d++)
        lengths[d] = d * d * 31 % 140;
    lengths[3] = 0;
    lengths[4] = 1;
    lengths[5] = 64;
    lengths[6] = 65;
    lengths[7] = 128;
    lengths[100] = 40000;
    if (bp_comm_is_root(WORLD)) {
        (void)toy_write(&toy, "toy.h5");
        (void)toy_write(&small, "small.h5");
    }
    snprintf(corpora, sizeof(corpora), "%s,%s", bp_test_path("toy.h5"), bp_test_path("small.h5"));
    BP_MPI(MPI_Barrier(WORLD));
}

/* A fresh name for a run folder, equal on all ranks. */
static const char *run_dir(void)
{
    static int count;
    char name[32];

    snprintf(name, sizeof(name), "run%d", count++);
    return bp_test_path(name);
}

static char *score_path(const char *dir, const char *name)
{
    char *path = bp_test_path_place();

    snprintf(path, PATH_MAX, "%s/score/%s", dir, name);
    return path;
}

/* ---- plain loops ---- */

/* One document: values[k] = log-probability of stored token k, NaN where not scored; returns the
 * sum of their negatives. */
static double plain_document(const bp_score_rule *rule, const toy_corpus *corpus, int64_t d,
                             float *values, int64_t *tokens)
{
    int64_t n = toy_length(corpus, d), line = bp_score_line(rule, n);
    double nll = 0;

    *tokens = 0;
    for (int64_t k = 0; k <= n; k++)
        values[k] = NAN;
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
            values[place + 1] = hash_logprob(history, target);
            nll -= (double)values[place + 1];
            (*tokens)++;
        }
    }
    return nll;
}

/* Compare the files of a run with plain loops over both corpora. On one rank. */
static void check_files(const char *dir, const bp_score_rule *rule)
{
    const toy_corpus *both[2] = {&toy, &small};
    bp_h5 *tokens_file, *documents_file;
    bp_user_block block;
    int64_t token_at = 0, document_at = 0;

    bp_test_expect(bp_user_block_verify(&block, score_path(dir, "tokens.h5")), BP_OK);
    bp_test_expect(bp_user_block_expect(&block, "score-tokens", 1, dir), BP_OK);
    bp_test_expect(bp_user_block_verify(&block, score_path(dir, "documents.h5")), BP_OK);
    bp_test_expect(bp_user_block_expect(&block, "score-documents", 1, dir), BP_OK);
    bp_test_expect(bp_h5_open(&tokens_file, score_path(dir, "tokens.h5")), BP_OK);
    bp_test_expect(bp_h5_open(&documents_file, score_path(dir, "documents.h5")), BP_OK);
    for (int c = 0; c < 2; c++) {
        for (int64_t d = 0; d < both[c]->documents; d++, document_at++) {
            int64_t n = toy_length(both[c], d), tokens, got_tokens, got_bytes;
            static float want[50000], got[50000];
            double nll = plain_document(rule, both[c], d, want, &tokens), got_nll;
            uint32_t kind;

            bp_test_expect(bp_h5_read(tokens_file, "logprob", BP_H5_F32, token_at, got, n + 1),
                           BP_OK);
            for (int64_t k = 0; k <= n; k++)
                assert_true(isnan(want[k]) ? isnan(got[k]) : want[k] == got[k]);
            bp_test_expect(bp_h5_read(documents_file, "nll", BP_H5_F64, document_at, &got_nll, 1),
                           BP_OK);
            bp_test_expect(
                bp_h5_read(documents_file, "tokens", BP_H5_I64, document_at, &got_tokens, 1),
                BP_OK);
            bp_test_expect(
                bp_h5_read(documents_file, "bytes", BP_H5_I64, document_at, &got_bytes, 1), BP_OK);
            bp_test_expect(
                bp_h5_read(documents_file, "labels/kind", BP_H5_U32, document_at, &kind, 1), BP_OK);
            assert_true(nll == got_nll); /* steps of 2^-21: both sums are exact */
            assert_int_equal(tokens, got_tokens);
            assert_int_equal(got_bytes, toy_row(both[c], d).bytes);
            assert_int_equal(kind, d % 3);
            token_at += n + 1;
        }
    }
    bp_h5_drop(&documents_file);
    bp_h5_drop(&tokens_file);
}

static bool same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t nx = 0, ny = 0;
    bool same = bp_file_read(a, 1 << 28, &x, &nx) == BP_OK &&
                bp_file_read(b, 1 << 28, &y, &ny) == BP_OK && nx == ny && memcmp(x, y, nx) == 0;

    bp_free(x);
    bp_free(y);
    return same;
}

static void check_same_files(const char *a, const char *b)
{
    static const char *const names[] = {"summary.json", "documents.h5", "tokens.h5"};
    bool root = bp_comm_is_root(WORLD);

    for (int i = 0; i < 3; i++)
        bp_test_check(WORLD, !root || same_file(score_path(a, names[i]), score_path(b, names[i])));
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
            check_files(dir, &settings[i].rule);
        BP_MPI(MPI_Barrier(WORLD));
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

/* ---- stopping and going on ---- */

static int64_t count_windows(const hash_job *job)
{
    return bp_all_sum_int(job->model->windows, WORLD);
}

/* The second unit of some rank (there are more units than ranks) meets a full disk; all ranks say
 * so, and what is done is not done again. */
static void full_disk_is_74_and_the_rest_is_done_later(void **state)
{
    (void)state;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    const char *whole = run_dir(), *broken = run_dir(), *pairs = settings[0].pairs;
    int64_t windows;
    hash_job job;

    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, &world_model, whole, corpora, pairs),
                      BP_OK);
    bp_test_check_err(WORLD, scorer_run_units(&job.self), BP_OK);
    bp_test_check_err(WORLD, scorer_finish(&job.self), BP_OK);
    windows = count_windows(&job);
    job_close(&job);

    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, &world_model, broken, corpora, pairs),
                      BP_OK);
    bp_fault_arm("score.part:2");
    bp_test_check_err(WORLD, scorer_run_units(&job.self), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_message_has(".part");
    job_close(&job);

    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, &world_model, broken, corpora, pairs),
                      BP_OK);
    bp_test_check_err(WORLD, scorer_run_units(&job.self), BP_OK);
    bp_test_check_err(WORLD, scorer_finish(&job.self), BP_OK);
    int64_t again = count_windows(&job);
    bp_test_check(WORLD, again > 0 && again < windows);
    job_close(&job);
    check_same_files(whole, broken);
}

/* A disk that fills up while the tables are written: nothing half-written is left, and the same
 * again succeeds. */
static void full_disk_at_the_end_is_74_and_nothing_is_lost(void **state)
{
    (void)state;
    static const char *const faults[] = {"store.write:1", "store.write:15", "base.write:1"};
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    const char *whole = run_dir(), *broken = run_dir(), *pairs = settings[0].pairs;
    hash_job job;

    bp_test_check_err(WORLD, job_run(WORLD, &shape, &world_model, whole, corpora, pairs), BP_OK);
    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, &world_model, broken, corpora, pairs),
                      BP_OK);
    bp_test_check_err(WORLD, scorer_run_units(&job.self), BP_OK);
    for (int i = 0; i < 3; i++) {
        bp_fault_arm(faults[i]);
        bp_test_check_err(WORLD, scorer_finish(&job.self), BP_ERR_IO);
        bp_fault_arm(NULL);
        bp_test_check(WORLD, !bp_path_exists(score_path(broken, "tokens.h5.tmp")));
        bp_test_check(WORLD, !bp_path_exists(score_path(broken, "summary.json")));
    }
    bp_test_check_err(WORLD, scorer_finish(&job.self), BP_OK);
    job_close(&job);
    check_same_files(whole, broken);
}

/* A record that only half reached the disk, and a file that has no more than its name. */
static void torn_tail_is_scored_again(void **state)
{
    (void)state;
    bool root = bp_comm_is_root(WORLD);
    const char *whole = run_dir(), *torn = run_dir(), *pairs = settings[0].pairs;
    const char *part = score_path(torn, "parts/000001-00000.part");
    hash_job job;

    if (root) {
        bp_test_expect(job_run(MPI_COMM_SELF, &one_rank, &world_model, whole, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &world_model, torn, corpora, pairs),
                       BP_OK);
        bp_test_expect(scorer_run_units(&job.self), BP_OK);
        int64_t windows = job.model->windows;
        job_close(&job);
        assert_int_equal(truncate(part, bp_file_size(part) - 1), 0);
        (void)bp_file_write(score_path(torn, "parts/000001-00001.part"), "bag", 3);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &world_model, torn, corpora, pairs),
                       BP_OK);
        bp_test_expect(scorer_run_units(&job.self), BP_OK);
        assert_in_range(job.model->windows, 1, windows / 2); /* one unit of several */
        bp_test_expect(scorer_finish(&job.self), BP_OK);
        job_close(&job);
    }
    check_same_files(whole, torn);
}

static void parts_of_other_work_are_left_out(void **state)
{
    (void)state;
    bool root = bp_comm_is_root(WORLD);
    const char *whole = run_dir(), *mixed = run_dir(), *pairs = settings[0].pairs;
    bp_lm_info other = world_model;
    hash_job job;

    if (root) {
        snprintf(other.digest, sizeof(other.digest), "d2");
        bp_test_expect(job_run(MPI_COMM_SELF, &one_rank, &world_model, whole, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &other, mixed, corpora, pairs),
                       BP_OK);
        bp_test_expect(scorer_run_units(&job.self), BP_OK);
        int64_t windows = job.model->windows;
        job_close(&job);
        bp_test_expect(
            job_open(&job, MPI_COMM_SELF, &one_rank, &world_model, mixed, corpora, pairs), BP_OK);
        bp_test_expect(scorer_run_units(&job.self), BP_OK);
        assert_int_equal(job.model->windows, windows);
        bp_test_expect(scorer_finish(&job.self), BP_OK);
        job_close(&job);
    }
    check_same_files(whole, mixed);
}

static void weights_that_are_not_sound_are_70(void **state)
{
    (void)state;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    hash_job job;

    bp_test_check_err(
        WORLD, job_open(&job, WORLD, &shape, &world_model, run_dir(), corpora, settings[0].pairs),
        BP_OK);
    job.model->nan_at = 1;
    bp_test_check_err(WORLD, scorer_run_units(&job.self), BP_ERR_SOFTWARE);
    bp_test_message_has("log-probability of nan");
    job_close(&job);
}

/* One allocation after the other is refused, on the last rank: all say 71, nobody hangs, and
 * nothing is kept that is wrong. */
static void short_memory_is_71_on_all_ranks(void **state)
{
    (void)state;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    const char *whole = run_dir(), *poor = run_dir(), *pairs = settings[0].pairs;
    bool last = bp_comm_rank(WORLD) == bp_comm_size(WORLD) - 1;
    bp_err err = BP_ERR_SYSTEM;
    int n = 1;

    bp_test_check_err(WORLD, job_run(WORLD, &shape, &world_model, whole, corpora, pairs), BP_OK);
    for (; err != BP_OK && n < 2000; n += 1 + n / 16) {
        char fault[32];
        hash_job job;

        bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, &world_model, poor, corpora, pairs),
                          BP_OK);
        snprintf(fault, sizeof(fault), "base.alloc:%d", n);
        bp_fault_arm(last ? fault : NULL);
        err = scorer_run_units(&job.self);
        if (err == BP_OK)
            err = scorer_finish(&job.self);
        bp_fault_arm(NULL);
        bp_test_check(WORLD, err == BP_OK || err == BP_ERR_SYSTEM);
        job_close(&job);
    }
    bp_test_check(WORLD, err == BP_OK && n > 10);
    check_same_files(whole, poor);
}

/* The last test: the signal's flag stays set. tests/score/test_score.py goes on after a stop. */
static void signal_on_some_rank_is_75_on_all(void **state)
{
    (void)state;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    hash_job job;

    bp_signals_init();
    bp_test_check_err(
        WORLD, job_open(&job, WORLD, &shape, &world_model, run_dir(), corpora, settings[0].pairs),
        BP_OK);
    job.model->signal_at = 480; /* of 2,100 windows: some rank comes so far */
    bp_test_check_err(WORLD, scorer_run_units(&job.self), BP_ERR_STOPPED);
    bp_test_message_has("the same command goes on");
    bp_test_check(WORLD, count_windows(&job) < 2000);
    job_close(&job);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpora_are_made),
        cmocka_unit_test(files_are_the_plain_loops_files),
        cmocka_unit_test(bytes_are_those_of_one_rank_on_any_mesh),
        cmocka_unit_test(full_disk_is_74_and_the_rest_is_done_later),
        cmocka_unit_test(full_disk_at_the_end_is_74_and_nothing_is_lost),
        cmocka_unit_test(torn_tail_is_scored_again),
        cmocka_unit_test(parts_of_other_work_are_left_out),
        cmocka_unit_test(weights_that_are_not_sound_are_70),
        cmocka_unit_test(short_memory_is_71_on_all_ranks),
        cmocka_unit_test(signal_on_some_rank_is_75_on_all),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
