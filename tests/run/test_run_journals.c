/* The journals of a run folder: written line by line, cut back to a checkpoint. */
#include "run/run_opening.h"

#include "base/fault.h"

#include <fcntl.h>
#include <unistd.h>

static void add_steps(bp_run *run, int first, int last)
{
    for (int step = first; step <= last; step++) {
        json_t *line = json_pack("{s:i, s:f}", "step", step, "loss", 1.0 / step);

        bp_test_check_err(COMM, bp_run_metric(run, line), BP_OK);
        json_decref(line);
    }
}

/* Collective: what the coordinator wrote before is seen. */
static int64_t lines_of(const char *run, const char *name)
{
    char *text;
    size_t bytes;
    int64_t lines = 0;

    BP_MPI(MPI_Barrier(COMM));
    if (bp_file_read(inside(run, name), 1 << 20, &text, &bytes) != BP_OK)
        return -1;
    for (size_t k = 0; k < bytes; k++)
        lines += text[k] == '\n';
    bp_free(text);
    return lines;
}

static void metrics_are_cut_back_to_the_checkpoint(void **state)
{
    const opening with = {.run = bp_test_path("metrics"), .hash = "c0"};
    bp_run *run;
    char *before = NULL, *after = NULL;
    size_t before_bytes = 0, after_bytes = 0;

    (void)state;
    bp_test_check_err(COMM, open_run(&run, &with), BP_OK);
    add_steps(run, 1, 20);
    bp_test_check_err(COMM, bp_run_close(&run, BP_ERR_STOPPED), BP_ERR_STOPPED);
    bp_test_check(COMM, lines_of(with.run, "metrics.jsonl") == 20);
    if (mesh->coordinates) { /* killed in the middle of a line */
        int fd = open(inside(with.run, "metrics.jsonl"), O_WRONLY | O_APPEND);

        bp_test_expect(
            bp_file_read(inside(with.run, "metrics.jsonl"), 1 << 20, &before, &before_bytes),
            BP_OK);
        assert_true(fd >= 0 && write(fd, "{\"step\": 2", 10) == 10 && close(fd) == 0);
    }
    bp_test_check_err(COMM, open_run(&run, &with), BP_OK);
    bp_test_check(COMM, lines_of(with.run, "metrics.jsonl") == 20);
    bp_test_check_err(COMM, bp_run_cut_metrics(run, 12), BP_OK);
    bp_test_check(COMM, lines_of(with.run, "metrics.jsonl") == 12);
    add_steps(run, 13, 20);
    if (mesh->coordinates) { /* cut and written again: not a byte differs */
        bp_test_expect(
            bp_file_read(inside(with.run, "metrics.jsonl"), 1 << 20, &after, &after_bytes), BP_OK);
        assert_true(before_bytes == after_bytes && memcmp(before, after, after_bytes) == 0);
    }
    bp_free(before);
    bp_free(after);
    bp_test_check_err(COMM, bp_run_cut_metrics(run, 0), BP_OK);
    bp_test_check(COMM, lines_of(with.run, "metrics.jsonl") == 0);
    bp_test_check_err(COMM, bp_run_close(&run, BP_OK), BP_OK);
}

/* A disk that is full: the error is reported, and the file still holds whole lines. */
static void line_is_written_whole_or_not_at_all(void **state)
{
    const opening with = {.run = bp_test_path("full"), .hash = "c0"};
    json_t *line = json_pack("{s:i}", "step", 1);
    bp_run *run;

    (void)state;
    bp_test_check_err(COMM, open_run(&run, &with), BP_OK);
    if (mesh->coordinates) {
        bp_test_expect(bp_run_metric(run, line), BP_OK);
        bp_fault_arm("base.write");
        bp_test_expect(bp_run_metric(run, line), BP_ERR_IO);
        bp_fault_arm("base.write");
        bp_test_expect(bp_run_event(run, "x", NULL), BP_ERR_IO);
        bp_fault_arm(NULL);
    }
    bp_test_check(COMM, lines_of(with.run, "metrics.jsonl") == 1);
    bp_test_check(COMM, lines_of(with.run, "events.jsonl") == 1); /* that it was opened */
    bp_test_check_err(COMM, bp_run_close(&run, BP_OK), BP_OK);
    json_decref(line);
}

static void events_carry_their_time_and_name(void **state)
{
    const opening with = {.run = bp_test_path("events"), .hash = "c0"};
    json_t *members = json_pack("{s:i, s:s}", "step", 40, "event", "not this");
    bp_run *run;

    (void)state;
    bp_test_check_err(COMM, open_run(&run, &with), BP_OK);
    bp_test_check_err(COMM, bp_run_event(run, "started", NULL), BP_OK);
    bp_test_check_err(COMM, bp_run_event(run, "checkpoint", members), BP_OK);
    bp_test_check_err(COMM, bp_run_close(&run, BP_OK), BP_OK);
    bp_test_check(COMM, file_has(with.run, "events.jsonl", "{\"time\": \"2"));
    bp_test_check(COMM,
                  file_has(with.run, "events.jsonl", "\"event\": \"opened\", \"start\": 1, "));
    bp_test_check(COMM, file_has(with.run, "events.jsonl",
                                 "\"event\": \"closed\", \"state\": \"finished\", \"code\": 0}\n"));
    bp_test_check(COMM, file_has(with.run, "events.jsonl", "\"event\": \"started\"}\n"));
    bp_test_check(COMM,
                  file_has(with.run, "events.jsonl", "\"event\": \"checkpoint\", \"step\": 40}\n"));
    json_decref(members);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(mesh_is_made),
        cmocka_unit_test(metrics_are_cut_back_to_the_checkpoint),
        cmocka_unit_test(line_is_written_whole_or_not_at_all),
        cmocka_unit_test(events_carry_their_time_and_name),
        cmocka_unit_test(mesh_is_freed),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
