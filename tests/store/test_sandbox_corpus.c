/* Strangers' corpora and their sandbox: what is refused, when one is inspected again, and files
 * that HDF5's published faults are about. */
#include "bp_test.h"

#include "base/clock.h"
#include "store/corpus_file.h"
#include "store/corpus_priv.h"
#include "store/h5.h"
#include "store/h5_inspect.h"

#include <fcntl.h>
#include <unistd.h>

static const char *plain_corpus(const char *name, int extra_groups)
{
    const char *path = bp_test_path(name);
    char command[3 * PATH_MAX];

    if (system("/usr/bin/python3 -c 'import h5py' 2> /dev/null") != 0)
        bp_test_skip("there is no /usr/bin/python3 with h5py");
    (void)snprintf(command, sizeof command,
                   "/usr/bin/python3 -c 'import h5py, numpy\n"
                   "with h5py.File(\"%s\", \"w\") as f:\n"
                   "    f[\"tokens\"] = (numpy.arange(200000) %% 100).astype(\"u2\")\n"
                   "    f[\"doc_start\"] = numpy.array([0, 200000])\n"
                   "    f.attrs[\"vocab_size\"] = 100\n"
                   "    for k in range(%d): f.create_group(\"g%%d\" %% k)'",
                   path, extra_groups);
    assert_int_equal(system(command), 0);
    return path;
}

static void too_many_links_are_refused(void **state)
{
    bp_corpus_file *file;
    const char *path = plain_corpus("links.h5", 98);

    (void)state;
    bp_h5_link_limit = 99;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_test_message_has("more than a million links");
    bp_h5_link_limit = 100;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_file_close(&file);
    bp_h5_link_limit = 1000000;
}

static void a_file_is_inspected_once_and_again_when_it_changed(void **state)
{
    const char *path = plain_corpus("once.h5", 20);
    bp_corpus_file *file;

    (void)state;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_file_close(&file);
    bp_h5_link_limit = 1; /* now it would be refused */
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_file_close(&file);
    bp_clock_sleep(0.02); /* a file system's clock has ticks */
    assert_int_equal(truncate(path, bp_file_size(path) + 1), 0);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_test_message_has("more than a million links");
    bp_h5_link_limit = 1000000;
}

/* HDF5 gives zeros for what lies beyond a file's end. */
static void a_file_that_shrinks_while_it_is_read_is_noticed(void **state)
{
    const char *path = plain_corpus("shrinks.h5", 0);
    int32_t tokens[100];
    bp_corpus_file *file;

    (void)state;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_test_expect(bp_corpus_file_read(file, 0, 100, tokens), BP_OK);
    assert_int_equal(truncate(path, 4096), 0);
    bp_test_expect(bp_corpus_file_read(file, 150000, 100, tokens), BP_ERR_FORMAT);
    bp_test_message_has("changed while it was read");
    bp_corpus_file_close(&file);
}

static void a_file_that_is_replaced_while_it_is_read_stays_what_it_was(void **state)
{
    const char *path = plain_corpus("replaced.h5", 0);
    int32_t tokens[100];
    bp_corpus_file *file;

    (void)state;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    assert_int_equal(rename(bp_test_write("other", "another file", 12), path), 0);
    bp_test_expect(bp_corpus_file_read(file, 150000, 100, tokens), BP_OK);
    assert_int_equal(tokens[7], 150007 % 100);
    bp_corpus_file_close(&file);
}

/* doc_start of 40 million documents is 320 MB as int64: more than the sandbox has here. It is read
 * in runs. */
