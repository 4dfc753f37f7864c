/* Who holds a run. Counters of several runs are watched at the same time: each wait is of seconds.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "run/run_lock_priv.h"
#include "run/run_status_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define FRESH_SECONDS 30.0 /* a counter that was raised so lately need not be watched */
#define SLURM_SECONDS 5.0  /* a person waits */
#define COUNTER_BYTES 31

/* ---- counters ---- */

static char *read_counter(const char *path)
{
    char *text = NULL;
    size_t bytes;

    return bp_file_read(path, COUNTER_BYTES, &text, &bytes) == BP_OK ? text : NULL;
}

/* What is not noted, where memory is short, does not move. */
void status_watch_begin(status_watch *watch, const char *folder)
{
    run_holder holder;
    char *beat = NULL, *first = NULL;

    if (watch->beats == NULL) {
        watch->beats = json_object();
        watch->end = bp_clock_now() + watch->seconds;
    }
    if (run_lock_look(folder, &holder, &beat) == BP_OK && !holder.released)
        first = read_counter(beat);
    if (first != NULL)
        (void)json_object_set_new(watch->beats, beat, json_string(first));
    bp_free(first);
    bp_free(beat);
}

void status_watch_clear(status_watch *watch)
{
    json_decref(watch->beats);
    *watch = (status_watch){.seconds = 0};
}

/* Seconds since the counter's file was written, by this machine's clock; negative: it is ahead. */
static double age_of(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? (double)(time(NULL) - status.st_mtime) : -1e9;
}

/* Has the counter moved since it was noted, or does it by the end of the watch? */
static bool moves(const status_watch *watch, const char *path)
{
    const char *first = json_string_value(json_object_get(watch->beats, path));
    bool moved = false;

    while (first != NULL && !moved) {
        double now = bp_clock_now();
        char *text = read_counter(path);

        moved = text != NULL && strcmp(first, text) != 0;
        bp_free(text);
        if (!moved && now >= watch->end)
            break;
        if (!moved)
            bp_clock_sleep(watch->seconds < 1.0 ? watch->seconds / 10 : 0.5);
    }
    return moved;
}

/* ---- verdicts ---- */

static void put_holder(json_t *out, const run_holder *holder, double age)
{
    if (holder->slurm_job[0] != '\0')
        (void)json_object_set_new(out, "slurm_job", json_string(holder->slurm_job));
    if (holder->released)
        return;
    (void)json_object_set_new(out, "host", json_string(holder->host));
    (void)json_object_set_new(out, "pid", json_integer(holder->pid));
    if (age > -1e8)
        (void)json_object_set_new(out, "seen_seconds", json_real(age > 0 ? age : 0));
}

status_hold status_holder(json_t *out, const char *folder, const status_watch *watch)
{
    run_holder holder, self;
    char *beat = NULL;
    status_hold hold = HOLD_NONE;

    if (run_lock_look(folder, &holder, &beat) == BP_OK) {
        double age = age_of(beat);

        put_holder(out, &holder, age);
        run_holder_self(&self);
        run_verdict verdict = holder.released ? HOLDER_DEAD : run_holder_judge(&holder, &self);

        if (!holder.released && verdict == HOLDER_DEAD)
            hold = HOLD_DEAD;
        else if (verdict == HOLDER_ALIVE || (age >= 0 && age < FRESH_SECONDS && !holder.released))
            hold = HOLD_ALIVE;
        else if (!holder.released)
            hold = moves(watch, beat) ? HOLD_ALIVE : HOLD_SILENT;
    }
    bp_free(beat);
    return hold;
}

json_t *status_queue(const char *job)
{
    const char *own = getenv("SLURM_JOB_ID");
    run_queue_state state;
    run_queue found = own != NULL && strcmp(own, job) == 0
                          ? RUN_QUEUE_UNKNOWN
                          : run_slurm_ask(&state, job, SLURM_SECONDS);

    if (found == RUN_QUEUE_UNKNOWN)
        return NULL;
    return json_pack("{s:s, s:s}", "state", found == RUN_QUEUE_GONE ? "gone" : state.state,
                     "reason", state.reason);
}
