#include "coordinator/restart.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "coordinator/drain.h"
#include "coordinator/run_progress_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STARTS_KEPT    8
#define STUCK_STARTS   3 /* in a row without a commit: then it is not the machine */
#define DEPTH_MAX      5 /* RUN/members/m00/oob/score */
#define PART_HEAD      128
#define RECORD_LIMIT   ((int64_t)16 << 20)
#define RESTARTS_LIMIT 1000000
#define LOST_NODE      205 /* mpirun (Open MPI 4): a daemon of its own has gone */
#define NOTE           "restart.json"
#define NOTE_LIMIT     4096
#define CAUSE_BYTES    256
#define PREEMPTED      "preemption" /* as slurm/launch.sh says it */
#define UNTOLD         "queued again by Slurm itself: a node failed, or scontrol requeue"

int64_t bp_restart_count(void)
{
    static bool warned;
    const char *text = getenv("SLURM_RESTART_COUNT");
    char *end;
    long long count;

    if (text == NULL || text[0] == '\0')
        return 0;
    errno = 0;
    count = strtoll(text, &end, 10);
    if (errno == 0 && *end == '\0' && count >= 0 && count < RESTARTS_LIMIT)
        return count;
    if (!warned)
        bp_warn("SLURM_RESTART_COUNT = %.40s is no count: in the environment; 0 is taken", text);
    warned = true;
    return 0;
}

/* ---- progress ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t bytes = strlen(name), end_bytes = strlen(end);

    return bytes > end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

/* The bytes of a file of results. Each start begins a part file: its head tells nothing. */
static int64_t result_bytes(const char *name, int64_t bytes)
{
    if (ends_with(name, ".part"))
        return bytes > PART_HEAD ? bytes : 0;
    return ends_with(name, ".h5") || strcmp(name, "summary.json") == 0 ? bytes : 0;
}

static int64_t progress_below(const char *folder, int depth)
{
    char **names;
    int64_t count, sum = 0, newest = 0;

    if (bp_dir_list(folder, &names, &count) != BP_OK)
        return 0;
    for (int64_t k = 0; k < count; k++) {
        char *path = names[k][0] == '.' ? NULL : bp_path_join(folder, names[k]);
        struct stat status;

        if (path != NULL && lstat(path, &status) == 0) {
            if (S_ISDIR(status.st_mode) && strncmp(names[k], "step-", 5) == 0)
                newest = strtoll(names[k] + 5, NULL, 10); /* sorted: the last is the highest */
            else if (S_ISDIR(status.st_mode) && depth < DEPTH_MAX)
                sum += progress_below(path, depth + 1);
            else if (S_ISREG(status.st_mode))
                sum += result_bytes(names[k], status.st_size);
        }
        bp_free(path);
    }
    bp_names_free(&names, count);
    return sum + newest;
}

int64_t bp_restart_progress(const char *folder)
{
    return progress_below(folder, 0);
}

/* ---- what ended the start before ---- */

/* A job that is preempted or put back by hand may have had no time to commit anything: its start
 * does not speak against the next. */
static bool is_excused(const char *cause)
{
    return strncmp(cause, PREEMPTED, strlen(PREEMPTED)) == 0 || strcmp(cause, UNTOLD) == 0;
}

/* What the batch script's question noted for this start; UNTOLD where it was never asked: with the
 * node of the batch script Slurm queues the job again by itself, as for scontrol requeue. */
static void read_note(const char *folder, const char *job, char *cause, size_t cause_bytes)
{
    char *path = bp_path_join(folder, NOTE);
    json_t *note = NULL;
    const char *its_job, *text;

    (void)snprintf(cause, cause_bytes, "%s", UNTOLD);
    if (path != NULL && bp_path_exists(path) && bp_json_load(&note, path, NOTE_LIMIT) == BP_OK) {
        its_job = json_string_value(json_object_get(note, "slurm_job"));
        text = json_string_value(json_object_get(note, "after"));
        if (its_job != NULL && text != NULL && strcmp(its_job, job) == 0 &&
            json_integer_value(json_object_get(note, "slurm_restart")) == bp_restart_count())
            (void)snprintf(cause, cause_bytes, "%s", text);
    }
    json_decref(note);
    bp_free(path);
}

