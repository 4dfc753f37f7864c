/* Groups of ranks that train models side by side (mesh.members of them). */
#pragma once

#include "base/config/config.h"
#include "mesh/mesh.h"
#include "train/loop/start/setup.h"

/** Sets threads and precision, on which a training's bits depend, once for all ranks. So a model
 * trains alike on any group, beside any others.
 *
 * Collective: over `world`. Errors: those of bp_trainer_precision: the same on all ranks. */
bp_err bp_groups_resolve_machine(MPI_Comm world, bp_config *config, const bp_planned_world *plan);

/** The groups along the data axis of *out, a group's ranks along its tensor axis (of which `tensor`
 * is the communicator). *shape is the shape of mesh.* on entry, and is fitted; sets mesh.data and
 * mesh.coordinator.
 *
 * Collective: over `world`.
 * Owns:       *out is the caller's, bp_mesh_free(); NULL after an error.
 * Errors:     those of bp_mesh_shape_fit: the same on all ranks. */
bp_err bp_groups_open(bp_mesh **out, bp_mesh_shape *shape, bp_config *config, MPI_Comm world);

/** Opens one of the trainings on one rank, for a mesh of a group's ranks, only to plan it. config:
 * of that training; its mesh.coordinator is set. Local. Owns, Errors: as bp_trainer_open. */
bp_err bp_groups_represent(trainer *one, const bp_training_part *const *parts, bp_config *config,
                           const bp_mesh_shape *shape, int nodes);

/** What trains side by side. */
typedef struct bp_groups_trainings {
    const bp_config *config;    /* of the job: its memory */
    const bp_mesh_shape *shape; /* fitted; shape->members groups */
    const char *what;           /* "member" */
    int64_t count;              /* of them in all */
} bp_groups_trainings;

/** Print the plan of a training, and check that a node holds all groups.
 *
 * Collective: over `world`; `one` is that of bp_groups_represent on its root. asked: of one rank
 *             that plans a job.
 * Errors:     those of bp_training_memory_check: the same on all ranks. */
bp_err bp_groups_plan(MPI_Comm world, trainer *one, const bp_groups_trainings *all,
                      const bp_planned_world *asked);
/** Only the check, before trainings begin. Collective, Errors: as above. */
bp_err bp_groups_check_memory(MPI_Comm world, trainer *one, const bp_groups_trainings *all);
