/* Files of sampled heads: rows come back, and no byte of them is trusted unhashed. */
#include "base/fault.h"
#include "bp_test_mpi.h"
#include "io/checkpoint/head_samples.h"
#include "io/h5/h5.h"
#include "io/h5/user_block.h"

#include <unistd.h>

#define SAMPLES 3
#define V       5
#define C       4

static const bp_head_samples_info INFO = {.samples = SAMPLES,
                                          .vocab_size = V,
                                          .width = C,
                                          .model_digest = "abc",
                                          .digest = "0123",
                                          .notes = "{}"};

static float value_at(int64_t sample, int64_t row, int64_t column)
{
    return (float)(100 * sample + 10 * row + column) + 0.25f;
}

static void fill(float *rows, int64_t sample, int64_t first, int64_t count)
{
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < C; c++)
            rows[r * C + c] = value_at(sample, first + r, c);
}

static bp_err write_all(bp_head_samples *file)
{
    float rows[V * C];
    bp_err err = BP_OK;

    for (int64_t s = SAMPLES - 1; s >= 0 && err == BP_OK; s--) { /* in any order */
        fill(rows, s, 2, V - 2);
        err = bp_head_samples_write(file, s, 2, V - 2, rows);
        fill(rows, s, 0, 2);
        if (err == BP_OK)
            err = bp_head_samples_write(file, s, 0, 2, rows);
    }
    return err;
}

static const char *whole_file(const char *name)
{
    const char *path = bp_test_path(name);
    bp_head_samples *file;

    bp_test_expect(bp_head_samples_create(&file, path, &INFO), BP_OK);
    bp_test_expect(write_all(file), BP_OK);
    assert_false(bp_path_exists(path)); /* not before it is whole */
    bp_test_expect(bp_head_samples_commit(&file), BP_OK);
    assert_null(file);
    return path;
}

static void rows_come_back(void **state)
{
    const char *path = whole_file("heads.h5");
    bp_head_samples *file;
    float rows[V * C], expected[V * C];

    bp_test_expect(bp_head_samples_open(&file, MPI_COMM_SELF, path), BP_OK);
    assert_memory_equal(bp_head_samples_info_of(file), &INFO, sizeof INFO);
    for (int64_t s = 0; s < SAMPLES; s++)
        for (int64_t first = 0; first <= V; first++)
            for (int64_t count = 0; first + count <= V; count++) {
                fill(expected, s, first, count);
                bp_test_expect(bp_head_samples_read(file, s, first, count, rows), BP_OK);
                assert_memory_equal(rows, expected, (size_t)(count * C) * sizeof(float));
            }
    bp_head_samples_close(&file);
    assert_null(file);
    bp_head_samples_close(&file);
}

static int64_t count_names(const char *folder)
{
    char **names;
    int64_t count;

    bp_test_expect(bp_dir_list(folder, &names, &count), BP_OK);
    bp_names_free(&names, count);
    return count;
}

