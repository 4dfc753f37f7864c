/* A run's status: journals that are being written, who holds the lock, and what it is told as. */
#include "bp_test.h"

#include "base/buffer.h"
#include "base/json.h"
#include "coordinator/run_lock_priv.h"
#include "coordinator/run_status.h"
#include "coordinator/run_status_priv.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(const char *run, const char *name, const char *text)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    bp_test_expect(bp_file_write(path, text, strlen(text)), BP_OK);
}

static const char *fresh(const char *name)
{
    const char *path = bp_test_path(name);

    bp_test_expect(bp_dir_make(path), BP_OK);
    return path;
}

static int64_t integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static double real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* ---- metrics ---- */

static void read_metrics(status_metrics *metrics, const char *text)
{
    const char *run = fresh("metrics");
    char path[PATH_MAX];

    put(run, "metrics.jsonl", text);
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    status_metrics_init(metrics);
    bp_test_expect(status_each_line(path, metrics, status_metrics_take), BP_OK);
    status_metrics_end(metrics);
}

static void a_torn_last_line_is_passed_over(void **state)
{
    status_metrics m;

    (void)state;
    read_metrics(&m, "{\"step\": 10, \"tokens\": 100, \"loss\": 3.5, \"seconds\": 2.0, "
                     "\"tokens_per_second\": 50.0, \"valid_loss\": 4.0}\n"
                     "no line of ours\n"
                     "{\"step\": 20, \"tokens\": 200, \"loss\": null, \"seconds\": 1.0, "
                     "\"tokens_per_second\": 100.0, \"valid_loss\": 4.5}\n"
                     "{\"step\": 30, \"tokens\": 300, \"lo");
    assert_int_equal(m.step, 20);
    assert_int_equal(m.lines, 2);
    assert_true(isnan(m.loss));
    assert_true(m.best_valid_loss == 4.0 && m.best_step == 10 && m.valid_loss == 4.5);
    assert_true(m.kept_seconds == 3.0 && m.median_speed == 100.0);
}

/* Steps 1 to 10 in 2 s; the line of step 15 tells of 12 to 15 alone, since the run went on from 11.
 */
static void steps_without_a_line_count_as_fast_as_the_others(void **state)
{
    status_metrics m;

    (void)state;
    read_metrics(&m, "{\"step\": 10, \"tokens\": 100, \"seconds\": 2.0, \"tokens_per_second\": "
                     "50.0}\n{\"step\": 15, \"tokens\": 150, \"seconds\": 0.8, "
                     "\"tokens_per_second\": 50.0}\n");
    assert_float_equal(m.kept_seconds, 3.0, 1e-9);
}

static void missing_and_empty_journals_have_no_lines(void **state)
{
    status_metrics m;

    (void)state;
    status_metrics_init(&m);
    bp_test_expect(status_each_line("/nowhere/at/all", &m, status_metrics_take), BP_OK);
    status_metrics_end(&m);
    assert_int_equal(m.lines, 0);
    read_metrics(&m, "");
    assert_int_equal(m.lines, 0);
    assert_true(isnan(m.speed));
}

/* ---- events ---- */

static void take_events(status_events *events, const char *const lines[])
{
    bp_test_expect(status_events_init(events), BP_OK);
    for (int k = 0; lines[k] != NULL; k++) {
        json_t *line = json_loads(lines[k], 0, NULL);

        assert_non_null(line);
        status_events_take(events, line);
        json_decref(line);
    }
}

/* Committed at 10 and 20 s, killed, begun again from the one of 20 s at 50 s: 30 s are lost. Then
 * stopped at 60 s, and begun again at 160 s. */
