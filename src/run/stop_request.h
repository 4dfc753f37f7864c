/* Stop requests other than signals: a file RUN/halt, and the end of the Slurm job's time. A
 * stop_request checks both when loops call bp_signals_stop_asked(), once a second at most.
 *
 * SLURM_JOB_END_TIME (seconds since 1970, which slurm/launch.sh sets where Slurm does not) is read
 * once a process, against the wall clock, to learn how many seconds are left; from then on the
 * monotonic clock counts. A limit that is extended later is not noticed: the job ends earlier than
 * necessary, and is queued again. */
#pragma once

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

/** Errors: BP_ERR_STOPPED there is a file `folder`/halt, so the run must not continue. */
bp_err bp_stop_request_check(const char *folder);

/** The failure of a job that was asked to stop, with the user's next step (bp_fail_stopped):
 * "WHERE; the same command goes on", or the halt file to remove first. The format makes WHERE: "at
 * step 3 of 9". Local.
 *
 * Errors: BP_ERR_STOPPED; or the failure of bp_stop_request_owner's check, if that was the
 * reason. */
bp_err bp_stop_request_stopped(const char *format, ...) __attribute__((format(printf, 1, 2)));

typedef struct bp_stop_request bp_stop_request;

/** Check from now on for `folder`/halt, and for the end of the job's time, slurm.margin ahead of
 * it. Either logs one line and calls bp_signals_ask_stop(). On the thread that uses MPI; makes no
 * MPI call. */
bp_stop_request *bp_stop_request_new(const char *folder, const bp_config *config);
/** Call `check` as often as the file is checked, and stop the job if it fails: then
 * bp_stop_request_stopped returns its failure. */
void bp_stop_request_owner(bp_stop_request *stop_request, bp_err (*check)(void *context),
                           void *context);
/** Sets the time from a stop to the end of the job, as far as known: steps and a checkpoint. Added
 * to slurm.margin; initially 0. */
void bp_stop_request_needs(bp_stop_request *stop_request, double seconds);
void bp_stop_request_free(bp_stop_request **stop_request);
