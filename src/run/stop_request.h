/* What asks a run to stop in time besides signals: a file RUN/halt, and the end of the Slurm job's
 * time. A stop_request looks for both whenever loops ask bp_signals_stop_asked(), once a second at
 * most.
 *
 * SLURM_JOB_END_TIME (seconds since 1970, which slurm/launch.sh sets where Slurm does not) is read
 * once a process, against the wall clock, to learn how many seconds are left; from then on the
 * monotonic clock counts. A limit that is extended meanwhile is not noticed: the job ends earlier
 * than it must, and is queued again. */
#ifndef BP_RUN_STOP_REQUEST_H
#define BP_RUN_STOP_REQUEST_H

#include "base/config/config.h"
#include "base/err.h"

extern const bp_option bp_slurm_options[]; /* slurm.* */

/** Values of bp_slurm_options (docs: --help). */
typedef struct bp_slurm_keys {
    int64_t margin;
} bp_slurm_keys;

static inline const bp_slurm_keys *bp_slurm_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_slurm_options);
}

/** Errors: BP_ERR_STOPPED there is a file `folder`/halt: the run is not to go on. */
bp_err bp_stop_request_check(const char *folder);

/** The failure of a job that ends as it was asked to, with what its user does
 * next (bp_fail_stopped): "WHERE; the same command goes on", or where a halt file asked, which one
 * is to be removed first. The format makes WHERE: "at step 3 of 9". Local.
 *
 * Errors: BP_ERR_STOPPED; that of bp_stop_request_owner, where it was the reason. */
bp_err bp_stop_request_stopped(const char *format, ...) __attribute__((format(printf, 1, 2)));

typedef struct bp_stop_request bp_stop_request;

/** Look from now on for `folder`/halt, and for the end of the job's time, slurm.margin ahead of it.
 * Found: one line in the log, and bp_signals_ask_stop(). On the thread that uses MPI; makes no MPI
 * call. */
bp_stop_request *bp_stop_request_new(const char *folder, const bp_config *config);
/** Ask `check` as often as the file is looked for, and stop the job where it fails: then
 * bp_stop_request_stopped fails with what it said. */
void bp_stop_request_owner(bp_stop_request *stop_request, bp_err (*check)(void *context),
                           void *context);
/** How long it takes from a stop to the end of the job, as far as is known: steps and a checkpoint.
 * Besides slurm.margin; 0 at first. */
void bp_stop_request_needs(bp_stop_request *stop_request, double seconds);
void bp_stop_request_free(bp_stop_request **stop_request);

#endif
