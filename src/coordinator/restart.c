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
    if (job != NULL && one != NULL) {
        (void)json_object_set_new(one, "slurm_job", json_string(job));
        (void)json_object_set_new(one, "slurm_restart", json_integer(bp_restart_count()));
    }
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

    for (size_t k = json_array_size(starts); k > 0; k--) {
        const json_t *progress = json_object_get(json_array_get(starts, k - 1), "progress");

        if (!json_is_integer(progress) || json_integer_value(progress) != now)
            break;
        stuck++;
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

/* Why not, into `why`; false: nothing speaks against it. */
static bool speaks_against(const bp_restart_case *what, const json_t *record, char *why,
                           size_t why_bytes)
{
    int64_t stuck = bp_restart_stuck(record, what->folder);

    if (bp_drain_check(what->folder) != BP_OK ||
        (what->halt != NULL && bp_drain_check(what->halt) != BP_OK))
        (void)snprintf(why, why_bytes, "%s", bp_err_message());
    else if (is_finished(record))
        (void)snprintf(why, why_bytes, "the run is finished: %s", what->folder);
    else if (bp_restart_count() >= what->most)
        (void)snprintf(why, why_bytes,
                       "Slurm has started it again %lld times, and at most %lld are wanted: "
                       "submit it again to go on (BAGPIPE_REQUEUES in slurm/site.env)",
                       (long long)bp_restart_count(), (long long)what->most);
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
    *again = !speaks_against(what, record, why, why_bytes);
    if (*again)
        (void)snprintf(why, why_bytes, "%s: restart %lld of at most %lld",
                       what->status == BP_ERR_STOPPED ? "stopped in time" : "ranks died",
                       (long long)bp_restart_count() + 1, (long long)what->most);
    json_decref(record);
    return BP_OK;
}
