/* Decides whether a job that ended is queued again, for slurm/launch.sh (bagpipe requeue). */
#include "run/restart.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/suffix.h"
#include "run/lock/run_lock.h"
#include "run/run_fields.h"
#include "run/status/run_progress.h"
#include "run/stop_request.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STARTS_KEPT    8
#define STUCK_STARTS   3 /* in a row without a commit: not the machine's fault */
#define DEPTH_MAX      5 /* RUN/members/m00/oob/score */
#define PART_HEAD      128
#define RECORD_LIMIT   ((int64_t)16 << 20)
#define RESTARTS_LIMIT 1000000
#define ASK_SECONDS    5.0
#define LOST_NODE      205          /* mpirun (Open MPI 4): one of its daemons was lost */
#define PREEMPTED      "preemption" /* the word of slurm/launch.sh */
#define BY_ITSELF      "Slurm queued its job again by itself: a node failed, or scontrol requeue"

int64_t bp_restart_count(void)
{
    static bool warned;
    const char *text = getenv("SLURM_RESTART_COUNT");
    char *end;
    long long count;

    if (!text || text[0] == '\0')
        return 0;
    errno = 0;
    count = strtoll(text, &end, 10);
    if (errno == 0 && *end == '\0' && count >= 0 && count < RESTARTS_LIMIT)
        return count;
    if (!warned)
        BP_WARN("environment.bad_value",
                "SLURM_RESTART_COUNT = %.40s is not a count: in the environment; 0 is taken", text);
    warned = true;
    return 0;
}

/* ---- progress ---- */

static int64_t progress_below(const char *folder, int depth)
{
    char **names = NULL;
    int64_t count = 0, sum = 0, newest = 0;

    (void)bp_dir_list(folder, &names, &count);
    for (int64_t k = 0; k < count; k++) {
        const char *name = names[k];
        const bp_path path = bp_path_in(folder, name);
        struct stat status;

        if (name[0] == '.' || lstat(path.text, &status) != 0)
            status = (struct stat){.st_mode = 0};
        if (S_ISDIR(status.st_mode) && strncmp(name, "step-", 5) == 0)
            newest = strtoll(name + 5, NULL, 10); /* sorted: the last is the highest */
        else if (S_ISDIR(status.st_mode) && depth < DEPTH_MAX)
            sum += progress_below(path.text, depth + 1);
        else if (S_ISREG(status.st_mode) && bp_has_suffix(name, ".part"))
            sum += status.st_size > PART_HEAD ? status.st_size : 0; /* each start begins one */
        else if (S_ISREG(status.st_mode) &&
                 (bp_has_suffix(name, ".h5") || strcmp(name, "summary.json") == 0))
            sum += status.st_size;
    }
    bp_names_free(&names, count);
    return sum + newest;
}

int64_t bp_restart_progress(const char *folder)
{
    return progress_below(folder, 0);
}

/* ---- what ended the start before ---- */

/* A preempted job may have had no time to commit anything: its start does not count against the
 * next. */
static bool is_preemption(const char *cause)
{
    return strncmp(cause, PREEMPTED, strlen(PREEMPTED)) == 0;
}

static bool is_this_job(const char *job)
{
    const char *own = getenv("SLURM_JOB_ID");

    return own && strcmp(own, job) == 0;
}

/* Starts before this one that have committed nothing: in a row, and of this Slurm job. A start is
 * also excused if Slurm restarted the job without bagpipe requeue: after the batch script's node
 * failed, or for scontrol requeue. */
static void add_end(json_t *one, const json_t *before, const char *folder)
{
    const json_t *last = last_start_of(before);
    json_t *progress = run_progress_read(folder), *end = run_words_of_end(folder, before, progress);
    bool again = bp_restart_count() > 0 && is_this_job(text_of(last, "slurm_job"));
    bool asked = has(end, "cause");
    bool excused = is_preemption(text_of(end, "cause")) || (again && !asked);
    bool same = json_is_integer(json_object_get(last, "progress")) &&
                json_equal(json_object_get(last, "progress"), json_object_get(one, "progress"));
    char text[BP_ERR_LINE_BYTES];

    if (!end)
        end = run_words_ask_slurm(before);
    if (again && !asked && !has(end, "message"))
        set(end, "cause", bp_json_string(BY_ITSELF));
    run_words_text(text, sizeof text, end);
    set(one, "after", bp_json_string(text));
    if (same)
        set_integer(one, "stuck", integer_of(last, "stuck") + !excused);
    if (again)
        set_integer(one, "fruitless", integer_of(last, "fruitless") + (same && !excused));
    json_decref(end);
    json_decref(progress);
}

bp_err bp_restart_check(const json_t *before, const char *folder)
{
    const char *job = text_of(last_start_of(before), "slurm_job");
    run_queue_state queue;

    if (job[0] == '\0' || is_this_job(job) ||
        run_slurm_ask(&queue, job, ASK_SECONDS) != RUN_QUEUE_LISTED ||
        strcmp(queue.state, "PENDING") != 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_BUSY, "run.queued",
                   "Slurm job %s is queued again, PENDING (%s), and goes on with this run: at %s; "
                   "'scancel %s' before you start it otherwise",
                   job, queue.reason, folder, job);
}