static void more_documents_than_memory_are_read(void **state)
{
    const char *path = bp_test_path("documents.h5");
    char command[3 * PATH_MAX];
    bp_corpus_file *file;

    (void)state;
    (void)plain_corpus("plain.h5", 0); /* or skipped */
    (void)snprintf(command, sizeof command,
                   "/usr/bin/python3 -c 'import h5py, numpy as np\n"
                   "starts = np.zeros(40000001, \"u1\"); starts[-1] = 100\n"
                   "with h5py.File(\"%s\", \"w\") as f:\n"
                   "    f[\"tokens\"] = np.arange(100).astype(\"u1\")\n"
                   "    f[\"doc_start\"] = starts\n"
                   "    f.attrs[\"vocab_size\"] = 100'",
                   path);
    assert_int_equal(system(command), 0);
    bp_corpus_sandbox_bytes = (int64_t)256 << 20;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    assert_int_equal(bp_corpus_file_info(file)->documents, 40000000);
    bp_corpus_file_close(&file);
    bp_corpus_sandbox_bytes = (int64_t)1 << 20;
    bp_clock_sleep(0.02); /* a file system's clock has ticks */
    assert_int_equal(truncate(path, bp_file_size(path) + 1), 0);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_corpus_sandbox_bytes = (int64_t)2 << 30;
    assert_null(strstr(bp_err_message(), "harm")); /* it is only too large */
    assert_int_equal(unlink(path), 0);
}

