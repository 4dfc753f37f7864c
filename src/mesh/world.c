/* Ranks by nodes. Called by the program at the start of a job, before anything has a mesh. */
#include "mesh/world.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

void bp_world_order(int *order, const int *node, int size, bool dedicated)
{
    int *next = bp_alloc("mesh.world", size, sizeof *next); /* [lowest ranks] place on that node */
    int place = dedicated;

    order[0] = 0;
    for (int rank = 0; rank < size; rank++)
        next[node[rank]]++;
    for (int rank = dedicated; rank < size; rank++)
        if (node[rank] == rank) {
            int count = next[rank];

            next[rank] = place;
            place += count;
        }
    if (dedicated)
        next[0] = place;
    for (int rank = dedicated; rank < size; rank++)
        order[next[node[rank]]++] = rank;
    bp_free(next);
}

int bp_world_apart(const int *order, const int *node, int size, int tensor_ranks, bool dedicated)
{
    int apart = 0;

    for (int first = dedicated; first + tensor_ranks <= size; first += tensor_ranks) {
        bool together = true;

        for (int t = 1; t < tensor_ranks; t++)
            together = together && node[order[first + t]] == node[order[first]];
        apart += !together;
    }
    return apart;
}

/* node[size], on all ranks. */
static void find_nodes(int *node, MPI_Comm comm)
{
    MPI_Comm own;
    int lowest = bp_comm_rank(comm);

    BP_MPI_WAIT("comm_split",
                MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &own));
    bp_bcast_bytes(&lowest, sizeof lowest, 0, own); /* ordered by rank */
    BP_MPI(MPI_Comm_free(&own));
    if (bp_fault("mesh.round_robin"))
        lowest = bp_comm_rank(comm) % 2;
    BP_MPI_WAIT("all_gather", MPI_Allgather(&lowest, 1, MPI_INT, node, 1, MPI_INT, comm));
}

static bool one_node(const int *node, int size)
{
    int rank = 0;

    while (rank < size && node[rank] == 0)
        rank++;
    return rank == size;
}

static MPI_Comm reordered(MPI_Comm comm, const int *order)
{
    int place = 0;
    MPI_Comm out;

    while (order[place] != bp_comm_rank(comm))
        place++;
    BP_MPI_WAIT("comm_split", MPI_Comm_split(comm, 0, place, &out));
    return out;
}

MPI_Comm bp_world_of(MPI_Comm comm, const bp_config *config)
{
    int size = bp_comm_size(comm), *node, *order;
    bp_mesh_shape shape = bp_mesh_shape_of(config);
    MPI_Comm out = comm;

    if (size == 1)
        return comm;
    node = bp_alloc("mesh.world", size, sizeof *node);
    order = bp_alloc("mesh.world", size, sizeof *order);
    find_nodes(node, comm);
    /* a mesh that does not fit is refused when it is made */
    if (!one_node(node, size) && bp_mesh_shape_fit(&shape, size) == BP_OK) {
        bool dedicated = shape.coordinator == BP_COORDINATOR_DEDICATED;

        bp_world_order(order, node, size, dedicated);
        int apart = bp_world_apart(order, node, size, shape.tensor, dedicated);
        if (apart > 0)
            BP_WARN(
                "mesh.tensor_apart",
                "%d group%s of mesh.tensor = %d ranks %s spread over nodes, so that each layer's "
                "sums go over the network: at mesh.tensor; start a multiple of %d ranks that "
                "compute on each node",
                apart, apart == 1 ? "" : "s", shape.tensor, apart == 1 ? "is" : "are",
                shape.tensor);
        out = reordered(comm, order);
    }
    bp_free(node);
    bp_free(order);
    return out;
}
