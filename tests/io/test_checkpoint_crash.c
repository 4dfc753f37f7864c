/* A commit is all or nothing: the process dies, or the system fails, at the n-th call that changes
 * the disk, for every n until none is left. Whatever happens, the newest checkpoint that verifies
 * is the old one or the new one, whole.
 *
 * The calls are the C library's, taken here by their names: also those that HDF5 makes. */
#include "bp_test_mpi.h"

#include "io/checkpoint_model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls that are counted ---- */

static enum { COUNT_OFF, COUNT_KILL, COUNT_FAIL } mode;
static atomic_int left_to_go; /* calls before the one that is hit */

/* Hit this call? Dies, or says so with ENOSPC. */
static bool hit(void)
{
    if (mode == COUNT_OFF || atomic_fetch_sub(&left_to_go, 1) != 0)
        return false;
    if (mode == COUNT_KILL)
        _exit(137);
    errno = ENOSPC;
    return true;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return hit() ? -1 : syscall(SYS_write, fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return hit() ? -1 : syscall(SYS_pwrite64, fd, data, bytes, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
    return hit() ? -1 : syscall(SYS_pwrite64, fd, data, bytes, offset);
}

int fsync(int fd)
{
    return hit() ? -1 : (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t length)
{
    return hit() ? -1 : (int)syscall(SYS_ftruncate, fd, length);
}

int ftruncate64(int fd, off_t length)
{
    return hit() ? -1 : (int)syscall(SYS_ftruncate, fd, length);
}

int rename(const char *from, const char *to)
{
    return hit() ? -1 : (int)syscall(SYS_rename, from, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return hit() ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int mkdir(const char *path, mode_t permissions)
{
    return hit() ? -1 : (int)syscall(SYS_mkdir, path, permissions);
}

int unlink(const char *path)
{
    return hit() ? -1 : (int)syscall(SYS_unlink, path);
}

/* ---- a run's commits ---- */

static const int64_t SHAPE[] = {30, 20};

static bp_err save_step(int64_t step)
{
    char name[BP_STEP_NAME];
    bp_checkpoint_commit commit = {.parent = bp_test_path("checkpoints"), .name = name};
    bp_slice slices[2] = {model_whole("w", 2, SHAPE, true),
                          model_whole("adamw.m/w", 2, SHAPE, true)};
    json_t *state = json_pack("{s:I}", "step", (json_int_t)step);
    bp_err err;

    bp_checkpoint_step_name(name, step);
    slices[0].data[0] = (float)step; /* another content each */
    err = bp_checkpoint_save(MPI_COMM_SELF, &commit, slices, 2, state);
    json_decref(state);
    bp_free(slices[0].data);
    bp_free(slices[1].data);
    return err;
}

/* What a job does after a commit. */
static bp_err save_and_tidy(int64_t step)
{
    bp_err err = save_step(step);

    if (err == BP_OK)
        err = bp_checkpoints_link_best(bp_test_path("checkpoints"), step);
    return err == BP_OK ? bp_checkpoints_prune(bp_test_path("checkpoints"), 1, NULL) : err;
}

static void fresh_run(void)
{
    bp_test_expect(bp_dir_remove(bp_test_path("checkpoints")), BP_OK);
    bp_test_expect(bp_dir_make(bp_test_path("checkpoints")), BP_OK);
    bp_test_expect(save_and_tidy(1), BP_OK);
}

/* The next start: what is there verifies and holds what its step says; `best` points at something
 * whole. Its step. */
static int64_t check_next_start(void)
{
    const char *parent = bp_test_path("checkpoints");
    bp_checkpoint *checkpoint;
    bp_slice slice = model_whole("w", 2, SHAPE, false);
    int64_t step;

    bp_test_expect(bp_checkpoints_clean(parent), BP_OK);
    bp_test_expect(bp_checkpoint_newest(MPI_COMM_SELF, parent, &checkpoint), BP_OK);
    assert_non_null(checkpoint);
    step = json_integer_value(json_object_get(bp_checkpoint_state(checkpoint), "step"));
    bp_test_expect(bp_checkpoint_load(checkpoint, &slice, 1), BP_OK);
    assert_true(slice.data[0] == (float)step);
    bp_free(slice.data);
    bp_checkpoint_close(&checkpoint);
    bp_test_expect(
        bp_checkpoint_open_any(MPI_COMM_SELF, bp_test_path("checkpoints/best"), &checkpoint),
        BP_OK);
    bp_checkpoint_close(&checkpoint);
    assert_false(bp_path_exists(
        bp_test_path("checkpoints/.bad-step-000000000001-0"))); /* nothing was found damaged */
    assert_false(bp_path_exists(bp_test_path("checkpoints/.bad-step-000000000002-0")));
    return step;
}

/* In a process of its own, which the n-th call ends. True when it came through. */
static bool killed_at(int n)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        atomic_store(&left_to_go, n);
        mode = COUNT_KILL;
        _exit(save_and_tidy(2) == BP_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 137));
    return WEXITSTATUS(status) == 0;
}

static void death_at_any_call_leaves_old_or_new(void **state)
{
    int n = 0, old = 0, new = 0;
    bool through = false;

    for (; !through; n++) {
        int64_t step;

        fresh_run();
        through = killed_at(n);
        step = check_next_start();
        assert_true(step == 1 || step == 2);
        assert_true(step >= (new > 0 ? 2 : 1)); /* once it is there it stays */
        *(step == 1 ? &old : &new) += 1;
        if (n % 8 == 0) { /* and the run goes on from there */
            bp_test_expect(save_and_tidy(step + 1), BP_OK);
            assert_int_equal(check_next_start(), step + 1);
        }
    }
    printf("%d calls, %d before the commit\n", n - 1, old);
    assert_true(old > 15 && new > 3);
}

/* The call fails as on a full disk: the save says so and leaves nothing, or it came through. Where
 * it is the very last, of the new name to disk, the step stays, whole. What comes after goes on. */
static void failure_of_any_call_is_reported_or_harmless(void **state)
{
    int n = 0, failures = 0, stayed = 0;
    bool through = false;

    for (; !through; n++) {
        char **names;
        int64_t count = 0, step;
        bp_err err;

        fresh_run();
        atomic_store(&left_to_go, n);
        mode = COUNT_FAIL;
        err = save_step(2);
        through = atomic_load(&left_to_go) >= 0;
        mode = COUNT_OFF;
        if (err != BP_OK) {
            failures++;
            assert_true(err == BP_ERR_IO || err == BP_ERR_CREATE);
            bp_test_expect(bp_dir_list(bp_test_path("checkpoints"), &names, &count), BP_OK);
            bp_names_free(&names, count);
            assert_true(count == 2 || (count == 3 && stayed == 0)); /* step 1 and best */
            stayed += count == 3;
        }
        step = check_next_start();
        assert_int_equal(step, err == BP_OK || (stayed == 1 && count == 3) ? 2 : 1);
        bp_test_expect(save_step(3), BP_OK);
    }
    printf("%d calls, %d reported\n", n - 1, failures);
    assert_true(failures > 10);
    assert_int_equal(stayed, 1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_at_any_call_leaves_old_or_new),
        cmocka_unit_test(failure_of_any_call_is_reported_or_harmless),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
