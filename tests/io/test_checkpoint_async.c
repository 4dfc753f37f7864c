/* A checkpoint that is written behind its ranks' backs holds what they had when it was begun, is
 * the same to the byte as one that was waited for, and fails on all ranks or on none. */
#include "bp_test_mpi.h"

#include "base/fault.h"
#include "base/process/clock.h"
#include "io/checkpoint/snapshot.h"
#include "io/checkpoint_model.h"
#include "io/checkpoint_parent.h"

#include <math.h>

#define COMM MPI_COMM_WORLD
#define STEP "step-000000000007"

/* All ranks but the last have slices, as beside a dedicated coordinator; one rank has them all. */
static void build(model_slices *slices, bool filled)
{
    int size = bp_comm_size(COMM);
    model_mesh mesh = {.data = size > 2 ? 2 : 1, .tensor = 1, .pipeline = 1};

    model_build(slices, mesh, bp_comm_rank(COMM), filled);
}

static int64_t file_bytes; /* of save_async's files */

/* Begin, and spoil the values before the end. */
static bp_err save_async(bp_snapshot *snapshot, bool give_up)
{
    bp_digest digests[MODEL_BOXES];
    bp_checkpoint_commit commit = {.parent = bp_test_path("checkpoints"),
                                   .name = STEP,
                                   .snapshot = snapshot,
                                   .digests = digests,
                                   .file_bytes = file_bytes};
    json_t *state = json_pack("{s:i}", "step", 7);
    bp_async_checkpoint *pending = NULL;
    model_slices slices, copies;

    build(&slices, true);
    copies = slices;
    bp_test_check(COMM, bp_snapshot_take(snapshot, copies.list, copies.count, digests) == -1);
    bp_err err = bp_checkpoint_begin(&pending, COMM, &commit, copies.list, copies.count, state);
    for (int64_t k = 0; k < slices.count; k++)
        memset(slices.list[k].data, 0x3f,
               (size_t)bp_slices_floats(&slices.list[k], 1) * sizeof(float));
    if (err == BP_OK && give_up)
        bp_checkpoint_cancel(pending);
    if (err == BP_OK)
        err = bp_checkpoint_finish(&pending);
    json_decref(state);
    model_clear(&slices);
    return err;
}

static bp_snapshot *new_snapshot(void)
{
    bp_snapshot *snapshot = NULL;
    model_slices slices;

    build(&slices, false);
    bp_test_check_err(
        COMM, bp_snapshot_new(&snapshot, COMM, bp_slices_floats(slices.list, slices.count)), BP_OK);
    model_clear(&slices);
    return snapshot;
}

static void check_values(void)
{
    bp_checkpoint *checkpoint;
    model_slices slices;

    build(&slices, false);
    bp_test_check_err(
        COMM, bp_checkpoint_open(COMM, bp_test_path("checkpoints/" STEP), &checkpoint), BP_OK);
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, slices.list, slices.count), BP_OK);
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, slices.list, slices.count),
                      BP_OK);
    bp_test_check(COMM, model_is_right(slices.list, slices.count));
    bp_checkpoint_close(&checkpoint);
    model_clear(&slices);
}

/* The text of the manifest on the root, which has every file's hash. */
static char *manifest(void)
{
    char *text = NULL;
    size_t bytes;

    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_file_read(bp_test_path("checkpoints/" STEP "/manifest.json"), 1 << 24,
                                    &text, &bytes),
                       BP_OK);
    return text;
}

static void it_is_the_same_as_one_that_was_waited_for(void **state)
{
    bp_checkpoint_commit commit = {.parent = bp_test_path("checkpoints"), .name = STEP};
    json_t *step = json_pack("{s:i}", "step", 7);
    bp_snapshot *snapshot = new_snapshot();
    char *waited, *async;
    model_slices slices;

    fresh_parent();
    build(&slices, true);
    bp_test_check_err(COMM, bp_checkpoint_save(COMM, &commit, slices.list, slices.count, step),
                      BP_OK);
    model_clear(&slices);
    json_decref(step);
    waited = manifest();
    for (int time = 0; time < 2; time++) { /* one snapshot serves them all */
        fresh_parent();
        bp_test_check_err(COMM, save_async(snapshot, false), BP_OK);
        async = manifest();
        bp_test_check(COMM, !bp_comm_is_root(COMM) || strcmp(waited, async) == 0);
        bp_free(async);
        check_values();
    }
    bp_free(waited);
    bp_snapshot_free(&snapshot);
}

