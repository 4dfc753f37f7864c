/* A run's status: journals that are being written, who holds the lock, and how it is reported. */
#include "run_status_folder.h"

#define STAMP "\"time\": \"2026-01-01T00:00:00Z\", "

/* ---- state ---- */

static void state_follows_from_what_is_written_and_who_holds(void **state)
{
    (void)state;
    assert_string_equal(status_state("running", HOLD_ALIVE), "running");
    assert_string_equal(status_state("stopped", HOLD_ALIVE), "running"); /* it begins again */
    assert_string_equal(status_state("running", HOLD_DEAD), "dead");
    assert_string_equal(status_state("running", HOLD_NONE), "dead");
    assert_string_equal(status_state("running", HOLD_SILENT), "silent");
    assert_string_equal(status_state("finished", HOLD_SILENT), "finished");
    assert_string_equal(status_state("failed", HOLD_DEAD), "failed");
    assert_string_equal(status_state(NULL, HOLD_DEAD), "dead");
}

/* A run that says it runs, under a lock that is held by this process, another host, or nobody. */
static const char *running(const char *name, const char *host, const char *boot)
{
    const char *run = fresh(name);
    run_owner owner;
    json_t *value;
    char *text, path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/lock", run);
    bp_test_expect(bp_dir_make(path), BP_OK);
    put(run, "run.json", "{\"job\": \"pretrain\", \"exit\": {\"state\": \"running\"}}");
    put(run, "config.ini", "[train]\nsteps = 40\nbatch = 2\n[model]\ncontext = 5\n");
    run_owner_self(&owner);
    owner.epoch = 1;
    (void)snprintf(owner.host, sizeof owner.host, "%s", host);
    if (boot != NULL)
        (void)snprintf(owner.boot_id, sizeof owner.boot_id, "%s", boot);
    value = run_owner_json(&owner);
    text = bp_json_text(value);
    put(run, "lock/owner-000001", text);
    put(run, "lock/beat-000001", "00000000000000000007\n");
    bp_free(text);
    json_decref(value);
    return run;
}

static void age(const char *run, const char *name)
{
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static const bp_run_status_job JOBS[] = {
    {"pretrain", .trains = true, .again = "begins anew: nothing was committed yet"},
    {"count", .results = {"the counts are in ", "/count"}},
    {NULL}};

static json_t *status_of(const char *run, double watch)
{
    json_t *status;

    bp_test_expect(bp_run_status_read(&status, run, watch, JOBS), BP_OK);
    return status;
}

static void expect_state(const char *run, double watch, const char *expected)
{
    json_t *status = status_of(run, watch);

    assert_string_equal(json_string_value(json_object_get(status, "state")), expected);
    json_decref(status);
}

static void owner_that_lives_runs_and_another_hosts_is_watched(void **state)
{
    const char *run;

    (void)state;
    expect_state(running("mine", "here", NULL), 0, "running");
    run = running("elsewhere", "far", "another-boot");
    expect_state(run, 0, "running"); /* its counter was raised a moment ago */
    age(run, "lock/beat-000001");
    expect_state(run, 0.2, "silent");
}

/* The clock says that the counter stands still for years; it moves all the same. */
static void counter_that_moves_is_alive_whatever_the_clock_says(void **state)
{
    const char *run = running("moves", "far", "another-boot");
    char path[PATH_MAX];
    json_t *status;
    pid_t child;

    (void)state;
    age(run, "lock/beat-000001");
    (void)snprintf(path, sizeof path, "%s/lock/beat-000001", run);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int k = 8;; k++) {
            char text[32];
            int fd = open(path, O_WRONLY), bytes = snprintf(text, sizeof text, "%020d\n", k);

            if (fd < 0 || pwrite(fd, text, (size_t)bytes, 0) != bytes)
                _exit(1);
            (void)close(fd);
            age(run, "lock/beat-000001");
            (void)usleep(20000);
        }
    }
    status = status_of(run, 60);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_true(waitpid(child, NULL, 0) == child);
    assert_string_equal(json_string_value(json_object_get(status, "state")), "running");
    json_decref(status);
}

/* What was noted for all at first is compared later: no member is waited for anew. */
static void members_are_watched_at_the_same_time(void **state)
{
    status_watch watch = {.seconds = 0};
    const char *names[] = {"m00", "m01", "m02"};
    json_t *out = json_object();
    char runs[3][256];

    (void)state;
    for (int m = 0; m < 3; m++) {
        (void)snprintf(runs[m], sizeof runs[m], "%s", running(names[m], "far", "another-boot"));
        age(runs[m], "lock/beat-000001");
        if (m < 2)
            status_watch_begin(&watch, runs[m]);
    }
    put(runs[1], "lock/beat-000001", "00000000000000000008\n");
    put(runs[2], "lock/beat-000001", "00000000000000000008\n");
    for (int m = 0; m < 3; m++)
        age(runs[m], "lock/beat-000001");
    assert_int_equal(status_owner(out, runs[0], &watch), HOLD_SILENT);
    assert_int_equal(status_owner(out, runs[1], &watch), HOLD_ALIVE);
    assert_int_equal(status_owner(out, runs[2], &watch), HOLD_SILENT); /* it was not noted */
    status_watch_clear(&watch);
    json_decref(out);
}

