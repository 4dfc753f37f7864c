/* The order of a job's ranks by nodes: lists as the header says them, and a mesh on such a world.
 */
#include "base/fault.h"
#include "bp_test_mpi.h"
#include "mesh/mesh.h"
#include "mesh/world.h"

static void assert_order(const int *node, int size, bool dedicated, const int *expected)
{
    int order[16];

    bp_world_order(order, node, size, dedicated);
    assert_memory_equal(order, expected, (size_t)size * sizeof *order);
}

static void nodes_come_one_after_the_other(void **state)
{
    static const int BLOCKS[] = {0, 0, 2, 2, 4, 4}, TURNS[] = {0, 1, 0, 1, 0, 1};

    assert_order(BLOCKS, 6, false, (int[]){0, 1, 2, 3, 4, 5});
    assert_order(TURNS, 6, false, (int[]){0, 2, 4, 1, 3, 5});
}

/* Two ranks a node, and one more: whole nodes have the pairs, and what is left pairs last. */
static void a_dedicated_coordinator_parts_no_other_node(void **state)
{
    static const int BLOCKS[] = {0, 0, 2, 2, 4, 4, 6}, LONE[] = {0, 1, 1, 3, 3};

    assert_order(BLOCKS, 7, true, (int[]){0, 2, 3, 4, 5, 6, 1});
    assert_order(LONE, 5, true, (int[]){0, 1, 2, 3, 4});
    assert_int_equal(bp_world_apart((int[]){0, 2, 3, 4, 5, 6, 1}, BLOCKS, 7, 2, true), 1);
    assert_int_equal(bp_world_apart((int[]){0, 1, 2, 3, 4, 5, 6}, BLOCKS, 7, 2, true), 3);
    assert_int_equal(bp_world_apart((int[]){0, 1, 2, 3, 4, 5, 6}, BLOCKS, 7, 1, true), 0);
    assert_int_equal(bp_world_apart((int[]){0, 1, 2, 3, 4, 5}, BLOCKS, 6, 4, false), 1);
}

/* Two nodes to which ranks were dealt in turn. */
static void a_mesh_is_laid_by_nodes(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD), rank = bp_comm_rank(MPI_COMM_WORLD);
    static const bp_option *const tables[] = {bp_mesh_options, NULL};
    bp_config *config;
    MPI_Comm world;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_fault_arm("mesh.round_robin");
    world = bp_world_of(MPI_COMM_WORLD, config);
    bp_fault_arm(NULL);
    int expected = rank % 2 == 0 ? rank / 2 : (size + 1) / 2 + rank / 2;
    bp_test_check(MPI_COMM_WORLD, bp_comm_rank(world) == (size > 1 ? expected : 0));
    bp_test_check(MPI_COMM_WORLD, bp_world_of(MPI_COMM_WORLD, config) == MPI_COMM_WORLD);
    bp_config_free(&config);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_come_one_after_the_other),
        cmocka_unit_test(a_dedicated_coordinator_parts_no_other_node),
        cmocka_unit_test(a_mesh_is_laid_by_nodes),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
