#include "base/fault.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/process/signals.h"
#include "bp_test.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT (INT64_C(1) << 20)

/* Names of temporary files that a failed write may not leave behind. */
static int64_t count_entries(const char *folder)
{
    char **names;
    int64_t count;

    bp_test_expect(bp_dir_list(folder, &names, &count), BP_OK);
    bp_names_free(&names, count);
    assert_null(names);
    return count;
}

static const char *fresh_folder(const char *name)
{
    const char *folder = bp_test_path(name);

    bp_test_expect(bp_dir_make(folder), BP_OK);
    return folder;
}

static void assert_content(const char *path, const char *expected)
{
    char *data;
    size_t bytes;

    bp_test_expect(bp_file_read(path, LIMIT, &data, &bytes), BP_OK);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(data, expected);
    bp_free(data);
}

static void what_is_written_is_read(void **state)
{
    const char *folder = fresh_folder("plain");
    char *path = bp_path_join(folder, "file");

    bp_test_expect(bp_file_write(path, "old", 3), BP_OK);
    bp_test_expect(bp_file_write(path, "new text", 8), BP_OK);
    assert_content(path, "new text");
    assert_int_equal(bp_file_size(path), 8);
    assert_int_equal(count_entries(folder), 1);
    bp_test_expect(bp_file_write(path, "", 0), BP_OK);
    assert_content(path, "");
    bp_free(path);
}

static void limit_is_to_the_byte(void **state)
{
    const char *path = bp_test_write("limit", "0123456789", 10);
    char *data;
    size_t bytes;

    bp_test_expect(bp_file_read(path, 10, &data, &bytes), BP_OK);
    bp_free(data);
    bp_test_expect(bp_file_read(path, 9, &data, &bytes), BP_ERR_FORMAT);
    bp_test_message_has("9 bytes ... [file.too_long]");
    assert_null(data);
    bp_test_expect(bp_file_read(path, 0, &data, &bytes), BP_ERR_FORMAT);
}

static void file_of_unknown_size_is_read_whole(void **state)
{
    char *data;
    size_t bytes;

    bp_test_expect(bp_file_read("/proc/self/status", LIMIT, &data, &bytes), BP_OK);
    assert_non_null(strstr(data, "VmRSS"));
    assert_int_equal(strlen(data), bytes);
    bp_free(data);
}

static void what_is_no_file_is_distinguished(void **state)
{
    const char *fifo = bp_test_path("fifo");
    char *data;
    size_t bytes;

    bp_test_expect(bp_file_read(bp_test_path("none"), LIMIT, &data, &bytes), BP_ERR_INPUT);
    bp_test_message_has("[file.missing]");
    bp_test_expect(bp_file_read(bp_test_folder(), LIMIT, &data, &bytes), BP_ERR_INPUT);
    bp_test_message_has("[file.is_folder]");
    assert_int_equal(mkfifo(fifo, 0666), 0);
    bp_test_expect(bp_file_read(fifo, LIMIT, &data, &bytes), BP_ERR_INPUT); /* and does not wait */
    bp_test_message_has("[file.not_regular]");
    const char *file = bp_test_write("file", "x", 1);
    char *below = bp_path_join(file, "below");
    bp_test_expect(bp_file_read(below, LIMIT, &data, &bytes), BP_ERR_INPUT);
    bp_free(below);
}

static void failed_read_gives_nothing(void **state)
{
    const char *path = bp_test_write("file", "x", 1);
    char *data;
    size_t bytes;

    bp_fault_arm("base.read");
    bp_test_expect(bp_file_read(path, LIMIT, &data, &bytes), BP_ERR_IO);
    assert_null(data);
    bp_fault_arm("base.alloc");
    bp_test_expect(bp_file_read(path, LIMIT, &data, &bytes), BP_ERR_SYSTEM);
    bp_fault_arm(NULL);
}

static void devices_and_folders_are_not_replaced(void **state)
{
    bp_test_expect(bp_file_write("/dev/full", "x", 1), BP_ERR_CREATE);
    bp_test_expect(bp_file_write(bp_test_folder(), "x", 1), BP_ERR_CREATE);
    bp_test_expect(bp_file_write(bp_test_path("no/such/folder"), "x", 1), BP_ERR_CREATE);
    bp_test_message_has("[file.no_folder]");
}

