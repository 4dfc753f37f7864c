/* One owner a run folder: with real processes that are killed and stopped. */
#include "run/lock_contenders.h"

#include <signal.h>
#include <sys/stat.h>

/* ---- living and dead owners on this machine ---- */

static void lock_is_taken_once_and_again_after_its_release(void **state)
{
    const char *run = fresh("once");
    run_lock *first, *second;

    (void)state;
    bp_test_expect(run_lock_take(&first, run, 0), BP_OK);
    assert_true(run_lock_is_own(first));
    bp_test_expect(run_lock_take(&second, run, 0), BP_ERR_BUSY);
    assert_null(second);
    bp_test_expect(run_lock_release(&first), BP_OK);
    assert_null(first);
    bp_test_expect(run_lock_take(&second, run, 0), BP_OK);
    assert_true(run_lock_is_own(second));
    bp_test_expect(run_lock_release(&second), BP_OK);
}

static void second_process_is_refused_and_names_the_owner(void **state)
{
    const char *run = fresh("second");
    char process[64], host[256] = "";
    run_lock *lock;
    int hold;
    contender owner;
    double start;

    (void)state;
    assert_int_equal(setenv("SLURM_JOB_ID", "4711", 1), 0);
    owner = start_owner(run, &hold);
    assert_int_equal(unsetenv("SLURM_JOB_ID"), 0);
    start = bp_clock_now();
    bp_test_expect(run_lock_take(&lock, run, 0), BP_ERR_BUSY);
    assert_true(bp_clock_now() - start < 60.0); /* it is not watched */
    (void)snprintf(process, sizeof process, "process %d", (int)owner.pid);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    bp_test_message_has(process);
    bp_test_message_has(host);
    bp_test_message_has("[lock.held]");
    bp_test_message_has("Slurm job 4711 ... [lock.held]");
    bp_test_message_has(run);
    end_owner(&owner, hold);
}

/* A owner that was killed is a zombie until its parent looks: it holds nothing either way. */
static void killed_owner_is_followed_at_once(void **state)
{
    const char *run = fresh("killed");

    (void)state;
    for (int reaped = 0; reaped < 2; reaped++) {
        int hold;
        contender owner = start_owner(run, &hold);

        assert_int_equal(kill(owner.pid, SIGKILL), 0);
        if (reaped) {
            assert_int_equal(waitpid(owner.pid, NULL, 0), owner.pid);
        } else {
            siginfo_t info;
            assert_int_equal(waitid(P_PID, (id_t)owner.pid, &info, WEXITED | WNOWAIT), 0);
        }
        take_soon(run);
        if (!reaped)
            assert_int_equal(waitpid(owner.pid, NULL, 0), owner.pid);
        assert_int_equal(close(hold), 0);
    }
}

static void stopped_owner_still_holds(void **state)
{
    const char *run = fresh("stopped");
    run_lock *lock;
    int hold, status;
    contender owner = start_owner(run, &hold);

    (void)state;
    assert_int_equal(kill(owner.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(owner.pid, &status, WUNTRACED), owner.pid);
    bp_test_expect(run_lock_take(&lock, run, 0.2), BP_ERR_BUSY);
    assert_int_equal(kill(owner.pid, SIGCONT), 0);
    end_owner(&owner, hold);
}

/* ---- owners made up ---- */

static void process_number_used_again_holds_nothing(void **state)
{
    const char *run = fresh("reused");

    (void)state;
    write_owner(run, 1, began_at_another_time);
    take_soon(run);
}

static void other_boot(run_owner *owner)
{
    (void)snprintf(owner->boot_id, sizeof owner->boot_id, "another");
}

static void other_namespace(run_owner *owner)
{
    owner->pid_namespace += 1;
    began_at_another_time(owner);
}

/* Nobody can say whether a process of another machine, or of another container, lives: its counter
 * is watched. */
static void owner_that_can_not_be_asked_is_watched(void **state)
{
    static void (*const edits[])(run_owner *) = {other_boot, other_namespace};

    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *run = fresh(k == 0 ? "far" : "contained");
        run_lock *lock;
        double start;

        write_owner(run, 1, edits[k]);
        start = bp_clock_now();
        bp_test_expect(run_lock_take(&lock, run, 0.5), BP_OK);
        assert_true(bp_clock_now() - start >= 0.5);
        bp_test_expect(run_lock_release(&lock), BP_OK);
    }
}

static void owner_whose_counter_moves_is_alive(void **state)
{
    const char *run = fresh("beating");
    char path[PATH_MAX];
    run_lock *lock;
    pid_t beater;

    (void)state;
    write_owner(run, 1, other_boot);
    (void)snprintf(path, sizeof path, "%s/lock/beat-000001", run);
    bp_test_expect(bp_file_write(path, "1\n", 2), BP_OK);
    beater = fork();
    assert_true(beater >= 0);
    if (beater == 0) {
        bp_clock_sleep(0.4);
        _exit(bp_file_write(path, "2\n", 2) == BP_OK ? 0 : 1);
    }
    bp_test_expect(run_lock_take(&lock, run, 20.0), BP_ERR_BUSY);
    assert_int_equal(waitpid(beater, NULL, 0), beater);
}

