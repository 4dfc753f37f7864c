/* Whether a job that has ended is to be queued again. */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_REQUEUES "10" /* default of --most: maximum of restarts */

/** Decide (bp_restart_decide), and print "yes: " or "no: " with the reason. Local; no MPI.
 *
 * status: the launcher's exit status in the shell. most: maximum of restarts of the Slurm job after
 * starts that committed nothing. cause: the reason for the end, from the batch script; "" if
 * unknown.
 * Errors: those of bp_restart_decide. */
bp_err bp_requeue(const char *job, const bp_config *config, int status, int64_t most,
                  const char *cause, bool *again);
