/* Scoring that is stopped: by a full disk, files that are cut short, short memory or a signal. What
 * is done is kept, and the files of the run that goes on are those of a run in one go. */
#include "bp_test_mpi.h"

#include "base/fault.h"
#include "base/process/signals.h"
#include "scoring_files.h"

#define TOKENS_TOO "score.tokens=yes"

static int64_t count_windows(const hash_job *job)
{
    return bp_all_sum_int(job->model->windows, WORLD);
}

/* The second unit of some rank (there are more units than ranks) meets a full disk; all ranks say
 * so, and what is done is not done again. */
static void full_disk_during(const bp_model_info *model)
{
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    const char *whole = run_dir(), *broken = run_dir(), *pairs = TOKENS_TOO;
    int64_t windows;
    hash_job job;

    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, model, whole, corpora, pairs), BP_OK);
    bp_test_check_err(WORLD, job_do_units(&job), BP_OK);
    bp_test_check_err(WORLD, job_merge(&job), BP_OK);
    windows = count_windows(&job);
    job_close(&job);

    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, model, broken, corpora, pairs), BP_OK);
    bp_fault_arm("work.part:2");
    bp_test_check_err(WORLD, job_do_units(&job), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_message_has(".part ... [file.no_space]");
    job_close(&job);

    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, model, broken, corpora, pairs), BP_OK);
    bp_test_check_err(WORLD, job_do_units(&job), BP_OK);
    bp_test_check_err(WORLD, job_merge(&job), BP_OK);
    int64_t again = count_windows(&job);
    bp_test_check(WORLD, again > 0 && again < windows);
    job_close(&job);
    check_same_files(whole, broken);
}

static void full_disk_is_74_and_the_rest_is_done_later(void **state)
{
    (void)state;
    bp_model_info ensemble = hash_ensemble();

    full_disk_during(&world_model);
    full_disk_during(&ensemble);
}

/* What a file is written under before it is whole. */
static bool has_drafts(const char *folder)
{
    char **names;
    int64_t count;
    bool has = false;

    bp_test_expect(bp_dir_list(folder, &names, &count), BP_OK);
    for (int64_t k = 0; k < count; k++)
        has = has || bp_is_temporary_name(names[k]);
    bp_names_free(&names, count);
    return has;
}

/* A disk that fills up while the tables are written: nothing half-written is left, and the same
 * again succeeds. */
static void full_disk_at_the_end_is_74_and_nothing_is_lost(void **state)
{
    (void)state;
    static const char *const faults[] = {"store.write:1", "store.write:15", "base.write:1"};
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    const char *whole = run_dir(), *broken = run_dir(), *pairs = TOKENS_TOO;
    hash_job job;

    bp_test_check_err(WORLD, job_run(WORLD, &shape, &world_model, whole, corpora, pairs), BP_OK);
    bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, &world_model, broken, corpora, pairs),
                      BP_OK);
    bp_test_check_err(WORLD, job_do_units(&job), BP_OK);
    for (int i = 0; i < 3; i++) {
        bp_fault_arm(faults[i]);
        bp_test_check_err(WORLD, job_merge(&job), BP_ERR_IO);
        bp_fault_arm(NULL);
        bp_test_check(WORLD, !has_drafts(score_path(broken, ".")));
        bp_test_check(WORLD, !bp_path_exists(score_path(broken, "summary.json")));
    }
    bp_test_check_err(WORLD, job_merge(&job), BP_OK);
    job_close(&job);
    check_same_files(whole, broken);
}

/* A record that only half reached the disk, and a file that has no more than its name. */
static void torn_tail_of(const bp_model_info *model)
{
    bool root = bp_comm_is_root(WORLD);
    const char *whole = run_dir(), *torn = run_dir(), *pairs = TOKENS_TOO;
    const char *part = score_path(torn, "parts/000001-00000.part");
    hash_job job;

    if (root) {
        bp_test_expect(job_run(MPI_COMM_SELF, &one_rank, model, whole, corpora, pairs), BP_OK);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, model, torn, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_do_units(&job), BP_OK);
        int64_t windows = job.model->windows;
        job_close(&job);
        assert_int_equal(truncate(part, bp_file_size(part) - 1), 0);
        (void)bp_file_write(score_path(torn, "parts/000001-00001.part"), "bag", 3);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, model, torn, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_do_units(&job), BP_OK);
        assert_in_range(job.model->windows, 1, windows / 2); /* one unit of several */
        bp_test_expect(job_merge(&job), BP_OK);
        job_close(&job);
    }
    check_same_files(whole, torn);
}

static void torn_tail_is_scored_again(void **state)
{
    (void)state;
    bp_model_info ensemble = hash_ensemble();

    torn_tail_of(&world_model);
    torn_tail_of(&ensemble);
}

/* A byte of a part file is flipped between two starts: its unit and those after it in the file are
 * scored again. */
