/* Which checkpoint a path means, and which one a resume takes where some are damaged. */
#include "io/checkpoint_copies.h"

#include "base/log.h"

/* A run folder with checkpoints of steps 7, 8 and 9; `best` is 8. */
static const char *fresh_run(void)
{
    const char *run = bp_test_path("run"), *parent = bp_test_path("run/checkpoints");

    BP_MPI(MPI_Barrier(COMM));
    if (bp_comm_is_root(COMM)) {
        bp_test_expect(bp_dir_remove(run), BP_OK);
        bp_test_expect(bp_dir_make(parent), BP_OK);
    }
    BP_MPI(MPI_Barrier(COMM));
    for (int64_t step = 7; step <= 9; step++)
        save_step(parent, step);
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_checkpoints_link_best(parent, 8), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    return run;
}

static void damage_step(int64_t step)
{
    char name[BP_STEP_NAME], path[PATH_MAX];

    bp_checkpoint_step_name(name, step);
    (void)snprintf(path, sizeof path, "%s/%s/shard-00000.h5", bp_test_path("run/checkpoints"),
                   name);
    if (bp_comm_is_root(COMM))
        flip_byte(path, 700);
    BP_MPI(MPI_Barrier(COMM));
}

/* The step that open_any finds; -1 after an error. */
static int64_t step_of(const char *path, bp_err expected)
{
    bp_checkpoint *checkpoint;
    int64_t step = -1;

    bp_test_check_err(COMM, bp_checkpoint_open_any(COMM, path, &checkpoint), expected);
    if (checkpoint != NULL)
        step = json_integer_value(json_object_get(bp_checkpoint_state(checkpoint), "step"));
    bp_checkpoint_close(&checkpoint);
    return step;
}

static void path_names_a_checkpoint_in_four_ways(void **state)
{
    const char *run = fresh_run();
    char slash[PATH_MAX];

    (void)snprintf(slash, sizeof slash, "%s///", bp_test_path("run/checkpoints/step-000000000007"));
    bp_test_check(COMM, step_of(run, BP_OK) == 9);
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints"), BP_OK) == 9);
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints/best"), BP_OK) == 8);
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints/step-000000000007"), BP_OK) == 7);
    bp_test_check(COMM, step_of(slash, BP_OK) == 7);
}

static void imported_folder_is_a_checkpoint(void **state)
{
    const char *copy = bp_test_path("imported");

    (void)fresh_run();
    if (bp_comm_is_root(COMM))
        assert_int_equal(rename(bp_test_path("run/checkpoints/step-000000000007"), copy), 0);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, step_of(copy, BP_OK) == 7);
}

static void path_without_a_checkpoint_is_a_missing_input(void **state)
{
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_dir_make(bp_test_path("empty/checkpoints")), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, step_of(bp_test_path("empty"), BP_ERR_INPUT) == -1);
    bp_test_check(COMM, step_of(bp_test_path("empty/checkpoints"), BP_ERR_INPUT) == -1);
    bp_test_check(COMM, step_of(bp_test_path("nowhere"), BP_ERR_INPUT) == -1);
}

/* What is printed on standard error meanwhile, by all ranks of which only the root speaks. */
static int hide_stderr(const char *path)
{
    int kept = dup(2), fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_true(kept >= 0 && fd >= 0 && dup2(fd, 2) == 2 && close(fd) == 0);
    return kept;
}

static void show_stderr(int kept)
{
    (void)fflush(stderr);
    assert_true(dup2(kept, 2) == 2 && close(kept) == 0);
    BP_MPI(MPI_Barrier(COMM));
}

static bool warned(const char *path, const char *words)
{
    char *text;
    size_t bytes;
    bool found = bp_file_read(path, 1 << 20, &text, &bytes) == BP_OK && strstr(text, words) != NULL;

    bp_free(text);
    return found;
}

