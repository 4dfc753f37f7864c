/* What the ranks of a generation take of a node's memory, estimated before any weight is read. */
#ifndef BP_INFER_GENERATE_MEMORY_H
#define BP_INFER_GENERATE_MEMORY_H

#include "mesh/mesh.h"

#include <stddef.h>

/** For an ensemble's mixture. */
#define BP_GENERATE_MIXTURE_BYTES ((size_t)1 << 30)

/** The ranks of each node fit into its memory: weights, work, keys and values of the sequences side
 * by side. What can't be estimated (a manifest without the sizes, a mesh that the model does not
 * fit) is left to what opens the models. Prompts are assumed to be as long as the context
 * allows: they are not read yet.
 *
 * `plan`: a job to come, which is printed, too; NULL: this one. *alone_fits (NULL: nobody asks):
 * one rank, which stands for all of a job to come, can hold it all.
 *
 * Collective: over `world`; shape (fitted) and config are equal on all ranks.
 * Errors:     BP_ERR_SYSTEM they do not fit, with the mesh that would: the same on all ranks. */
bp_err bp_generate_memory_check(MPI_Comm world, const bp_mesh_shape *shape, const bp_config *config,
                                const bp_planned_world *plan, bool *alone_fits);

#endif
