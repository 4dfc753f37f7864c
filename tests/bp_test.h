/* What cmocka tests share: the main function, folders, the data folder, skipping, expected errors.
 *
 *     #include "bp_test.h"
 *
 *     static void empty_file_is_read_as_nothing(void **state)
 *     {
 *         (void)state;
 *         const char *path = bp_test_path("empty"); // in a fresh folder, removed at the end
 *         bp_test_expect(bp_file_write(path, "", 0), BP_OK); // shows the message of another code
 *         bp_test_expect(bp_file_read("/none", 9, &data, &bytes), BP_ERR_INPUT);
 *         bp_test_message_has("/none"); // of the last failure
 *     }
 *
 *     int main(void)
 *     {
 *         static const struct CMUnitTest tests[] = {
 *             cmocka_unit_test(empty_file_is_read_as_nothing)};
 *         return BP_TEST_RUN(tests);
 *     }
 *
 * CMOCKA_TEST_FILTER=empty_* runs only the tests whose name matches (* and ? match any characters).
 * The run fails if bp_alloc's balance is not zero at its end: tests free what they allocate. Under
 * MPI include bp_test_mpi.h instead. A test that needs what is not there calls bp_test_skip("why");
 * when all of a program's tests did, it exits with 77, which CTest shows as skipped.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What the run knows of itself: one for all the files of a program that include this. */
typedef struct bp_test_run_state {
    char folder[256]; /* of temporary files; "" until one is asked for */
    int skipped;
    bool agreed_failure; /* the failure under way is known to all ranks */
} bp_test_run_state;
extern bp_test_run_state bp_test_state;
__attribute__((weak)) bp_test_run_state bp_test_state;

/* Before main(): cmocka 1.1 has the filter, but does not read it from the environment. */
__attribute__((constructor)) static void bp_test_take_filter(void)
{
    const char *filter = getenv("CMOCKA_TEST_FILTER");

    if (filter != NULL)
        cmocka_set_test_filter(filter);
}

/** Skip this test, with the reason on standard output. Does not come back. Under MPI all ranks must
 * do it. */
#define bp_test_skip(reason) bp_test_skip_at((reason), __FILE__, __LINE__)
static inline void bp_test_skip_at(const char *reason, const char *file, int line)
{
    printf("skipped: %s: at %s:%d\n", reason, file, line);
    bp_test_state.skipped++;
    _skip(file, line);
}

/** The call gives this code; otherwise the test fails and shows what the last message was. */
#define bp_test_expect(call, code) bp_test_expect_at((call), (code), #call, __FILE__, __LINE__)
static inline void bp_test_expect_at(bp_err got, bp_err expected, const char *call,
                                     const char *file, int line)
{
    if (got == expected)
        return;
    print_error("%s gave %d (%s), not %d\n", call, (int)got, got == BP_OK ? "" : bp_err_message(),
                (int)expected);
    _fail(file, line);
}

/* Has a line of `heard` the parts of `text`, one after the other? "..." between them stands for
 * anything. */
static inline bool bp_test_has(const char *heard, const char *text)
{
    static const char gap[] = " ... ";

    for (const char *line = heard; line != NULL; line = strchr(line, '\n')) {
        const char *at = line += *line == '\n', *end = line + strcspn(line, "\n"), *part = text;
        while (at != NULL && part != NULL) {
            const char *next = strstr(part, gap);
            size_t bytes = next != NULL ? (size_t)(next - part) : strlen(part);
            at = memmem(at, (size_t)(end - at), part, bytes);
            at = at != NULL ? at + bytes : NULL;
            part = next != NULL ? next + sizeof gap - 1 : NULL;
        }
        if (at != NULL)
            return true;
    }
    return strstr(heard, text) != NULL; /* a text of several lines */
}

/* Says so where the last failure's message has it not. */
static inline bool bp_test_is_said(const char *text)
{
    bool said = bp_test_has(bp_err_message(), text);

    if (!said)
        print_error("\"%s\" is not in the message \"%s\"\n", text, bp_err_message());
    return said;
}

/** The last failure's message has this in it: its identifier ("[file.missing]"), a name, a value.
 */
