/* The HDF5 wrappers: what is written is read, failures poison, and messages say what errno said. */
#include "base/fault.h"
#include "bp_test.h"
#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include "small_disk.h"

#include <math.h>
#include <sys/stat.h>

static void values_of_all_types_come_back(void **state)
{
    static const uint8_t u8[3] = {0, 1, 255};
    static const uint16_t u16[3] = {0, 1, 65535};
    static const uint32_t u32[3] = {0, 1, UINT32_MAX};
    static const uint64_t u64[3] = {0, 1, UINT64_MAX};
    static const int64_t i64[3] = {INT64_MIN, 0, INT64_MAX};
    static const float f32[3] = {-1.5f, 0.0f, 3e38f};
    static const double f64[3] = {-1.5, 1e-300, 3e300};
    const struct {
        const char *name;
        bp_h5_type type;
        const void *data;
    } all[] = {{"u8", BP_H5_U8, u8},    {"a/u16", BP_H5_U16, u16}, {"a/b/u32", BP_H5_U32, u32},
               {"u64", BP_H5_U64, u64}, {"i64", BP_H5_I64, i64},   {"f32", BP_H5_F32, f32},
               {"f64", BP_H5_F64, f64}};
    const char *path = bp_test_path("types.h5");
    bp_h5 *file;

    bp_test_expect(bp_h5_create(&file, path), BP_OK);
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        bp_test_expect(bp_h5_write(file, all[k].name, all[k].type, all[k].data, 3), BP_OK);
    bp_test_expect(bp_h5_close(&file), BP_OK);
    bp_test_expect(bp_h5_open(&file, path), BP_OK);
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        char values[24] = {0};
        bp_test_expect(bp_h5_read(file, all[k].name, all[k].type, 0, values, 3), BP_OK);
        assert_memory_equal(values, all[k].data, 3 * bp_h5_type_bytes(all[k].type));
        bp_test_expect(bp_h5_walk(file, all[k].name), BP_OK);
    }
    assert_true(bp_h5_is_group(file, "a/b"));
    assert_false(bp_h5_is_group(file, "u8"));
    assert_false(bp_h5_is_group(file, "nothing"));
    bp_h5_drop(&file);
}

