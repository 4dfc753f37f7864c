/* The folder of checkpoints: leftovers, retention, the link to the best. */
#include "bp_test.h"

#include "base/fault.h"
#include "base/files/fence.h"
#include "io/checkpoint/checkpoint.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder that holds a file, so that removing it takes more than rmdir. */
static void make(const char *name)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", bp_test_path("checkpoints"), name);
    bp_test_expect(bp_dir_make(path), BP_OK);
    (void)snprintf(path, sizeof path, "%s/%s/shard-00000.h5", bp_test_path("checkpoints"), name);
    bp_test_expect(bp_file_write(path, "x", 1), BP_OK);
}

static void make_step(int64_t step)
{
    char name[BP_STEP_NAME];

    bp_checkpoint_step_name(name, step);
    make(name);
}

static const char *fresh(void)
{
    const char *parent = bp_test_path("checkpoints");

    bp_test_expect(bp_dir_remove(parent), BP_OK);
    bp_test_expect(bp_dir_make(parent), BP_OK);
    return parent;
}

/* The names that are there, one after the other. */
static void expect_names(const char *expected)
{
    char **names, all[4096] = "";
    int64_t count;

    bp_test_expect(bp_dir_list(bp_test_path("checkpoints"), &names, &count), BP_OK);
    for (int64_t k = 0; k < count; k++)
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", k > 0 ? " " : "",
                       names[k]);
    bp_names_free(&names, count);
    assert_string_equal(all, expected);
}

static void step_names_have_twelve_digits(void **state)
{
    char name[BP_STEP_NAME];

    bp_checkpoint_step_name(name, 1200);
    assert_string_equal(name, "step-000000001200");
    bp_checkpoint_step_name(name, 999999999999);
    assert_string_equal(name, "step-999999999999");
}

static bp_err never(void *context)
{
    (void)context;
    return BP_FAIL(BP_ERR_BUSY, "lock.lost", "another job took the run over");
}

static void leftovers_of_a_lost_run_stay(void **state)
{
    const char *parent = fresh();

    make(".tmp-step-000000000008-0123456789abcdef");
    bp_fence_add(never, NULL);
    bp_test_expect(bp_checkpoints_clean(parent), BP_ERR_BUSY);
    bp_fence_remove(NULL);
    bp_test_message_has("[lock.lost]");
    expect_names(".tmp-step-000000000008-0123456789abcdef");
}

static void leftovers_are_removed_and_nothing_else(void **state)
{
    const char *parent = fresh();

    make_step(7);
    make(".tmp-step-000000000008-0123456789abcdef");
    make(".del-step-000000000003-0123456789abcdef");
    make(".bad-step-000000000006-0");
    assert_int_equal(
        symlink("step-000000000007", bp_test_path("checkpoints/.tmp-best-0123456789abcdef")), 0);
    bp_test_expect(bp_checkpoints_clean(parent), BP_OK);
    expect_names(".bad-step-000000000006-0 step-000000000007");
    assert_true(bp_path_exists(bp_test_path(
        "checkpoints/step-000000000007/shard-00000.h5"))); /* the link was not followed */
    bp_test_expect(bp_checkpoints_clean(bp_test_path("not-there")), BP_OK);
}

static void newest_are_kept(void **state)
{
    const char *parent = fresh();

    for (int64_t step = 100; step <= 600; step += 100)
        make_step(step);
    bp_test_expect(bp_checkpoints_prune(parent, 3, NULL), BP_OK);
    expect_names("step-000000000400 step-000000000500 step-000000000600");
    bp_test_expect(bp_checkpoints_prune(parent, 3, NULL), BP_OK);
    expect_names("step-000000000400 step-000000000500 step-000000000600");
    bp_test_expect(bp_checkpoints_prune(parent, 0, NULL), BP_OK); /* one is always kept */
    expect_names("step-000000000600");
}

