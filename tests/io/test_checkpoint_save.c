/* What a save refuses, and that whatever fails, wherever, all ranks get the same error and nothing
 * is left. */
#include "bp_test_mpi.h"

#include "base/fault.h"
#include "base/files/fence.h"
#include "io/checkpoint_model.h"
#include "io/checkpoint_parent.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMM MPI_COMM_WORLD

static const int64_t SHAPE[] = {6, 5};

static bp_err save_slices(const bp_checkpoint_commit *commit, const bp_slice *slices, int64_t count)
{
    json_t *state = json_pack("{s:i}", "step", 7);
    bp_err err = bp_checkpoint_save(COMM, commit, slices, count, state);

    json_decref(state);
    return err;
}

/* Every rank holds a tensor of its own, "t.RANK". */
static bp_err save_one_each(const bp_checkpoint_commit *commit)
{
    char name[16];
    bp_slice slice;
    bp_err err;

    (void)snprintf(name, sizeof name, "t.%d", bp_comm_rank(COMM));
    slice = model_whole(name, 2, SHAPE, true);
    err = save_slices(commit, &slice, 1);
    bp_free(slice.data);
    return err;
}

static bp_checkpoint_commit to(const char *name)
{
    return (bp_checkpoint_commit){.parent = bp_test_path("checkpoints"), .name = name};
}

/* The error is the same on all ranks, its message too, and no folder is left. */
static void check_refused(bp_err err, bp_err expected, const char *words)
{
    char message[BP_ERR_MESSAGE_BYTES];

    bp_test_check_err(COMM, err, expected);
    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    BP_MPI(MPI_Bcast(message, sizeof message, MPI_CHAR, 0, COMM));
    bp_test_check(COMM, strcmp(message, bp_err_message()) == 0);
    if (strstr(message, words) == NULL)
        print_error("'%s' is not in '%s'\n", words, message);
    bp_test_check(COMM, strstr(message, words) != NULL);
    bp_test_check(COMM, names_left() == 0);
}

/* ---- slices that are no checkpoint ---- */

/* Rank 0 alone publishes rows [first, end) of "w", in that many slices. */
static bp_err save_rows(const int64_t (*rows)[2], int count)
{
    bp_checkpoint_commit commit = to("step-000000000007");
    bp_slice slices[4];
    bp_err err;
    int held = bp_comm_is_root(COMM) ? count : 0;

    for (int k = 0; k < held; k++)
        slices[k] = model_slice("w", 2, SHAPE, (int64_t[]){rows[k][0], 0},
                                (int64_t[]){rows[k][1] - rows[k][0], 5}, true);
    err = save_slices(&commit, slices, held);
    for (int k = 0; k < held; k++)
        bp_free(slices[k].data);
    return err;
}

static void overlap_is_refused(void **state)
{
    fresh_parent();
    check_refused(save_rows((const int64_t[][2]){{0, 4}, {3, 6}}, 2), BP_ERR_SOFTWARE, "overlap");
}

static void hole_is_refused(void **state)
{
    fresh_parent();
    check_refused(save_rows((const int64_t[][2]){{0, 2}, {3, 6}}, 2), BP_ERR_SOFTWARE,
                  "hole of 5 of its 30");
}

static void empty_slices_are_left_out(void **state)
{
    fresh_parent();
    bp_test_check_err(COMM, save_rows((const int64_t[][2]){{0, 4}, {4, 4}, {4, 6}}, 3), BP_OK);
}

static void two_shapes_of_one_tensor_are_refused(void **state)
{
    static const int64_t other[] = {5, 6};
    bp_checkpoint_commit commit = to("x");
    bp_slice slices[2] = {model_whole("w", 2, SHAPE, true), model_whole("w", 2, other, true)};

    fresh_parent();
    check_refused(save_slices(&commit, slices, bp_comm_is_root(COMM) ? 2 : 0), BP_ERR_SOFTWARE,
                  "different shapes");
    bp_free(slices[0].data);
    bp_free(slices[1].data);
}