static void file_that_is_not_committed_goes(void **state)
{
    const char *folder = bp_test_path("dropped"), *path = bp_test_path("dropped/heads.h5");
    bp_head_samples *file, *other;

    bp_test_expect(bp_dir_make(folder), BP_OK);

    bp_test_expect(bp_head_samples_create(&file, path, &INFO), BP_OK);
    bp_test_expect(write_all(file), BP_OK);
    bp_test_expect(bp_head_samples_create(&other, path, &INFO), BP_OK); /* another owner's */
    assert_int_equal(count_names(folder), 2);
    bp_head_samples_close(&file);
    bp_test_expect(write_all(other), BP_OK);
    bp_head_samples_close(&other);
    assert_int_equal(count_names(folder), 0);

    bp_test_expect(bp_head_samples_create(&file, path, &INFO), BP_OK);
    bp_fault_arm("store.write");
    bp_test_expect(write_all(file), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_head_samples_close(&file);
    assert_int_equal(count_names(folder), 0);
}

static void what_can_not_be_written_is_said(void **state)
{
    bp_head_samples *file;

    bp_test_expect(bp_head_samples_create(&file, bp_test_path("no/folder/heads.h5"), &INFO),
                   BP_ERR_CREATE);
    assert_null(file);
}

static void put_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(0x5a, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void damaged_file_is_refused(void **state)
{
    const char *path = whole_file("flipped.h5");
    bp_head_samples *file;

    put_byte(path, (long)bp_file_size(path) - 5);
    bp_test_expect(bp_head_samples_open(&file, MPI_COMM_SELF, path), BP_ERR_FORMAT);
    bp_test_message_has("[h5.damaged]");
    assert_null(file);
    put_byte(path, 3);
    bp_test_expect(bp_head_samples_open(&file, MPI_COMM_SELF, path), BP_ERR_FORMAT);
    bp_test_message_has("[h5.not_hdf5]");
    bp_test_expect(bp_head_samples_open(&file, MPI_COMM_SELF, bp_test_path("none.h5")),
                   BP_ERR_INPUT);
}

/* A sound file of ours, with this kind, version and numbers. */
static const char *other_file(const char *name, const char *kind, int version, int64_t vocab_size)
{
    static const float weights[SAMPLES * V * C];
    const char *path = bp_test_path(name);
    bp_user_block block = {.version = version};
    bp_h5 *file;

    (void)snprintf(block.kind, sizeof block.kind, "%s", kind);
    bp_test_expect(bp_h5_create(&file, path), BP_OK);
    bp_test_expect(bp_h5_write(file, "weights", BP_H5_F32, weights, SAMPLES * V * C), BP_OK);
    bp_test_expect(bp_h5_put_int(file, "/", "samples", SAMPLES), BP_OK);
    bp_test_expect(bp_h5_put_int(file, "/", "vocab_size", vocab_size), BP_OK);
    bp_test_expect(bp_h5_put_int(file, "/", "width", C), BP_OK);
    bp_test_expect(bp_h5_put_text(file, "/", "model_digest", "m"), BP_OK);
    bp_test_expect(bp_h5_put_text(file, "/", "digest", "d"), BP_OK);
    bp_test_expect(bp_h5_put_text(file, "/", "notes", ""), BP_OK);
    bp_test_expect(bp_h5_close(&file), BP_OK);
    bp_test_expect(bp_user_block_seal(&block, path), BP_OK);
    return path;
}

static void other_files_are_refused(void **state)
{
    bp_head_samples *file;

    bp_test_expect(
        bp_head_samples_open(&file, MPI_COMM_SELF, other_file("a.h5", "head-samples", 1, V)),
        BP_OK);
    bp_head_samples_close(&file);
    bp_test_expect(bp_head_samples_open(&file, MPI_COMM_SELF, other_file("b.h5", "corpus", 1, V)),
                   BP_ERR_FORMAT);
    bp_test_message_has("'corpus' ... [h5.wrong_kind]");
    bp_test_expect(
        bp_head_samples_open(&file, MPI_COMM_SELF, other_file("c.h5", "head-samples", 2, V)),
        BP_ERR_FORMAT);
    bp_test_message_has("[h5.unknown_version]");
    bp_test_expect(
        bp_head_samples_open(&file, MPI_COMM_SELF, other_file("d.h5", "head-samples", 1, V + 1)),
        BP_ERR_FORMAT);
    bp_test_message_has("[samples.damaged]");
    bp_test_expect(bp_head_samples_open(&file, MPI_COMM_SELF,
                                        other_file("e.h5", "head-samples", 1, INT64_MAX)),
                   BP_ERR_FORMAT);
    bp_test_message_has("[samples.damaged]");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(file_that_is_not_committed_goes),
        cmocka_unit_test(what_can_not_be_written_is_said),
        cmocka_unit_test(damaged_file_is_refused),
        cmocka_unit_test(other_files_are_refused),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
