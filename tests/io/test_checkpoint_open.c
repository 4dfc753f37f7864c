/* Checkpoints that are damaged, each in another way, are refused by all ranks with one clear
 * message, on opening and on loading. */
#include "io/checkpoint_copies.h"
#include "io/h5/user_block.h"

/* ---- files ---- */

static void sound_checkpoint_opens(void **state)
{
    bp_checkpoint *checkpoint;
    const char *folder = fresh_copy();

    bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_OK);
    bp_test_check(
        COMM, json_integer_value(json_object_get(bp_checkpoint_state(checkpoint), "step")) == 7);
    bp_test_check(COMM, strcmp(bp_checkpoint_folder(checkpoint), folder) == 0);
    bp_test_check(COMM, bp_checkpoint_has(checkpoint, "w") && !bp_checkpoint_has(checkpoint, "v"));
    bp_test_check(COMM, bp_checkpoint_tensors(checkpoint) == 2 &&
                            bp_checkpoint_tokenizer(checkpoint) == NULL);
    bp_test_check(COMM, strcmp(bp_checkpoint_tensor(checkpoint, 1).name, "w") == 0);
    bp_test_check(COMM, bp_checkpoint_tensor(checkpoint, 1).extent[0] == 40);
    bp_checkpoint_close(&checkpoint);
}

/* Every byte counts: user block, metadata, data, the end. */
static void flipped_byte_is_damage(void **state)
{
    static const int64_t places[] = {0, 100, 511, 512, 600, 900, 1500, 3000};

    for (size_t k = 0; k < sizeof places / sizeof places[0] + 1; k++) {
        const char *folder = fresh_copy(), *shard = inside(folder, last_shard());

        if (bp_comm_is_root(COMM))
            flip_byte(shard,
                      k < sizeof places / sizeof places[0] ? places[k] : bp_file_size(shard) - 1);
        check_damaged(folder, "shard-0000 ... [checkpoint.damaged]");
    }
}

/* Anywhere in any file; and cut at any length. */
static void no_flip_and_no_cut_goes_unnoticed(void **state)
{
    static const char *const files[] = {"manifest.json", "manifest.sha256", "shard-00000.h5"};
    char folder[PATH_MAX / 2], file[PATH_MAX];
    bool root = bp_comm_is_root(COMM);
    uint64_t random = 99;

    (void)snprintf(folder, sizeof folder, "%s", fresh_copy());
    for (int trial = 0; trial < 300; trial++) {
        bp_checkpoint *checkpoint;
        int64_t bytes, at;

        (void)snprintf(file, sizeof file, "%s/%s", folder, files[trial % 3]);
        bytes = bp_file_size(file);
        BP_MPI(MPI_Barrier(COMM));
        random = random * 6364136223846793005u + 1442695040888963407u;
        at = (int64_t)(random >> 33) % bytes;
        if (root)
            flip_byte(file, at);
        BP_MPI(MPI_Barrier(COMM));
        bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
        if (root)
            flip_byte(file, at);
    }
    for (int trial = 0; trial < 64; trial++) {
        bp_checkpoint *checkpoint;
        int64_t bytes;

        (void)snprintf(file, sizeof file, "%s/%s", folder, files[trial % 3]);
        bytes = bp_file_size(file);
        BP_MPI(MPI_Barrier(COMM));
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (root)
            assert_int_equal(truncate(file, (int64_t)(random >> 33) % bytes), 0);
        BP_MPI(MPI_Barrier(COMM));
        bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
        (void)fresh_copy();
    }
}

static void truncated_shard_is_damage(void **state)
{
    const char *folder = fresh_copy(), *shard = inside(folder, last_shard());

    if (bp_comm_is_root(COMM))
        assert_int_equal(truncate(shard, bp_file_size(shard) / 2), 0);
    check_damaged(folder, "[checkpoint.wrong_bytes]");
}

static void missing_shard_is_damage(void **state)
{
    const char *folder = fresh_copy();

    if (bp_comm_is_root(COMM))
        assert_int_equal(unlink(inside(folder, last_shard())), 0);
    check_damaged(folder, "[checkpoint.not_whole]");
}

