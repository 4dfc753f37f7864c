/* What the jobs that apply a model (score, generate) have in common: members side by side, the mesh
 * with its precision, and the part files that units of work go to. */
#ifndef BP_INFER_SCORE_INFERENCE_H
#define BP_INFER_SCORE_INFERENCE_H

#include "base/config.h"
#include "job/parts.h"
#include "mesh/mesh.h"

/** May the members of `mesh.members` lie side by side? `key` names the model; members (0: unknown
 * yet) are the ensemble's. Local. Errors: BP_ERR_CONFIG. */
bp_err bp_inference_check_members(const bp_config *config, const char *key, bool ensemble,
                                  int64_t members);

/** Set math.threads, open the mesh, and settle math.precision: a run keeps what its first start
 * resolved, and ranks on unlike CPUs take the least.
 *
 * Collective: over `world`. plan: one rank stands for any mesh, of a job to come; NULL: this one.
 * Owns:       *mesh is the caller's, bp_mesh_free(), after an error too.
 * Errors:     BP_ERR_CONFIG, BP_ERR_SYSTEM, those of bp_run_previous: the same on all ranks. */
bp_err bp_inference_open_mesh(bp_mesh **mesh, bp_mesh_shape *shape, bp_config *config,
                              MPI_Comm world, const bp_planned_world *plan);

/** The units of a job, of which part files keep those that are done. All is borrowed. */
typedef struct bp_inference_work {
    const char *folder; /* RUN/score */
    const char *parts_folder;
    const char *key; /* names the work in part files */
    int64_t units;
    const char *mesh_keys; /* which the bits of a part depend on, for a warning */
    const char *again;     /* what happens to units that are missing: "scored" */
} bp_inference_work;

/** What earlier starts have left, with warnings about what is of no use. Local, on the coordinator.
 * Owns: *out is the caller's, bp_parts_free(). Errors: those of bp_dir_make and bp_parts_open. */
bp_err bp_inference_open_parts(bp_parts **out, const bp_inference_work *work);
/** The part file of this rank and start. Local. Errors: those of bp_part_writer_new. */
bp_err bp_inference_part_new(bp_part_writer **out, const bp_inference_work *work, int64_t start,
                             int rank);
/** Units are missing where somebody was asked to stop. Local, on the coordinator. Errors:
 * BP_ERR_STOPPED fewer than all are done. */
bp_err bp_inference_check_done(const bp_inference_work *work, int64_t done);

#endif
