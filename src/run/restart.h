/* Starts of a run: what run.json keeps of them, and whether a job that has ended is to be queued
 * again. Local; no MPI. */
#ifndef BP_RUN_RESTART_H
#define BP_RUN_RESTART_H

#include "base/config/json.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** How often Slurm has started this job again (SLURM_RESTART_COUNT); 0 outside of Slurm, and, with
 * a warning once a process, where it is not a count. */
int64_t bp_restart_count(void);

/** What a run folder holds of results, as one number: it differs whenever something was committed
 * in between (a checkpoint, results of a work unit, a table). A folder that can't be read counts
 * as an empty one. */
int64_t bp_restart_progress(const char *folder);

/** Does Slurm still have the job of the last start of `before` (run.json as it was; NULL: none)
 * waiting, and this process is not part of it? Then that job goes on with the run. Asked within
 * some seconds; where Slurm does not answer, nobody waits. Errors: BP_ERR_BUSY, with the job. */
bp_err bp_restart_check(const json_t *before, const char *folder);

/** The list "recent_starts" for run.json: the last ones of `before` (run.json as it was; NULL:
 * none), and this start, number `start`, of the run in `folder`, with what ended the one before
 * ("after"); where it is unknown, Slurm is asked, in some seconds. */
json_t *bp_restart_list(const json_t *before, const char *folder, int64_t start);

/** How many starts in a row, up to the last one, have committed nothing, if another one would not
 * help; else 0. record: run.json. */
int64_t bp_restart_stuck(const json_t *record, const char *folder);

typedef struct bp_restart_case {
    const char *folder; /* where run.json is */
    const char *halt;   /* another folder that may hold a file `halt`; NULL: none */
    int status;         /* of the launcher, as a shell has it: 128 + the signal */
    int64_t
        most; /* restarts of the Slurm job after starts that committed nothing; 0: none at all */
    const char *cause; /* of the end, where the batch script knows it; "": it does not */
} bp_restart_case;

/** Should the same job be started again? `why` is one line. The cause is noted in the
 * folder's last_words.txt, for status and the start to come (bp_restart_list); what can't be noted
 * is left out.
 *
 * Errors: BP_ERR_IO, BP_ERR_FORMAT, BP_ERR_DENIED, BP_ERR_SYSTEM run.json can't be read. */
bp_err bp_restart_decide(const bp_restart_case *what, bool *again, char *why, size_t why_bytes);

#endif
