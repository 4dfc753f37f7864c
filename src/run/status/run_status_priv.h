/* The parts of a run's status. Local, read only. */
#ifndef BP_RUN_STATUS_RUN_STATUS_PRIV_H
#define BP_RUN_STATUS_RUN_STATUS_PRIV_H

#include "run/run_fields.h"
#include "run/status/run_status.h"

/* ---- who holds it ---- */

typedef enum status_hold {
    HOLD_NONE,   /* nobody ever, or it was let go */
    HOLD_ALIVE,  /* certainly, or its counter was seen to move, or was raised a moment ago */
    HOLD_DEAD,   /* certainly */
    HOLD_SILENT, /* it can't be asked, and its counter does not change */
} status_hold;

/* Who can't be asked is watched: how long, until when, and what was seen first. */
typedef struct status_watch {
    double seconds, end;
    json_t *heartbeats;
} status_watch;

/* Note the counter of the run in `folder`, so that by the time it is asked for it has been watched
 * for a while. */
void status_watch_begin(status_watch *watch, const char *folder);
void status_watch_clear(status_watch *watch);

/* Fills "host", "pid", "slurm_job", "seen_seconds" of `out` and returns whether it is held. A lock
 * that no sense can be made of is HOLD_NONE; a counter that was not noted does not move. */
status_hold status_owner(json_t *out, const char *folder, const status_watch *watch);
/* {"state", "reason"} by squeue of a Slurm job (a number) that is not the asking one, "gone" where
 * it lists none; NULL: it can't be asked. A new reference. */
json_t *status_queue(const char *job);

/* "running" and so on: how it ended (NULL, "running": no word) and who holds the lock. */
const char *status_state(const char *exit_state, status_hold hold);
/* What to do next. Free with bp_free(). */
char *status_next(const json_t *status, const bp_run_status_job *jobs);

#endif
