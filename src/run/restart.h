/* Starts of a run: their list in run.json, and the decision whether a job that ended is queued
 * again. Local; no MPI. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** How often Slurm has started this job again (SLURM_RESTART_COUNT); 0 outside of Slurm, and if the
 * value is not a count (warns once a process). */
int64_t bp_restart_count(void);

/** The results in a run folder as one number, which changes with every commit (a checkpoint,
 * results of a work unit, a table). An unreadable folder counts as empty. */
int64_t bp_restart_progress(const char *folder);

/** Fails if the job of the last start of `before` (the previous run.json; may be NULL) is still
 * queued in Slurm and this process is not part of it: that job will continue the run. Waits some
 * seconds for Slurm; no answer counts as not queued. Errors: BP_ERR_BUSY, with the job. */
bp_err bp_restart_check(const json_t *before, const char *folder);

/** The list "recent_starts" for run.json: the last starts of `before` (the previous run.json; may
 * be NULL), and this start, number `start`, of the run in `folder`, with what ended the previous
 * start ("after"). If that is unknown, Slurm is asked for some seconds. */
json_t *bp_restart_list(const json_t *before, const char *folder, int64_t start);

/** The number of latest starts in a row that committed nothing, if another start would not help;
 * else 0. record: run.json. */
int64_t bp_restart_stuck(const json_t *record, const char *folder);

typedef struct bp_restart_case {
    const char *folder; /* of run.json */
    const char *halt;   /* another folder that may hold a file `halt`; may be NULL */
    int status;         /* exit status of the launcher in a shell: 128 + the signal */
    int64_t most; /* most restarts of the Slurm job after starts that committed nothing; 0: never
                     restart it */
    const char *cause; /* why it ended; "" if the batch script does not know */
} bp_restart_case;

/** Should the same job be started again? `why` is one line. Records the cause in the folder's
 * last_words.txt, for status and the next start (bp_restart_list); a failure to record is ignored.
 *
 * Errors: BP_ERR_IO, BP_ERR_FORMAT, BP_ERR_DENIED, BP_ERR_SYSTEM run.json can't be read. */
bp_err bp_restart_decide(const bp_restart_case *what, bool *again, char *why, size_t why_bytes);
