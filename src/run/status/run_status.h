/* The status of a run, read only from its folder: for users on a login node. No MPI, no lock, no
 * writes; of files that a job is writing only whole lines are read.
 *
 * Wall-clock times are only reported: whether an unreachable owner is alive is decided by watching
 * its counter.
 */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/err.h"

/** How long a silent owner's counter is watched (it moves every 10 s). */
#define BP_RUN_STATUS_WATCH_SECONDS 15.0

/** Texts about the runs of a job. */
typedef struct bp_run_status_job {
    const char *job;        /* its name; NULL ends a list */
    bool trains;            /* its finished run is a model, which a larger train.steps continues */
    const char *results[2]; /* else: the paths of its results before and after the run's folder */
    const char *again; /* what the same command does before the first commit; NULL: it resumes */
} bp_run_status_job;

/** Read the status of the run in `folder`. docs/formats.md lists the members of *out; unknown ones
 * are left out. Members of an ensemble are in "members", each a status object.
 *
 * jobs:   for "next"; NULL: a general text.
 * watch_seconds: how long an unreachable owner that was not seen recently is watched.
 * Owns:   *out is the caller's, json_decref(); NULL on failure.
 * Errors: BP_ERR_INPUT there is no run; BP_ERR_FORMAT run.json is damaged; BP_ERR_DENIED,
 * BP_ERR_IO, BP_ERR_SYSTEM. Other unreadable files are left out.
 */
bp_err bp_run_status_read(json_t **out, const char *folder, double watch_seconds,
                          const bp_run_status_job *jobs);

/** Appends it to `out` as text for people, one item a line. Local. */
void bp_run_status_text(bp_buffer *out, const json_t *status);
