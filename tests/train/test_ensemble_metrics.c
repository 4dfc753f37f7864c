/* The members' metrics put together: what is written when, whatever comes first. */
#include "bp_test_mpi.h"

#include "base/files/fs.h"
#include "train/ensemble/ensemble_priv.h"

#include <math.h>

static const bp_option OPTIONS[] = {
    {.key = "run.dir", .type = BP_OPTION_STRING, .help = "the run folder", .required = true},
    {.key = NULL}};

/* An ensemble that trains nothing: its folder, and members' files that the tests write. */
typedef struct fixture {
    ensemble self;
    bp_config *config;
    ensemble_metrics *metrics;
} fixture;

static void begin(fixture *f, const char *name, int64_t members)
{
    static const bp_option *const tables[] = {OPTIONS, NULL};
    bp_mesh_shape one = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_run_spec spec = {.job = "ensemble", .trains = true, .watch_seconds = 0.3};
    char *key = bp_sprintf("run.dir=%s", bp_test_path(name));

    *f = (fixture){.self = {.members = members}};
    bp_test_expect(bp_config_new(&f->config, tables, tables), BP_OK);
    bp_test_expect(bp_config_read(f->config, NULL, 1, &key), BP_OK);
    bp_test_expect(bp_mesh_new(&f->self.mesh, MPI_COMM_WORLD, &one), BP_OK);
    bp_test_expect(bp_run_open(&f->self.run, f->self.mesh, f->config, &spec), BP_OK);
    f->self.config = f->config;
    bp_free(key);
}

static void end(fixture *f)
{
    ensemble_metrics_free(&f->metrics);
    bp_test_expect(bp_run_close(&f->self.run, BP_OK), BP_OK);
    bp_mesh_free(&f->self.mesh);
    bp_config_free(&f->config);
}