static void old_ones_are_removed_while_the_caller_goes_on(void **state)
{
    const char *parent = fresh();
    bp_remover remover = {.runs = false};

    bp_test_expect(bp_remover_wait(&remover), BP_OK); /* there are none */
    for (int64_t step = 100; step <= 600; step += 100)
        make_step(step);
    bp_test_expect(bp_checkpoints_prune(parent, 3, &remover), BP_OK);
    bp_test_expect(bp_checkpoints_prune(parent, 2, &remover), BP_OK);
    bp_test_expect(bp_remover_wait(&remover), BP_OK);
    expect_names("step-000000000500 step-000000000600");
    bp_fault_arm("ckpt.prune_unlink");
    bp_test_expect(bp_checkpoints_prune(parent, 1, &remover), BP_OK);
    bp_test_expect(bp_remover_wait(&remover), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_message_has(".del-step-000000000500 ... [file.io_error]");
    bp_test_expect(bp_remover_wait(&remover), BP_OK); /* it is reported once */
}

static void newest_step_is_found_by_the_names(void **state)
{
    const char *parent = fresh();

    assert_int_equal(bp_checkpoint_newest_step(parent), -1);
    make(".tmp-step-000000000900-0");
    make(".bad-step-000000000800-0");
    make("step-700");
    make("step-of-mine-0000");
    assert_int_equal(bp_checkpoint_newest_step(parent), -1);
    make_step(0);
    assert_int_equal(bp_checkpoint_newest_step(parent), 0);
    make_step(600);
    make_step(20);
    assert_int_equal(bp_checkpoint_newest_step(parent), 600);
    assert_int_equal(bp_checkpoint_newest_step(bp_test_path("not-there")), -1);
    assert_int_equal(
        bp_checkpoint_newest_step(bp_test_path("checkpoints/step-000000000600/shard-00000.h5")),
        -1);
}

static void best_is_kept_besides(void **state)
{
    const char *parent = fresh();

    for (int64_t step = 100; step <= 600; step += 100)
        make_step(step);
    bp_test_expect(bp_checkpoints_link_best(parent, 200), BP_OK);
    make(".tmp-step-000000000700-0"); /* of a save under way: not counted, not touched */
    make("notes");
    bp_test_expect(bp_checkpoints_prune(parent, 2, NULL), BP_OK);
    expect_names(".tmp-step-000000000700-0 best notes step-000000000200 step-000000000500 "
                 "step-000000000600");
}

static void link_to_the_best_is_relative_and_replaced(void **state)
{
    const char *parent = fresh(), *moved = bp_test_path("moved");
    char target[64] = "";

    assert_int_equal(bp_checkpoints_best(parent), -1);
    make_step(100);
    make_step(200);
    bp_test_expect(bp_checkpoints_link_best(parent, 100), BP_OK);
    bp_test_expect(bp_checkpoints_link_best(parent, 200), BP_OK);
    assert_int_equal(bp_checkpoints_best(parent), 200);
    expect_names("best step-000000000100 step-000000000200");
    assert_true(readlink(bp_test_path("checkpoints/best"), target, sizeof target - 1) > 0);
    assert_string_equal(target, "step-000000000200");
    assert_int_equal(rename(parent, moved), 0);
    assert_true(bp_path_exists(bp_test_path("moved/best/shard-00000.h5")));
    bp_test_expect(bp_dir_remove(moved), BP_OK);
}

static void link_to_nothing_is_refused(void **state)
{
    const char *parent = fresh();

    bp_test_expect(bp_checkpoints_link_best(parent, 300), BP_ERR_INPUT);
    bp_test_message_has("step-000000000300 ... [checkpoint.none]");
    expect_names("");
    assert_int_equal(symlink("/etc", bp_test_path("checkpoints/best")), 0); /* points at no step */
    assert_int_equal(bp_checkpoints_best(parent), -1);
}

static void folder_where_the_link_should_be_is_an_error(void **state)
{
    const char *parent = fresh();

    make_step(100);
    make("best");
    assert_true(bp_checkpoints_link_best(parent, 100) != BP_OK);
    expect_names("best step-000000000100"); /* no hidden link is left */
}

static void missing_parent_is_an_error(void **state)
{
    bp_test_expect(bp_checkpoints_prune(bp_test_path("not-there"), 3, NULL), BP_ERR_INPUT);
    bp_test_expect(bp_checkpoints_link_best(bp_test_path("not-there"), 3), BP_ERR_INPUT);
}

/* What root may do anyway, others may not. */
static void unwritable_parent_is_denied(void **state)
{
    const char *parent = fresh();
    bool privileged = geteuid() == 0;
    bp_err pruned, linked, cleaned;

    make_step(100);
    make_step(200);
    make(".tmp-x");
    assert_int_equal(chmod(bp_test_folder(), 0755), 0);
    assert_int_equal(chmod(parent, 0555), 0);
    assert_true(!privileged || seteuid(65534) == 0);
    pruned = bp_checkpoints_prune(parent, 1, NULL);
    linked = bp_checkpoints_link_best(parent, 100);
    cleaned = bp_checkpoints_clean(parent);
    assert_true(!privileged || seteuid(0) == 0);
    assert_int_equal(chmod(parent, 0755), 0);
    bp_test_expect(pruned, BP_ERR_DENIED);
    bp_test_expect(linked, BP_ERR_DENIED);
    bp_test_expect(cleaned, BP_ERR_DENIED);
    expect_names(".tmp-x step-000000000100 step-000000000200");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_names_have_twelve_digits),
        cmocka_unit_test(leftovers_of_a_lost_run_stay),
        cmocka_unit_test(leftovers_are_removed_and_nothing_else),
        cmocka_unit_test(newest_are_kept),
        cmocka_unit_test(old_ones_are_removed_while_the_caller_goes_on),
        cmocka_unit_test(newest_step_is_found_by_the_names),
        cmocka_unit_test(best_is_kept_besides),
        cmocka_unit_test(link_to_the_best_is_relative_and_replaced),
        cmocka_unit_test(link_to_nothing_is_refused),
        cmocka_unit_test(folder_where_the_link_should_be_is_an_error),
        cmocka_unit_test(missing_parent_is_an_error),
        cmocka_unit_test(unwritable_parent_is_denied),
    };
    return BP_TEST_RUN(tests);
}
