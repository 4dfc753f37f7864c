/* What a run is doing, read only from its folder: for people on a login node. No MPI, no lock,
 * nothing is written; files that a job is writing at this moment are read as far as they are whole.
 *
 * Wall-clock times are reported, and decide nothing: whether an owner lives that can't be asked is
 * found by watching its counter.
 */
#ifndef BP_RUN_STATUS_RUN_STATUS_H
#define BP_RUN_STATUS_RUN_STATUS_H

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/err.h"

/** How long a silent owner's counter is watched (it moves every 10 s). */
#define BP_RUN_STATUS_WATCH_SECONDS 15.0

/** What is said of the runs of a job. */
typedef struct bp_run_status_job {
    const char *job;        /* its name; NULL ends a list */
    bool trains;            /* a larger train.steps goes on with a finished run, which is a model */
    const char *results[2]; /* else: where its results are, around the run's folder */
    const char *again;      /* what the same command does before anything is committed; NULL: it
                               goes on */
} bp_run_status_job;

/** Read the status of the run in `folder`. docs/formats.md lists the members of *out; what is not
 * known is left out. Members of an ensemble are in "members", each the same again.
 *
 * jobs: for "next"; NULL: it is general.
 * watch_seconds: how long a owner that can't be asked, and was not seen for long, is watched.
 * Owns:   *out is the caller's, json_decref(); NULL on failure.
 * Errors: BP_ERR_INPUT there is no run; BP_ERR_FORMAT run.json is damaged; BP_ERR_DENIED,
 * BP_ERR_IO, BP_ERR_SYSTEM. Anything else that can't be read is left out.
 */
bp_err bp_run_status_read(json_t **out, const char *folder, double watch_seconds,
                          const bp_run_status_job *jobs);

/** The same for people, a line a thing, added to `out`. Local. */
void bp_run_status_text(bp_buffer *out, const json_t *status);

#endif