static void restarts_lose_what_lies_between_commit_and_work(void **state)
{
    static const char *const lines[] = {
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"opened\", \"start\": 1}",
        "{\"time\": \"2026-01-01T00:00:01Z\", \"event\": \"started\", \"step\": 0}",
        "{\"time\": \"2026-01-01T00:00:10Z\", \"event\": \"checkpoint\", \"step\": 100}",
        "{\"time\": \"2026-01-01T00:00:20Z\", \"event\": \"checkpoint\", \"step\": 200}",
        "{\"time\": \"2026-01-01T00:00:40Z\", \"event\": \"opened\", \"start\": 2}",
        "{\"time\": \"2026-01-01T00:00:50Z\", \"event\": \"resumed\", \"step\": 200}",
        "{\"time\": \"2026-01-01T00:01:00Z\", \"event\": \"checkpoint\", \"step\": 300}",
        "{\"time\": \"2026-01-01T00:01:00Z\", \"event\": \"closed\", \"state\": \"stopped\"}",
        "{\"time\": \"2026-01-01T00:02:30Z\", \"event\": \"opened\", \"start\": 3}",
        "{\"time\": \"2026-01-01T00:02:40Z\", \"event\": \"resumed\", \"step\": 300}",
        "{\"time\": \"2026-01-01T00:02:41Z\", \"event\": \"skipped\", \"step\": 301}",
        "{\"time\": \"2026-01-01T00:02:42Z\", \"event\": \"skipped\", \"step\": 302}",
        NULL};
    status_events e;

    (void)state;
    take_events(&e, lines);
    assert_int_equal(e.opened, 3);
    assert_true(e.lost == 130.0);
    assert_true(e.closed == STATUS_NO_TIME);
    assert_true(e.last - e.first == 162.0);
    assert_int_equal(integer_of(e.counts, "skipped"), 2);
    assert_int_equal(json_object_size(e.counts), 1);
    assert_int_equal(json_array_size(e.notes), 2);
    status_events_clear(&e);
}

/* An older checkpoint is gone back to: what came after it is lost too. */
static void going_back_past_a_damaged_checkpoint_loses_more(void **state)
{
    static const char *const lines[] = {
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"started\", \"step\": 0}",
        "{\"time\": \"2026-01-01T00:00:10Z\", \"event\": \"checkpoint\", \"step\": 100}",
        "{\"time\": \"2026-01-01T00:00:20Z\", \"event\": \"checkpoint\", \"step\": 200}",
        "{\"time\": \"2026-01-01T00:00:30Z\", \"event\": \"resumed\", \"step\": 100}",
        "{\"time\": \"yesterday\", \"event\": \"checkpoint\", \"step\": 900}",
        NULL};
    status_events e;

    (void)state;
    take_events(&e, lines);
    assert_true(e.lost == 20.0);
    assert_int_equal(e.commit_step, 100);
    status_events_clear(&e);
}

/* Three starts from the commit of 10 s, at work at 30, 50 and 70 s: 60 s are lost, not 20 + 40 +
 * 60; and going back from a damaged commit counts none of them again. */
static void starts_from_one_commit_lose_each_second_once(void **state)
{
    static const char *const lines[] = {
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"started\", \"step\": 0}",
        "{\"time\": \"2026-01-01T00:00:10Z\", \"event\": \"checkpoint\", \"step\": 100}",
        "{\"time\": \"2026-01-01T00:00:30Z\", \"event\": \"resumed\", \"step\": 100}",
        "{\"time\": \"2026-01-01T00:00:50Z\", \"event\": \"resumed\", \"step\": 100}",
        "{\"time\": \"2026-01-01T00:01:10Z\", \"event\": \"resumed\", \"step\": 100}",
        "{\"time\": \"2026-01-01T00:01:20Z\", \"event\": \"checkpoint\", \"step\": 200}",
        "{\"time\": \"2026-01-01T00:01:30Z\", \"event\": \"resumed\", \"step\": 200}",
        "{\"time\": \"2026-01-01T00:01:40Z\", \"event\": \"resumed\", \"step\": 100}",
        NULL};
    status_events e;

    (void)state;
    take_events(&e, lines);
    assert_true(e.lost == 90.0); /* all since 10 s */
    status_events_clear(&e);
}