/* The limit of a file's size stands for a full disk: the write comes back short, then with EFBIG.
 */
static void full_disk_leaves_the_old_file(void **state)
{
    static char data[100000];
    const char *folder = fresh_folder("full");
    char *path = bp_path_join(folder, "file");
    struct rlimit before, small;

    bp_test_expect(bp_file_write(path, "old", 3), BP_OK);
    bp_signals_init(); /* ignores SIGXFSZ */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 5000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bp_err err = bp_file_write(path, data, sizeof data);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    bp_test_expect(err, BP_ERR_IO);
    bp_test_message_has("[file.no_space]");
    bp_fault_arm("base.write");
    bp_test_expect(bp_file_write(path, "new", 3), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_message_has("[file.no_space]");
    assert_content(path, "old");
    assert_int_equal(count_entries(folder), 1);
    bp_free(path);
}

static void dev_full_refuses_every_write(void **state)
{
    int fd = open("/dev/full", O_WRONLY);

    if (fd < 0)
        bp_test_skip("there is no /dev/full");
    assert_int_equal(bp_write_all(fd, "x", 1), -1);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(close(fd), 0);
}

/* As root, permissions bind only after stepping down. */
static bool step_down(void)
{
    return geteuid() != 0 || seteuid(65534) == 0;
}

static void step_up(void)
{
    assert_int_equal(seteuid(getuid()), 0);
}

static void missing_permission_is_reported(void **state)
{
    const char *folder = fresh_folder("closed");
    char *path = bp_path_join(folder, "file"), *below = bp_path_join(folder, "a/b");
    char *data;
    size_t bytes;

    bp_test_expect(bp_file_write(path, "x", 1), BP_OK);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(folder, 0555), 0);
    assert_int_equal(chmod(bp_test_folder(), 0755), 0);
    if (!step_down())
        bp_test_skip("this user can't step down from root");
    bp_err reading = bp_file_read(path, LIMIT, &data, &bytes);
    bp_err writing = bp_file_write(path, "y", 1);
    bp_err making = bp_dir_make(below);
    bp_err removing = bp_dir_remove(folder);
    step_up();
    assert_int_equal(reading, BP_ERR_DENIED);
    assert_int_equal(writing, BP_ERR_DENIED);
    assert_int_equal(making, BP_ERR_DENIED);
    assert_int_equal(removing, BP_ERR_DENIED);
    assert_int_equal(chmod(folder, 0755), 0);
    bp_free(path);
    bp_free(below);
}

/* ---- what another process left, and what a power cut may take ---- */

static int fixed_tokens; /* so many random numbers are 0 */
static char synced[8][PATH_MAX];
static int synced_count;

ssize_t __real_getrandom(void *out, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags)
{
    if (fixed_tokens == 0)
        return __real_getrandom(out, bytes, flags);
    fixed_tokens--;
    memset(out, 0, bytes);
    return (ssize_t)bytes;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    char link[64];

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (synced_count < 8) {
        ssize_t bytes = readlink(link, synced[synced_count], PATH_MAX - 1);
        synced[synced_count++][bytes < 0 ? 0 : bytes] = 0;
    }
    return __real_fsync(fd);
}

/* A process that was killed in the middle leaves its temporary file, and in a container the next
 * one has its number. */
static void leftover_of_a_killed_process_blocks_nothing(void **state)
{
    const char *folder = fresh_folder("leftovers");
    char *path = bp_path_join(folder, "file"),
         *theirs = bp_path_join(folder, ".bp-0000000000000000.tmp");

    for (int n = 0; n < 100; n++) {
        char name[64];
        (void)snprintf(name, sizeof name, "leftovers/.bp-%ld-%d.tmp", (long)getpid(), n);
        (void)bp_test_write(name, "theirs", 6);
    }
    (void)bp_test_write("leftovers/.bp-0000000000000000.tmp", "theirs", 6);
    fixed_tokens = 1; /* the first try meets theirs */
    bp_test_expect(bp_file_write(path, "ours", 4), BP_OK);
    assert_content(path, "ours");
    assert_content(theirs, "theirs");
    fixed_tokens = 100; /* every try does: it fails, and still removes nothing of theirs */
    bp_test_expect(bp_file_write(path, "new", 3), BP_ERR_CREATE);
    fixed_tokens = 0;
    assert_content(path, "ours");
    assert_content(theirs, "theirs");
    assert_int_equal(count_entries(folder), 102);
    assert_true(bp_is_temporary_name(".bp-0000000000000000.tmp"));
    assert_false(bp_is_temporary_name(".bp-.tmp"));
    assert_false(bp_is_temporary_name("bp-1.tmp"));
    bp_free(path);
    bp_free(theirs);
}

