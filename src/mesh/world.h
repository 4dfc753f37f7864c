/* The ranks of a job in the order in which a mesh takes them: node after node, whatever order the
 * launcher gives. */
#pragma once

#include "base/config/config.h"
#include <mpi.h>
#include <stdbool.h>

/** order[size]: the launcher's rank at each place. Rank 0, the coordinator, is first; the nodes
 * follow in the order of their lowest ranks. The node of a `dedicated` coordinator has one compute
 * rank fewer, so its other ranks are last: then neighbours stay together on all other nodes.
 * node[size]: the lowest rank on the node of each rank. Local. */
void bp_world_order(int *order, const int *node, int size, bool dedicated);

/** How many of the groups of `tensors` ranks that compute, consecutive in `order`, have ranks on
 * several nodes. Local. */
int bp_world_apart(const int *order, const int *node, int size, int tensor_ranks, bool dedicated);

/** The ranks of `comm` in that order, as the coordinator and the tensor ranks of `config` (mesh.*)
 * ask for it; `comm` itself where all ranks are on one node. Warns where tensor groups span nodes.
 * The communicator stays until MPI ends. Collective over `comm`. */
MPI_Comm bp_world_of(MPI_Comm comm, const bp_config *config);