/* A member has these steps, ended by 0, with losses 10 * step + member; a checkpoint of `step`. */
static void has(const fixture *f, int64_t member, const int *steps, int checkpoint)
{
    char *folder = ensemble_member_path(&f->self, member, "checkpoints");
    char *path = ensemble_member_path(&f->self, member, "metrics.jsonl");
    char *step = bp_sprintf("%s/step-%012d", folder, checkpoint);

    bp_test_expect(bp_dir_make(checkpoint > 0 ? step : folder), BP_OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (; *steps != 0; steps++)
        (void)fprintf(file, "{\"step\": %d, \"loss\": %d.5%s}\n", *steps, 10 * *steps + (int)member,
                      *steps % 4 == 0 ? ", \"valid_loss\": null" : "");
    (void)fprintf(file, "{\"step\": 9"); /* half a line, of a step at work */
    assert_int_equal(fclose(file), 0);
    bp_free(step);
    bp_free(path);
    bp_free(folder);
}

/* The ensemble's file has these steps, ended by 0. */
static void check_steps(fixture *f, const int *steps)
{
    char *path = bp_path_join(bp_config_string(f->config, "run.dir"), "metrics.jsonl"), *text;
    size_t bytes;

    bp_test_expect(ensemble_metrics_flush(f->metrics), BP_OK);
    bp_test_expect(bp_file_read(path, 1 << 20, &text, &bytes), BP_OK);
    const char *at = text;
    for (; *steps != 0; steps++) {
        int step = -1;
        assert_int_equal(sscanf(at, "{\"step\": %d,", &step), 1);
        assert_int_equal(step, *steps);
        at = strchr(at, '\n') + 1;
    }
    assert_string_equal(at, "");
    bp_free(text);
    bp_free(path);
}

#define STEPS(...) ((const int[]){__VA_ARGS__, 0})

static void a_line_waits_for_all_members(void **state)
{
    fixture f;

    (void)state;
    begin(&f, "waits", 3);
    has(&f, 0, STEPS(1, 2, 3), 0);
    has(&f, 1, STEPS(1, 2), 0);
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    check_steps(&f, STEPS(0)); /* nobody has begun */
    bp_test_expect(ensemble_metrics_started(f.metrics, 0, 0), BP_OK);
    bp_test_expect(ensemble_metrics_started(f.metrics, 1, 0), BP_OK);
    check_steps(&f, STEPS(0)); /* the third has not */
    bp_test_expect(ensemble_metrics_started(f.metrics, 2, 0), BP_OK);
    check_steps(&f, STEPS(0)); /* has no file yet */
    has(&f, 2, STEPS(1), 0);
    check_steps(&f, STEPS(1));
    has(&f, 2, STEPS(1, 2, 3), 0);
    check_steps(&f, STEPS(1, 2));
    has(&f, 1, STEPS(1, 2, 3, 4), 0);
    check_steps(&f, STEPS(1, 2, 3));
    end(&f);
}

static void lines_after_a_checkpoint_wait_until_the_member_goes_on(void **state)
{
    fixture f;

    (void)state;
    begin(&f, "certain", 2);
    has(&f, 0, STEPS(1, 2, 3, 4), 2);
    has(&f, 1, STEPS(1, 2, 3, 4), 4);
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    check_steps(&f, STEPS(1, 2)); /* of the first, 3 and 4 will be cut */
    has(&f, 0, STEPS(1, 2), 2);
    bp_test_expect(ensemble_metrics_started(f.metrics, 0, 2), BP_OK);
    check_steps(&f, STEPS(1, 2));
    has(&f, 0, STEPS(1, 2, 3, 4), 2);
    check_steps(&f, STEPS(1, 2, 3, 4));
    end(&f);
}

static void a_member_that_goes_on_from_an_older_checkpoint_takes_its_lines_back(void **state)
{
    fixture f;

    (void)state;
    begin(&f, "damaged", 2);
    has(&f, 0, STEPS(1, 2, 3, 4), 4);
    has(&f, 1, STEPS(1, 2, 3, 4), 4);
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    check_steps(&f, STEPS(1, 2, 3, 4));
    has(&f, 0, STEPS(1, 2), 2); /* its step 4 was damaged */
    bp_test_expect(ensemble_metrics_started(f.metrics, 0, 2), BP_OK);
    check_steps(&f, STEPS(1, 2));
    has(&f, 0, STEPS(1, 2, 3), 2);
    check_steps(&f, STEPS(1, 2, 3));
    end(&f);
}

static void steps_that_not_all_members_have_are_left_out(void **state)
{
    fixture f;

    (void)state;
    begin(&f, "uneven", 2);
    has(&f, 0, STEPS(2, 4, 6, 8, 10), 0);
    has(&f, 1, STEPS(3, 6, 9, 10), 0);
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    for (int k = 0; k < 2; k++)
        bp_test_expect(ensemble_metrics_started(f.metrics, k, 0), BP_OK);
    check_steps(&f, STEPS(6, 10));
    end(&f);
}

static void the_others_go_on_without_a_member_that_diverged(void **state)
{
    fixture f;
    char *path, *text;
    size_t bytes;

    (void)state;
    begin(&f, "diverged", 3);
    for (int k = 0; k < 3; k++)
        has(&f, k, k == 1 ? STEPS(1, 2) : STEPS(1, 2, 3, 4), 0);
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    for (int k = 0; k < 3; k++)
        bp_test_expect(ensemble_metrics_started(f.metrics, k, 0), BP_OK);
    check_steps(&f, STEPS(1, 2));
    ensemble_metrics_ended(f.metrics, 1, ENSEMBLE_DIVERGED);
    check_steps(&f, STEPS(1, 2, 3, 4));
    path = bp_path_join(bp_config_string(f.config, "run.dir"), "metrics.jsonl");
    bp_test_expect(bp_file_read(path, 1 << 20, &text, &bytes), BP_OK);
    /* of 20.5, 21.5, 22.5; and of 30.5, 32.5 */
    assert_non_null(strstr(text, "{\"step\": 2, \"loss\": {\"m00\": 20.5, \"m01\": 21.5, "
                                 "\"m02\": 22.5}, \"loss_mean\": 21.5, \"loss_spread\": 1.0}\n"));
    assert_non_null(strstr(text, "{\"step\": 3, \"loss\": {\"m00\": 30.5, \"m02\": 32.5}, "
                                 "\"loss_mean\": 31.5, \"loss_spread\": 1.4142135623730951}\n"));
    assert_non_null(strstr(text, "\"valid_loss\": {\"m00\": null, \"m02\": null}, "
                                 "\"valid_loss_mean\": null, \"valid_loss_spread\": null}\n"));
    bp_free(text);
    bp_free(path);
    end(&f);
}

static void the_others_go_on_after_a_member_that_ended_early(void **state)
{
    static const ensemble_end ends[] = {ENSEMBLE_ENDED_EARLY, ENSEMBLE_TRAINED};

    (void)state;
    for (int e = 0; e < 2; e++) {
        fixture f;

        begin(&f, e == 0 ? "early" : "short", 3);
        for (int k = 0; k < 3; k++)
            has(&f, k, k == 1 ? STEPS(2, 4) : STEPS(1, 2, 3, 4, 5, 6), 0);
        bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
        for (int k = 0; k < 3; k++)
            bp_test_expect(ensemble_metrics_started(f.metrics, k, 0), BP_OK);
        check_steps(&f, STEPS(2, 4)); /* no line that it lacks stands before its end */
        ensemble_metrics_ended(f.metrics, 1, ends[e]);
        if (e == 0)
            check_steps(&f, STEPS(2, 4, 5, 6));
        else
            check_steps(&f, STEPS(2, 4));
        end(&f);
    }
}

static void a_file_longer_than_a_block_is_read_through(void **state)
{
    enum { COUNT = 2000 };
    static int steps[COUNT + 1];
    fixture f;

    (void)state;
    for (int i = 0; i < COUNT; i++)
        steps[i] = i + 1;
    begin(&f, "long", 2);
    for (int k = 0; k < 2; k++)
        has(&f, k, steps, 0);
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    for (int k = 0; k < 2; k++)
        bp_test_expect(ensemble_metrics_started(f.metrics, k, 0), BP_OK);
    check_steps(&f, steps);
    end(&f);
}

/* Not the end of the file, though no newline is in sight. */
static void a_line_without_end_is_damage(void **state)
{
    char *text = bp_alloc("test", 9001, 1), *path;
    fixture f;

    (void)state;
    begin(&f, "endless", 1);
    has(&f, 0, STEPS(1), 0);
    path = ensemble_member_path(&f.self, 0, "metrics.jsonl");
    memset(text, 'x', 9000);
    memcpy(text, "{\"step\": 1, \"loss\": 2.5}\n", 25);
    memcpy(text + 8990, "\n{}\n", 4);
    bp_test_expect(bp_file_write(path, text, 9000), BP_OK);
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    bp_test_expect(ensemble_metrics_started(f.metrics, 0, 0), BP_OK);
    bp_test_expect(ensemble_metrics_flush(f.metrics), BP_ERR_FORMAT);
    bp_test_message_has("[metrics.damaged]");
    bp_test_message_has(path);
    bp_free(path);
    bp_free(text);
    end(&f);
}

static void a_file_that_can_not_be_read_is_an_error(void **state)
{
    fixture f;

    (void)state;
    begin(&f, "unreadable", 1);
    char *path = ensemble_member_path(&f.self, 0, "metrics.jsonl");
    bp_test_expect(bp_dir_make(path), BP_OK); /* a folder in its place */
    bp_test_expect(ensemble_metrics_new(&f.metrics, &f.self), BP_OK);
    bp_test_expect(ensemble_metrics_flush(f.metrics), BP_ERR_FORMAT);
    bp_test_message_has("metrics.jsonl ... [file.not_plain]");
    bp_free(path);
    end(&f);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_waits_for_all_members),
        cmocka_unit_test(lines_after_a_checkpoint_wait_until_the_member_goes_on),
        cmocka_unit_test(a_member_that_goes_on_from_an_older_checkpoint_takes_its_lines_back),
        cmocka_unit_test(steps_that_not_all_members_have_are_left_out),
        cmocka_unit_test(the_others_go_on_without_a_member_that_diverged),
        cmocka_unit_test(the_others_go_on_after_a_member_that_ended_early),
        cmocka_unit_test(a_file_longer_than_a_block_is_read_through),
        cmocka_unit_test(a_line_without_end_is_damage),
        cmocka_unit_test(a_file_that_can_not_be_read_is_an_error),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