static bp_err refuse(void *context)
{
    *(int *)context += 1;
    return BP_FAIL(BP_ERR_BUSY, "lock.lost", "another job took the run over");
}

static void what_the_fence_refuses_is_not_put_in_place(void **state)
{
    const char *folder = fresh_folder("fenced"), *path = bp_test_path("fenced/file");
    int asked = 0, inner = 0;

    bp_test_expect(bp_file_write(path, "old", 3), BP_OK);
    (void)bp_test_write("fenced/.bp-0000000000000000.tmp", "theirs", 6);
    bp_fence_add(refuse, &asked);
    bp_test_expect(bp_fence_check(), BP_ERR_BUSY);
    bp_test_expect(bp_file_write(path, "new", 3), BP_ERR_BUSY);
    bp_test_message_has("[lock.lost]");
    bp_dir_sweep(folder);
    assert_int_equal(asked, 3);
    assert_content(path, "old");
    assert_int_equal(count_entries(folder), 2);
    bp_fence_add(refuse, &inner);
    bp_fence_remove(&asked);
    bp_test_expect(bp_file_write(path, "new", 3), BP_ERR_BUSY);
    assert_int_equal(inner, 1);
    bp_fence_remove(&inner);
    bp_fence_remove(&inner);
    bp_test_expect(bp_file_write(path, "new", 3), BP_OK);
    bp_dir_sweep(folder);
    assert_content(path, "new");
    assert_int_equal(count_entries(folder), 1);
}

/* Another owner of the run sweeps when it begins: what was begun before can't be put in place. */
static void swept_draft_is_not_put_in_place(void **state)
{
    const char *folder = fresh_folder("swept"), *path = bp_test_path("swept/file");
    bp_draft draft;

    bp_test_expect(bp_draft_open(&draft, path), BP_OK);
    bp_test_expect(bp_draft_write(&draft, "late", 4), BP_OK);
    bp_dir_sweep(folder);
    bp_test_expect(bp_file_write(path, "theirs", 6), BP_OK);
    bp_test_expect(bp_draft_commit(&draft), BP_ERR_CREATE);
    assert_content(path, "theirs");
    assert_int_equal(count_entries(folder), 1);
}

static void new_folder_has_its_name_on_the_disk(void **state)
{
    const char *top = fresh_folder("power");
    char real[PATH_MAX], *deep = bp_path_join(top, "one/two"), *one = bp_path_join(top, "one");

    synced_count = 0;
    bp_test_expect(bp_dir_make(deep), BP_OK);
    assert_int_equal(synced_count, 2);
    assert_non_null(realpath(top, real));
    assert_string_equal(synced[0], real);
    assert_non_null(realpath(one, real));
    assert_string_equal(synced[1], real);
    bp_free(deep);
    bp_free(one);
}

static void folders_are_made_listed_and_removed(void **state)
{
    const char *top = bp_test_path("tree");
    char *deep = bp_path_join(top, "a//b/c/"), **names;
    int64_t count;

    bp_test_expect(bp_dir_make(deep), BP_OK);
    bp_test_expect(bp_dir_make(deep), BP_OK);
    assert_true(bp_path_is_dir(deep));
    for (int i = 0; i < 40; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "tree/%c-%d", 'z' - i % 26, i);
        (void)bp_test_write(name, "x", 1);
    }
    bp_test_expect(bp_dir_list(top, &names, &count), BP_OK);
    assert_int_equal(count, 41);
    for (int64_t i = 1; i < count; i++)
        assert_true(strcmp(names[i - 1], names[i]) < 0);
    assert_string_equal(names[0], "a");
    bp_names_free(&names, count);
    bp_test_expect(bp_dir_remove(top), BP_OK);
    assert_false(bp_path_exists(top));
    bp_test_expect(bp_dir_remove(top), BP_OK);
    bp_test_expect(bp_dir_list(top, &names, &count), BP_ERR_INPUT);
    assert_null(names);
    bp_free(deep);
}

