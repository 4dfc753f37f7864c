/* The parts of a run's status. Local, read only. */
#pragma once

#include "run/run_fields.h"
#include "run/status/run_status.h"

/* ---- the owner ---- */

typedef enum status_hold {
    HOLD_NONE,   /* never held, or released */
    HOLD_ALIVE,  /* certainly, or its counter moves or was updated recently */
    HOLD_DEAD,   /* certainly */
    HOLD_SILENT, /* unreachable, and its counter does not change */
} status_hold;

/* The watch of an unreachable owner: how long, until when, and the first reading. */
typedef struct status_watch {
    double seconds, end;
    json_t *heartbeats;
} status_watch;

/* Record the counter of the run in `folder`, to begin its watch early. */
void status_watch_begin(status_watch *watch, const char *folder);
void status_watch_clear(status_watch *watch);

/* Fills "host", "pid", "slurm_job", "seen_seconds" of `out` and returns whether it is held. An
 * invalid lock is HOLD_NONE; a counter that was not recorded does not move. */
status_hold status_owner(json_t *out, const char *folder, const status_watch *watch);
/* {"state", "reason"} from squeue of a Slurm job (a number) that is not this process's own, "gone"
 * if it is not listed; NULL without an answer. A new reference. */
json_t *status_queue(const char *job);

/* "running" and so on, from how it ended (NULL or "running" if it did not) and who holds the
 * lock. */
const char *status_state(const char *exit_state, status_hold hold);
/* What to do next. Free with bp_free(). */
char *status_next(const json_t *status, const bp_run_status_job *jobs);
