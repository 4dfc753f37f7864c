/* A run folder through its life: begun, resumed, refused, moved, lost. */
#include "run/run_opening.h"

#include "base/log.h"
#include "run/lock/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- beginning and resuming ---- */

static void new_run_writes_down_what_it_is(void **state)
{
    const opening with = {.run = bp_test_path("runs/deep/new"),
                          .hash = "c0",
                          .keys = {"train.steps=20", "run.seed=7"},
                          .count = 2};
    bp_run *run;

    (void)state;
    bp_test_check_err(COMM, open_run(&run, &with), BP_OK);
    bp_test_check(COMM, !bp_run_is_resumed(run) && !bp_run_is_finished(run));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"state\": \"running\""));
    bp_test_check(COMM, !mesh->coordinates || bp_run_still_owner(run));
    bp_log("one line for the log");
    bp_test_check_err(COMM, bp_run_close(&run, BP_OK), BP_OK);
    bp_test_check(COMM, file_has(with.run, "config.ini", "steps = 20"));
    bp_test_check(COMM, file_has(with.run, "log.txt", "one line for the log"));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"job\": \"pretrain\""));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"run.seed\": \"7\""));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"corpus.train\": \"c0\""));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"parameters\": 42"));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"onednn\": \"2.6\"") &&
                            file_has(with.run, "run.json", "\"hdf5\": \""));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"state\": \"finished\""));
    bp_test_check(
        COMM, !file_has(with.run, "run.json", bp_test_folder())); /* nothing names its own place */
}

static void same_run_is_resumed(void **state)
{
    const opening with = {
        .run = bp_test_path("same"), .hash = "c0", .keys = {"optimizer.lr=0.0010"}, .count = 1};
    const opening again = {
        .run = bp_test_path("same"), .hash = "c0", .keys = {"optimizer.lr=1e-3"}, .count = 1};
    bp_run *run;

    (void)state;
    run_once(&with, BP_ERR_STOPPED);
    bp_test_check(COMM, file_has(with.run, "run.json", "\"state\": \"stopped\""));
    bp_test_check_err(COMM, open_run(&run, &again), BP_OK);
    bp_test_check(COMM, bp_run_is_resumed(run) && !bp_run_is_finished(run));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"starts\": 2"));
    bp_test_check_err(COMM, bp_run_close(&run, BP_ERR_STOPPED), BP_ERR_STOPPED);
}

static void failed_run_keeps_its_message(void **state)
{
    const opening with = {.run = bp_test_path("failed"), .hash = "c0"};
    bp_run *run;

    (void)state;
    bp_test_check_err(COMM, open_run(&run, &with), BP_OK);
    (void)BP_FAIL(BP_ERR_SOFTWARE, "training.diverged", "the loss is not finite: at step 12");
    bp_test_check_err(COMM, bp_run_close(&run, BP_ERR_SOFTWARE), BP_ERR_SOFTWARE);
    bp_test_check(
        COMM, strcmp(bp_err_message(), "the loss is not finite: at step 12 [training.diverged]") ==
                  0); /* still the one to tell */
    bp_test_check(COMM, file_has(with.run, "run.json", "\"state\": \"failed\""));
    bp_test_check(COMM, file_has(with.run, "run.json", "\"code\": 70"));
    bp_test_check(COMM, file_has(with.run, "run.json", "the loss is not finite: at step 12"));
}

static bool is_finished(const opening *with)
{
    bp_run *run;
    bool finished;

    bp_test_check_err(COMM, open_run(&run, with), BP_OK);
    finished = bp_run_is_finished(run);
    bp_test_check_err(COMM, bp_run_close(&run, BP_OK), BP_OK);
    return finished;
}

static void finished_run_is_known_until_it_is_given_more_to_do(void **state)
{
    const char *path = bp_test_path("finished");
    const opening with = {.run = path, .hash = "c0"},
                  more = {.run = path, .hash = "c0", .keys = {"train.steps=11"}, .count = 1};

    (void)state;
    run_once(&with, BP_OK);
    bp_test_check(COMM, is_finished(&with));
    bp_test_check(COMM, !is_finished(&more));
    bp_test_check(COMM, is_finished(&more));
}