/* The last rank, a neighbour of the writer where there are two, has them all. */
static void check_same(const bp_checkpoint_commit *waits, bp_slice *slices, int64_t count)
{
    bp_checkpoint_commit commit = *waits;
    bp_slice copies[4];
    bp_digest digests[4];
    int64_t held = bp_comm_rank(COMM) == bp_comm_size(COMM) - 1 ? count : 0;
    bp_snapshot *snapshot = NULL;
    bp_async_checkpoint *pending;
    json_t *step = json_object();
    char *waited, *async;

    fresh_parent();
    bp_test_check_err(COMM, bp_checkpoint_save(COMM, &commit, slices, held, step), BP_OK);
    waited = manifest();
    fresh_parent();
    bp_test_check_err(COMM, bp_snapshot_new(&snapshot, COMM, bp_slices_floats(slices, held)),
                      BP_OK);
    memcpy(copies, slices, (size_t)count * sizeof *slices);
    bp_test_check(COMM, bp_snapshot_take(snapshot, copies, held, digests) == -1);
    commit.snapshot = snapshot;
    commit.digests = digests;
    bp_test_check_err(COMM, bp_checkpoint_begin(&pending, COMM, &commit, copies, held, step),
                      BP_OK);
    bp_test_check_err(COMM, bp_checkpoint_finish(&pending), BP_OK);
    async = manifest();
    bp_test_check(COMM, !bp_comm_is_root(COMM) || strcmp(waited, async) == 0);
    bp_free(waited);
    bp_free(async);
    json_decref(step);
    bp_snapshot_free(&snapshot);
}

/* Blocks that go past the page cache, and a last one that does not. */
static void large_one_is_the_same_as_one_that_was_waited_for(void **state)
{
    static const int64_t shape[] = {3, 1700003};
    bp_checkpoint_commit commit = {.parent = bp_test_path("checkpoints"), .name = STEP};
    bp_slice slice = model_whole("w", 2, shape, true);

    check_same(&commit, &slice, 1);
    bp_free(slice.data);
}

/* Four tensors of one length, in files of two each; one that is larger than its share takes the
 * next one's. */
static void writer_of_several_files_writes_them_side_by_side(void **state)
{
    static const int64_t even[] = {50, 1000}, large[] = {200, 1000};
    bp_checkpoint_commit commit = {
        .parent = bp_test_path("checkpoints"), .name = STEP, .file_bytes = 400000};
    bp_slice slices[4];
    bp_checkpoint *checkpoint;

    for (int time = 0; time < 2; time++) {
        for (int k = 0; k < 4; k++) {
            char name[8];

            (void)snprintf(name, sizeof name, "t.%d", k);
            slices[k] = model_whole(name, 2, time == 1 && k == 1 ? large : even, true);
        }
        check_same(&commit, slices, 4);
        bp_test_check(COMM, bp_path_exists(bp_test_path("checkpoints/" STEP "/shard-00001.h5")));
        bp_test_check(COMM, !bp_path_exists(bp_test_path("checkpoints/" STEP "/shard-00003.h5")));
        for (int k = 0; k < 4; k++)
            memset(slices[k].data, 0, (size_t)bp_slices_floats(&slices[k], 1) * sizeof(float));
        bp_test_check_err(
            COMM, bp_checkpoint_open(COMM, bp_test_path("checkpoints/" STEP), &checkpoint), BP_OK);
        bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, slices, 4), BP_OK);
        bp_test_check(COMM, model_is_right(slices, 4));
        bp_checkpoint_close(&checkpoint);
        for (int k = 0; k < 4; k++)
            bp_free(slices[k].data);
    }
}

static void failure_of_one_of_several_helpers_ends_them_all(void **state)
{
    bp_snapshot *snapshot = new_snapshot();

    file_bytes = 512;
    for (int file = 1; file <= 2; file++) {
        char fault[40];

        (void)snprintf(fault, sizeof fault, "ckpt.shard_close:%d@0", file);
        fresh_parent();
        bp_fault_arm(fault);
        bp_test_check_err(COMM, save_async(snapshot, false), BP_ERR_IO);
        bp_fault_arm(NULL);
        bp_test_check(COMM, names_left() == 0);
    }
    bp_test_check_err(COMM, save_async(snapshot, false), BP_OK);
    bp_test_check(COMM, bp_path_exists(bp_test_path("checkpoints/" STEP "/shard-00001.h5")));
    file_bytes = 0;
    check_values();
    bp_snapshot_free(&snapshot);
}