json_t *bp_restart_list(const json_t *before, const char *folder, int64_t start)
{
    const json_t *known = json_object_get(before, "recent_starts");
    const char *job = getenv("SLURM_JOB_ID");
    json_t *list = json_array(), *one;

    for (size_t k = 0; k < json_array_size(known); k++)
        if (k + STARTS_KEPT > json_array_size(known))
            (void)json_array_append(list, json_array_get(known, k));
    one = json_pack("{s:I, s:s, s:I}", "start", (json_int_t)start, "time", bp_clock_stamp().text,
                    "progress", (json_int_t)bp_restart_progress(folder));
    if (job) {
        set(one, "slurm_job", bp_json_string(job));
        set(one, "slurm_restart", json_integer(bp_restart_count()));
    }
    if (before)
        add_end(one, before, folder);
    (void)json_array_append_new(list, one);
    return list;
}

/* ---- why the last start ended ---- */

/* Is it a launcher's status after a rank was killed by the kernel or a bug (not by a person), or
 * after a node was lost? */
static bool is_death(int status)
{
    static const int DEATHS[] = {
        SIGKILL, SIGABRT, SIGSEGV, SIGBUS,
        SIGFPE,  SIGILL,  SIGUSR1}; /* a warning before the launcher handled it */

    for (size_t k = 0; k < sizeof DEATHS / sizeof DEATHS[0]; k++)
        if (status == 128 + DEATHS[k])
            return true;
    return status == LOST_NODE;
}

/* Has the last start committed nothing? */
static bool is_fruitless(const json_t *last, const char *folder)
{
    return json_is_integer(json_object_get(last, "progress")) &&
           json_integer_value(json_object_get(last, "progress")) == bp_restart_progress(folder);
}

int64_t bp_restart_stuck(const json_t *record, const char *folder)
{
    const json_t *last = last_start_of(record);
    int64_t stuck = is_fruitless(last, folder) ? integer_of(last, "stuck") + 1 : 0;

    return stuck >= STUCK_STARTS ? stuck : 0;
}

/* Writes to `why` why the job should not start again; returns false if there is no reason. */
static bool speaks_against(const bp_restart_case *what, const json_t *record, const char *cause,
                           char *why, size_t why_bytes)
{
    bool excused = is_preemption(cause);
    int64_t stuck = excused ? 0 : bp_restart_stuck(record, what->folder), fruitless = 0;
    const json_t *last = last_start_of(record);

    if (!excused) /* without a record no start has got as far as the folder */
        fruitless = !record ? bp_restart_count() + 1
                            : integer_of(last, "fruitless") + is_fruitless(last, what->folder);

    if (bp_stop_request_check(what->folder) != BP_OK ||
        (what->halt && bp_stop_request_check(what->halt) != BP_OK))
        (void)snprintf(why, why_bytes, "%s", bp_err_message());
    else if (strcmp(end_state_of(record), "finished") == 0)
        (void)snprintf(why, why_bytes, "the run is finished: %s", what->folder);
    else if (what->most == 0 || fruitless > what->most)
        (void)snprintf(why, why_bytes,
                       "%lld starts of this job have committed nothing, and at most %lld such "
                       "restarts are wanted: submit it again to go on (BAGPIPE_REQUEUES in "
                       "slurm/site.env)",
                       (long long)fruitless, (long long)what->most);
    else if (!record && bp_restart_count() + 1 >= STUCK_STARTS)
        (void)snprintf(why, why_bytes,
                       "no progress, %lld starts have not got as far as the run folder: at %s; "
                       "see the job's output",
                       (long long)bp_restart_count() + 1, what->folder);
    else if (stuck > 0)
        (void)snprintf(why, why_bytes,
                       "no progress, %lld starts in a row have committed nothing: in %s; see "
                       "%s/log.txt",
                       (long long)stuck, what->folder, what->folder);
    else
        return false;
    return true;
}

bp_err bp_restart_decide(const bp_restart_case *what, bool *again, char *why, size_t why_bytes)
{
    const char *cause = what->cause;
    json_t *record = NULL, *end;
    char *path, text[BP_ERR_LINE_BYTES];
    bp_err err = BP_OK;

    *again = false;
    if (what->status == 0) {
        (void)snprintf(why, why_bytes, "the job is done");
        return BP_OK;
    }
    if (what->status != BP_ERR_STOPPED && !is_death(what->status)) {
        (void)snprintf(why, why_bytes, "exit status %d does not go away by starting again",
                       what->status);
        if (what->status == 128 + SIGTERM)
            (void)snprintf(why, why_bytes, "it was ended by TERM, as scancel does");
        return BP_OK;
    }
    path = bp_path_join(what->folder, "run.json");
    if (bp_path_exists(path)) /* a job that died before it made the folder has none */
        err = bp_json_load_plain(&record, path, RECORD_LIMIT);
    bp_free(path);
    if (err != BP_OK)
        return err;
    if (cause[0] == '\0' && what->status == LOST_NODE)
        cause = "the launcher lost a node";
    if (record)
        run_words_add(what->folder, integer_of(record, "starts"), what->status, cause);
    *again = !speaks_against(what, record, cause, why, why_bytes);
    if (*again) {
        end = run_words_of(what->status, cause);
        run_words_text(text, sizeof text, end);
        (void)snprintf(why, why_bytes, "it %s: restart %lld", text,
                       (long long)bp_restart_count() + 1);
        json_decref(end);
    }
    json_decref(record);
    return BP_OK;
}
