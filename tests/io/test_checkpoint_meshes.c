/* Saved by any of nine meshes, loaded by any other. */
#include "bp_test_mpi.h"

#include "base/process/clock.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "io/checkpoint_model.h"

static const model_mesh MESHES[] = {{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 1, 2},
                                    {2, 2, 1}, {2, 1, 2}, {1, 2, 2}, {1, 4, 1}};
#define MESH_COUNT 9
#define COMM       MPI_COMM_WORLD

static bool fits(int k)
{
    return MESHES[k].data * MESHES[k].tensor * MESHES[k].pipeline <= bp_comm_size(COMM);
}

static bp_err save(int k, int writers, const char *name)
{
    bp_checkpoint_commit commit = {.parent = bp_test_folder(), .name = name, .writers = writers};
    model_slices slices;
    json_t *state = json_pack("{s:s}", "kind", "synthetic");
    bp_err err;

    model_build(&slices, MESHES[k], bp_comm_rank(COMM), true);
    err = bp_checkpoint_save(COMM, &commit, slices.list, slices.count, state);
    json_decref(state);
    model_clear(&slices);
    return err;
}

static void mesh_loads(bp_checkpoint *checkpoint, int by)
{
    model_slices slices;

    model_build(&slices, MESHES[by], bp_comm_rank(COMM), false);
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, slices.list, slices.count), BP_OK);
    bp_test_check(COMM, model_is_right(slices.list, slices.count));
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, slices.list, slices.count),
                      BP_OK);
    model_clear(&slices);
}

static void every_mesh_loads_what_every_mesh_saved(void **state)
{
    char digest[65] = "";
    int pairs = 0;

    for (int k = 0; k < MESH_COUNT; k++) {
        char name[32];
        bp_checkpoint *checkpoint = NULL;

        if (!fits(k))
            continue;
        (void)snprintf(name, sizeof name, "mesh-%d", k);
        bp_manifest_plain_pieces = k % 2 == 0 ? 16384 : 0;    /* objects, or lists of integers */
        bp_test_check_err(COMM, save(k, k % 4, name), BP_OK); /* 0: a writer a node; else 1, 2, 3 */
        bp_test_check_err(COMM, bp_checkpoint_open(COMM, bp_test_path(name), &checkpoint), BP_OK);
        if (digest[0] == '\0')
            (void)snprintf(digest, sizeof digest, "%s", bp_checkpoint_digest(checkpoint));
        bp_test_check(COMM, strcmp(bp_checkpoint_digest(checkpoint), digest) == 0);
        for (int by = 0; by < MESH_COUNT; by++) {
            if (!fits(by))
                continue;
            mesh_loads(checkpoint, by);
            pairs++;
        }
        bp_checkpoint_close(&checkpoint);
    }
    bp_manifest_plain_pieces = 16384;
    bp_test_check(COMM, pairs == (bp_comm_size(COMM) == 4 ? 81 : bp_comm_size(COMM) == 2 ? 16 : 1));
}

/* Writers are asked for, and are there: a file each, as many as groups that have slices. */
static void writers_own_a_file_each(void **state)
{
    if (bp_comm_size(COMM) < 4)
        return;
    bp_test_check_err(COMM, save(2, 3, "three-writers"), BP_OK);
    bp_test_check(COMM, bp_path_exists(bp_test_path("three-writers/shard-00002.h5")));
    bp_test_check(COMM, !bp_path_exists(bp_test_path("three-writers/shard-00003.h5")));
    bp_test_check_err(COMM, save(0, 3, "one-holder"), BP_OK); /* rank 0 alone has slices */
    bp_test_check(COMM, bp_path_exists(bp_test_path("one-holder/shard-00000.h5")));
    bp_test_check(COMM, !bp_path_exists(bp_test_path("one-holder/shard-00001.h5")));
}

/* What ranks of one writer have behind one another is one piece. */
static void neighbours_share_pieces(void **state)
{
    bp_checkpoint *checkpoint = NULL;
    int64_t alone = 0;

    for (int k = 0; k < 3 && fits(k); k++) { /* 1, 2 and 4 data ranks */
        char name[32];

        (void)snprintf(name, sizeof name, "data-%d", k);
        bp_test_check_err(COMM, save(k, 1, name), BP_OK);
        bp_test_check_err(COMM, bp_checkpoint_open(COMM, bp_test_path(name), &checkpoint), BP_OK);
        alone = k == 0 ? checkpoint->manifest->piece_count : alone;
        bp_test_check(COMM, checkpoint->manifest->piece_count == alone);
        bp_checkpoint_close(&checkpoint);
    }
}

static void too_long_a_manifest_is_refused_before(void **state)
{
    bp_checkpoint_commit commit = {0};
    model_slices slices;
    int64_t limit = bp_manifest_limit_bytes;

    model_build(&slices, MESHES[0], bp_comm_rank(COMM), true);
    bp_test_check_err(COMM, bp_checkpoint_check_size(COMM, &commit, slices.list, slices.count),
                      BP_OK);
    bp_manifest_limit_bytes = 1000;
    bp_test_check_err(COMM, bp_checkpoint_check_size(COMM, &commit, slices.list, slices.count),
                      BP_ERR_CONFIG);
    bp_test_check_said(COMM, "pieces ... mesh.data ... [checkpoint.too_many_pieces]");
    bp_manifest_limit_bytes = limit;
    model_clear(&slices);
}

static bool equal_files(const char *one, const char *other)
{
    char *a = NULL, *b = NULL;
    size_t a_bytes, b_bytes;
    bool same = bp_file_read(one, 1 << 24, &a, &a_bytes) == BP_OK &&
                bp_file_read(other, 1 << 24, &b, &b_bytes) == BP_OK && a_bytes == b_bytes &&
                memcmp(a, b, a_bytes) == 0;

    bp_free(a);
    bp_free(b);
    return same;
}

static void equal_state_gives_equal_bytes(void **state)
{
    static const char *const files[] = {"manifest.json", "manifest.sha256", "shard-00000.h5"};

    bp_test_check_err(COMM, save(0, 0, "first"), BP_OK);
    bp_clock_sleep(1.1); /* HDF5's times of objects count seconds */
    bp_test_check_err(COMM, save(0, 0, "second"), BP_OK);
    for (int k = 0; k < 3; k++) {
        char one[64], other[64];

        (void)snprintf(one, sizeof one, "first/%s", files[k]);
        (void)snprintf(other, sizeof other, "second/%s", files[k]);
        bp_test_check(COMM, equal_files(bp_test_path(one), bp_test_path(other)));
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_loads_what_every_mesh_saved),
        cmocka_unit_test(writers_own_a_file_each),
        cmocka_unit_test(neighbours_share_pieces),
        cmocka_unit_test(too_long_a_manifest_is_refused_before),
        cmocka_unit_test(equal_state_gives_equal_bytes),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