static void copies_that_no_neighbour_can_read_are_written_by_their_ranks(void **state)
{
    bp_snapshot *snapshot;
    bool alone = bp_comm_size(COMM) < 4; /* the ranks that have slices */

    fresh_parent();
    bp_fault_arm("ckpt.share");
    snapshot = new_snapshot();
    bp_fault_arm(NULL);
    bp_test_check(COMM, bp_snapshot_is_shared(snapshot) == (bp_comm_size(COMM) == 1));
    bp_test_check_err(COMM, save_async(snapshot, false), BP_OK);
    bp_test_check(COMM,
                  bp_path_exists(bp_test_path("checkpoints/" STEP "/shard-00001.h5")) != alone);
    check_values();
    bp_snapshot_free(&snapshot);
}

static void failure_of_a_helper_is_shared_and_leaves_nothing(void **state)
{
    static const char *const faults[] = {"ckpt.shard_open@0",  "ckpt.shard_half:3@0",
                                         "ckpt.shard_close@0", "ckpt.fsync_file@0",
                                         "ckpt.read_back@0",   "ckpt.rename@0"};
    bp_snapshot *snapshot = new_snapshot();

    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
        fresh_parent();
        bp_fault_arm(faults[k]);
        bp_test_check_err(COMM, save_async(snapshot, false), k == 0 ? BP_ERR_CREATE : BP_ERR_IO);
        bp_fault_arm(NULL);
        bp_test_check(COMM, names_left() == 0);
        bp_test_check_err(COMM, save_async(snapshot, false), BP_OK);
    }
    bp_snapshot_free(&snapshot);
}

static void one_that_is_given_up_leaves_nothing(void **state)
{
    bp_snapshot *snapshot = new_snapshot();

    fresh_parent();
    bp_fault_arm("ckpt.shard_open@0=delay0.2"); /* it is not written before it is given up */
    bp_test_check_err(COMM, save_async(snapshot, true), BP_ERR_STOPPED);
    bp_fault_arm(NULL);
    bp_test_check(COMM, names_left() == 0);
    bp_snapshot_free(&snapshot);
}

/* A checkpoint of 200 MB, with its helper left alone to its end, or waited for at once: the seconds
 * that it took rank 0 beyond the helper's busy time. The same on all ranks. */
static double idle_seconds(bool left_alone)
{
    static const int64_t shape[] = {50000, 1000};
    double busy_seconds = -1, began;
    bp_checkpoint_commit commit = {
        .parent = bp_test_path("checkpoints"), .name = STEP, .busy_seconds = &busy_seconds};
    int64_t held = bp_comm_is_root(COMM) ? 1 : 0;
    bp_snapshot *snapshot = NULL;
    bp_async_checkpoint *pending;
    bp_slice slice = model_whole("a", 2, shape, true), copy = slice;
    bp_digest digest;

    fresh_parent();
    bp_test_check_err(COMM, bp_snapshot_new(&snapshot, COMM, bp_slices_floats(&slice, held)),
                      BP_OK);
    bp_test_check(COMM, bp_snapshot_take(snapshot, &copy, held, &digest) == -1);
    commit.snapshot = snapshot;
    commit.digests = &digest;
    json_t *step = json_object();
    bp_test_check_err(COMM, bp_checkpoint_begin(&pending, COMM, &commit, &copy, held, step), BP_OK);
    began = bp_clock_now();
    while (left_alone && bp_checkpoint_poll(pending) == BP_ASYNC_CHECKPOINT_WRITES)
        bp_clock_sleep(0.01);
    bp_test_check_err(COMM, bp_checkpoint_finish(&pending), BP_OK);
    double idle = bp_clock_now() - began - busy_seconds;
    bp_test_check(COMM, busy_seconds > 0);
    MPI_Bcast(&idle, 1, MPI_DOUBLE, 0, COMM);
    bp_snapshot_free(&snapshot);
    json_decref(step);
    bp_free(slice.data);
    return idle;
}