static void extra_shard_is_damage(void **state)
{
    const char *folder = fresh_copy();

    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_file_write(inside(folder, "shard-00009.h5"), "x", 1), BP_OK);
    check_damaged(folder, "'shard-00009.h5' ... [checkpoint.unlisted_file]");
}

static void shard_that_is_a_link_is_damage(void **state)
{
    const char *folder = fresh_copy(), *shard = inside(folder, last_shard()),
               *moved = bp_test_path("elsewhere.h5");

    if (bp_comm_is_root(COMM)) {
        assert_int_equal(rename(shard, moved), 0);
        assert_int_equal(symlink(moved, shard), 0);
    }
    check_damaged(folder, "[checkpoint.not_whole]");
}

/* Sound by itself, as long as the one that was written, with another value. */
static void another_sound_shard_is_damage(void **state)
{
    bp_user_block block = {.kind = "checkpoint", .version = 1};
    const char *folder = fresh_copy(), *shard = inside(folder, last_shard());

    if (bp_comm_is_root(COMM)) {
        flip_byte(shard, bp_file_size(shard) - 1);
        bp_test_expect(bp_user_block_seal(&block, shard), BP_OK);
    }
    check_damaged(folder, "shard-0000 ... [checkpoint.damaged]");
}

static void shard_without_a_user_block_needs_another_hash(void **state)
{
    const char *folder = fresh_copy(), *shard = inside(folder, last_shard());

    if (bp_comm_is_root(COMM)) {
        int fd = open(shard, O_WRONLY);

        assert_int_equal(pwrite(fd, "\x89HDF\r\n\x1a\n", 8, 0), 8);
        assert_int_equal(close(fd), 0);
    }
    check_damaged(folder, "shard-0000 ... [checkpoint.damaged]");
}

static void shard_of_another_step_is_damage(void **state)
{
    const char *folder = fresh_copy(), *parent = bp_test_path("other");
    char command[1024];

    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_dir_make(parent), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    save_step(parent, 8); /* the same tensors: other bytes are in the manifest alone */
    (void)snprintf(command, sizeof command, "cp %s/step-000000000008/manifest.* %s", parent,
                   folder);
    run_here(command);
    check_damaged(folder, "step 8 ... [checkpoint.wrong_step]");
}

static void missing_manifest_is_damage(void **state)
{
    static const char *const names[] = {"manifest.json", "manifest.sha256"};

    for (int k = 0; k < 2; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM))
            assert_int_equal(unlink(inside(folder, names[k])), 0);
        check_damaged(folder, "[checkpoint.not_whole]");
    }
}

/* The line is compared byte for byte. */
static void flipped_byte_of_the_manifest_is_damage(void **state)
{
    for (int k = 0; k < 4; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM))
            flip_byte(inside(folder, k < 2 ? "manifest.json" : "manifest.sha256"),
                      k < 2 ? 40 + 200 * k : 60 + k * 5);
        check_damaged(folder, "manifest.sha256 ... manifest.json ... [manifest.damaged]");
    }
}

static void folder_that_is_not_there_is_a_missing_input(void **state)
{
    bp_checkpoint *checkpoint;

    bp_test_check_err(COMM, bp_checkpoint_open(COMM, bp_test_path("none"), &checkpoint),
                      BP_ERR_INPUT);
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, "/dev/null", &checkpoint), BP_ERR_INPUT);
}

/* ---- loading ---- */

static void open_sound(bp_checkpoint **checkpoint)
{
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, fresh_copy(), checkpoint), BP_OK);
}

static void missing_tensor_is_refused_on_load(void **state)
{
    bp_slice slice = model_whole("v", 2, SHAPE, false);
    bp_checkpoint *checkpoint;

    open_sound(&checkpoint);
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, &slice, bp_comm_is_root(COMM)),
                      BP_ERR_FORMAT);
    bp_test_check_said(COMM, "'v' ... [tensor.missing]");
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &slice, bp_comm_is_root(COMM)),
                      BP_ERR_FORMAT);
    bp_checkpoint_close(&checkpoint);
    bp_free(slice.data);
}