static void owner_heartbeats_its_counter(void **state)
{
    const char *run = fresh("counter");
    char path[PATH_MAX], *text;
    size_t bytes;
    run_lock *lock;

    (void)state;
    bp_test_expect(run_lock_take(&lock, run, 0), BP_OK);
    (void)snprintf(path, sizeof path, "%s/lock/beat-000001", run);
    while (bp_file_size(path) < 21)
        bp_clock_sleep(0.01);
    bp_test_expect(bp_file_read(path, 100, &text, &bytes), BP_OK);
    assert_string_equal(text, "00000000000000000001\n");
    bp_free(text);
    bp_test_expect(run_lock_release(&lock), BP_OK);
}

/* ---- Slurm ---- */

static void of_slurm_job_5(run_owner *owner)
{
    other_boot(owner);
    (void)snprintf(owner->slurm_job, sizeof owner->slurm_job, "5");
}

static void requeued_job_follows_itself_at_once(void **state)
{
    const char *run = fresh("requeued");

    (void)state;
    write_owner(run, 1, of_slurm_job_5);
    assert_int_equal(setenv("SLURM_JOB_ID", "5", 1), 0);
    assert_int_equal(setenv("SLURM_RESTART_COUNT", "1", 1), 0);
    take_soon(run);
    assert_int_equal(unsetenv("SLURM_JOB_ID"), 0);
    assert_int_equal(unsetenv("SLURM_RESTART_COUNT"), 0);
}

/* A squeue of our own, first in PATH. */
static void be_squeue(const char *script)
{
    const char *path;
    char *text = bp_sprintf("#!/bin/sh\n%s\n", script),
         *search = bp_sprintf("%s:/usr/bin:/bin", bp_test_folder());

    path = bp_test_write("squeue", text, strlen(text));
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(setenv("PATH", search, 1), 0);
    bp_free(text);
    bp_free(search);
}

static void slurm_knows_jobs_that_ended(void **state)
{
    static const struct {
        const char *script;
        bool dead;
    } cases[] = {
        {"[ \"$3\" = 5 ] && exit 0", true}, /* -h -j 5: no line for it */
        {"[ \"$5\" = '%A %T %r' ] && echo 5 COMPLETED", true},
        {"echo 6 RUNNING; echo 5 COMPLETED; echo 55 RUNNING", true}, /* tasks of array 5 */
        {"echo 6 COMPLETED; echo 5 RUNNING", false},
        {"echo 6 COMPLETED; echo 55 COMPLETED", false}, /* nothing of job 5 */
        {"echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", true},
        {"echo 5 RUNNING", false},
        {"echo 5 COMPLETING", false},
        {"echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", false}};
    char *before = bp_strdup(getenv("PATH"));

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char name[32];
        const char *run;
        run_lock *lock;
        double start = bp_clock_now(), watched = cases[k].dead ? 60 : 1;

        (void)snprintf(name, sizeof name, "slurm-%zu", k);
        run = fresh(name);
        write_owner(run, 1, of_slurm_job_5);
        be_squeue(cases[k].script);
        bp_test_expect(run_lock_take(&lock, run, watched), BP_OK);
        assert_true((bp_clock_now() - start < watched) == cases[k].dead);
        bp_test_expect(run_lock_release(&lock), BP_OK);
    }
    assert_int_equal(setenv("PATH", before, 1), 0);
    bp_free(before);
}

/* ---- losing it ---- */

static void owner_that_was_followed_has_lost_the_run(void **state)
{
    const char *run = fresh("lost");
    run_lock *lock;
    char *text;
    size_t bytes;

    (void)state;
    bp_test_expect(run_lock_take(&lock, run, 0), BP_OK);
    write_owner(run, 2, as_it_is); /* another that thought this one dead */
    assert_false(run_lock_is_own(lock));
    bp_test_expect(run_lock_release(&lock), BP_OK);
    bp_test_expect(bp_file_read(owner_path(run, 2), 10000, &text, &bytes), BP_OK);
    assert_non_null(strstr(text, "\"released\": false")); /* the other's lock stands */
    bp_free(text);
}

static void owner_whose_lock_was_removed_has_lost_the_run(void **state)
{
    const char *run = fresh("removed");
    char path[PATH_MAX];
    char gone[PATH_MAX];
    run_lock *lock;

    (void)state;
    bp_test_expect(run_lock_take(&lock, run, 0), BP_OK);
    (void)snprintf(path, sizeof path, "%s/lock", run);
    (void)snprintf(gone, sizeof gone, "%s/gone", run);
    // a rename takes it away whole; file by file, the owner's heartbeat could write into the folder
    // between two of them
    assert_int_equal(rename(path, gone), 0);
    assert_false(run_lock_is_own(lock));
    bp_test_expect(run_lock_release(&lock), BP_OK);
    bp_test_expect(bp_dir_remove(gone), BP_OK);
}

