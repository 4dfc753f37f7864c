/* The memory of all ranks of a training. */
#pragma once

#include "train/loop/trainer.h"

/** What the memory of a training depends on; actual, or an alternative. */
typedef struct memory_case {
    bp_mesh_shape mesh; /* fitted */
    bp_engine_spec spec;
    bool async; /* checkpoints are written from a copy */
} memory_case;

/** The case of the training as configured. */
memory_case bp_training_memory_case_of(const trainer *self);
/** Would the configuration be valid with this case? Local; may change the message of the last
 * failure. */
bool bp_training_memory_case_is_valid(const trainer *self, const memory_case *one);
/** What each of its ranks takes: (*out)[bp_mesh_shape_ranks], the caller's (bp_free). Local.
 * Errors: BP_ERR_SYSTEM, *out is NULL. */
bp_err memory_case_list(bp_rank_memory **out, const trainer *self, const memory_case *one);

/** The node of the job that lacks most memory, on all ranks. Collective over `world`; self and
 * `one` count only on its root. Errors: BP_ERR_SYSTEM: the same on all ranks. */
bp_err bp_training_memory_find(bp_node_memory *out, MPI_Comm world, const bp_config *config,
                               const trainer *self, const memory_case *one);
/** The same for a planned job on `nodes` nodes like this one. Local. */
bp_err bp_training_memory_find_planned(bp_node_memory *out, const trainer *self,
                                       const memory_case *one, int nodes);
/** The stage that takes most memory, and what a rank of it takes, in bytes. Local. Errors:
 * BP_ERR_SYSTEM. */
bp_err bp_trainer_plan(const trainer *self, bp_plan *plan, int *stage);