static void write_note(const char *folder, const char *cause)
{
    char *path = bp_path_join(folder, NOTE);
    const char *job = getenv("SLURM_JOB_ID");
    json_t *note = json_pack("{s:s, s:I, s:s}", "slurm_job", job != NULL ? job : "",
                             "slurm_restart", (json_int_t)bp_restart_count() + 1, "after", cause);

    if (job != NULL && (path == NULL || note == NULL || bp_json_save(path, note) != BP_OK))
        bp_warn("what ended this start can't be noted: %s", bp_err_message());
    json_decref(note);
    bp_free(path);
}

/* The start before, if Slurm has started this job again since; else NULL. */
static const json_t *start_before(const json_t *starts, const char *job)
{
    const json_t *last = json_array_get(starts, json_array_size(starts) - 1);
    const char *its_job = json_string_value(json_object_get(last, "slurm_job"));

    return bp_restart_count() > 0 && its_job != NULL && strcmp(its_job, job) == 0 ? last : NULL;
}

static json_int_t progress_of(const json_t *start)
{
    return json_integer_value(json_object_get(start, "progress"));
}

/* `one` is this start, as far as it is known. */
static void add_slurm(json_t *one, const json_t *starts, const char *folder, const char *job)
{
    const json_t *last = start_before(starts, job);
    json_int_t fruitless = json_integer_value(json_object_get(last, "fruitless"));
    char cause[CAUSE_BYTES];

    (void)json_object_set_new(one, "slurm_job", json_string(job));
    (void)json_object_set_new(one, "slurm_restart", json_integer(bp_restart_count()));
    if (last == NULL)
        return;
    read_note(folder, job, cause, sizeof cause);
    (void)json_object_set_new(one, "after", json_string(cause));
    fruitless += progress_of(last) == progress_of(one) && !is_excused(cause);
    (void)json_object_set_new(one, "fruitless", json_integer(fruitless));
}

json_t *bp_restart_list(const json_t *before, const char *folder, int64_t start)
{
    const json_t *known = json_object_get(before, "recent_starts");
    const char *job = getenv("SLURM_JOB_ID");
    json_t *list = json_array(), *one;
    char now[32];

    for (size_t k = 0; k < json_array_size(known); k++)
        if (k + STARTS_KEPT > json_array_size(known))
            (void)json_array_append(list, json_array_get(known, k));
    bp_clock_stamp(now, sizeof now);
    one = json_pack("{s:I, s:s, s:I}", "start", (json_int_t)start, "time", now, "progress",
                    (json_int_t)bp_restart_progress(folder));
    if (job != NULL && one != NULL)
        add_slurm(one, known, folder, job);
    if (json_array_append_new(list, one) != 0) {
        json_decref(list);
        return NULL;
    }
    return list;
}

/* ---- the verdict ---- */

/* What a launcher ends with when a rank was killed, by the kernel or a bug and not by a person, or
 * when a node was lost. */
static bool is_death(int status)
{
    static const int DEATHS[] = {
        SIGKILL, SIGABRT, SIGSEGV, SIGBUS,
        SIGFPE,  SIGILL,  SIGUSR1}; /* a warning that came before the launcher heard it */

    for (size_t k = 0; k < sizeof DEATHS / sizeof DEATHS[0]; k++)
        if (status == 128 + DEATHS[k])
            return true;
    return status == LOST_NODE;
}

int64_t bp_restart_stuck(const json_t *record, const char *folder)
{
    const json_t *starts = json_object_get(record, "recent_starts");
    int64_t now = bp_restart_progress(folder), stuck = 0;
    const char *after = NULL; /* what ended start k - 1 */

    for (size_t k = json_array_size(starts); k > 0; k--) {
        const json_t *start = json_array_get(starts, k - 1);

        if (!json_is_integer(json_object_get(start, "progress")) || progress_of(start) != now)
            break;
        stuck += after == NULL || !is_excused(after);
        after = json_string_value(json_object_get(start, "after"));
    }
    return stuck >= STUCK_STARTS ? stuck : 0;
}

static bool is_finished(const json_t *record)
{
    const char *state =
        json_string_value(json_object_get(json_object_get(record, "exit"), "state"));

    return state != NULL && strcmp(state, "finished") == 0;
}

