/* status.json as a job writes it: with every line, across restarts, whatever the clock says; and
 * the last words of its ranks. */
#include "run_status_folder.h"

#define STAMP "\"time\": \"2026-01-01T00:00:00Z\", "

static void lines_are_reported_as_they_come(void **state)
{
    progress_of p;
    json_t *file;

    (void)state;
    begin(&p, fresh("lines"), 1, NULL);
    event(&p, "{" STAMP "\"event\": \"started\", \"step\": 0}");
    metric(&p, "{\"step\": 10, \"tokens\": 100, \"loss\": 3.5, \"seconds\": 2.0, "
               "\"tokens_per_second\": 50.0, \"valid_loss\": 4.0}");
    metric(&p, "{\"step\": 20, \"tokens\": 200, \"loss\": null, \"seconds\": 1.0, "
               "\"tokens_per_second\": 100.0, \"valid_loss\": 4.5}");
    metric(&p, "{\"step\": 20, \"loss_mean\": 3.5}"); /* of an ensemble: its members tell */
    (void)bp_heartbeat_phase(BP_PHASE_VALIDATE);
    file = written(&p);
    assert_int_equal(integer_of(file, "step"), 20);
    assert_null(json_object_get(file, "loss"));
    assert_true(bp_json_number(file, "best_valid_loss") == 4.0 &&
                integer_of(file, "best_step") == 10);
    assert_true(bp_json_number(file, "valid_loss") == 4.5 &&
                bp_json_number(file, "kept_seconds") == 3.0);
    assert_true(bp_json_number(file, "tokens_per_second_median") == 100.0);
    assert_string_equal(json_string_value(json_object_get(file, "phase")),
                        bp_phase_name(BP_PHASE_VALIDATE));
    json_decref(file);
    end(&p);
    (void)bp_heartbeat_phase(BP_PHASE_STEP);
    file = written(&p);
    assert_string_equal(json_string_value(json_object_get(file, "phase")),
                        bp_phase_name(BP_PHASE_VALIDATE)); /* it is over */
    json_decref(file);
}

/* What was kept is in proportion to the steps, however many starts go on from one commit. */
static void restarts_go_back_to_their_commit(void **state)
{
    const char *run = fresh("lost");
    progress_of p;
    json_t *file;

    (void)state;
    begin(&p, run, 1, NULL);
    event(&p, "{" STAMP "\"event\": \"started\", \"step\": 0}");
    metric(&p, "{\"step\": 10, \"tokens\": 100, \"loss\": 3.5, \"seconds\": 2.0}");
    event(&p, "{" STAMP "\"event\": \"checkpoint\", \"step\": 20}");
    metric(&p,
           "{\"step\": 30, \"tokens\": 300, \"loss\": 3.0, \"seconds\": 4.0, \"valid_loss\": 1}");
    end(&p);
    for (int start = 2; start < 4; start++) {
        begin(&p, run, start, NULL);
        event(&p, "{" STAMP "\"event\": \"resumed\", \"step\": 20}");
        file = written(&p);
        assert_int_equal(integer_of(file, "step"), 20);
        assert_int_equal(integer_of(file, "tokens"), 200);
        assert_float_equal(bp_json_number(file, "kept_seconds"), 4.0, 1e-9);
        assert_null(json_object_get(file, "best_step"));
        assert_int_equal(integer_of(file, "starts"), start);
        json_decref(file);
        end(&p);
    }
}

/* What is scored stays scored. */
static void jobs_of_units_keep_them(void **state)
{
    const char *run = fresh("units");
    progress_of p;
    json_t *file, *members = json_pack("{s:i}", "units_done", 3);

    (void)state;
    begin(&p, run, 1, NULL);
    event(&p, "{" STAMP "\"event\": \"started\", \"units\": 9}");
    run_progress_take(p.progress, members);
    end(&p);
    begin(&p, run, 2, "stopped");
    event(&p, "{" STAMP "\"event\": \"resumed\", \"units\": 9}");
    file = written(&p);
    assert_int_equal(integer_of(file, "units_done"), 3);
    json_decref(file);
    json_decref(members);
    end(&p);
}

