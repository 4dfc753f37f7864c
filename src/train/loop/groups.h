/* Groups of ranks that train models side by side (mesh.members of them). */
#ifndef BP_TRAIN_LOOP_GROUPS_H
#define BP_TRAIN_LOOP_GROUPS_H

#include "base/config/config.h"
#include "mesh/mesh.h"

/** What a training's bits depend on is decided once for all groups, over all ranks: threads and
 * precision. A model trains alike on any group, beside any others. Sets the keys.
 *
 * Collective: over `world`. Errors: those of bp_trainer_precision: the same on all ranks. */
bp_err bp_groups_resolve_machine(MPI_Comm world, bp_config *config, const bp_planned_world *plan);

/** The groups along the data axis of *out, a group's ranks along its tensor axis (of which
 * `tensor` is the communicator). *shape is given as mesh.* asks for it, and fitted; sets mesh.data
 * and mesh.coordinator.
 *
 * Collective: over `world`.
 * Owns:       *out is the caller's, bp_mesh_free(); NULL after an error.
 * Errors:     those of bp_mesh_shape_fit: the same on all ranks. */
bp_err bp_groups_open(bp_mesh **out, bp_mesh_shape *shape, bp_config *config, MPI_Comm world);

#endif
