/* The user block: every byte of it counts, and so does every byte after it. */
#include "bp_test.h"
#include "io/h5/user_block.h"

#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES 2000

static const char *sealed_file(const char *name, bp_user_block *block)
{
    char content[FILE_BYTES];
    const char *path;

    for (int k = 0; k < FILE_BYTES; k++)
        content[k] = (char)(k * 7);
    path = bp_test_write(name, content, sizeof content);
    *block = (bp_user_block){.kind = "test", .version = 1, .detail = "a detail"};
    bp_test_expect(bp_user_block_seal(block, path), BP_OK);
    return path;
}

/* Change one byte of a file in place. */
static void put_byte(const char *path, long at, int value)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(value, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static int get_byte(const char *path, long at)
{
    FILE *file = fopen(path, "rb");
    int value;

    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    value = fgetc(file);
    assert_int_equal(fclose(file), 0);
    return value;
}

static void sealed_file_verifies(void **state)
{
    bp_user_block block, read;
    const char *path = sealed_file("sealed", &block);

    bp_test_expect(bp_user_block_verify(&read, path), BP_OK);
    assert_string_equal(read.kind, "test");
    assert_string_equal(read.detail, "a detail");
    assert_string_equal(read.hash, block.hash);
    assert_int_equal(read.version, 1);
    assert_int_equal(read.bytes, FILE_BYTES);
    bp_test_expect(bp_user_block_expect(&read, "test", 1, path), BP_OK);
}

/* Oracle: the tool xxh128sum of xxHash, where it is installed. */
static void hash_is_what_xxh128sum_prints(void **state)
{
    bp_user_block block;
    const char *path = sealed_file("sealed", &block);
    char command[512], digits[64] = "";
    FILE *pipe;

    if (system("command -v xxh128sum > /dev/null") != 0)
        bp_test_skip("there is no xxh128sum");
    snprintf(command, sizeof command, "tail -c +513 '%s' | xxh128sum", path);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(digits, sizeof digits, pipe));
    assert_int_equal(pclose(pipe), 0);
    digits[32] = '\0';
    assert_string_equal(digits, block.hash);
}

static void every_flipped_byte_is_noticed(void **state)
{
    static const int masks[] = {0x01, 0x20, 0x80, 0xff};
    bp_user_block block, read;
    const char *path = sealed_file("flipped", &block);

    for (long at = 0; at < FILE_BYTES; at++)
        for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
            int value = get_byte(path, at);
            put_byte(path, at, value ^ masks[m]);
            bp_err err = bp_user_block_verify(&read, path);
            if (err ==
                BP_OK) /* the version alone may be another one's: then it is refused as such */
                err = bp_user_block_expect(&read, "test", 1, path);
            bp_test_expect(err, BP_ERR_FORMAT);
            bp_test_message_has("damaged");
            put_byte(path, at, value);
        }
    bp_test_expect(bp_user_block_verify(&read, path), BP_OK);
}

static void every_other_length_is_noticed(void **state)
{
    bp_user_block block, read;
    const char *path = sealed_file("cut", &block);

    put_byte(path, FILE_BYTES, 'x'); /* one byte more */
    bp_test_expect(bp_user_block_verify(&read, path), BP_ERR_FORMAT);
    bp_test_message_has("[h5.wrong_bytes]");
    for (off_t bytes = FILE_BYTES - 1; bytes >= 0; bytes -= bytes > 600 ? 50 : 1) {
        assert_int_equal(truncate(path, bytes), 0);
        bp_test_expect(bp_user_block_read(&read, path), BP_ERR_FORMAT);
        bp_test_message_has("damaged");
    }
    bp_test_message_has("[h5.empty]");
}

static void what_is_no_file_of_ours_is_refused(void **state)
{
    static const char text[600] = "this is a text of some length, not an HDF5 file";
    bp_user_block read;

    bp_test_expect(bp_user_block_read(&read, bp_test_write("text", text, sizeof text)),
                   BP_ERR_FORMAT);
    bp_test_message_has("[h5.not_hdf5]");
    bp_test_expect(bp_user_block_read(&read, bp_test_path("missing")), BP_ERR_INPUT);
    bp_test_expect(bp_user_block_read(&read, bp_test_folder()), BP_ERR_INPUT);
    bp_test_expect(bp_user_block_seal(&read, bp_test_path("missing")), BP_ERR_INPUT);
}

static void foreigns_file_has_no_kind(void **state)
{
    static const char start[] = "\x89HDF\r\n\x1a\n and more";
    bp_user_block read;

    bp_test_expect(bp_user_block_verify(&read, bp_test_write("foreign", start, sizeof start)),
                   BP_OK);
    assert_string_equal(read.kind, "");
    bp_test_expect(bp_user_block_expect(&read, "test", 1, "foreign"), BP_ERR_FORMAT);
}

static void other_kinds_and_newer_versions_are_named(void **state)
{
    bp_user_block block = {.kind = "test", .version = 7};
    const char *path = bp_test_write("newer", "", 0);

    assert_int_equal(truncate(path, 4096), 0);
    bp_test_expect(bp_user_block_seal(&block, path), BP_OK);
    bp_test_expect(bp_user_block_verify(&block, path), BP_OK);
    bp_test_expect(bp_user_block_expect(&block, "test", 6, path), BP_ERR_FORMAT);
    bp_test_message_has("[h5.unknown_version]");
    bp_test_message_has("format_version 7 ... [h5.unknown_version]");
    bp_test_expect(bp_user_block_expect(&block, "corpus", 7, path), BP_ERR_FORMAT);
    bp_test_message_has("'test' ... 'corpus' ... [h5.wrong_kind]");
}

static void unreadable_file_is_denied(void **state)
{
    bp_user_block block;
    const char *path = sealed_file("secret", &block);
    bp_err err;

    if (geteuid() != 0)
        assert_int_equal(chmod(path, 0), 0);
    else if (chmod(bp_test_folder(), 0755) != 0 || chmod(path, 0600) != 0 || seteuid(65534) != 0)
        bp_test_skip("can't become another user");
    err = bp_user_block_read(&block, path);
    if (geteuid() != 0 && getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    bp_test_expect(err, BP_ERR_DENIED);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_file_verifies),
        cmocka_unit_test(hash_is_what_xxh128sum_prints),
        cmocka_unit_test(every_flipped_byte_is_noticed),
        cmocka_unit_test(every_other_length_is_noticed),
        cmocka_unit_test(what_is_no_file_of_ours_is_refused),
        cmocka_unit_test(foreigns_file_has_no_kind),
        cmocka_unit_test(other_kinds_and_newer_versions_are_named),
        cmocka_unit_test(unreadable_file_is_denied),
    };
    return BP_TEST_RUN(tests);
}