/* A file of the future, as a clock that was set back since then leaves it. */
static void clock_that_was_set_back_makes_nothing_negative(void **state)
{
    const char *run = fresh("set-back");
    progress_of p;
    json_t *file;

    (void)state;
    put(run, "status.json",
        "{\"format\": \"bagpipe status\", \"format_version\": 1, \"time\": "
        "\"2099-01-01T00:00:00Z\", "
        "\"start\": 1, \"starts\": 1, \"wall_seconds\": 100.0}");
    begin(&p, run, 2, "stopped");
    event(&p, "{" STAMP "\"event\": \"resumed\", \"step\": 10}");
    file = written(&p);
    assert_true(bp_json_number(file, "wall_seconds") >= 100 &&
                bp_json_number(file, "wall_seconds") < 160);
    json_decref(file);
    end(&p);
}

static void status_json_that_makes_no_sense_is_begun_anew(void **state)
{
    static const char *const texts[] = {"", "[]", "{\"format_version\": 2}", "\x01", "{\"step\":"};
    const char *run = fresh("garbage");

    (void)state;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        progress_of p;
        json_t *file;

        put(run, "status.json", texts[k]);
        assert_null(run_progress_read(run));
        begin(&p, run, (int)k + 2, "stopped");
        file = written(&p);
        assert_int_equal(integer_of(file, "start"), (int)k + 2);
        json_decref(file);
        end(&p);
    }
}

/* A job goes on where it can't be written: its place is taken by a folder. */
static void what_can_not_be_written_ends_no_job(void **state)
{
    const char *run = fresh("unwritable");
    char path[PATH_MAX];
    progress_of p;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/status.json", run);
    bp_test_expect(bp_dir_make(path), BP_OK);
    begin(&p, run, 1, NULL);
    metric(&p, "{\"step\": 10, \"tokens\": 100}");
    bp_err_set_message("the first failure");
    (void)bp_heartbeat_phase(BP_PHASE_STEP);
    (void)bp_heartbeat_phase(BP_PHASE_END);
    assert_string_equal(bp_err_message(), "the first failure");
    end(&p);
    assert_int_equal(rmdir(path), 0);
}

#define STAMP_TEXT "2026-11-22T06:13:36Z"

static void last_words_are_of_their_start(void **state)
{
    const char *run = fresh("words");
    json_t *record = json_pack("{s:i, s:{s:s}}", "starts", 2, "exit", "state", "running"), *end_of;
    char text[256];

    (void)state;
    run_words_add(run, 1, 137, "an old one");
    assert_null(run_words_of_end(run, record, NULL));
    run_words_add(run, 2, 137, "node n2 failed");
    run_words_add(run, 2, 75, "a later one");
    end_of = run_words_of_end(run, record, NULL);
    assert_string_equal(json_string_value(json_object_get(end_of, "state")), "dead");
    run_words_text(text, sizeof text, end_of);
    assert_string_equal(text, "died: node n2 failed");
    json_decref(end_of);
    put(run, "last_words.txt",
        "\n\nnonsense\n" STAMP_TEXT " start 2 launcher 70: no rank\n" STAMP_TEXT
        " start 2 status 70: a bug\n" STAMP_TEXT " start 2 status 71: a later one\n");
    end_of = run_words_of_end(run, record, NULL);
    run_words_text(text, sizeof text, end_of);
    assert_string_equal(text, "failed with status 70: a bug; no rank");
    json_decref(end_of);
    (void)json_object_set_new(record, "exit",
                              json_pack("{s:s, s:s}", "state", "stopped", "reason", "USR1"));
    put(run, "last_words.txt", STAMP_TEXT " start 2 launcher 75: time limit\n");
    end_of = run_words_of_end(run, record, NULL);
    run_words_text(text, sizeof text, end_of);
    assert_string_equal(text, "was stopped (USR1): time limit");
    json_decref(end_of);
    json_decref(record);
}

/* ---- state ---- */

/* ---- refusals ---- */

/* ---- for people ---- */

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_reported_as_they_come),
        cmocka_unit_test(restarts_go_back_to_their_commit),
        cmocka_unit_test(jobs_of_units_keep_them),
        cmocka_unit_test(clock_that_was_set_back_makes_nothing_negative),
        cmocka_unit_test(status_json_that_makes_no_sense_is_begun_anew),
        cmocka_unit_test(what_can_not_be_written_ends_no_job),
        cmocka_unit_test(last_words_are_of_their_start),
    };

    return BP_TEST_RUN(tests);
}
