/* The parts of a run's status. Private to src/coordinator; local, read only. */
#ifndef BP_RUN_STATUS_RUN_STATUS_PRIV_H
#define BP_RUN_STATUS_RUN_STATUS_PRIV_H

#include "base/err.h"
#include "base/json.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define STATUS_NO_TIME (-1.0)

/* ---- members of objects: "", NaN and 0 where there is none, or another kind ---- */

static inline const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static inline double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A count: files may have been tampered with, and sums of it must not overflow. */
static inline long long integer_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 && value < (json_int_t)1 << 48 ? value : 0;
}

static inline void set_integer(json_t *object, const char *key, int64_t value)
{
    (void)json_object_set_new(object, key, json_integer(value));
}

/* What is not finite is not known, and left out. */
static inline void set_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        (void)json_object_set_new(object, key, json_real(value));
    else
        (void)json_object_del(object, key);
}

/* "2026-11-22T06:13:36Z" as seconds since 1970; STATUS_NO_TIME: it is none. */
double status_time(const char *stamp);

/* ---- who holds it ---- */

typedef enum status_hold {
    HOLD_NONE,   /* nobody ever, or it was let go */
    HOLD_ALIVE,  /* certainly, or its counter was seen to move, or was raised a moment ago */
    HOLD_DEAD,   /* certainly */
    HOLD_SILENT, /* it can't be asked, and its counter stands still */
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

/* Fills "host", "pid", "slurm_job", "seen_seconds" of `out` and tells the diagnosis. A lock that no
 * sense can be made of is HOLD_NONE; a counter that was not noted does not move. */
status_hold status_owner(json_t *out, const char *folder, const status_watch *watch);
/* {"state", "reason"} by squeue of a Slurm job (a number) that is not the asking one, "gone" where
 * it lists none; NULL: it can't be asked. A new reference. */
json_t *status_queue(const char *job);

/* "running" and so on: how it ended (NULL, "running": no word) and who holds the lock. */
const char *status_state(const char *exit_state, status_hold hold);
/* What to do next. Free with bp_free(); NULL: memory is short. */
char *status_next(const json_t *status);

#endif
