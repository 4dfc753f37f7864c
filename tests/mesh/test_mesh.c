#include "base/fault.h"
#include "bp_test_mpi.h"

/* Who is in `comm`, as world ranks. */
static int members_of(MPI_Comm comm, MPI_Comm world, int out[64])
{
    MPI_Group all, some;
    int count = bp_comm_size(comm), ranks[64];

    for (int i = 0; i < count; i++)
        ranks[i] = i;
    BP_MPI(MPI_Comm_group(world, &all));
    BP_MPI(MPI_Comm_group(comm, &some));
    BP_MPI(MPI_Group_translate_ranks(some, count, ranks, all, out));
    BP_MPI(MPI_Group_free(&all));
    BP_MPI(MPI_Group_free(&some));
    return count;
}

/* The world rank of a place in the mesh, as the header says it. */
static int world_rank(const bp_mesh *mesh, int m, int p, int d, int t)
{
    return ((m * mesh->pipeline_ranks + p) * mesh->data_ranks + d) * mesh->tensor_ranks + t +
           mesh->dedicated;
}

/* `comm` holds, in order, the places where the free axes (-1) run and the others are ours. */
static bool holds(const bp_mesh *mesh, MPI_Comm comm, int m, int p, int d, int t)
{
    int found[64], count = members_of(comm, mesh->world, found), at = 0;

    for (int i = m < 0 ? 0 : m; i < (m < 0 ? mesh->members : m + 1); i++)
        for (int j = p < 0 ? 0 : p; j < (p < 0 ? mesh->pipeline_ranks : p + 1); j++)
            for (int k = d < 0 ? 0 : d; k < (d < 0 ? mesh->data_ranks : d + 1); k++)
                for (int l = t < 0 ? 0 : t; l < (t < 0 ? mesh->tensor_ranks : t + 1); l++)
                    if (at >= count || found[at++] != world_rank(mesh, i, j, k, l))
                        return false;
    return at == count;
}

static bool is_well_placed(const bp_mesh *mesh)
{
    int m = mesh->member_index, p = mesh->pipeline_rank, d = mesh->data_rank, t = mesh->tensor_rank;

    if (!mesh->computes)
        return mesh->dedicated && mesh->rank == 0 && mesh->coordinates && m == -1 && p == -1 &&
               d == -1 && t == -1 && mesh->compute == MPI_COMM_NULL &&
               mesh->member == MPI_COMM_NULL && mesh->model == MPI_COMM_NULL &&
               mesh->pipeline == MPI_COMM_NULL && mesh->data == MPI_COMM_NULL &&
               mesh->tensor == MPI_COMM_NULL;
    return mesh->coordinates == (mesh->rank == 0) && mesh->rank == world_rank(mesh, m, p, d, t) &&
           holds(mesh, mesh->compute, -1, -1, -1, -1) && holds(mesh, mesh->member, m, -1, -1, -1) &&
           holds(mesh, mesh->model, m, -1, d, -1) && holds(mesh, mesh->pipeline, m, -1, d, t) &&
           holds(mesh, mesh->data, m, p, -1, t) && holds(mesh, mesh->tensor, m, p, d, -1);
}

/* All meshes of this world, shared and dedicated. */
static void every_rank_is_where_the_order_says(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD), meshes = 0;

    for (int code = 0; code < 4 * 4 * 4 * 2; code++) {
        bp_mesh_shape shape = {.members = code % 4 + 1,
                               .pipeline = code / 4 % 4 + 1,
                               .tensor = code / 16 % 4 + 1,
                               .coordinator = code / 64 == 0 ? BP_COORDINATOR_SHARED
                                                             : BP_COORDINATOR_DEDICATED};
        bp_mesh *mesh;
        if (bp_mesh_shape_fit(&shape, size) != BP_OK)
            continue;
        bp_test_check_err(MPI_COMM_WORLD, bp_mesh_new(&mesh, MPI_COMM_WORLD, &shape), BP_OK);
        bool right = is_well_placed(mesh);
        bp_mesh_free(&mesh);
        bp_test_check(MPI_COMM_WORLD, right && mesh == NULL);
        meshes++;
    }
    bp_test_check(MPI_COMM_WORLD, meshes >= 1);
}

static void freeing_nothing_is_fine(void **state)
{
    bp_mesh *mesh = NULL;

    bp_mesh_free(&mesh);
    bp_test_check(MPI_COMM_WORLD, mesh == NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_is_where_the_order_says),
        cmocka_unit_test(freeing_nothing_is_fine),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