static void other_shape_is_refused_on_load(void **state)
{
    static const int64_t other[] = {40, 31};
    bp_slice slice = model_whole("w", 2, other, false);
    bp_checkpoint *checkpoint;

    open_sound(&checkpoint);
    bp_test_check_err(
        COMM, bp_checkpoint_load(checkpoint, &slice, bp_comm_rank(COMM) == bp_comm_size(COMM) - 1),
        BP_ERR_FORMAT);
    bp_test_check_said(COMM, "[tensor.wrong_shape]");
    bp_test_check_said(COMM, "(40, 30) instead of (40, 31) ... [tensor.wrong_shape]");
    bp_checkpoint_close(&checkpoint);
    bp_free(slice.data);
}

static void slice_that_leaves_its_tensor_is_a_bug(void **state)
{
    bp_slice slice = model_whole("w", 2, SHAPE, false);
    bp_checkpoint *checkpoint;

    open_sound(&checkpoint);
    slice.offset[0] = 1;
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, &slice, 1), BP_ERR_SOFTWARE);
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &slice, 1), BP_ERR_SOFTWARE);
    bp_checkpoint_close(&checkpoint);
    bp_free(slice.data);
}

static void digest_tells_other_values_and_other_coverage(void **state)
{
    bp_slice slice = model_whole("w", 2, SHAPE, true);
    bp_checkpoint *checkpoint;
    bool root = bp_comm_is_root(COMM);

    open_sound(&checkpoint);
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &slice, root), BP_OK);
    slice.data[1199] += 1e-6f;
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &slice, root), BP_ERR_FORMAT);
    bp_test_check_said(COMM, "[tensor.damaged]");
    bp_test_check_said(COMM, "'w' ... [tensor.damaged]");
    slice.extent[0] = 39;
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &slice, root), BP_ERR_SOFTWARE);
    bp_checkpoint_close(&checkpoint);
    bp_free(slice.data);
}

/* The manifest hashes right and names a dataset that the file lacks, or has in another shape. */
static void dataset_other_than_listed_is_damage(void **state)
{
    static const char *const names[] = {"/w/p7", "/adamw.m/w/p0"};
    static const char *const words[] = {"/w/p7 ... 'w' ... [checkpoint.no_dataset]",
                                        "[checkpoint.wrong_dataset]"};

    for (int k = 0; k < 2; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM)) {
            json_t *manifest;
            char *text;

            bp_test_expect(bp_json_load(&manifest, inside(folder, "manifest.json"), 1 << 20),
                           BP_OK);
            set_text(piece_of(manifest, 1, 1), "dataset", names[k]);
            if (k == 1) /* where that is */
                set_text(piece_of(manifest, 1, 1), "file",
                         json_string_value(json_object_get(piece_of(manifest, 0, 0), "file")));
            text = bp_json_text(manifest);
            seal(folder, text, strlen(text));
            bp_free(text);
            json_decref(manifest);
        }
        check_damaged(folder, words[k]);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_checkpoint_opens),
        cmocka_unit_test(flipped_byte_is_damage),
        cmocka_unit_test(no_flip_and_no_cut_goes_unnoticed),
        cmocka_unit_test(truncated_shard_is_damage),
        cmocka_unit_test(missing_shard_is_damage),
        cmocka_unit_test(extra_shard_is_damage),
        cmocka_unit_test(shard_that_is_a_link_is_damage),
        cmocka_unit_test(another_sound_shard_is_damage),
        cmocka_unit_test(shard_without_a_user_block_needs_another_hash),
        cmocka_unit_test(shard_of_another_step_is_damage),
        cmocka_unit_test(missing_manifest_is_damage),
        cmocka_unit_test(flipped_byte_of_the_manifest_is_damage),
        cmocka_unit_test(folder_that_is_not_there_is_a_missing_input),
        cmocka_unit_test(missing_tensor_is_refused_on_load),
        cmocka_unit_test(other_shape_is_refused_on_load),
        cmocka_unit_test(slice_that_leaves_its_tensor_is_a_bug),
        cmocka_unit_test(digest_tells_other_values_and_other_coverage),
        cmocka_unit_test(dataset_other_than_listed_is_damage),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
