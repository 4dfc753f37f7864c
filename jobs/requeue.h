/* Whether a job that has ended is to be queued again. */
#ifndef BP_JOBS_REQUEUE_H
#define BP_JOBS_REQUEUE_H

#include "base/config/config.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_REQUEUES "10" /* most restarts, unless --most says otherwise */

/** Decide (bp_restart_decide), and print "yes: " or "no: " with the reason. Local; no MPI.
 *
 * status: of the launcher, as a shell has it. most: restarts of the Slurm job after starts that
 * committed nothing. cause: why it has ended, as the batch script knows it; "": it does not.
 * Errors: those of bp_restart_decide. */
bp_err bp_requeue(const char *job, const bp_config *config, int status, int64_t most,
                  const char *cause, bool *again);

#endif