static void lock_without_a_run_is_starting(void **state)
{
    const char *run = running("begins", "here", NULL);
    char path[PATH_MAX];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/run.json", run);
    assert_int_equal(unlink(path), 0);
    expect_state(run, 0, "starting");
}

/* ---- refusals ---- */

static void folders_without_a_run_are_missing_input(void **state)
{
    json_t *status;

    (void)state;
    bp_test_expect(bp_run_status_read(&status, fresh("nothing"), 0, JOBS), BP_ERR_INPUT);
    bp_test_message_has("run.json ... [run.missing]");
    assert_null(status);
    bp_test_expect(bp_run_status_read(&status, "/nowhere", 0, JOBS), BP_ERR_INPUT);
    bp_test_expect(bp_run_status_read(&status, "/dev/null", 0, JOBS), BP_ERR_INPUT);
    bp_test_message_has("[run.missing]");
}

static void damaged_run_json_is_said_to_be(void **state)
{
    static const char *const texts[][2] = {
        {"{\"job\": ", "run.json ... [json.invalid]"},
        {"[]", "run.json ... [run.damaged_record]"},
        {"{\"job\": \"pretrain\"}", "run.json ... [run.damaged_record]"},
        {"{\"job\": 3, \"exit\": {}}", "run.json ... [run.damaged_record]"},
        {"", "run.json ... [json.invalid]"}};
    const char *run = fresh("damaged");
    json_t *status;

    (void)state;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        put(run, "run.json", texts[k][0]);
        bp_test_expect(bp_run_status_read(&status, run, 0, JOBS), BP_ERR_FORMAT);
        bp_test_message_has(texts[k][1]);
    }
}

/* ---- for people ---- */

static void expect_text(const char *run, ...)
{
    json_t *status = status_of(run, 0);
    bp_buffer text = {0};
    va_list words;

    bp_run_status_text(&text, status);
    va_start(words, run);
    for (const char *one; (one = va_arg(words, const char *)) != NULL;)
        if (strstr(text.data, one) == NULL) {
            print_error("no '%s' in\n%s\n", one, text.data);
            fail();
        }
    va_end(words);
    bp_buffer_clear(&text);
    json_decref(status);
}

static void expect_no_text(const char *run, const char *word)
{
    json_t *status = status_of(run, 0);
    bp_buffer text = {0};

    bp_run_status_text(&text, status);
    if (strstr(text.data, word) != NULL) {
        print_error("'%s' in\n%s\n", word, text.data);
        fail();
    }
    bp_buffer_clear(&text);
    json_decref(status);
}

static void lines_tell_what_was_read(void **state)
{
    const char *run = running("reported", "node7", NULL);

    (void)state;
    put(run, "status.json",
        "{\"format_version\": 1, \"step\": 10, \"tokens\": 100, \"loss\": 3.5, \"valid_loss\": "
        "4.0, "
        "\"best_valid_loss\": 4.0, \"best_step\": 10, \"tokens_per_second\": 50.0, "
        "\"tokens_per_second_median\": 50.0, \"phase\": \"validating\", \"phase_time\": "
        "\"2099-01-01T00:00:00Z\"}");
    expect_text(run, "pretrain, running on node7", "step 10 of 40 (25.0 %), 6.0 s left",
                "50 tokens/s (median), 50 last", "3.5000, valid 4.0000, the best 4.0000 at step 10",
                "committed  nothing yet", "phase      validating, for 0.0 s", "nothing: it runs",
                NULL);
    expect_no_text(run, "older program");
    put(run, "status.json", "");
    expect_text(run, "note       there is no status.json", NULL);
    put(run, "run.json", "{\"job\": \"pretrain\", \"exit\": {\"state\": \"running\"}}");
    put(run, "lock/owner-000001", "{}"); /* no sense can be made of it: nobody holds it */
    expect_text(run, "dead: its job is gone", "begins anew: nothing was committed yet", NULL);
    put(run, "run.json",
        "{\"job\": \"pretrain\", \"exit\": {\"state\": \"failed\", \"code\": 74, "
        "\"message\": \"the disk is full\"}}");
    expect_text(run, "failed", "with status 74", "the disk is full", "do what the message says",
                NULL);
}

/* By the rows of the caller, who knows the jobs. */
static void what_comes_next_is_in_the_jobs_row(void **state)
{
    static const char *const CASES[][3] = {
        {"pretrain", "finished", "a larger train.steps or train.epochs goes on"},
        {"count", "finished", "the counts are in "},
        {"count", "stopped", "the same command goes on"},
        {"other", "finished", "the results are in "},
        {"other", "stopped", "the same command goes on"}};
    const char *run = fresh("next");

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof CASES[0]; k++) {
        char record[128];

        (void)snprintf(record, sizeof record, "{\"job\": \"%s\", \"exit\": {\"state\": \"%s\"}}",
                       CASES[k][0], CASES[k][1]);
        put(run, "run.json", record);
        expect_text(run, CASES[k][2], NULL);
    }
}

