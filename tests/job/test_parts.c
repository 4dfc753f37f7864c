/* Part files: what is whole is found again, what is not is missing. */
#include "bp_test.h"

#include "base/fault.h"
#include "job/parts.h"
#include <unistd.h>

#define KEY_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define KEY_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* A file of units first, first + 1, ..., each of unit + 1 bytes. */
static void write_part(const char *path, const char *key, int64_t first, int64_t count)
{
    bp_part_writer *writer;
    char result[256];

    bp_test_expect(bp_part_writer_new(&writer, path, key), BP_OK);
    for (int64_t unit = first; unit < first + count; unit++) {
        memset(result, 'a' + (int)unit % 26, sizeof(result));
        bp_test_expect(bp_part_writer_add(writer, unit, result, (size_t)unit + 1), BP_OK);
    }
    bp_test_expect(bp_part_writer_close(&writer), BP_OK);
    assert_null(writer);
}

static const char *fresh_folder(const char *name)
{
    const char *folder = bp_test_path(name);

    bp_test_expect(bp_dir_make(folder), BP_OK);
    return folder;
}

static const char *inside(const char *folder, const char *name)
{
    char *path = bp_test_path_place();

    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

static int64_t units_found(const char *folder, const char *key)
{
    bp_parts *parts;

    bp_test_expect(bp_parts_open(&parts, folder, key, 10, false), BP_OK);
    int64_t count = parts->done_count, marked = 0;
    for (int64_t unit = 0; unit < 10; unit++) {
        const char *result, *path;
        size_t bytes;

        marked += parts->done[unit];
        if (!parts->done[unit]) {
            bp_test_expect(bp_parts_read(parts, unit, &result, &bytes, &path), BP_ERR_FORMAT);
            continue;
        }
        bp_test_expect(bp_parts_read(parts, unit, &result, &bytes, &path), BP_OK);
        assert_int_equal(bytes, unit + 1);
        assert_int_equal(result[0], 'a' + (int)unit);
        assert_int_equal(result[unit], 'a' + (int)unit);
    }
    bp_parts_free(&parts);
    assert_null(parts);
    assert_int_equal(marked, count);
    return count;
}

static void units_of_all_files_are_found(void **state)
{
    (void)state;
    const char *folder = fresh_folder("all");

    assert_int_equal(units_found(bp_test_path("no-such-folder"), KEY_A), 0);
    assert_int_equal(units_found(folder, KEY_A), 0);
    write_part(inside(folder, "000001-00000.part"), KEY_A, 0, 3);
    write_part(inside(folder, "000001-00001.part"), KEY_A, 5, 2);
    write_part(inside(folder, "000002-00000.part"), KEY_A, 6, 2); /* 6 again */
    assert_int_equal(units_found(folder, KEY_A), 6);
}

static void files_of_other_work_are_counted_and_left_out(void **state)
{
    (void)state;
    const char *folder = fresh_folder("other");
    bp_parts *parts;

    write_part(inside(folder, "000001-00000.part"), KEY_A, 0, 3);
    write_part(inside(folder, "000007-00000.part"), KEY_B, 2, 3);
    bp_test_expect(bp_file_write(inside(folder, "note.txt"), "x", 1), BP_OK);
    bp_test_expect(bp_parts_open(&parts, folder, KEY_A, 10, false), BP_OK);
    assert_int_equal(parts->done_count, 3);
    assert_int_equal(parts->foreign, 1);
    assert_int_equal(parts->start, 8);
    bp_parts_free(&parts);
}

/* Cut at every length: whole records before the cut are found, nothing else. */
static void cut_at_any_byte_the_tail_is_missing(void **state)
{
    (void)state;
    const char *folder = fresh_folder("cut"), *path = inside(folder, "000001-00000.part");
    int64_t ends[4], bytes, previous = -1;

    write_part(path, KEY_A, 0, 3);
    bytes = bp_file_size(path);
    ends[3] = bytes;
    ends[2] = ends[3] - 40 - 3; /* a header of 40 bytes, and unit + 1 of result */
    ends[1] = ends[2] - 40 - 2;
    ends[0] = ends[1] - 40 - 1;
    assert_int_equal(ends[0], 128);
    for (int64_t length = bytes; length >= 0; length--) {
        int64_t whole = (length >= ends[1]) + (length >= ends[2]) + (length >= ends[3]);

        assert_int_equal(truncate(path, length), 0);
        int64_t found = units_found(folder, KEY_A);
        assert_int_equal(found, whole);
        assert_true(previous < 0 || found <= previous);
        previous = found;
    }
}

/* Any flipped byte: its record and those after it are missing, or the file belongs to other work.
 */
static void flipped_at_any_byte_the_record_is_missing(void **state)
{
    (void)state;
    const char *folder = fresh_folder("flip"), *path = inside(folder, "000001-00000.part");
    char *data;
    size_t bytes;

    write_part(path, KEY_A, 0, 3);
    bp_test_expect(bp_file_read(path, 1 << 20, &data, &bytes), BP_OK);
    for (size_t i = 0; i < bytes; i++) {
        int64_t before = (int64_t)i < 128 + 41 ? 0 : (int64_t)i < 128 + 41 + 42 ? 1 : 2;

        data[i] ^= 0x10;
        bp_test_expect(bp_file_write(path, data, bytes), BP_OK);
        assert_int_equal(units_found(folder, KEY_A), before);
        data[i] ^= 0x10;
    }
    bp_free(data);
}

/* A merge reads each result once: of the newest start's files only the headers are read before. An
 * earlier start's damaged record, done again since, does not come in its way. */
static void a_merge_reads_each_result_once(void **state)
{
    (void)state;
    const char *folder = fresh_folder("merge"), *old = inside(folder, "000001-00000.part");
    const char *own = inside(folder, "000002-00000.part");
    bp_part_result part = {0};
    bp_parts *parts;
    bp_err err = BP_OK;
    char *data;
    size_t bytes;

    write_part(old, KEY_A, 0, 5);
    write_part(own, KEY_A, 4, 6);
    bp_test_expect(bp_file_read(old, 1 << 20, &data, &bytes), BP_OK);
    data[bytes - 1] ^= 1; /* of unit 4 */
    bp_test_expect(bp_file_write(old, data, bytes), BP_OK);
    bp_free(data);
    bp_test_expect(bp_parts_open(&parts, folder, KEY_A, 10, true), BP_OK);
    for (int64_t unit = 0; unit < 10; unit++) {
        assert_true(bp_parts_next(parts, &part, &err));
        assert_int_equal(part.unit, unit);
        bp_test_expect(bp_part_result_expect(&part, (size_t)unit + 1), BP_OK);
        bp_test_expect(bp_part_result_expect(&part, 100), BP_ERR_FORMAT);
        assert_int_equal(part.data[unit], 'a' + (int)unit);
    }
    assert_false(bp_parts_next(parts, &part, &err));
    assert_int_equal(err, BP_OK);
    bp_parts_free(&parts);

    bp_test_expect(bp_file_read(own, 1 << 20, &data, &bytes), BP_OK);
    data[bytes - 1] ^= 1; /* of unit 9 */
    bp_test_expect(bp_file_write(own, data, bytes), BP_OK);
    bp_free(data);
    bp_test_expect(bp_parts_open(&parts, folder, KEY_A, 10, true), BP_OK);
    part.next = 9;
    assert_false(bp_parts_next(parts, &part, &err));
    bp_test_expect(err, BP_ERR_FORMAT);
    assert_false(bp_parts_next(parts, &part, &err)); /* after an error nothing is read */
    bp_parts_free(&parts);
}

static void full_disk_is_74(void **state)
{
    (void)state;
    const char *folder = fresh_folder("full");
    bp_part_writer *writer;

    bp_test_expect(bp_part_writer_new(&writer, inside(folder, "000001-00000.part"), KEY_A), BP_OK);
    bp_test_expect(bp_part_writer_add(writer, 0, "a", 1), BP_OK);
    bp_fault_arm("work.part");
    bp_test_expect(bp_part_writer_add(writer, 1, "bb", 2), BP_ERR_IO);
    bp_test_message_has("000001-00000.part ... [file.no_space]");
    bp_fault_arm(NULL);
    bp_test_expect(bp_part_writer_close(&writer), BP_OK); /* what is there, is there */
    assert_int_equal(units_found(folder, KEY_A), 1);
}

static void part_that_cannot_be_made_says_why(void **state)
{
    (void)state;
    const char *folder = fresh_folder("made"), *path = inside(folder, "000001-00000.part");
    bp_part_writer *writer = (bp_part_writer *)1;

    write_part(path, KEY_A, 0, 1);
    bp_test_expect(bp_part_writer_new(&writer, path, KEY_A),
                   BP_ERR_CREATE); /* never over another */
    assert_null(writer);
    bp_test_expect(bp_part_writer_new(&writer, bp_test_path("nowhere/x.part"), KEY_A),
                   BP_ERR_INPUT);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_of_all_files_are_found),
        cmocka_unit_test(files_of_other_work_are_counted_and_left_out),
        cmocka_unit_test(cut_at_any_byte_the_tail_is_missing),
        cmocka_unit_test(flipped_at_any_byte_the_record_is_missing),
        cmocka_unit_test(a_merge_reads_each_result_once),
        cmocka_unit_test(full_disk_is_74),
        cmocka_unit_test(part_that_cannot_be_made_says_why),
    };
    return BP_TEST_RUN(tests);
}
