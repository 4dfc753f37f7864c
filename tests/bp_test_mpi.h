/* cmocka under MPI: a verdict that all ranks share.
 *
 *     #include "bp_test_mpi.h"
 *
 *     static void sum_is_equal_on_all_ranks(void **state)
 *     {
 *         (void)state;
 *         ...
 *         bp_test_check(MPI_COMM_WORLD, fabs(sum - expected) < 1e-6);   // collective: all ranks
 * pass, or all fail bp_test_check_err(MPI_COMM_WORLD, bp_agree(comm, err), BP_ERR_IO);
 *     }
 *
 *     int main(int argc, char **argv)
 *     {
 *         static const struct CMUnitTest tests[] = {cmocka_unit_test(sum_is_equal_on_all_ranks)};
 *         return BP_TEST_RUN_MPI(argc, argv, tests);
 *     }
 *
 * A plain assert_...() that fails on one rank leaves the others in their collectives: the program
 * is then aborted at once, with the rank named, instead of hanging until CTest's time limit. So
 * plain asserts are fine where nothing is worth going on for; bp_test_check is better, as the other
 * tests still run. Rank 0's output is shown, and the other ranks' failures (standard error).
 * bp_test_path() is in one folder for all ranks.
 */
#pragma once

#include "bp_test.h"
#include "mesh/mesh.h"
#include <unistd.h>

/** Collective over `comm`: passes on all ranks or fails on all; those where it does not hold say
 * so. */
#define bp_test_check(comm, condition)                                                             \
    bp_test_check_at((comm), (condition), #condition, __FILE__, __LINE__)
static inline void bp_test_check_at(MPI_Comm comm, bool holds, const char *condition,
                                    const char *file, int line)
{
    int mine = holds, all;

    if (!holds)
        print_error("rank %d: \"%s\" does not hold: at %s:%d\n", bp_comm_rank(comm), condition,
                    file, line);
    BP_MPI(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm));
    if (all)
        return;
    bp_test_state.agreed_failure = true;
    _fail(file, line);
}

/** Collective over `comm`: every rank got this code. Those with another show their message. */
#define bp_test_check_err(comm, call, code)                                                        \
    bp_test_check_err_at((comm), (call), (code), #call, __FILE__, __LINE__)
static inline void bp_test_check_err_at(MPI_Comm comm, bp_err got, bp_err expected,
                                        const char *call, const char *file, int line)
{
    if (got != expected)
        print_error("rank %d: %s gave %d (%s), not %d\n", bp_comm_rank(comm), call, (int)got,
                    got == BP_OK ? "" : bp_err_message(), (int)expected);
    bp_test_check_at(comm, got == expected, call, file, line);
}

/** Collective over `comm`: every rank's last failure says this. */
#define bp_test_check_said(comm, text) bp_test_check((comm), bp_test_is_said(text))

/* One test. A failure that the other ranks know nothing of ends the program. */
static inline bool bp_test_one(const struct CMUnitTest *test)
{
    const struct CMUnitTest group[1] = {*test};

    bp_test_state.agreed_failure = false;
    if (cmocka_run_group_tests_name(test->name, group, NULL, NULL) == 0)
        return true;
    if (!bp_test_state.agreed_failure && bp_comm_size(MPI_COMM_WORLD) > 1) {
        print_error("rank %d failed alone in %s: the other ranks can't go on\n",
                    bp_comm_rank(MPI_COMM_WORLD), test->name);
        (void)MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    return false;
}

/** Run tests between MPI's start and end; gives the exit status, the same on all ranks: 0, 1, or 77
 * (all skipped). */
#define BP_TEST_RUN_MPI(argc, argv, tests)                                                         \
    bp_test_run_mpi(&(argc), &(argv), tests, (int)(sizeof(tests) / sizeof((tests)[0])))
static inline int bp_test_run_mpi(int *argc, char ***argv, const struct CMUnitTest *tests,
                                  int count)
{
    int failures = 0;

    if (bp_mpi_start(argc, argv) != BP_OK) {
        print_error("%s\n", bp_err_message());
        return EXIT_FAILURE;
    }
    bool root = bp_comm_is_root(MPI_COMM_WORLD);
    if (root)
        (void)bp_test_folder();
    else if (freopen("/dev/null", "w", stdout) == NULL) /* one report is enough */
        print_error("rank %d can't be silenced\n", bp_comm_rank(MPI_COMM_WORLD));
    BP_MPI(
        MPI_Bcast(bp_test_state.folder, sizeof bp_test_state.folder, MPI_CHAR, 0, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        failures += !bp_test_one(&tests[i]);
    failures += failures == 0 && !bp_test_is_balanced();
    BP_MPI(MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_MAX,
                         MPI_COMM_WORLD)); /* and all are done */
    if (root)
        bp_test_remove_folder(failures != 0);
    bp_mpi_finish();
    if (failures != 0)
        return EXIT_FAILURE;
    return bp_test_state.skipped == count ? 77 : EXIT_SUCCESS;
}
