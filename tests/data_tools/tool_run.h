/* Tools as users call them: a command line in the test's folder, how it left, and what it said. For
 * one program: include bp_test.h first. */
#pragma once

#include "base/files/hash.h"
#include <sys/wait.h>
#include <unistd.h>

static char output[262144]; /* what the last run printed, standard error too */

/* Run a line of the shell in the test's folder; its exit status. */
static inline int run_line(const char *line)
{
    char command[65536];
    FILE *pipe;

    (void)snprintf(command, sizeof command, "cd '%s' && { %s ; } 2>&1", bp_test_folder(), line);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* `bagpipe-data ARGUMENTS` on some ranks (0: without mpirun), after `before`; its exit status. */
static inline int run_tool(int ranks, const char *before, const char *arguments)
{
    char line[32768], start[PATH_MAX + 64] = "";

    if (ranks > 0)
        (void)snprintf(start, sizeof start, "sh %s/mpirun.sh %d ", BP_TEST_SOURCE, ranks);
    (void)snprintf(line, sizeof line, "%s%s%s %s", before, start, bp_test_program("bagpipe-data"),
                   arguments);
    return run_line(line);
}

/* It leaves with `status` and says `said`, as bp_test_message_has has it. */
static inline void expect_tool(int ranks, const char *arguments, int status, const char *said)
{
    int got = run_tool(ranks, "", arguments);

    if (got != status || !bp_test_has(output, said))
        fail_msg("\"%s\" left with %d, not %d, or did not say \"%s\":\n%s", arguments, got, status,
                 said, output);
}

static inline void assert_same_file(const char *a, const char *b)
{
    char hashes[2][BP_SHA256_HEX];

    bp_test_expect(bp_sha256_of_file(bp_test_path(a), hashes[0], NULL), BP_OK);
    bp_test_expect(bp_sha256_of_file(bp_test_path(b), hashes[1], NULL), BP_OK);
    assert_string_equal(hashes[0], hashes[1]);
}