/* What is said on standard output while `path` is opened. */
static void open_and_hear(const char *path, char *said, size_t said_bytes)
{
    const char *out = bp_test_path("said");
    int kept = dup(STDOUT_FILENO), fd = open(out, O_RDWR | O_CREAT | O_TRUNC, 0600);
    bp_corpus_file *file;
    ssize_t got;

    (void)fflush(stdout);
    assert_true(fd >= 0 && kept >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
    bp_err err = bp_corpus_file_open(&file, path);
    (void)fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    got = pread(fd, said, said_bytes - 1, 0);
    assert_true(got >= 0);
    said[got] = '\0';
    (void)close(kept);
    (void)close(fd);
    bp_test_expect(err, BP_OK);
    bp_corpus_file_close(&file);
}

static void a_long_inspection_is_told(void **state)
{
    const char *path = plain_corpus("told.h5", 3);
    char said[2 * PATH_MAX];

    (void)state;
    open_and_hear(path, said, sizeof said);
    assert_string_equal(said, "");
    path = plain_corpus("long.h5", 4);
    bp_corpus_told_bytes = 100000;
    open_and_hear(path, said, sizeof said);
    assert_non_null(strstr(said, "inspecting "));
    assert_non_null(strstr(said, "long.h5 (0.0 GB), which another program wrote"));
    open_and_hear(path, said, sizeof said);
    assert_string_equal(said, ""); /* once */
    bp_corpus_told_bytes = 1000000000;
}

/* ---- HDF5's structures with bytes that they never have: what the published faults of its parsers
 * are about (sizes and counts of all ones, nodes that point at themselves, lengths beyond the file)
 * ---- */

typedef struct lies {
    char *data;
    size_t bytes;
    int step, count; /* every how manyth is tried; how many there were */
    int refused, opened, crashed, endless;
} lies;

static void open_with(lies *file, size_t at, const void *patch, size_t bytes)
{
    char kept[8];
    bp_corpus_file *corpus;
    bp_err err;

    if (at + bytes > file->bytes || file->count++ % file->step != 0)
        return;
    memcpy(kept, file->data + at, bytes);
    memcpy(file->data + at, patch, bytes);
    err = bp_corpus_file_open(&corpus, bp_test_write("lies.h5", file->data, file->bytes));
    memcpy(file->data + at, kept, bytes);
    if (err != BP_OK && err != BP_ERR_FORMAT)
        fail_msg("bytes %zu: %d (%s)", at, (int)err, bp_err_message());
    if (err != BP_OK)
        bp_test_message_has("lies.h5");
    file->opened += err == BP_OK;
    file->refused += err != BP_OK;
    file->endless += err != BP_OK && strstr(bp_err_message(), "reading it took") != NULL;
    file->crashed += err != BP_OK && strstr(bp_err_message(), "crashes a process") != NULL;
    bp_corpus_file_close(&corpus);
}

static void patch_structure(lies *file, size_t at)
{
    const uint64_t ones = UINT64_MAX, self = at, beyond = UINT64_C(1) << 33,
                   absurd = UINT64_C(1) << 62, none = 0;
    const struct {
        size_t first;
        const void *patch;
        size_t bytes;
    } rows[] = {{4, &ones, 4},   {5, &none, 1},  {6, &ones, 2},    {8, &ones, 8},
                {8, &absurd, 8}, {16, &self, 8}, {16, &beyond, 8}, {24, &self, 8},
                {24, &ones, 8},  {32, &self, 8}, {32, &absurd, 8}};

    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
        open_with(file, at + rows[k].first, rows[k].patch, rows[k].bytes);
}

static void patch_file(const char *name, lies *file)
{
    static const char *const marks[] = {"TREE", "SNOD", "HEAP", "GCOL", "OHDR",
                                        "FRHP", "FADB", "EAHD", "EAIB", "BTHD"};
    static const unsigned char values[] = {0, 3, 255};

    bp_test_expect(bp_file_read(bp_test_path(name), INT32_MAX, &file->data, &file->bytes), BP_OK);
    for (size_t m = 0; m < sizeof marks / sizeof marks[0]; m++) {
        int found = 0;
        for (size_t at = 0; at + 4 <= file->bytes && found < 2; at++)
            if (memcmp(file->data + at, marks[m], 4) == 0 && ++found > 0)
                patch_structure(file, at);
    }
    for (size_t at = 8; at < 32;
         at++) /* the superblock: versions, sizes of addresses and lengths */
        for (size_t k = 0; k < sizeof values; k++)
            open_with(file, at, &values[k], 1);
    bp_free(file->data);
}

/* A fifth of them, which takes seconds; all with BP_TEST_LONG=1. (A fourth would go in step with
 * how many bytes a structure has.) */
static void structures_that_lie_are_refused_or_harmless(void **state)
{
    char command[3 * PATH_MAX];
    lies file = {.step = getenv("BP_TEST_LONG") != NULL ? 1 : 5};

    (void)state;
    (void)plain_corpus("plain.h5", 0); /* or skipped */
    (void)snprintf(command, sizeof command,
                   "/usr/bin/python3 -c 'import h5py, numpy as np\n"
                   "for name, more in ((\"old\", {}), (\"new\", {\"libver\": \"latest\"})):\n"
                   "  with h5py.File(\"%s/\" + name + \".h5\", \"w\", **more) as f:\n"
                   "    f.create_dataset(\"tokens\", data=np.zeros(5000, \"u2\"), chunks=(100,),\n"
                   "                     maxshape=(None,), compression=\"gzip\")\n"
                   "    f.create_dataset(\"doc_start\", data=np.array([0, 5000]), chunks=(2,))\n"
                   "    f.attrs[\"vocab_size\"] = 100\n"
                   "    f.attrs[\"tokenizer_hash\"] = \"ab\" * 32\n"
                   "    for k in range(12):\n"
                   "      f[\"labels/l%%d\" %% k] = np.zeros(1, \"u1\")\n"
                   "      f[\"label_names/l%%d\" %% k] = np.array([b\"x\"])'",
                   bp_test_folder());
    assert_int_equal(system(command), 0);
    bp_corpus_sandbox_seconds = 1;
    patch_file("old.h5", &file);
    patch_file("new.h5", &file);
    printf("structures that lie: %d refused (%d crashed the sandbox, %d had no end), %d harmless\n",
           file.refused, file.crashed, file.endless, file.opened);
    assert_true(file.refused > 100 / file.step);
    bp_corpus_sandbox_seconds = 5;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_many_links_are_refused),
        cmocka_unit_test(a_file_is_inspected_once_and_again_when_it_changed),
        cmocka_unit_test(a_file_that_shrinks_while_it_is_read_is_noticed),
        cmocka_unit_test(a_file_that_is_replaced_while_it_is_read_stays_what_it_was),
        cmocka_unit_test(more_documents_than_memory_are_read),
        cmocka_unit_test(a_long_inspection_is_told),
        cmocka_unit_test(structures_that_lie_are_refused_or_harmless),
    };
    return BP_TEST_RUN(tests);
}