static void moved_run_goes_on(void **state)
{
    const char *from = bp_test_path("before"), *to = bp_test_path("after");
    const opening with = {.run = from, .hash = "c0"}, moved = {.run = to, .hash = "c0"};

    (void)state;
    run_once(&with, BP_OK);
    if (mesh->coordinates)
        assert_int_equal(rename(from, to), 0);
    bp_test_check(COMM, is_finished(&moved));
}

/* ---- what may differ ---- */

static void changed_keys_are_refused_all_at_once_with_both_values(void **state)
{
    const char *path = bp_test_path("changed");
    const opening with = {.run = path, .hash = "c0"};
    const opening other = {
        .run = path,
        .hash = "c0",
        .keys = {"train.batch=8", "optimizer.lr=0.1", "optimizer.kind=sgd", "train.steps=99"},
        .count = 4};

    (void)state;
    run_once(&with, BP_OK);
    check_refused(&other, BP_ERR_CONFIG, "train.batch ... 8 ... 4 ... [run.other_keys]");
    bp_test_check_said(COMM, "optimizer.lr ... 0.1 ... 0.0003 ... [run.other_keys]");
    bp_test_check_said(COMM, "optimizer.kind ... sgd ... adamw ... [run.other_keys]");
    bp_test_check(COMM, strstr(bp_err_message(), "train.steps") == NULL);
    bp_test_check(
        COMM, !file_has(path, "config.ini", "batch = 8")); /* refused before anything is written */
    bp_test_check(COMM, is_finished(&with));               /* and the lock is free */
}

static void long_values_are_compared_whole(void **state)
{
    const char *path = bp_test_path("long");
    char key[1200] = "tokenizer.path=";
    const opening with = {.run = path, .hash = "c0", .keys = {key}, .count = 1};

    (void)state;
    for (int k = 0; k < 40; k++)
        (void)snprintf(key + strlen(key), sizeof key - strlen(key), "%s/data/corpus number %d.h5",
                       k > 0 ? "," : "", k);
    run_once(&with, BP_OK);
    run_once(&with, BP_OK);
    key[strlen(key) - 1] = '6';
    check_refused(&with, BP_ERR_CONFIG,
                  "tokenizer.path is /data/corpus number 0.h5, ... [run.other_keys]");
}

static void mesh_may_change_with_a_warning(void **state)
{
    const char *path = bp_test_path("mesh"), *heard = bp_test_path("heard");
    const opening with = {.run = path, .hash = "c0"},
                  other = {.run = path, .hash = "c0", .keys = {"mesh.data=2"}, .count = 1};
    int kept = dup(2), fd = open(heard, O_WRONLY | O_CREAT | O_APPEND, 0600);
    bp_run *run;
    bool finished;

    (void)state;
    assert_true(kept >= 0 && fd >= 0);
    run_once(&with, BP_OK);
    assert_true(dup2(fd, 2) == 2 && close(fd) == 0);
    finished = is_finished(&other); /* a finished run is finished on any mesh, and stays as it is */
    bp_test_check(COMM, finished && !file_has(bp_test_folder(), "heard", "[run.other_bits]"));
    bp_test_check(COMM, file_has(path, "config.ini", "data = 0"));
    run_once(&with, BP_ERR_STOPPED);
    bp_test_check_err(COMM, open_run(&run, &other), BP_OK);
    bp_test_check(COMM, !file_has(bp_test_folder(), "heard", "[run.other_bits]"));
    bp_run_take_changes(run); /* the job has found something to do */
    bp_test_check_err(COMM, bp_run_close(&run, BP_OK), BP_OK);
    assert_true(dup2(kept, 2) == 2 && close(kept) == 0);
    bp_test_check(
        COMM, file_has(bp_test_folder(), "heard", ": mesh.data is 2 and was 0 [run.other_bits]"));
}

