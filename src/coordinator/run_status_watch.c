/* Who holds a run. Counters of several runs are watched at the same time, and Slurm is asked once a
 * job: members of an ensemble are one job's, and each wait is of seconds. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "coordinator/run_lock_priv.h"
#include "coordinator/run_status_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define FRESH_SECONDS 30.0 /* a counter that was raised so lately need not be watched */
#define COUNTER_BYTES 31

struct status_beat {
    char *path, *first;
    double end; /* of watching it */
};

struct status_answer {
    char job[64], cluster[128];
    int64_t restart;
    run_verdict verdict;
};

/* ---- counters ---- */

static const struct status_beat *find_beat(const status_watch *watch, const char *path)
{
    for (int64_t k = 0; k < watch->beat_count; k++)
        if (strcmp(watch->beats[k].path, path) == 0)
            return &watch->beats[k];
    return NULL;
}

/* Takes `path`. What is not noted, where memory is short, does not move. */
static void note_beat(status_watch *watch, char *path)
{
    int64_t count = watch->beat_count;
    struct status_beat *grown =
        find_beat(watch, path) != NULL
            ? NULL
            : bp_realloc("run.status", watch->beats, count + 1, sizeof *grown);
    char *first = NULL;
    size_t bytes;

    if (grown != NULL)
        watch->beats = grown;
    if (grown == NULL || bp_file_read(path, COUNTER_BYTES, &first, &bytes) != BP_OK) {
        bp_free(path);
        return;
    }
    watch->beats[count] = (struct status_beat){path, first, bp_clock_now() + watch->seconds};
    watch->beat_count++;
}

void status_watch_begin(status_watch *watch, const char *folder)
{
    run_holder holder;
    char *beat = NULL;

    if (run_lock_look(folder, &holder, &beat) == BP_OK && !holder.released)
        note_beat(watch, beat);
    else
        bp_free(beat);
}

void status_watch_clear(status_watch *watch)
{
    for (int64_t k = 0; k < watch->beat_count; k++) {
        bp_free(watch->beats[k].path);
        bp_free(watch->beats[k].first);
    }
    bp_free(watch->beats);
    bp_free(watch->answers);
    *watch = (status_watch){.seconds = 0};
}

/* Seconds since the counter's file was written, by this machine's clock; negative: it is ahead. */
static double age_of(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? (double)(time(NULL) - status.st_mtime) : -1e9;
}

/* Has the counter moved since it was noted, or does it by the end of its time? */
static bool moves(const status_watch *watch, const char *path)
{
    const struct status_beat *beat = find_beat(watch, path);
    bool moved = false;

    while (beat != NULL && !moved) {
        double now = bp_clock_now();
        char *text = NULL;
        size_t bytes;

        if (bp_file_read(path, COUNTER_BYTES, &text, &bytes) == BP_OK)
            moved = strcmp(beat->first, text) != 0;
        bp_free(text);
        if (!moved && now >= beat->end)
            break;
        if (!moved)
            bp_clock_sleep(watch->seconds < 1.0 ? watch->seconds / 10 : 0.5);
    }
    return moved;
}

/* ---- verdicts ---- */

static struct status_answer *find_answer(const status_watch *watch, const run_holder *holder)
{
    for (int64_t k = 0; k < watch->answer_count; k++) {
        struct status_answer *one = &watch->answers[k];

        if (strcmp(one->job, holder->slurm_job) == 0 &&
            strcmp(one->cluster, holder->slurm_cluster) == 0 &&
            one->restart == holder->slurm_restart)
            return one;
    }
    return NULL;
}

/* Processes of this kernel are asked one by one; of others all that is known is their job's. */
static run_verdict judge(status_watch *watch, const run_holder *holder)
{
    run_holder self;
    struct status_answer *known = find_answer(watch, holder), *grown;
    run_verdict verdict;

    run_holder_self(&self);
    if (holder->slurm_job[0] == '\0' ||
        (strcmp(holder->boot_id, self.boot_id) == 0 && holder->pid_namespace == self.pid_namespace))
        return run_holder_judge(holder, &self);
    if (known != NULL)
        return known->verdict;
    verdict = run_holder_judge(holder, &self);
    grown = bp_realloc("run.status", watch->answers, watch->answer_count + 1, sizeof *grown);
    if (grown == NULL)
        return verdict; /* then it is asked again */
    watch->answers = grown;
    known = &grown[watch->answer_count++];
    *known = (struct status_answer){.restart = holder->slurm_restart, .verdict = verdict};
    (void)snprintf(known->job, sizeof known->job, "%s", holder->slurm_job);
    (void)snprintf(known->cluster, sizeof known->cluster, "%s", holder->slurm_cluster);
    return verdict;
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

status_hold status_holder(json_t *out, const char *folder, status_watch *watch)
{
    run_holder holder;
    char *beat = NULL;
    run_verdict verdict;
    double age;
    bool alive;

    if (run_lock_look(folder, &holder, &beat) != BP_OK || holder.released) {
        bp_free(beat);
        return HOLD_NONE;
    }
    age = age_of(beat);
    put_holder(out, &holder, age);
    verdict = judge(watch, &holder);
    alive = verdict == HOLDER_ALIVE || (verdict == HOLDER_UNKNOWN &&
                                        ((age >= 0 && age < FRESH_SECONDS) || moves(watch, beat)));
    bp_free(beat);
    return alive ? HOLD_ALIVE : verdict == HOLDER_DEAD ? HOLD_DEAD : HOLD_SILENT;
}
