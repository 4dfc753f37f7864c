/* A proof, on the user's own machine, file system and mesh, that a training that was killed goes on
 * to the bits of one that was not. */
#ifndef BP_TRAIN_VERIFY_RESUME_H
#define BP_TRAIN_VERIFY_RESUME_H

#include "base/config.h"
#include "base/err.h"

#include <mpi.h>
#include <stdint.h>

#define BP_VERIFY_STEPS 12 /* by default; at least 3 */

typedef struct bp_verify_spec {
    const char *config_path; /* of the command line, as are the keys; borrowed */
    char *const *keys;
    int key_count;
    int64_t steps;
} bp_verify_spec;

/** Train `steps` steps; train them again with kill -9 of a random rank at a random step, and let
 * the same command go on; then compare all tensors of the last checkpoint and all metrics but
 * times. The three trainings are programs of their own, started by the launcher that started this
 * one, in run.dir.verify-TOKEN, which is removed unless bits differ; run.dir itself is not touched.
 *
 * Collective: over `world`; ranks but the first sleep meanwhile.
 * Errors:     BP_ERR_SOFTWARE other bits (the first tensor or metric is named); BP_ERR_STOPPED
 * asked to stop; the status of a training that failed: the same on all ranks.
 */
bp_err bp_verify_resume(MPI_Comm world, const bp_config *config, const bp_verify_spec *spec);

#endif
