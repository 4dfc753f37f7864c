/* A build without ScaLAPACK says so, and how to get one. */
#include "bp_test_mpi.h"
#include "math/scalapack/distributed.h"

static void build_without_scalapack_is_refused(void **state)
{
    bp_grid *grid;

    (void)state;
    assert_null(bp_distributed_library());
    bp_test_expect(bp_grid_new(&grid, MPI_COMM_WORLD), BP_ERR_CONFIG);
    bp_test_message_has("libscalapack-openmpi-dev ... [build.no_scalapack]");
    assert_null(grid);
    bp_grid_free(&grid);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(build_without_scalapack_is_refused)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