static void slabs_texts_grids_and_attributes_come_back(void **state)
{
    static const char *const texts[3] = {"", "\xe5\x94\x90", "a longer text"};
    const char *path = bp_test_path("slabs.h5");
    int64_t grid[6] = {1, 2, 3, 4, 5, 6}, values[6], number;
    char padded[3 * 13], text[32], **names;
    bp_h5_shape shape;
    static const int64_t extent[2] = {2, 3};
    bp_h5 *file;

    bp_test_expect(bp_h5_create(&file, path), BP_OK);
    bp_test_expect(bp_h5_make(file, "slabs", BP_H5_I64, 6), BP_OK);
    bp_test_expect(bp_h5_write_slab(file, "slabs", BP_H5_I64, 4, grid + 4, 2), BP_OK);
    bp_test_expect(bp_h5_write_slab(file, "slabs", BP_H5_I64, 0, grid, 4), BP_OK);
    bp_test_expect(bp_h5_write_texts(file, "group/texts", texts, 3), BP_OK);
    bp_test_expect(bp_h5_make_array(file, "grid", BP_H5_I64, 2, extent, NULL), BP_OK);
    bp_test_expect(bp_h5_write_slab(file, "grid", BP_H5_I64, 0, grid, 6), BP_OK);
    bp_test_expect(bp_h5_make_array(file, "rows", BP_H5_I64, 2, extent, NULL), BP_OK);
    bp_test_expect(bp_h5_write_slab(file, "rows", BP_H5_I64, 3, grid + 3, 3), BP_OK);
    bp_test_expect(bp_h5_write_slab(file, "rows", BP_H5_I64, 0, grid, 3), BP_OK);
    bp_test_expect(bp_h5_write(file, "nothing", BP_H5_F32, NULL, 0), BP_OK);
    bp_test_expect(bp_h5_put_int(file, "/", "number", -5), BP_OK);
    bp_test_expect(bp_h5_put_text(file, "/", "text", "\xe5\x94\x90 text"), BP_OK);
    bp_test_expect(bp_h5_put_text(file, "/", "empty", ""), BP_OK);
    bp_test_expect(bp_h5_close(&file), BP_OK);

    bp_test_expect(bp_h5_open(&file, path), BP_OK);
    bp_test_expect(bp_h5_read(file, "slabs", BP_H5_I64, 1, values, 5), BP_OK);
    assert_memory_equal(values, grid + 1, 5 * sizeof values[0]);
    bp_test_expect(bp_h5_shape_of(file, "group/texts", &shape), BP_OK);
    assert_true(shape.is_text);
    assert_int_equal(shape.width, 13);
    bp_test_expect(bp_h5_read_text(file, "group/texts", 13, 0, padded, 3), BP_OK);
    for (int k = 0; k < 3; k++)
        assert_int_equal(strncmp(padded + 13 * k, texts[k], 13), 0);
    bp_test_expect(bp_h5_shape_of(file, "grid", &shape), BP_OK);
    assert_int_equal(shape.dims, 2);
    assert_int_equal(shape.columns, 3);
    assert_true(shape.offset >= BP_USER_BLOCK_BYTES);
    bp_test_expect(bp_h5_read(file, "grid", BP_H5_I64, 0, values, 6), BP_OK);
    assert_memory_equal(values, grid, sizeof grid);
    bp_test_expect(bp_h5_read(file, "rows", BP_H5_I64, 3, values, 3), BP_OK);
    assert_memory_equal(values, grid + 3, 3 * sizeof values[0]);
    bp_test_expect(bp_h5_read(file, "rows", BP_H5_I64, 0, values, 6), BP_OK);
    assert_memory_equal(values, grid, sizeof grid);
    bp_test_expect(bp_h5_read(file, "rows", BP_H5_I64, 1, values, 3), BP_ERR_FORMAT);
    bp_test_expect(bp_h5_shape_of(file, "nothing", &shape), BP_OK);
    assert_int_equal(shape.count, 0);
    bp_test_expect(bp_h5_get_int(file, "/", "number", &number), BP_OK);
    assert_int_equal(number, -5);
    bp_test_expect(bp_h5_get_text(file, "/", "text", text, sizeof text), BP_OK);
    assert_string_equal(text, "\xe5\x94\x90 text");
    bp_test_expect(bp_h5_get_text(file, "/", "empty", text, sizeof text), BP_OK);
    assert_string_equal(text, "");
    bp_test_expect(bp_h5_names(file, "/", &names, &number), BP_OK);
    assert_int_equal(number, 5);
    assert_string_equal(names[0], "grid");
    assert_string_equal(names[4], "slabs");
    bp_names_free(&names, number);
    bp_h5_drop(&file);
}

static void what_is_not_there_is_named(void **state)
{
    static const float reals[2] = {1, 2};
    const char *path = bp_test_path("little.h5");
    int64_t number;
    float real;
    char text[4];
    bp_h5 *file;

    bp_test_expect(bp_h5_create(&file, path), BP_OK);
    bp_test_expect(bp_h5_write(file, "reals", BP_H5_F32, reals, 2), BP_OK);
    bp_test_expect(bp_h5_put_text(file, "/", "text", "longer than four"), BP_OK);
    bp_test_expect(bp_h5_close(&file), BP_OK);
    bp_test_expect(bp_h5_open(&file, path), BP_OK);
    bp_test_expect(bp_h5_read(file, "absent", BP_H5_F32, 0, &real, 1), BP_ERR_FORMAT);
    bp_test_message_has("[h5.missing]");
    bp_test_expect(bp_h5_read(file, "reals", BP_H5_I64, 0, &number, 1), BP_ERR_FORMAT);
    bp_test_message_has("[h5.wrong_type]");
    bp_test_expect(bp_h5_read(file, "reals", BP_H5_F32, 2, &real, 1), BP_ERR_FORMAT);
    bp_test_message_has("2 values ... [h5.wrong_length]");
    bp_test_expect(bp_h5_read_text(file, "reals", 4, 0, text, 1), BP_ERR_FORMAT);
    bp_test_expect(bp_h5_get_int(file, "/", "absent", &number), BP_ERR_FORMAT);
    bp_test_message_has("[h5.missing_attribute]");
    bp_test_expect(bp_h5_get_int(file, "/", "text", &number), BP_ERR_FORMAT);
    bp_test_expect(bp_h5_get_text(file, "/", "text", text, sizeof text), BP_ERR_FORMAT);
    bp_test_message_has("3 bytes ... [h5.wrong_attribute]");
    bp_h5_drop(&file);
}