static void corpora_are_compared_by_content(void **state)
{
    const char *path = bp_test_path("corpora");
    const opening with = {
        .run = path, .hash = "c0", .keys = {"corpus.train=/data/here.h5"}, .count = 1};
    const opening moved = {
        .run = path, .hash = "c0", .keys = {"corpus.train=/data/there.h5"}, .count = 1};
    const opening other = {
        .run = path, .hash = "c1", .keys = {"corpus.train=/data/here.h5"}, .count = 1};
    const opening retold = {.run = path,
                            .hash = "c0",
                            .tokenizer = "t1",
                            .keys = {"corpus.train=/data/here.h5"},
                            .count = 1};
    const opening unknown = {
        .run = path, .hash = "", .keys = {"corpus.train=/data/here.h5"}, .count = 1};

    (void)state;
    run_once(&with, BP_OK);
    run_once(&moved, BP_OK);
    check_refused(&other, BP_ERR_CONFIG, "corpus.train ... c1 ... c0 ... [run.other_keys]");
    check_refused(&retold, BP_ERR_CONFIG,
                  "corpus.train ... corpus.valid ... t1 ... t0 ... [run.other_keys]");
    run_once(&unknown, BP_OK);
    check_refused(&other, BP_ERR_CONFIG,
                  "c1 ... c0 ... [run.other_keys]"); /* what was known is kept */
}

static void folder_of_another_job_is_refused(void **state)
{
    const char *path = bp_test_path("job");
    const opening with = {.run = path, .hash = "c0"},
                  other = {.run = path, .hash = "c0", .job = "score"};

    (void)state;
    run_once(&with, BP_OK);
    check_refused(&other, BP_ERR_CONFIG, "'pretrain' ... 'score' ... [run.other_job]");
}

static void earlier_choice_is_found_again(void **state)
{
    const char *path = bp_test_path("earlier");
    const opening with = {.run = path, .hash = "c0", .keys = {"math.precision=bf16"}, .count = 1};
    char *value;

    (void)state;
    bp_test_check_err(COMM, bp_run_previous(COMM, path, "math.precision", &value), BP_OK);
    bp_test_check(COMM, value == NULL);
    run_once(&with, BP_OK);
    bp_test_check_err(COMM, bp_run_previous(COMM, path, "math.precision", &value), BP_OK);
    bp_test_check(COMM, value != NULL && strcmp(value, "bf16") == 0);
    bp_free(value);
    bp_test_check_err(COMM, bp_run_previous(COMM, path, "corpus.train", &value),
                      BP_OK); /* not set */
    bp_test_check(COMM, value == NULL);
    if (mesh->coordinates) { /* a folder where config.ini should be */
        bp_test_expect(bp_dir_remove(inside(path, "config.ini")), BP_OK);
        bp_test_expect(bp_dir_make(inside(path, "config.ini")), BP_OK);
    }
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check_err(COMM, bp_run_previous(COMM, path, "math.precision", &value), BP_ERR_FORMAT);
}

/* ---- places ---- */

static void folder_that_can_not_be_made_is_refused(void **state)
{
    const opening under_a_file = {.run = bp_test_path("file/run"), .hash = "c0"};

    (void)state;
    if (mesh->coordinates)
        (void)bp_test_write("file", "x", 1);
    BP_MPI(MPI_Barrier(COMM));
    check_refused(&under_a_file, BP_ERR_CREATE, "[file.in_the_way]");
}

static void unwritable_folder_is_denied(void **state)
{
    const opening with = {.run = bp_test_path("sealed"), .hash = "c0"};
    bool privileged = geteuid() == 0;
    bp_run *run;
    bp_err err;

    (void)state;
    if (mesh->coordinates) {
        assert_int_equal(chmod(bp_test_folder(), 0755), 0);
        bp_test_expect(bp_dir_make(with.run), BP_OK);
        assert_int_equal(chmod(with.run, 0555), 0);
        assert_true(!privileged || seteuid(65534) == 0); /* root may write anywhere */
    }
    err = open_run(&run, &with);
    assert_true(!mesh->coordinates || !privileged || seteuid(0) == 0);
    bp_test_check_err(COMM, err, BP_ERR_DENIED);
}

static void damaged_record_is_refused(void **state)
{
    static const char *const texts[][2] = {{"", "[json.invalid]"},
                                           {"{}", "[json.missing_key]"},
                                           {"{\"format\": \"bagpipe run\"", "[json.invalid]"},
                                           {"{\"format\": \"x\"}", "[run.wrong_format]"},
                                           {"{\"format\": \"bagpipe run\", \"format_version\": 9}",
                                            "format_version 9 ... [run.unknown_version]"}};
    const opening with = {.run = bp_test_path("record"), .hash = "c0"};

    (void)state;
    for (int k = 0; k < 5; k++) {
        if (mesh->coordinates) {
            bp_test_expect(bp_dir_make(with.run), BP_OK);
            bp_test_expect(
                bp_file_write(inside(with.run, "run.json"), texts[k][0], strlen(texts[k][0])),
                BP_OK);
        }
        BP_MPI(MPI_Barrier(COMM));
        check_refused(&with, BP_ERR_FORMAT, texts[k][1]);
    }
}