static void what_a_watchdog_noted_is_reported(void **state)
{
    const char *run = running("noted", "here", NULL);
    json_t *status;

    (void)state;
    put(run, "status.json",
        "{\"format_version\": 1, \"events\": {\"slow_rank\": 1, \"skipped\": 2}, \"notes\": "
        "[{\"time\": \"2026-01-01T00:00:09Z\", \"event\": \"slow_rank\", \"rank\": 3, \"host\": "
        "\"n2\", \"ratio\": 1.8, \"step\": 7}]}");
    status = status_of(run, 0);
    assert_int_equal(integer_of(json_object_get(status, "events"), "slow_rank"), 1);
    assert_true(bp_json_number(status, "free_bytes") > 0);
    json_decref(status);
    expect_text(run,
                "events     slow rank: rank 3 on n2 at step 7, "
                "2026-01-01T00:00:09Z (+2 older)\n",
                NULL);
    put(run, "run.json",
        "{\"job\": \"pretrain\", \"exit\": {\"state\": \"running\"}, \"hosts\": {\"n2\": 4}}");
    expect_text(run, "rank 3 on n2 at step 7 (the only host: other work is on its cores", NULL);
    put(run, "run.json",
        "{\"job\": \"pretrain\", \"exit\": {\"state\": \"running\"}, \"hosts\": {\"n2\": 2, "
        "\"n3\": 2}}");
    expect_text(run, "rank 3 on n2 at step 7, 2026-01-01T00:00:09Z", NULL);
}

/* Counts are of all starts, notes of the last one. */
static void events_are_counted_and_the_newest_kept(void **state)
{
    const char *run = fresh("events");
    json_t *file;
    progress_of p;

    (void)state;
    begin(&p, run, 1, NULL);
    event(&p, "{" STAMP "\"event\": \"started\", \"step\": 0}");
    event(&p, "{" STAMP "\"event\": \"slow_rank\", \"rank\": 3}");
    for (int k = 0; k < 6; k++)
        event(&p, "{" STAMP "\"event\": \"skipped\", \"step\": 3}");
    file = written(&p);
    assert_int_equal(integer_of(json_object_get(file, "events"), "slow_rank"), 1);
    assert_int_equal(integer_of(json_object_get(file, "events"), "skipped"), 6);
    assert_int_equal(json_object_size(json_object_get(file, "events")), 2);
    assert_int_equal(json_array_size(json_object_get(file, "notes")), 5);
    json_decref(file);
    end(&p);
    begin(&p, run, 2, "stopped");
    event(&p, "{" STAMP "\"event\": \"skipped\", \"step\": 4}");
    file = written(&p);
    assert_int_equal(integer_of(json_object_get(file, "events"), "skipped"), 7);
    assert_int_equal(json_array_size(json_object_get(file, "notes")), 1);
    json_decref(file);
    end(&p);
}

/* Reported until a start has come further, and not while the run runs. */
static void start_that_failed_is_reported(void **state)
{
    static const char failed[] =
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"opened\"}\n"
        "{\"time\": \"2026-01-01T00:00:05Z\", \"event\": \"closed\", \"state\": \"stopped\"}\n"
        "{\"time\": \"2026-01-01T01:00:00Z\", \"event\": \"start_failed\", \"code\": 65, "
        "\"message\": \"the corpus is damaged\"}\n";
    const char *run = running("refused", "here", NULL);
    char text[1024];

    (void)state;
    put(run, "events.jsonl", failed);
    expect_no_text(run, "the last start");
    put(run, "lock/owner-000001", "{}");
    put(run, "run.json",
        "{\"job\": \"pretrain\", \"exit\": {\"state\": \"stopped\", \"code\": 75, \"reason\": "
        "\"USR1\"}}");
    expect_text(run, "pretrain, stopped (USR1)", "the last start failed with status 65, ",
                " ago: the corpus is damaged\n", "put right what the last start failed with", NULL);
    (void)snprintf(text, sizeof text, "%s%s", failed,
                   "{\"time\": \"2026-01-01T02:00:00Z\", \"event\": \"opened\"}\n");
    put(run, "events.jsonl", text);
    expect_no_text(run, "the last start");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_counted_and_the_newest_kept),
        cmocka_unit_test(state_follows_from_what_is_written_and_who_holds),
        cmocka_unit_test(owner_that_lives_runs_and_another_hosts_is_watched),
        cmocka_unit_test(counter_that_moves_is_alive_whatever_the_clock_says),
        cmocka_unit_test(lock_without_a_run_is_starting),
        cmocka_unit_test(folders_without_a_run_are_missing_input),
        cmocka_unit_test(damaged_run_json_is_said_to_be),
        cmocka_unit_test(lines_tell_what_was_read),
        cmocka_unit_test(what_comes_next_is_in_the_jobs_row),
        cmocka_unit_test(what_a_watchdog_noted_is_reported),
        cmocka_unit_test(start_that_failed_is_reported),
        cmocka_unit_test(members_are_watched_at_the_same_time),
    };

    return BP_TEST_RUN(tests);
}
