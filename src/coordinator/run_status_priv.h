/* The parts of a run's status. Private to src/coordinator; local, read only. */
#ifndef BP_COORDINATOR_RUN_STATUS_PRIV_H
#define BP_COORDINATOR_RUN_STATUS_PRIV_H

#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

#define STATUS_NO_TIME (-1.0)

/* Call `take` for each whole line of a file of JSON lines that is an object; others are passed
 * over, and so is a last line without its end. A missing file has none. Errors: BP_ERR_IO,
 * BP_ERR_DENIED, BP_ERR_SYSTEM. */
bp_err status_each_line(const char *path, void *context,
                        void (*take)(void *context, const json_t *line));
/* "2026-11-22T06:13:36Z" as seconds since 1970; STATUS_NO_TIME: it is none. */
double status_time(const char *stamp);

/* ---- metrics.jsonl ---- */

/* NaN, and 0 for counts, where nothing tells. */
typedef struct status_metrics {
    int64_t lines, step, tokens; /* as of the last line */
    double loss, valid_loss, best_valid_loss, speed;
    int64_t valid_step, best_step;
    double median_speed;
    double kept_seconds; /* in steps that led to where the run is */
    double line_seconds; /* as the lines say, */
    double line_tokens;  /* for so many tokens: the first steps after a resume may have no line */
    double *speeds;
    int64_t room;
    bool short_of_memory;
} status_metrics;

void status_metrics_init(status_metrics *out);
void status_metrics_take(void *metrics, const json_t *line);
/* Medians and sums, once all lines are taken; frees what only they needed. */
void status_metrics_end(status_metrics *metrics);

/* ---- events.jsonl ---- */

typedef struct status_events {
    double first, last; /* times of lines */
    double before;      /* of the last line before the start that is told last */
    int64_t opened;     /* starts */
    int64_t begun;      /* of them, those that came to work */
    double closed;      /* when the last start ended by itself; STATUS_NO_TIME: it has not */
    double lost;     /* seconds between a state that was kept and work from it again, each once */
    int64_t units;   /* of a score job */
    int64_t methods; /* of a study */
    int64_t members; /* of an ensemble */
    int64_t commit_step;
    double commit_time;
    struct status_commit {
        int64_t step;
        double time, lost; /* what was lost before it */
    } * commits;           /* by step */
    int64_t commit_count, commit_room;
    json_t *counts; /* {"skipped": 3}: by name, in order of their first line */
    json_t *notes;  /* of the last start, the newest lines that are not routine, 5 at most */
    int64_t older;  /* such lines besides them */
    json_t *failed; /* the newest start that failed before it held the folder; NULL: none since */
    bool short_of_memory;
} status_events;

/* Errors: BP_ERR_SYSTEM. */
bp_err status_events_init(status_events *out);
void status_events_take(void *events, const json_t *line);
void status_events_clear(status_events *events);

/* ---- who holds it ---- */

typedef enum status_hold {
    HOLD_NONE,   /* nobody ever, or it was let go */
    HOLD_ALIVE,  /* certainly, or its counter was seen to move, or was raised a moment ago */
    HOLD_DEAD,   /* certainly */
    HOLD_SILENT, /* it can't be asked, and its counter stands still */
} status_hold;

/* Who can't be asked is watched: how long, what was seen first, and what Slurm has answered. */
typedef struct status_watch {
    double seconds;
    struct status_beat *beats;
    int64_t beat_count;
    struct status_answer *answers;
    int64_t answer_count;
} status_watch;

/* Note the counter of the run in `folder`, so that by the time it is asked for it has been watched
 * for a while. */
void status_watch_begin(status_watch *watch, const char *folder);
void status_watch_clear(status_watch *watch);

/* Fills "host", "pid", "slurm_job", "seen_seconds" of `out` and tells the verdict. A lock that no
 * sense can be made of is HOLD_NONE; a counter that was not noted does not move. */
status_hold status_holder(json_t *out, const char *folder, status_watch *watch);

/* "running" and so on: what run.json says (NULL: there is none) and who holds the lock. */
const char *status_state(const char *exit_state, status_hold hold);
/* What to do next. Free with bp_free(); NULL: memory is short. */
char *status_next(const json_t *status);

#endif