/* What is scored stays scored: lost is what lies between the last line of one start and work. */
static void jobs_of_units_lose_the_time_between_starts(void **state)
{
    static const char *const lines[] = {
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"opened\"}",
        "{\"time\": \"2026-01-01T00:00:01Z\", \"event\": \"started\", \"units\": 9}",
        "{\"time\": \"2026-01-01T00:00:40Z\", \"event\": \"closed\", \"state\": \"stopped\"}",
        "{\"time\": \"2026-01-01T00:01:00Z\", \"event\": \"opened\"}",
        "{\"time\": \"2026-01-01T00:01:05Z\", \"event\": \"resumed\", \"units\": 9}",
        NULL};
    status_events e;

    (void)state;
    take_events(&e, lines);
    assert_true(e.lost == 25.0);
    status_events_clear(&e);
}

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
    run_holder holder;
    json_t *value;
    char *text, path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/lock", run);
    bp_test_expect(bp_dir_make(path), BP_OK);
    put(run, "run.json", "{\"job\": \"pretrain\", \"exit\": {\"state\": \"running\"}}");
    put(run, "config.ini", "[train]\nsteps = 40\nbatch = 2\n[model]\ncontext = 5\n");
    run_holder_self(&holder);
    holder.epoch = 1;
    (void)snprintf(holder.host, sizeof holder.host, "%s", host);
    if (boot != NULL)
        (void)snprintf(holder.boot_id, sizeof holder.boot_id, "%s", boot);
    value = run_holder_json(&holder);
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

static json_t *status_of(const char *run, double watch)
{
    json_t *status;

    bp_test_expect(bp_run_status_read(&status, run, watch), BP_OK);
    return status;
}

static void expect_state(const char *run, double watch, const char *expected)
{
    json_t *status = status_of(run, watch);

    assert_string_equal(json_string_value(json_object_get(status, "state")), expected);
    json_decref(status);
}

static void holder_that_lives_runs_and_another_hosts_is_watched(void **state)
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
    assert_int_equal(status_holder(out, runs[0], &watch), HOLD_SILENT);
    assert_int_equal(status_holder(out, runs[1], &watch), HOLD_ALIVE);
    assert_int_equal(status_holder(out, runs[2], &watch), HOLD_SILENT); /* it was not noted */
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
    bp_test_expect(bp_run_status_read(&status, fresh("nothing"), 0), BP_ERR_INPUT);
    bp_test_message_has("no run.json");
    assert_null(status);
    bp_test_expect(bp_run_status_read(&status, "/nowhere", 0), BP_ERR_INPUT);
    bp_test_expect(bp_run_status_read(&status, "/dev/null", 0), BP_ERR_INPUT);
    bp_test_message_has("no folder");
}

static void damaged_run_json_is_said_to_be(void **state)
{
    static const char *const texts[] = {"{\"job\": ", "[]", "{\"job\": \"pretrain\"}",
                                        "{\"job\": 3, \"exit\": {}}", ""};
    const char *run = fresh("damaged");
    json_t *status;

    (void)state;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        put(run, "run.json", texts[k]);
        bp_test_expect(bp_run_status_read(&status, run, 0), BP_ERR_FORMAT);
        bp_test_message_has("run.json is damaged");
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
    const char *run = running("told", "node7", NULL);

    (void)state;
    put(run, "metrics.jsonl",
        "{\"step\": 10, \"tokens\": 100, \"loss\": 3.5, \"seconds\": 2.0, "
        "\"tokens_per_second\": 50.0, \"valid_loss\": 4.0}\n");
    expect_text(run, "pretrain, running on node7", "step 10 of 40 (25.0 %), 6.0 s left",
                "50 tokens/s (median), 50 last", "3.5000, valid 4.0000, the best 4.0000 at step 10",
                "committed  nothing yet", "nothing: it runs", NULL);
    put(run, "run.json", "{\"job\": \"pretrain\", \"exit\": {\"state\": \"running\"}}");
    put(run, "lock/owner-000001", "{}"); /* no sense can be made of it: nobody holds it */
    expect_text(run, "dead: its job is gone", "begins anew: nothing was committed yet", NULL);
    put(run, "run.json",
        "{\"job\": \"pretrain\", \"exit\": {\"state\": \"failed\", \"code\": 74, "
        "\"message\": \"the disk is full\"}}");
    expect_text(run, "failed", "with status 74", "the disk is full", "do what the message says",
                NULL);
}