static void damaged_part_of_an_ensemble_is_scored_again(void **state)
{
    (void)state;
    bool root = bp_comm_is_root(WORLD);
    bp_model_info model = hash_ensemble();
    const char *whole = run_dir(), *hurt = run_dir(), *pairs = TOKENS_TOO;
    const char *part = score_path(hurt, "parts/000001-00000.part");
    hash_job job;

    if (root) {
        char *data;
        size_t bytes;

        bp_test_expect(job_run(MPI_COMM_SELF, &one_rank, &model, whole, corpora, pairs), BP_OK);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &model, hurt, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_do_units(&job), BP_OK);
        int64_t windows = job.model->windows;
        job_close(&job);
        bp_test_expect(bp_file_read(part, 1 << 30, &data, &bytes), BP_OK);
        data[bytes / 2] ^= 4;
        bp_test_expect(bp_file_write(part, data, bytes), BP_OK);
        bp_free(data);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &model, hurt, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_do_units(&job), BP_OK);
        assert_in_range(job.model->windows, 1, windows - 1);
        bp_test_expect(job_merge(&job), BP_OK);
        job_close(&job);
    }
    check_same_files(whole, hurt);
}

static void parts_of_other_work_are_left_out(void **state)
{
    (void)state;
    bool root = bp_comm_is_root(WORLD);
    const char *whole = run_dir(), *mixed = run_dir(), *pairs = TOKENS_TOO;
    bp_model_info other = world_model;
    hash_job job;

    if (root) {
        snprintf(other.digest, sizeof(other.digest), "d2");
        bp_test_expect(job_run(MPI_COMM_SELF, &one_rank, &world_model, whole, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_open(&job, MPI_COMM_SELF, &one_rank, &other, mixed, corpora, pairs),
                       BP_OK);
        bp_test_expect(job_do_units(&job), BP_OK);
        int64_t windows = job.model->windows;
        job_close(&job);
        bp_test_expect(
            job_open(&job, MPI_COMM_SELF, &one_rank, &world_model, mixed, corpora, pairs), BP_OK);
        bp_test_expect(job_do_units(&job), BP_OK);
        assert_int_equal(job.model->windows, windows);
        bp_test_expect(job_merge(&job), BP_OK);
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
        WORLD, job_open(&job, WORLD, &shape, &world_model, run_dir(), corpora, TOKENS_TOO), BP_OK);
    job.model->nan_at = 1;
    bp_test_check_err(WORLD, job_do_units(&job), BP_ERR_SOFTWARE);
    bp_test_message_has("[model.not_finite]");
    job_close(&job);
    bp_model_info ensemble = hash_ensemble();
    bp_test_check_err(
        WORLD, job_open(&job, WORLD, &shape, &ensemble, run_dir(), corpora, TOKENS_TOO), BP_OK);
    job.model->nan_at = 1;
    bp_test_check_err(WORLD, job_do_units(&job), BP_ERR_SOFTWARE);
    bp_test_message_has("[model.not_finite]");
    job_close(&job);
}

/* One planned block after the other is refused, on the last rank: all say 71, nobody hangs, and
 * nothing is kept that is wrong. */
static void short_memory_is_71_on_all_ranks(void **state)
{
    (void)state;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    const char *whole = run_dir(), *poor = run_dir(), *pairs = TOKENS_TOO;
    bp_model_info model = hash_ensemble(); /* it allocates all that a plain model does, and more */
    bool last = bp_comm_rank(WORLD) == bp_comm_size(WORLD) - 1;
    bp_err err = BP_ERR_SYSTEM;
    int n = 1;

    bp_test_check_err(WORLD, job_run(WORLD, &shape, &model, whole, corpora, pairs), BP_OK);
    for (; err != BP_OK && n < 2000; n += 1 + n / 16) {
        char fault[32];
        hash_job job;

        bp_test_check_err(WORLD, job_open(&job, WORLD, &shape, &model, poor, corpora, pairs),
                          BP_OK);
        snprintf(fault, sizeof(fault), "base.alloc:%d", n);
        bp_fault_arm(last ? fault : NULL);
        err = job_do_units(&job);
        if (err == BP_OK)
            err = job_merge(&job);
        bp_fault_arm(NULL);
        bp_test_check(WORLD, err == BP_OK || err == BP_ERR_SYSTEM);
        job_close(&job);
    }
    bp_test_check(WORLD, err == BP_OK && n > 1);
    check_same_files(whole, poor);
}

/* The last test: the signal's flag stays set. tests/jobs/test_score.py goes on after a stop. */
static void signal_on_some_rank_is_75_on_all(void **state)
{
    (void)state;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_AUTO};
    hash_job job;

    bp_signals_init();
    bp_test_check_err(
        WORLD, job_open(&job, WORLD, &shape, &world_model, run_dir(), corpora, TOKENS_TOO), BP_OK);
    job.model->signal_at = 100; /* of 2,100 windows: each rank that comes so far signals itself */
    bp_test_check_err(WORLD, job_do_units(&job), BP_ERR_STOPPED);
    bp_test_message_has("[run.stopped]");
    bp_test_check(WORLD, count_windows(&job) < 2000);
    job_close(&job);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpora_are_made),
        cmocka_unit_test(full_disk_is_74_and_the_rest_is_done_later),
        cmocka_unit_test(full_disk_at_the_end_is_74_and_nothing_is_lost),
        cmocka_unit_test(torn_tail_is_scored_again),
        cmocka_unit_test(damaged_part_of_an_ensemble_is_scored_again),
        cmocka_unit_test(parts_of_other_work_are_left_out),
        cmocka_unit_test(weights_that_are_not_sound_are_70),
        cmocka_unit_test(short_memory_is_71_on_all_ranks),
        cmocka_unit_test(signal_on_some_rank_is_75_on_all),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
