/* Memory that the ranks of a scoring job take on a node, estimated from manifests before any weight
 * is read. */
#pragma once

#include "infer/ensemble/ensemble.h"
#include "mesh/node_memory.h"

typedef struct bp_score_memory_spec {
    const bp_config *config;        /* score.*, math.precision resolved, run.memory */
    const bp_ensemble_spec *method; /* as bp_score_as; NULL: from score.model */
    int64_t more_bytes; /* bytes that each rank also takes for other work with the same models */
    const bp_planned_world *plan; /* a future job, which is also printed; NULL: this job */
} bp_score_memory_spec;

/** bp_work_memory_check for a scoring job.
 *
 * Collective: over `world`; shape (fitted) and spec are equal on all ranks.
 * Errors:     BP_ERR_SYSTEM they do not fit, with a mesh that does: the same on all ranks. */
bp_err bp_score_memory_check(MPI_Comm world, const bp_mesh_shape *shape,
                             const bp_score_memory_spec *spec);