static void value_that_is_not_finite_is_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    fresh_parent();
    for (int k = 0; k < 3; k++) {
        bp_checkpoint_commit commit = to("x");
        bp_slice slice = model_whole("w", 2, SHAPE, true);

        slice.data[17] = bad[k];
        check_refused(save_slices(&commit, &slice, bp_comm_rank(COMM) == bp_comm_size(COMM) - 1),
                      BP_ERR_SOFTWARE, "tensor 'w' holds a value that is not finite");
        bp_free(slice.data);
    }
}

static void names_that_are_none_are_refused(void **state)
{
    static const char *const names[] = {"",      "A",    "a//b", "/a", "a/",    "../a",
                                        "a/./b", "a/..", "a b",  "p3", "a/p0/b"};

    fresh_parent();
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        bp_checkpoint_commit commit = to("x");
        bp_slice slice = model_whole(names[k], 2, SHAPE, true);

        check_refused(save_slices(&commit, &slice, bp_comm_is_root(COMM)), BP_ERR_SOFTWARE,
                      "is not a tensor name");
        bp_free(slice.data);
    }
}

/* ---- places ---- */

static void what_is_there_is_not_replaced(void **state)
{
    bp_checkpoint_commit commit = to("step-000000000007");

    fresh_parent();
    bp_test_check_err(COMM, save_one_each(&commit), BP_OK);
    bp_test_check_err(COMM, save_one_each(&commit), BP_ERR_CREATE);
    bp_test_check(COMM, names_left() == 1);
}

static void missing_parent_can_not_be_written(void **state)
{
    bp_checkpoint_commit commit = {.parent = bp_test_path("nowhere"), .name = "x"};

    fresh_parent();
    check_refused(save_one_each(&commit), BP_ERR_CREATE, "nowhere");
}

static void unwritable_parent_is_denied(void **state)
{
    bp_checkpoint_commit commit = to("x");
    bool root = bp_comm_is_root(COMM), privileged = geteuid() == 0;
    bp_err err;

    fresh_parent();
    if (root)
        assert_int_equal(chmod(bp_test_path("checkpoints"), 0555), 0);
    BP_MPI(MPI_Barrier(COMM));
    if (privileged)
        assert_int_equal(seteuid(65534), 0); /* root may write anywhere */
    err = save_one_each(&commit);
    if (privileged)
        assert_int_equal(seteuid(0), 0);
    bp_test_check(COMM, true);
    if (root)
        assert_int_equal(chmod(bp_test_path("checkpoints"), 0755), 0);
    check_refused(err, BP_ERR_DENIED, "checkpoints");
}

/* ---- failures on the way ---- */

/* The run is lost after so many questions. */
static bp_err lose(void *context)
{
    *(int *)context -= 1;
    return *(int *)context >= 0
               ? BP_OK
               : BP_FAIL(BP_ERR_BUSY, "lock.lost", "another job took the run over");
}

static void lost_run_is_not_written_to(void **state)
{
    bp_checkpoint_commit commit = to("step-000000000007");
    int more = 3; /* the manifest, its hash, and just before the rename */

    for (int questions = 0; questions < more; questions++) {
        int left = questions;

        fresh_parent();
        if (bp_comm_is_root(COMM))
            bp_fence_add(lose, &left);
        check_refused(save_one_each(&commit), BP_ERR_BUSY, "another job");
        bp_fence_remove(&left);
    }
    if (bp_comm_is_root(COMM))
        bp_fence_add(lose, &more);
    bp_test_check_err(COMM, save_one_each(&commit), BP_OK);
    bp_fence_remove(&more);
}

/* One failure after the other, each on each rank where it can be: the same end every time, and the
 * save after it works. */