static void removing_follows_no_link(void **state)
{
    const char *kept = fresh_folder("kept"), *doomed = fresh_folder("doomed");
    char *link = bp_path_join(doomed, "link"), *file = bp_path_join(kept, "file");

    bp_test_expect(bp_file_write(file, "x", 1), BP_OK);
    assert_int_equal(symlink(kept, link), 0);
    bp_test_expect(bp_dir_remove(doomed), BP_OK);
    assert_true(bp_path_exists(file));
    bp_free(link);
    bp_free(file);
}

static void file_in_the_way_of_a_folder_is_reported(void **state)
{
    const char *file = bp_test_write("file", "x", 1);
    char *below = bp_path_join(file, "folder");

    bp_test_expect(bp_dir_make(file), BP_ERR_CREATE);
    bp_test_message_has("[file.in_the_way]");
    bp_test_expect(bp_dir_make(below), BP_ERR_CREATE);
    bp_test_expect(bp_dir_make(""), BP_ERR_CREATE);
    bp_free(below);
}

static void sync_needs_something_to_sync(void **state)
{
    bp_test_expect(bp_path_sync(bp_test_folder()), BP_OK);
    bp_test_expect(bp_path_sync(bp_test_path("none")), BP_ERR_INPUT);
}

static void reading_past_the_end_is_an_error(void **state)
{
    int fd = open(bp_test_write("short", "abcdef", 6), O_RDONLY);
    char data[8];

    assert_true(fd >= 0);
    assert_int_equal(bp_pread_all(fd, data, 4, 2), 0);
    assert_memory_equal(data, "cdef", 4);
    assert_int_equal(bp_pread_all(fd, data, 4, 3), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(close(fd), 0);
}

static void paths_are_joined_and_cut(void **state)
{
    static const char *const inserted[][2] = {{"a.b/trace.json", "a.b/trace.m03.json"},
                                              {"a.b/trace", "a.b/trace.m03"}};
    static const char *const cases[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"},
                                           {"a", "/b", "/b"}, {"", "b", "b"},
                                           {"/", "b", "/b"},  {"a/b", "c/d", "a/b/c/d"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = bp_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        bp_free(path);
    }
    assert_string_equal(bp_path_base("a/b/c"), "c");
    assert_string_equal(bp_path_base("c"), "c");
    assert_string_equal(bp_path_base("a/"), "");
    assert_int_equal(bp_file_size(bp_test_path("none")), -1);
    for (size_t k = 0; k < sizeof inserted / sizeof inserted[0]; k++) {
        char *path = bp_path_insert(inserted[k][0], "m03");
        assert_string_equal(path, inserted[k][1]);
        bp_free(path);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(limit_is_to_the_byte),
        cmocka_unit_test(file_of_unknown_size_is_read_whole),
        cmocka_unit_test(what_is_no_file_is_distinguished),
        cmocka_unit_test(failed_read_gives_nothing),
        cmocka_unit_test(devices_and_folders_are_not_replaced),
        cmocka_unit_test(full_disk_leaves_the_old_file),
        cmocka_unit_test(dev_full_refuses_every_write),
        cmocka_unit_test(missing_permission_is_reported),
        cmocka_unit_test(leftover_of_a_killed_process_blocks_nothing),
        cmocka_unit_test(new_folder_has_its_name_on_the_disk),
        cmocka_unit_test(folders_are_made_listed_and_removed),
        cmocka_unit_test(removing_follows_no_link),
        cmocka_unit_test(what_the_fence_refuses_is_not_put_in_place),
        cmocka_unit_test(swept_draft_is_not_put_in_place),
        cmocka_unit_test(file_in_the_way_of_a_folder_is_reported),
        cmocka_unit_test(sync_needs_something_to_sync),
        cmocka_unit_test(reading_past_the_end_is_an_error),
        cmocka_unit_test(paths_are_joined_and_cut),
    };
    return BP_TEST_RUN(tests);
}