static void helper_keeps_a_pace_until_it_is_waited_for(void **state)
{
    double paced = 0, waited = 1;

    /* A pause at least. What else runs may take the time that a pause would have taken, or make a
     * writer slow that is waited for; but not each time. */
    for (int tries = 0; tries < 5 && (paced <= 0.05 || waited >= paced); tries++) {
        paced = idle_seconds(true);
        waited = idle_seconds(false);
    }
    bp_test_check(COMM, paced > 0.05);
    bp_test_check(COMM, waited < paced);
}

/* Its digest is of what the ranks have, not of what was copied. */
static void copy_that_is_spoilt_before_it_is_written_is_found(void **state)
{
    static const int64_t shape[] = {300, 1000};
    bp_checkpoint_commit commit = {.parent = bp_test_path("checkpoints"), .name = STEP};
    int64_t held = bp_comm_is_root(COMM) ? 1 : 0;
    bp_snapshot *snapshot = NULL;
    bp_checkpoint *checkpoint;
    bp_async_checkpoint *pending;
    bp_slice slice = model_whole("a", 2, shape, true), copy = slice;
    bp_digest digest;
    json_t *step = json_object();

    fresh_parent();
    bp_test_check_err(COMM, bp_snapshot_new(&snapshot, COMM, bp_slices_floats(&slice, held)),
                      BP_OK);
    bp_test_check(COMM, bp_snapshot_take(snapshot, &copy, held, &digest) == -1);
    if (held > 0)
        copy.data[123456] = 1.5f;
    commit.snapshot = snapshot;
    commit.digests = &digest;
    bp_test_check_err(COMM, bp_checkpoint_begin(&pending, COMM, &commit, &copy, held, step), BP_OK);
    bp_test_check_err(COMM, bp_checkpoint_finish(&pending), BP_OK);
    bp_test_check_err(COMM,
                      bp_checkpoint_open(COMM, bp_test_path("checkpoints/" STEP), &checkpoint),
                      BP_ERR_FORMAT);
    bp_test_check_said(COMM, "'a' ... [tensor.damaged]");
    bp_snapshot_free(&snapshot);
    json_decref(step);
    bp_free(slice.data);
}

static void value_that_is_not_finite_is_reported_by_its_slice(void **state)
{
    static const int64_t shape[] = {300, 1000};
    bp_snapshot *snapshot = NULL;
    bp_slice slices[2] = {model_whole("a", 2, shape, true), model_whole("b", 2, shape, true)};
    bp_slice copies[2];
    bp_digest digests[2];

    bp_test_check_err(COMM, bp_snapshot_new(&snapshot, COMM, bp_slices_floats(slices, 2)), BP_OK);
    memcpy(copies, slices, sizeof copies);
    bp_test_check(COMM, bp_snapshot_take(snapshot, copies, 2, digests) == -1);
    bp_test_check(COMM, bp_slices_not_finite(slices, 2) == -1);
    bp_test_check(COMM, memcmp(copies[1].data, slices[1].data, sizeof(float) * 300000) == 0);
    slices[1].data[299999] = -INFINITY;
    memcpy(copies, slices, sizeof copies);
    bp_test_check(COMM, bp_snapshot_take(snapshot, copies, 2, digests) == 1);
    bp_test_check(COMM, bp_slices_not_finite(slices, 2) == 1);
    bp_snapshot_free(&snapshot);
    bp_free(slices[0].data);
    bp_free(slices[1].data);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_same_as_one_that_was_waited_for),
        cmocka_unit_test(large_one_is_the_same_as_one_that_was_waited_for),
        cmocka_unit_test(writer_of_several_files_writes_them_side_by_side),
        cmocka_unit_test(failure_of_one_of_several_helpers_ends_them_all),
        cmocka_unit_test(copies_that_no_neighbour_can_read_are_written_by_their_ranks),
        cmocka_unit_test(failure_of_a_helper_is_shared_and_leaves_nothing),
        cmocka_unit_test(helper_keeps_a_pace_until_it_is_waited_for),
        cmocka_unit_test(copy_that_is_spoilt_before_it_is_written_is_found),
        cmocka_unit_test(one_that_is_given_up_leaves_nothing),
        cmocka_unit_test(value_that_is_not_finite_is_reported_by_its_slice),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