static void lock_without_sense_is_refused(void **state)
{
    static const char *const texts[][2] = {
        {"", "lock ... [json.invalid]"},
        {"{}", "lock ... [json.missing_key]"},
        {"nonsense", "lock ... [json.invalid]"},
        {"{\"format_version\": 2}", "lock ... format_version 2 ... [lock.unknown_version]"}};

    (void)state;
    for (int k = 0; k < 4; k++) {
        char name[32];
        const char *run;
        run_lock *lock;

        (void)snprintf(name, sizeof name, "senseless-%d", k);
        run = fresh(name);
        write_owner(run, 1, as_it_is);
        bp_test_expect(bp_file_write(owner_path(run, 1), texts[k][0], strlen(texts[k][0])), BP_OK);
        bp_test_expect(run_lock_take(&lock, run, 0), BP_ERR_FORMAT);
        bp_test_message_has(texts[k][1]);
    }
}

static void unwritable_folder_is_denied(void **state)
{
    const char *run = fresh("unwritable");
    run_lock *lock;
    bool privileged = geteuid() == 0;
    bp_err err;

    (void)state;
    assert_int_equal(chmod(bp_test_folder(), 0755), 0);
    assert_int_equal(chmod(run, 0555), 0);
    if (privileged)
        assert_int_equal(seteuid(65534), 0); /* root may write anywhere */
    err = run_lock_take(&lock, run, 0);
    if (privileged)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(run, 0755), 0);
    bp_test_expect(err, BP_ERR_DENIED);
}

static void beating_owner_notices_that_it_was_followed(void **state)
{
    const char *run = fresh("noticed");
    run_lock *lock;

    (void)state;
    bp_test_expect(run_lock_take(&lock, run, 0.3), BP_OK);
    assert_false(run_lock_is_lost(lock));
    write_owner(run, 2, as_it_is);
    while (!run_lock_is_lost(lock))
        bp_clock_sleep(0.01);
    assert_int_equal(unlink(owner_path(run, 2)), 0);
    assert_false(run_lock_is_own(lock)); /* lost is lost */
    bp_test_expect(run_lock_release(&lock), BP_OK);
}

/* ---- what is left over ---- */

static void leftovers_are_swept_once_the_lock_is_held(void **state)
{
    static const char *const litter[] = {".bp-17-0.tmp", "lock/.bp-0123456789abcdef.tmp",
                                         "lock/claim-0123", "lock/claim-000001-0123"},
                             *const kept[] = {".bp-notes", "notes.tmp", "lock/notes",
                                              "lock/claim-000002-0123"}; /* of one who goes for 2 */
    const char *run = fresh("litter");
    char path[PATH_MAX];
    run_lock *lock;

    (void)state;
    for (int k = 0; k < 8; k++) {
        (void)snprintf(path, sizeof path, "%s/lock", run);
        bp_test_expect(bp_dir_make(path), BP_OK);
        (void)snprintf(path, sizeof path, "%s/%s", run, k < 4 ? litter[k] : kept[k - 4]);
        bp_test_expect(bp_file_write(path, "x", 1), BP_OK);
    }
    bp_test_expect(run_lock_take(&lock, run, 0), BP_OK);
    for (int k = 0; k < 8; k++) {
        (void)snprintf(path, sizeof path, "%s/%s", run, k < 4 ? litter[k] : kept[k - 4]);
        assert_int_equal(bp_path_exists(path), k >= 4);
    }
    bp_test_expect(run_lock_release(&lock), BP_OK);
}

static void last_number_is_kept_and_older_ones_are_not(void **state)
{
    const char *run = fresh("numbers");

    (void)state;
    for (int k = 0; k < 4; k++)
        take_soon(run);
    assert_false(bp_path_exists(owner_path(run, 2)));
    assert_true(bp_path_exists(owner_path(run, 3)));
    assert_true(bp_path_exists(owner_path(run, 4)));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lock_is_taken_once_and_again_after_its_release),
        cmocka_unit_test(second_process_is_refused_and_names_the_owner),
        cmocka_unit_test(killed_owner_is_followed_at_once),
        cmocka_unit_test(stopped_owner_still_holds),
        cmocka_unit_test(process_number_used_again_holds_nothing),
        cmocka_unit_test(owner_that_can_not_be_asked_is_watched),
        cmocka_unit_test(owner_whose_counter_moves_is_alive),
        cmocka_unit_test(owner_heartbeats_its_counter),
        cmocka_unit_test(requeued_job_follows_itself_at_once),
        cmocka_unit_test(slurm_knows_jobs_that_ended),
        cmocka_unit_test(owner_that_was_followed_has_lost_the_run),
        cmocka_unit_test(owner_whose_lock_was_removed_has_lost_the_run),
        cmocka_unit_test(lock_without_sense_is_refused),
        cmocka_unit_test(unwritable_folder_is_denied),
        cmocka_unit_test(beating_owner_notices_that_it_was_followed),
        cmocka_unit_test(leftovers_are_swept_once_the_lock_is_held),
        cmocka_unit_test(last_number_is_kept_and_older_ones_are_not),
    };
    return BP_TEST_RUN(tests);
}