static void damaged_one_is_passed_over_with_a_warning(void **state)
{
    const char *run = fresh_run(), *heard = bp_test_path("warnings");
    int kept;
    int64_t step;

    damage_step(9);
    kept = hide_stderr(heard);
    step = step_of(run, BP_OK);
    show_stderr(kept);
    bp_test_check(COMM, step == 8);
    bp_test_check(COMM, warned(heard, "bagpipe: warning: checkpoint step-000000000009 "));
    bp_test_check(COMM, bp_path_exists(bp_test_path(
                            "run/checkpoints/step-000000000009"))); /* a reader moves nothing */
    kept = hide_stderr(heard);
    damage_step(8);
    damage_step(7);
    step = step_of(run, BP_ERR_FORMAT);
    show_stderr(kept);
    bp_test_check_said(COMM, "[checkpoint.all_damaged]");
    bp_test_check_said(COMM, "all 3 ... [checkpoint.all_damaged]");
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints/best"), BP_ERR_FORMAT) == -1);
}

/* The newest that verifies for the run itself; its step, or -1 where there is none. */
static int64_t newest_of(const char *parent, bp_err expected)
{
    bp_checkpoint *checkpoint;
    int64_t step = -1;

    bp_test_check_err(COMM, bp_checkpoint_newest(COMM, parent, &checkpoint), expected);
    if (checkpoint != NULL)
        step = json_integer_value(json_object_get(bp_checkpoint_state(checkpoint), "step"));
    bp_checkpoint_close(&checkpoint);
    BP_MPI(MPI_Barrier(COMM));
    return step;
}

static void resume_takes_the_newest_that_verifies(void **state)
{
    const char *parent = bp_test_path("run/checkpoints"),
               *heard = bp_test_path("warnings-of-resume");
    int kept;
    int64_t step;

    (void)fresh_run();
    bp_test_check(COMM, newest_of(parent, BP_OK) == 9);
    damage_step(9);
    kept = hide_stderr(heard);
    step = newest_of(parent, BP_OK);
    show_stderr(kept);
    bp_test_check(COMM, step == 8);
    bp_test_check(COMM, warned(heard, "[checkpoint.put_aside]"));
    /* Moved aside, so that step 9 can be saved again; its bytes are kept. */
    bp_test_check(COMM, !bp_path_exists(bp_test_path("run/checkpoints/step-000000000009")));
    bp_test_check(COMM, bp_path_exists(bp_test_path(
                            "run/checkpoints/.bad-step-000000000009-0/shard-00000.h5")));
    save_step(parent, 9);
    bp_test_check(COMM, newest_of(parent, BP_OK) == 9);
}

static void resume_refuses_when_all_are_damaged(void **state)
{
    const char *parent = bp_test_path("run/checkpoints");
    int kept;

    (void)fresh_run();
    for (int64_t step = 7; step <= 9; step++)
        damage_step(step);
    kept = hide_stderr(bp_test_path("warnings-of-all"));
    bp_test_check(COMM, newest_of(parent, BP_ERR_FORMAT) == -1);
    show_stderr(kept);
    bp_test_check_said(COMM, "[checkpoint.all_damaged]");
    bp_test_check(COMM, bp_path_exists(bp_test_path(
                            "run/checkpoints/step-000000000009"))); /* nothing is moved */
}

static void resume_stops_at_an_unknown_version(void **state)
{
    (void)fresh_run();
    make_version(bp_test_path("run/checkpoints/step-000000000009"), 5);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, newest_of(bp_test_path("run/checkpoints"), BP_ERR_FORMAT) == -1);
    bp_test_check_said(COMM, "format_version 5 ... [manifest.unknown_version]");
}

static void resume_without_a_checkpoint_begins_anew(void **state)
{
    bp_test_check(COMM, newest_of(bp_test_path("not-there"), BP_OK) == -1);
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_dir_make(bp_test_path("only-litter/.tmp-step-000000000001-0")), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, newest_of(bp_test_path("only-litter"), BP_OK) == -1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(path_names_a_checkpoint_in_four_ways),
        cmocka_unit_test(imported_folder_is_a_checkpoint),
        cmocka_unit_test(path_without_a_checkpoint_is_a_missing_input),
        cmocka_unit_test(damaged_one_is_passed_over_with_a_warning),
        cmocka_unit_test(resume_takes_the_newest_that_verifies),
        cmocka_unit_test(resume_refuses_when_all_are_damaged),
        cmocka_unit_test(resume_stops_at_an_unknown_version),
        cmocka_unit_test(resume_without_a_checkpoint_begins_anew),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