static void files_that_can_not_be_had_have_their_code(void **state)
{
    bp_h5 *file;

    bp_test_expect(bp_h5_open(&file, bp_test_path("missing.h5")), BP_ERR_INPUT);
    assert_null(file);
    bp_test_expect(bp_h5_open(&file, bp_test_write("text.h5", "no HDF5", 7)), BP_ERR_FORMAT);
    bp_test_expect(bp_h5_create(&file, bp_test_path("no/folder/file.h5")), BP_ERR_CREATE);
    bp_test_message_has("[file.no_folder]");
    if (geteuid() != 0)
        bp_test_expect(bp_h5_create(&file, "/proc/file.h5"), BP_ERR_CREATE);
}

static void first_failure_poisons_the_file(void **state)
{
    static const float reals[2] = {1, 2};
    bp_h5 *file;

    bp_test_expect(bp_h5_create(&file, bp_test_path("poisoned.h5")), BP_OK);
    bp_test_expect(bp_h5_write(file, "a", BP_H5_F32, reals, 2), BP_OK);
    bp_fault_arm("store.write");
    bp_test_expect(bp_h5_write(file, "b", BP_H5_F32, reals, 2), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_expect(bp_h5_write(file, "c", BP_H5_F32, reals, 2), BP_ERR_IO);
    bp_test_expect(bp_h5_put_int(file, "/", "d", 1), BP_ERR_IO);
    bp_test_expect(bp_h5_close(&file), BP_ERR_IO);
    bp_test_message_has("[h5.failed]");
    assert_null(file);
}

static bp_err write_four_mib(const char *path)
{
    float *values = bp_alloc("test", 1 << 20, sizeof *values);
    bp_h5 *file;
    bp_err err, closed;

    for (int k = 0; k < 1 << 20; k++)
        values[k] = (float)k;
    err = bp_h5_create(&file, path);
    if (err == BP_OK)
        err = bp_h5_write(file, "values", BP_H5_F32, values, 1 << 20);
    closed = bp_h5_close(&file);
    bp_free(values);
    unlink(path);
    if (closed != err || (err != BP_OK && strstr(bp_err_message(), "[file.no_space]") == NULL))
        return BP_ERR_SOFTWARE; /* the failure has to stay, with errno's words */
    return err;
}

static void full_disk_is_an_io_error(void **state)
{
    assert_int_equal(on_small_disk(SMALL_DISK_LIMIT, 1 << 20, write_four_mib), BP_ERR_IO);
    assert_int_equal(on_small_disk(SMALL_DISK_LIMIT, 16 << 20, write_four_mib), BP_OK);
    assert_int_equal(on_small_disk(SMALL_DISK_TMPFS, 1 << 20, write_four_mib), BP_ERR_IO);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_all_types_come_back),
        cmocka_unit_test(slabs_texts_grids_and_attributes_come_back),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(files_that_can_not_be_had_have_their_code),
        cmocka_unit_test(first_failure_poisons_the_file),
        cmocka_unit_test(full_disk_is_an_io_error),
    };
    return BP_TEST_RUN(tests);
}