/* Another process holds the folder: all ranks are refused. When it is killed, the folder is free.
 */
static void folder_of_a_running_job_is_refused(void **state)
{
    const opening with = {.run = bp_test_path("held"), .hash = "c0"};
    int ready[2];
    pid_t owner = -1;
    char byte = 0;

    (void)state;
    if (mesh->coordinates) {
        bp_test_expect(bp_dir_make(with.run), BP_OK);
        assert_int_equal(pipe(ready), 0);
        owner = fork();
        assert_true(owner >= 0);
        if (owner == 0) {
            run_lock *lock;

            byte = run_lock_take(&lock, with.run, 0) == BP_OK ? 'w' : 'e';
            if (write(ready[1], &byte, 1) == 1)
                (void)pause();
            _exit(1);
        }
        assert_int_equal(close(ready[1]), 0); /* so that a child that dies is not waited for */
        assert_true(read(ready[0], &byte, 1) == 1 && byte == 'w');
        assert_int_equal(close(ready[0]), 0);
    }
    check_refused(&with, BP_ERR_BUSY, "(host ... [lock.held]");
    if (mesh->coordinates) {
        assert_int_equal(kill(owner, SIGKILL), 0);
        assert_int_equal(waitpid(owner, NULL, 0), owner);
    }
    BP_MPI(MPI_Barrier(COMM));
    run_once(&with, BP_OK);
}

static void lost_folder_is_not_written_to(void **state)
{
    const opening with = {.run = bp_test_path("lost"), .hash = "c0"};
    bp_run *run;

    (void)state;
    bp_test_check_err(COMM, open_run(&run, &with), BP_OK);
    if (mesh->coordinates) {
        json_t *line;
        char *text;
        size_t bytes;

        assert_true(bp_run_still_owner(run));
        bp_test_expect(bp_file_read(inside(with.run, "lock/owner-000001"), 10000, &text, &bytes),
                       BP_OK);
        bp_test_expect(bp_file_write(inside(with.run, "lock/owner-000002"), text, bytes), BP_OK);
        bp_free(text);
        assert_false(bp_run_still_owner(run));
        line = json_pack("{s:i}", "step", 1);
        bp_test_expect(bp_run_metric(run, line), BP_ERR_BUSY);
        bp_test_message_has("[lock.lost]");
        bp_test_expect(bp_run_event(run, "late", NULL), BP_ERR_BUSY);
        json_decref(line);
        assert_int_equal(bp_file_size(inside(with.run, "metrics.jsonl")), 0);
        assert_false(file_has(with.run, "events.jsonl", "late"));
    }
    bp_test_check_err(COMM, bp_run_close(&run, BP_OK), BP_ERR_BUSY);
    bp_test_check(COMM, file_has(with.run, "run.json", "\"state\": \"running\""));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(mesh_is_made),
        cmocka_unit_test(new_run_writes_down_what_it_is),
        cmocka_unit_test(same_run_is_resumed),
        cmocka_unit_test(failed_run_keeps_its_message),
        cmocka_unit_test(finished_run_is_known_until_it_is_given_more_to_do),
        cmocka_unit_test(moved_run_goes_on),
        cmocka_unit_test(changed_keys_are_refused_all_at_once_with_both_values),
        cmocka_unit_test(long_values_are_compared_whole),
        cmocka_unit_test(mesh_may_change_with_a_warning),
        cmocka_unit_test(corpora_are_compared_by_content),
        cmocka_unit_test(folder_of_another_job_is_refused),
        cmocka_unit_test(earlier_choice_is_found_again),
        cmocka_unit_test(folder_that_can_not_be_made_is_refused),
        cmocka_unit_test(unwritable_folder_is_denied),
        cmocka_unit_test(damaged_record_is_refused),
        cmocka_unit_test(folder_of_a_running_job_is_refused),
        cmocka_unit_test(lost_folder_is_not_written_to),
        cmocka_unit_test(mesh_is_freed),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