static void failure_anywhere_is_shared_and_leaves_nothing(void **state)
{
    static const char *const faults[] = {"ckpt.shard_half", "ckpt.mkdir_tmp", "ckpt.rename",
                                         "base.write", "base.write:2"};
    bp_checkpoint_commit commit = to("step-000000000007");

    commit.writers = bp_comm_size(COMM); /* every rank writes a file */
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++)
        for (int rank = 0; rank < bp_comm_size(COMM); rank++) {
            char specification[64];

            if (rank > 0 && strcmp(faults[k], "ckpt.shard_half") != 0)
                continue; /* the root's alone */
            fresh_parent();
            (void)snprintf(specification, sizeof specification, "%s@%d", faults[k], rank);
            bp_fault_arm(specification);
            check_refused(save_one_each(&commit), k == 1 ? BP_ERR_CREATE : BP_ERR_IO, "");
            bp_fault_arm(NULL);
            bp_test_check_err(COMM, save_one_each(&commit), BP_OK);
        }
}

/* To take it back would be to take it from a job that may have followed and found it. */
static void step_whose_name_may_not_be_on_disk_is_whole_and_stays(void **state)
{
    bp_checkpoint_commit commit = to("step-000000000007");

    fresh_parent();
    bp_fault_arm("ckpt.fsync_dir@0");
    bp_test_check_err(COMM, save_one_each(&commit), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_check(COMM, names_left() == 1);
    bp_test_check_err(COMM, save_one_each(&commit), BP_ERR_CREATE);
}

/* A disk that is full for the last rank's file: HDF5 must not talk its way out of it. */
static void full_disk_is_an_error_on_all_ranks(void **state)
{
    static const int64_t large[] = {600, 1000};
    bp_checkpoint_commit commit = to("step-000000000007");
    struct rlimit before, small;
    bool limited = bp_comm_rank(COMM) == bp_comm_size(COMM) - 1;
    char name[16];
    bp_slice slice;
    bp_err err;

    commit.writers = bp_comm_size(COMM);
    (void)snprintf(name, sizeof name, "t.%d", bp_comm_rank(COMM));
    slice = model_whole(name, 2, large, true);
    fresh_parent();
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 20;
    if (limited)
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    err = save_slices(&commit, &slice, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    bp_free(slice.data);
    check_refused(err, BP_ERR_IO, "");
}

/* ---- data ---- */

static void large_slice_travels_in_parts(void **state)
{
    static const int64_t shape[] = {3, 1700003}; /* a row is less than a part, two are more */
    bp_checkpoint_commit commit = to("step-000000000007");
    bool holder = bp_comm_rank(COMM) ==
                  bp_comm_size(COMM) - 1; /* not the writer, where there are two ranks */
    bp_slice slice = model_whole("w", 2, shape, holder);
    bp_checkpoint *checkpoint;

    fresh_parent();
    bp_test_check_err(COMM, save_slices(&commit, &slice, holder ? 1 : 0), BP_OK);
    bp_test_check_err(
        COMM, bp_checkpoint_open(COMM, bp_test_path("checkpoints/step-000000000007"), &checkpoint),
        BP_OK);
    memset(slice.data, 0, (size_t)(shape[0] * shape[1]) * sizeof *slice.data);
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, &slice, 1), BP_OK);
    bp_test_check(COMM, model_is_right(&slice, 1));
    bp_checkpoint_close(&checkpoint);
    bp_free(slice.data);
}

static bp_err fetch_one(void *context, const bp_slice *slice, int64_t index, const float **data)
{
    bp_slice *kept = context;

    if (index != 0)
        return BP_FAIL(BP_ERR_FORMAT, "test.no_slice", "slice %lld can't be fetched",
                       (long long)index);
    bp_free(kept->data);
    *kept = model_slice(slice->name, slice->dims, slice->shape, slice->offset, slice->extent, true);
    *data = kept->data;
    return BP_OK;
}