#define bp_test_message_has(text)                                                                  \
    do {                                                                                           \
        if (!bp_test_is_said(text))                                                                \
            _fail(__FILE__, __LINE__);                                                             \
    } while (0)

/** A folder of this run alone, made on the first call (under MPI: at the start, one for all ranks),
 * removed at the end unless a test failed. Under $TMPDIR, or /tmp. */
static inline const char *bp_test_folder(void)
{
    const char *root = getenv("TMPDIR");

    if (bp_test_state.folder[0] != 0)
        return bp_test_state.folder;
    (void)snprintf(bp_test_state.folder, sizeof bp_test_state.folder, "%s/bp_test_XXXXXX",
                   root == NULL || root[0] == 0 ? "/tmp" : root);
    if (mkdtemp(bp_test_state.folder) == NULL) {
        print_error("no folder for temporary files: at %s\n", bp_test_state.folder);
        exit(EXIT_FAILURE);
    }
    return bp_test_state.folder;
}

/* One of 256 places for paths, in turn: what a path function gives is good for 256 more calls. */
static inline char *bp_test_path_place(void)
{
    static char(*places)[PATH_MAX]; /* on the heap: in one array gcc takes two places for one */
    static int next;

    if (places == NULL)
        places = calloc(256, PATH_MAX);
    if (places == NULL)
        exit(EXIT_FAILURE);
    return places[next++ % 256];
}

/** "FOLDER/name" in the folder of temporary files. Borrowed, for 256 more calls. */
static inline const char *bp_test_path(const char *name)
{
    char *path = bp_test_path_place();

    (void)snprintf(path, PATH_MAX, "%s/%s", bp_test_folder(), name);
    return path;
}

/** A file of real text, "data/brown/test.txt" (the folder "shared" beside the repository): skips
 * the test where it is missing. Borrowed, for 256 more calls. */
static inline const char *bp_test_shared(const char *name)
{
    char *path = bp_test_path_place(), reason[PATH_MAX + 64];

    (void)snprintf(path, PATH_MAX, "%s/%s", BP_TEST_SHARED, name);
    if (!bp_path_exists(path)) {
        (void)snprintf(reason, sizeof reason, "there is no %s", path);
        bp_test_skip(reason);
    }
    return path;
}

/** A program of this build, "bagpipe" or "bagpipe-data". Borrowed, for 256 more calls. */
static inline const char *bp_test_program(const char *name)
{
    char *path = bp_test_path_place();

    (void)snprintf(path, PATH_MAX, "%s/%s", BP_TEST_BIN, name);
    return path;
}

/** Write a file of temporary text, and give its path. */
static inline const char *bp_test_write(const char *name, const void *data, size_t bytes)
{
    const char *path = bp_test_path(name);

    bp_test_expect(bp_file_write(path, data, bytes), BP_OK);
    return path;
}

/* All memory given back? Says what is not. */
static inline bool bp_test_is_balanced(void)
{
    char labels[4096];

    if (bp_mem_balance(labels, sizeof labels) == 0)
        return true;
    print_error("memory was not given back at the end (label, bytes):\n%s", labels);
    return false;
}

static inline void bp_test_remove_folder(bool failed)
{
    if (bp_test_state.folder[0] == 0)
        return;
    if (failed)
        print_error("temporary files were left in %s\n", bp_test_state.folder);
    else if (bp_dir_remove(bp_test_state.folder) != BP_OK)
        print_error("%s\n", bp_err_message());
}

/** The exit status of a run of a program without MPI: 0, 1, or 77 when all tests were skipped. */
#define BP_TEST_RUN(tests)                                                                         \
    bp_test_end(cmocka_run_group_tests(tests, NULL, NULL),                                         \
                (int)(sizeof(tests) / sizeof((tests)[0])))
static inline int bp_test_end(int failures, int count)
{
    if (failures == 0 && !bp_test_is_balanced())
        failures = 1;
    bp_test_remove_folder(failures != 0);
    if (failures != 0)
        return EXIT_FAILURE;
    return bp_test_state.skipped == count ? 77 : EXIT_SUCCESS;
}