/* Its ranks were killed, and have left no word: the launcher's is the only one. */
static void note_death(const bp_restart_case *what, const json_t *record)
{
    char text[128];

    if (what->status == LOST_NODE)
        (void)snprintf(text, sizeof text, "the launcher lost a node");
    else
        (void)snprintf(text, sizeof text, "a rank was killed by signal %d (%s)", what->status - 128,
                       strsignal(what->status - 128));
    if (is_death(what->status) && record != NULL)
        run_words_add(what->folder, json_integer_value(json_object_get(record, "starts")),
                      what->status, text);
}

/* Why it has ended: as the batch script knows it, else what run.json and the status tell. */
static void find_cause(const bp_restart_case *what, const json_t *record, char *cause)
{
    const json_t *end = json_object_get(record, "exit");
    const char *reason = json_string_value(json_object_get(end, "reason")),
               *message = json_string_value(json_object_get(end, "message"));

    if (what->cause != NULL && what->cause[0] != '\0')
        (void)snprintf(cause, CAUSE_BYTES, "%s", what->cause);
    else if (what->status == LOST_NODE)
        (void)snprintf(cause, CAUSE_BYTES, "mpirun lost a node");
    else if (what->status != BP_ERR_STOPPED)
        (void)snprintf(cause, CAUSE_BYTES, "a rank died of signal %d", what->status - 128);
    else if (reason != NULL && reason[0] != '\0')
        (void)snprintf(cause, CAUSE_BYTES, "stopped by: %s", reason);
    else
        (void)snprintf(cause, CAUSE_BYTES, "%s", message != NULL ? message : "stopped by itself");
}

/* The starts of this Slurm job that have committed nothing, for which that is held against it. */
static int64_t count_fruitless(const json_t *record, const char *folder)
{
    const json_t *starts = json_object_get(record, "recent_starts");
    const json_t *last = json_array_get(starts, json_array_size(starts) - 1);

    if (record == NULL) /* none has got as far as the folder */
        return bp_restart_count() + 1;
    return json_integer_value(json_object_get(last, "fruitless")) +
           (progress_of(last) == bp_restart_progress(folder));
}

/* Why not, into `why`; false: nothing speaks against it. */
static bool speaks_against(const bp_restart_case *what, const json_t *record, const char *cause,
                           char *why, size_t why_bytes)
{
    bool excused = is_excused(cause);
    int64_t stuck = excused ? 0 : bp_restart_stuck(record, what->folder);
    int64_t fruitless = excused ? 0 : count_fruitless(record, what->folder);

    if (bp_drain_check(what->folder) != BP_OK ||
        (what->halt != NULL && bp_drain_check(what->halt) != BP_OK))
        (void)snprintf(why, why_bytes, "%s", bp_err_message());
    else if (is_finished(record))
        (void)snprintf(why, why_bytes, "the run is finished: %s", what->folder);
    else if (what->most == 0 || fruitless > what->most)
        (void)snprintf(why, why_bytes,
                       "%lld starts of this job have committed nothing, and at most %lld such "
                       "restarts are wanted: submit it again to go on (BAGPIPE_REQUEUES in "
                       "slurm/site.env)",
                       (long long)fruitless, (long long)what->most);
    else if (record == NULL && bp_restart_count() + 1 >= STUCK_STARTS)
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

static bp_err load_record(const char *folder, json_t **record)
{
    char *path = bp_path_join(folder, "run.json");
    bp_err err = path == NULL ? bp_fail_memory("a file name", 1, strlen(folder)) : BP_OK;

    *record = NULL; /* a job that died before it made the folder has none */
    if (err == BP_OK && bp_path_exists(path))
        err = bp_json_load_plain(record, path, RECORD_LIMIT);
    bp_free(path);
    return err;
}

bp_err bp_restart_decide(const bp_restart_case *what, bool *again, char *why, size_t why_bytes)
{
    char cause[CAUSE_BYTES];
    json_t *record = NULL;
    bp_err err;

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
    err = load_record(what->folder, &record);
    if (err != BP_OK)
        return err;
    note_death(what, record);
    find_cause(what, record, cause);
    *again = !speaks_against(what, record, cause, why, why_bytes);
    if (*again) {
        (void)snprintf(why, why_bytes, "%s: %s: restart %lld",
                       what->status == BP_ERR_STOPPED ? "stopped in time" : "ranks died", cause,
                       (long long)bp_restart_count() + 1);
        if (record != NULL)
            write_note(what->folder, cause);
    }
    json_decref(record);
    return BP_OK;
}
