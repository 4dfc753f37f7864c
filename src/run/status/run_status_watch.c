/* Who holds a run. Counters of several runs are watched at the same time, since each wait takes
 * seconds. Called by run_status.c. */
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "run/lock/run_lock.h"
#include "run/status/run_status_priv.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define FRESH_SECONDS 30.0 /* a counter updated this recently need not be watched */
#define SLURM_SECONDS 5.0  /* a person waits */
#define COUNTER_BYTES 31

/* ---- counters ---- */

static char *read_counter(const char *path)
{
    char *text = NULL;
    size_t bytes;

    (void)bp_file_read(path, COUNTER_BYTES, &text, &bytes); /* NULL where it can't be read */
    return text;
}

void status_watch_begin(status_watch *watch, const char *folder)
{
    run_owner owner;
    char *heartbeat = NULL, *first = NULL;

    if (!watch->heartbeats) {
        watch->heartbeats = json_object();
        watch->end = bp_clock_now() + watch->seconds;
    }
    if (run_lock_read(folder, &owner, &heartbeat) == BP_OK && !owner.released)
        first = read_counter(heartbeat);
    if (first)
        set(watch->heartbeats, heartbeat, bp_json_string(first));
    bp_free(first);
    bp_free(heartbeat);
}

void status_watch_clear(status_watch *watch)
{
    json_decref(watch->heartbeats);
    *watch = (status_watch){.seconds = 0};
}

/* Has the counter changed since it was recorded, or does it by the end of the watch? */
static bool moves(const status_watch *watch, const char *path)
{
    const char *first = json_string_value(json_object_get(watch->heartbeats, path));

    while (first) {
        double now = bp_clock_now();
        char *text = read_counter(path);
        bool moved = text && strcmp(first, text) != 0;

        bp_free(text);
        if (moved || now >= watch->end)
            return moved;
        bp_clock_sleep(watch->seconds < 1.0 ? watch->seconds / 10 : 0.5);
    }
    return false;
}

/* ---- diagnoses ---- */

status_hold status_owner(json_t *out, const char *folder, const status_watch *watch)
{
    run_owner owner, self;
    char *heartbeat = NULL;
    struct stat status;
    status_hold hold = HOLD_NONE;

    if (run_lock_read(folder, &owner, &heartbeat) == BP_OK && owner.slurm_job[0] != '\0')
        set(out, "slurm_job", bp_json_string(owner.slurm_job));
    if (heartbeat && !owner.released) {
        bool counts = stat(heartbeat, &status) == 0;
        double age = counts ? (double)(time(NULL) - status.st_mtime) : -1; /* < 0: it is ahead */
        run_owner_state state;

        set(out, "host", bp_json_string(owner.host));
        set_integer(out, "pid", owner.pid);
        if (counts)
            set_real(out, "seen_seconds", fmax(age, 0));
        run_owner_self(&self);
        state = run_owner_check(&owner, &self);
        if (state == OWNER_DEAD)
            hold = HOLD_DEAD;
        else if (state == OWNER_ALIVE || (age >= 0 && age < FRESH_SECONDS))
            hold = HOLD_ALIVE;
        else
            hold = moves(watch, heartbeat) ? HOLD_ALIVE : HOLD_SILENT;
    }
    bp_free(heartbeat);
    return hold;
}

json_t *status_queue(const char *job)
{
    const char *own = getenv("SLURM_JOB_ID");
    run_queue_state state;
    run_queue found = own && strcmp(own, job) == 0 ? RUN_QUEUE_UNKNOWN
                                                   : run_slurm_ask(&state, job, SLURM_SECONDS);

    if (found == RUN_QUEUE_UNKNOWN)
        return NULL;
    return json_pack("{s:s, s:s}", "state", found == RUN_QUEUE_GONE ? "gone" : state.state,
                     "reason", state.reason);
}
