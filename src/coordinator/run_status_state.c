/* Who holds a run, what state that makes, and what its user does next. */
#include "coordinator/run_status_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "coordinator/run_lock_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define FRESH_SECONDS 30.0 /* a counter that was raised so lately need not be watched */

/* Seconds since the counter's file was written, by this machine's clock; negative: it is ahead. */
static double age_of(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? (double)(time(NULL) - status.st_mtime) : -1e9;
}

/* Does the counter move? */
static bool moves(const char *path, double seconds)
{
    double end = bp_clock_now() + seconds;
    char *first = NULL, *now = NULL;
    size_t bytes;
    bool moved = false;

    if (bp_file_read(path, 31, &first, &bytes) != BP_OK)
        return false;
    while (!moved && bp_clock_now() < end) {
        bp_clock_sleep(seconds < 1.0 ? seconds / 10 : 0.5);
        if (bp_file_read(path, 31, &now, &bytes) == BP_OK)
            moved = strcmp(first, now) != 0;
        bp_free(now);
        now = NULL;
    }
    bp_free(first);
    return moved;
}

static void put_holder(json_t *out, const run_holder *holder, double age)
{
    (void)json_object_set_new(out, "host", json_string(holder->host));
    (void)json_object_set_new(out, "pid", json_integer(holder->pid));
    if (holder->slurm_job[0] != '\0')
        (void)json_object_set_new(out, "slurm_job", json_string(holder->slurm_job));
    if (age > -1e8)
        (void)json_object_set_new(out, "seen_seconds", json_real(age > 0 ? age : 0));
}

status_hold status_holder(json_t *out, const char *folder, double watch_seconds)
{
    run_holder holder, self;
    char *beat = NULL;
    status_hold hold = HOLD_NONE;
    double age;

    if (run_lock_look(folder, &holder, &beat) != BP_OK)
        return HOLD_NONE;
    age = age_of(beat);
    run_holder_self(&self);
    if (!holder.released) {
        put_holder(out, &holder, age);
        switch (run_holder_judge(&holder, &self)) {
        case HOLDER_ALIVE:
            hold = HOLD_ALIVE;
            break;
        case HOLDER_DEAD:
            hold = HOLD_DEAD;
            break;
        case HOLDER_UNKNOWN:
            hold = (age >= 0 && age < FRESH_SECONDS) || moves(beat, watch_seconds) ? HOLD_ALIVE
                                                                                   : HOLD_SILENT;
            break;
        }
    }
    bp_free(beat);
    return hold;
}

const char *status_state(const char *exit_state, status_hold hold)
{
    static const char *const ended[] = {"finished", "stopped", "failed"};

    if (hold == HOLD_ALIVE)
        return "running";
    for (size_t k = 0; k < sizeof ended / sizeof ended[0]; k++)
        if (exit_state != NULL && strcmp(exit_state, ended[k]) == 0)
            return ended[k];
    return hold == HOLD_SILENT ? "silent" : "dead"; /* it says "running", and nobody runs it */
}

/* ---- what next ---- */

static const char *text_of(const json_t *status, const char *key)
{
    const char *text = json_string_value(json_object_get(status, key));

    return text == NULL ? "" : text;
}

/* "from step 40", or from where it was. */
static char *go_on(const json_t *status, const char *before)
{
    const json_t *step = json_object_get(json_object_get(status, "commit"), "step");

    if (json_is_integer(step))
        return bp_sprintf("%sthe same command goes on from step %lld", before,
                          (long long)json_integer_value(step));
    if (strcmp(text_of(status, "job"), "pretrain") == 0)
        return bp_sprintf("%sthe same command begins anew: nothing was committed yet", before);
    return bp_sprintf("%sthe same command goes on", before);
}

static char *after_finish(const json_t *status)
{
    const char *job = text_of(status, "job"), *run = text_of(status, "run");

    if (strcmp(job, "score") == 0)
        return bp_sprintf("nothing: the scores are in %s/score", run);
    if (strcmp(job, "uncertainty") == 0)
        return bp_sprintf("nothing: the study is in %s/uncertainty/index.html", run);
    if (strcmp(job, "ensemble") == 0)
        return bp_sprintf("nothing: score.model=%s scores with it", run);
    return bp_sprintf("nothing: a larger train.steps goes on, score.model=%s scores with it", run);
}

char *status_next(const json_t *status)
{
    const char *state = text_of(status, "state"), *job = text_of(status, "slurm_job");

    if (strcmp(state, "finished") == 0)
        return after_finish(status);
    if (json_object_get(status, "halt") != NULL && strcmp(state, "running") != 0)
        return go_on(status, "remove its file halt, then ");
    if (strcmp(state, "stopped") == 0)
        return go_on(status, "");
    if (strcmp(state, "failed") == 0)
        return go_on(status, "do what the message says, then ");
    if (strcmp(state, "dead") == 0)
        return go_on(status,
                     "it died without a word (log.txt and the job's output may tell why); ");
    if (strcmp(state, "silent") != 0)
        return bp_sprintf("nothing: it runs; its lines are in %s/log.txt", text_of(status, "run"));
    if (job[0] != '\0')
        return bp_sprintf("ask Slurm: squeue -j %s; if it is gone, the same command takes the run "
                          "over after a minute of watching",
                          job);
    return bp_sprintf("look on %s for process %lld; if it is gone, the same command takes the run "
                      "over after a minute of watching",
                      text_of(status, "host"),
                      (long long)json_integer_value(json_object_get(status, "pid")));
}