static void data_can_be_fetched_when_it_is_needed(void **state)
{
    bp_checkpoint_commit commit = to("step-000000000007");
    bp_slice kept = {.data = NULL}, slice = {.dims = 2}, read;
    bool holder = bp_comm_rank(COMM) == bp_comm_size(COMM) - 1;
    bp_checkpoint *checkpoint;

    fresh_parent();
    (void)snprintf(slice.name, sizeof slice.name, "w");
    memcpy(slice.shape, SHAPE, sizeof SHAPE);
    memcpy(slice.extent, SHAPE, sizeof SHAPE);
    commit.fetch = fetch_one;
    commit.context = &kept;
    bp_test_check_err(COMM, save_slices(&commit, &slice, holder ? 1 : 0), BP_OK);
    bp_test_check_err(
        COMM, bp_checkpoint_open(COMM, bp_test_path("checkpoints/step-000000000007"), &checkpoint),
        BP_OK);
    read = model_whole("w", 2, SHAPE, false);
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, &read, 1), BP_OK);
    bp_test_check(COMM, model_is_right(&read, 1));
    bp_checkpoint_close(&checkpoint);
    bp_free(read.data);
    bp_free(kept.data);
}

static void data_that_can_not_be_fetched_is_an_error_on_all_ranks(void **state)
{
    bp_checkpoint_commit commit = to("x");
    bp_slice kept = {.data = NULL}, slices[2] = {{.dims = 2}, {.dims = 2}};
    bool holder = bp_comm_rank(COMM) == bp_comm_size(COMM) - 1;

    fresh_parent();
    for (int k = 0; k < 2; k++) {
        (void)snprintf(slices[k].name, sizeof slices[k].name, "w.%d", k);
        memcpy(slices[k].shape, SHAPE, sizeof SHAPE);
        memcpy(slices[k].extent, SHAPE, sizeof SHAPE);
    }
    commit.fetch = fetch_one;
    commit.context = &kept;
    check_refused(save_slices(&commit, slices, holder ? 2 : 0), BP_ERR_FORMAT,
                  "slice 1 can't be fetched");
    bp_free(kept.data);
}

static void tokenizer_is_kept_and_verified(void **state)
{
    bp_checkpoint_commit commit = to("step-000000000007");
    const char *folder = bp_test_path("checkpoints/step-000000000007"), *file;
    bp_checkpoint *checkpoint;
    char *text = NULL;
    size_t bytes;

    fresh_parent();
    commit.tokenizer = "{\"model\": {}}\n";
    bp_test_check_err(COMM, save_one_each(&commit), BP_OK);
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_OK);
    file = bp_checkpoint_tokenizer(checkpoint);
    bp_test_check(COMM, file != NULL && bp_file_read(file, 100, &text, &bytes) == BP_OK);
    bp_test_check(COMM, strcmp(text, commit.tokenizer) == 0);
    bp_free(text);
    bp_checkpoint_close(&checkpoint);
    file = bp_test_path("checkpoints/step-000000000007/tokenizer.json");
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_file_write(file, "{\"model\": {} }", 14), BP_OK);
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
    bp_test_check_said(COMM, "[checkpoint.damaged]");
    bp_test_check_said(COMM, "tokenizer.json");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_is_refused),
        cmocka_unit_test(hole_is_refused),
        cmocka_unit_test(empty_slices_are_left_out),
        cmocka_unit_test(two_shapes_of_one_tensor_are_refused),
        cmocka_unit_test(value_that_is_not_finite_is_refused),
        cmocka_unit_test(names_that_are_none_are_refused),
        cmocka_unit_test(what_is_there_is_not_replaced),
        cmocka_unit_test(missing_parent_can_not_be_written),
        cmocka_unit_test(unwritable_parent_is_denied),
        cmocka_unit_test(lost_run_is_not_written_to),
        cmocka_unit_test(failure_anywhere_is_shared_and_leaves_nothing),
        cmocka_unit_test(step_whose_name_may_not_be_on_disk_is_whole_and_stays),
        cmocka_unit_test(full_disk_is_an_error_on_all_ranks),
        cmocka_unit_test(large_slice_travels_in_parts),
        cmocka_unit_test(data_can_be_fetched_when_it_is_needed),
        cmocka_unit_test(data_that_can_not_be_fetched_is_an_error_on_all_ranks),
        cmocka_unit_test(tokenizer_is_kept_and_verified),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
