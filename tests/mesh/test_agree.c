#include "bp_test_mpi.h"

static void success_is_shared(void **state)
{
    bp_test_check_err(MPI_COMM_WORLD, bp_agree(MPI_COMM_WORLD, BP_OK), BP_OK);
}

/* Each rank in turn fails alone: all get its code and its message. */
static void lone_failure_is_shared(void **state)
{
    int rank = bp_comm_rank(MPI_COMM_WORLD), size = bp_comm_size(MPI_COMM_WORLD);
    char expected[64];

    for (int failing = 0; failing < size; failing++) {
        bp_err err = BP_OK;
        bp_err_set_message("");
        if (rank == failing)
            err = BP_FAIL(BP_ERR_IO, "test.disk_full", "disk full on rank %d", rank);
        (void)snprintf(expected, sizeof expected, "disk full on rank %d [test.disk_full]", failing);
        bp_test_check_err(MPI_COMM_WORLD, bp_agree(MPI_COMM_WORLD, err), BP_ERR_IO);
        bp_test_check(MPI_COMM_WORLD, strcmp(bp_err_message(), expected) == 0);
    }
}

static void worst_code_speaks(void **state)
{
    int rank = bp_comm_rank(MPI_COMM_WORLD), size = bp_comm_size(MPI_COMM_WORLD);
    bp_err err = BP_ERR_STOPPED;

    (void)BP_FAIL(err, "test.stopped", "stopped");
    if (rank == size - 1)
        err = BP_FAIL(BP_ERR_SYSTEM, "test.no_memory", "no memory on rank %d", rank);
    else if (rank == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "test.bad_byte", "bad byte");
    bp_test_check_err(MPI_COMM_WORLD, bp_agree(MPI_COMM_WORLD, err), BP_ERR_SYSTEM);
    bp_test_check_said(MPI_COMM_WORLD, "no memory on rank");
}

static void lowest_rank_speaks_for_equal_codes(void **state)
{
    bp_err err = BP_FAIL(BP_ERR_FORMAT, "test.rank", "rank %d", bp_comm_rank(MPI_COMM_WORLD));

    bp_test_check_err(MPI_COMM_WORLD, bp_agree(MPI_COMM_WORLD, err), BP_ERR_FORMAT);
    bp_test_check(MPI_COMM_WORLD, strcmp(bp_err_message(), "rank 0 [test.rank]") == 0);
}

static void long_message_arrives_whole(void **state)
{
    static char lines[BP_ERR_MESSAGE_BYTES];
    int rank = bp_comm_rank(MPI_COMM_WORLD), size = bp_comm_size(MPI_COMM_WORLD);
    bp_err err = BP_OK;

    for (size_t i = 0; i < sizeof lines - 1; i++)
        lines[i] = i % 400 == 399 ? '\n' : (char)('a' + i / 400 % 26);
    lines[sizeof lines - 1] = 0;
    if (rank == size - 1)
        bp_err_set_message(lines), err = BP_ERR_CONFIG;
    bp_test_check_err(MPI_COMM_WORLD, bp_agree(MPI_COMM_WORLD, err), BP_ERR_CONFIG);
    size_t length = strlen(bp_err_message());
    bp_test_check(MPI_COMM_WORLD, length > BP_ERR_MESSAGE_BYTES - 16);
    bp_test_check(MPI_COMM_WORLD, strncmp(bp_err_message(), lines, length) == 0);
}

/* Halves of the world agree on different things at the same time. */
static void other_communicators_do_not_hear(void **state)
{
    int rank = bp_comm_rank(MPI_COMM_WORLD);
    MPI_Comm half;

    BP_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
    bp_err err = rank == 1 ? BP_FAIL(BP_ERR_IO, "test.odd", "odd") : BP_OK;
    err = bp_agree(half, err);
    bp_test_check_err(MPI_COMM_WORLD, err, rank % 2 == 1 ? BP_ERR_IO : BP_OK);
    BP_MPI(MPI_Comm_free(&half));
}

static void counts_are_checked(void **state)
{
    bp_test_check(MPI_COMM_WORLD, bp_mpi_count(2147483647) == 2147483647 && bp_mpi_count(0) == 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_is_shared),
        cmocka_unit_test(lone_failure_is_shared),
        cmocka_unit_test(worst_code_speaks),
        cmocka_unit_test(lowest_rank_speaks_for_equal_codes),
        cmocka_unit_test(long_message_arrives_whole),
        cmocka_unit_test(other_communicators_do_not_hear),
        cmocka_unit_test(counts_are_checked),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