static void what_a_watchdog_noted_is_told(void **state)
{
    const char *run = running("noted", "here", NULL);
    json_t *status;

    (void)state;
    put(run, "events.jsonl",
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"started\", \"step\": 0}\n"
        "{\"time\": \"2026-01-01T00:00:09Z\", \"event\": \"slow_rank\", \"rank\": 3, \"host\": "
        "\"n2\", \"ratio\": 1.8, \"step\": 7}\n");
    put(run, "suspects.json", "{\"hosts\": {\"n2\": {\"count\": 2}, \"n5\": {\"count\": 1}}}");
    status = status_of(run, 0);
    assert_int_equal(integer_of(json_object_get(status, "events"), "slow_rank"), 1);
    assert_true(real_of(status, "free_bytes") > 0);
    json_decref(status);
    expect_text(run,
                "events     rank 3 on n2 was slow, 1.8 times the others' time at step 7, "
                "2026-01-01T00:00:09Z\n",
                NULL);
    expect_no_text(run, "suspects"); /* there is no other host to go to */
    put(run, "run.json",
        "{\"job\": \"pretrain\", \"exit\": {\"state\": \"running\"}, \"hosts\": {\"n2\": 1, "
        "\"n5\": 1}}");
    expect_text(run, "suspects   n2 2 times; sbatch takes --exclude=n2\n", NULL);
    put(run, "events.jsonl",
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"opened\"}\n"
        "{\"time\": \"2026-01-01T00:00:09Z\", \"event\": \"no_launcher\", \"launcher\": "
        "\"orted\"}\n"
        "{\"time\": \"2026-01-01T00:00:10Z\", \"event\": \"opened\"}\n");
    expect_no_text(run, "events"); /* of an earlier start: it went on since */
    put(run, "events.jsonl",
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"opened\"}\n"
        "{\"time\": \"2026-01-01T00:00:09Z\", \"event\": \"no_launcher\", \"launcher\": "
        "\"orted\"}\n"
        "{\"time\": \"2026-01-01T00:00:10Z\", \"event\": \"opened\"}\n"
        "{\"time\": \"2026-01-01T00:00:11Z\", \"event\": \"skipped\", \"step\": 3}\n");
    expect_text(run,
                "a step was skipped, its gradient was not finite at step 3, 2026-01-01T00:00:11Z "
                "(+1 older)\n",
                NULL);
}

/* Told until a start has come further, and not while the run runs. */
static void start_that_failed_is_told(void **state)
{
    static const char failed[] =
        "{\"time\": \"2026-01-01T00:00:00Z\", \"event\": \"opened\"}\n"
        "{\"time\": \"2026-01-01T00:00:05Z\", \"event\": \"closed\", \"state\": \"stopped\"}\n"
        "{\"time\": \"2026-01-01T01:00:00Z\", \"event\": \"start_failed\", \"code\": 65, "
        "\"message\": \"the corpus is damaged\"}\n";
    const char *run = running("refused", "here", NULL);
    json_t *status;
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
    status = status_of(run, 0);
    assert_true(real_of(status, "wall_seconds") == 5.0); /* it ran no second of the run */
    json_decref(status);
    (void)snprintf(text, sizeof text, "%s%s", failed,
                   "{\"time\": \"2026-01-01T02:00:00Z\", \"event\": \"opened\"}\n");
    put(run, "events.jsonl", text);
    expect_no_text(run, "the last start");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_torn_last_line_is_passed_over),
        cmocka_unit_test(steps_without_a_line_count_as_fast_as_the_others),
        cmocka_unit_test(missing_and_empty_journals_have_no_lines),
        cmocka_unit_test(restarts_lose_what_lies_between_commit_and_work),
        cmocka_unit_test(going_back_past_a_damaged_checkpoint_loses_more),
        cmocka_unit_test(starts_from_one_commit_lose_each_second_once),
        cmocka_unit_test(jobs_of_units_lose_the_time_between_starts),
        cmocka_unit_test(state_follows_from_what_is_written_and_who_holds),
        cmocka_unit_test(holder_that_lives_runs_and_another_hosts_is_watched),
        cmocka_unit_test(counter_that_moves_is_alive_whatever_the_clock_says),
        cmocka_unit_test(lock_without_a_run_is_starting),
        cmocka_unit_test(folders_without_a_run_are_missing_input),
        cmocka_unit_test(damaged_run_json_is_said_to_be),
        cmocka_unit_test(lines_tell_what_was_read),
        cmocka_unit_test(what_a_watchdog_noted_is_told),
        cmocka_unit_test(start_that_failed_is_told),
        cmocka_unit_test(members_are_watched_at_the_same_time),
    };

    return BP_TEST_RUN(tests);
}
