/* A run's status: what the job has written of itself, who holds the folder, and what lies in it. */
#include "run/status/run_status.h"

#include "base/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "run/restart.h"
#include "run/run_compare_priv.h"
#include "run/status/run_progress_priv.h"
#include "run/status/run_status_priv.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RUN_LIMIT ((int64_t)16 << 20)
#define TAIL      8192

/* What is read of one folder. */
typedef struct reading {
    const char *folder;
    bool is_member; /* of an ensemble */
    json_t *out;
    json_t *record; /* run.json */
    json_t *told;   /* status.json; NULL: there is none, an older program ran */
    double now;
} reading;

static void set(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

static void copy(json_t *to, const json_t *from, const char *key)
{
    json_t *value = json_object_get(from, key);

    if (value != NULL)
        (void)json_object_set(to, key, value);
}

static bool is(const json_t *status, const char *state)
{
    return strcmp(json_string_value(json_object_get(status, "state")), state) == 0;
}

/* Seconds since a stamp; a clock that was set back since then makes them 0. */
static double age_of(const reading *self, const json_t *object, const char *key)
{
    double then = status_time(json_string_value(json_object_get(object, key)));

    return then < 0 ? NAN : fmax(0, self->now - then);
}

static bp_err read_record(reading *self, const char *path)
{
    bp_err err = bp_json_load(&self->record, path, RUN_LIMIT);

    if (err == BP_OK && !(json_is_string(json_object_get(self->record, "job")) &&
                          json_is_object(json_object_get(self->record, "exit"))))
        err = BP_FAIL(BP_ERR_FORMAT, "it names no 'job' or no 'exit': in %s", path);
    return err == BP_ERR_FORMAT ? bp_err_prefix(err, "run.json is damaged") : err;
}

/* The last whole line of a file as text; NULL: there is none. Free with bp_free(). */
static char *last_line(const reading *self, const char *name)
{
    char *path = bp_path_join(self->folder, name), tail[TAIL + 1] = "", *end;
    int64_t size = 0;
    int fd = -1;

    if (path != NULL && bp_file_open(path, &fd, &size) == BP_OK) {
        if (pread(fd, tail, TAIL, size > TAIL ? size - TAIL : 0) < 0)
            tail[0] = '\0';
        (void)close(fd);
    }
    bp_free(path);
    end = strrchr(tail, '\n');
    if (end == NULL)
        return NULL;
    *end = '\0';
    end = strrchr(tail, '\n');
    return bp_strdup(end == NULL ? tail : end + 1);
}

/* ---- state ---- */

static void put_end(const reading *self, const json_t *end)
{
    static const char *const keys[] = {"code", "reason", "message", "time"};

    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        copy(self->out, end, keys[k]);
    if (text_of(end, "cause")[0] != '\0' && json_object_get(end, "message") == NULL)
        set(self->out, "message", json_string(text_of(end, "cause")));
    set_real(self->out, "ended_seconds_ago", age_of(self, end, "time"));
}

/* Slurm's word of the job that ran it last, where another start may come of it. */
static void put_queue(const reading *self)
{
    static const char *const waits[] = {"PENDING",      "CONFIGURING", "REQUEUED",
                                        "REQUEUE_HOLD", "SUSPENDED",   "STOPPED"};
    const json_t *starts = json_object_get(self->record, "recent_starts");
    json_t *queue;

    if (json_object_get(self->out, "slurm_job") == NULL)
        copy(self->out, json_array_get(starts, json_array_size(starts) - 1), "slurm_job");
    queue = status_queue(text_of(self->out, "slurm_job"));
    if (queue == NULL)
        return;
    set(self->out, "queue", queue);
    for (size_t k = 0; k < sizeof waits / sizeof waits[0]; k++)
        if (strcmp(text_of(queue, "state"), waits[k]) == 0)
            set(self->out, "state", json_string("queued"));
    if (is(self->out, "dead") && json_object_get(self->out, "message") == NULL &&
        strcmp(text_of(queue, "state"), "gone") != 0)
        set(self->out, "message",
            json_sprintf("Slurm says %s (%s)", text_of(queue, "state"), text_of(queue, "reason")));
}

static void put_state(const reading *self, const status_watch *watch)
{
    status_hold hold = status_owner(self->out, self->folder, watch);
    json_t *end = run_words_of_end(self->folder, self->record, self->told);

    set(self->out, "state",
        json_string(status_state(json_string_value(json_object_get(end, "state")), hold)));
    copy(self->out, self->record, "job");
    copy(self->out, self->record, "version");
    copy(self->out, json_object_get(self->record, "mesh"), "ranks");
    copy(self->out, self->record, "hosts");
    if (!is(self->out, "running") && !is(self->out, "silent"))
        put_end(self, end);
    if (!self->is_member && !is(self->out, "running") && !is(self->out, "silent") &&
        !is(self->out, "finished"))
        put_queue(self);
    json_decref(end);
}

/* A start that failed before it held the folder: then the last event is of it. */
static void put_start_failed(const reading *self)
{
    char *line = last_line(self, "events.jsonl");
    json_t *event = line == NULL ? NULL : json_loads(line, JSON_REJECT_DUPLICATES, NULL), *failed;

    if (strcmp(text_of(event, "event"), "start_failed") == 0) {
        failed =
            json_pack("{s:O, s:O, s:O}", "code", json_object_get(event, "code"), "message",
                      json_object_get(event, "message"), "time", json_object_get(event, "time"));
        set_real(failed, "seconds_ago", age_of(self, event, "time"));
        set(self->out, "start_failed", failed);
    }
    json_decref(event);
    bp_free(line);
}

/* What keeps a run from being started again, and starts that led nowhere or knew nothing of it. */
static void put_obstacles(const reading *self)
{
    char *halt = bp_path_join(self->folder, "halt");
    int64_t stuck = bp_restart_stuck(self->record, self->folder);

    if (halt != NULL && bp_path_exists(halt))
        set(self->out, "halt", json_true());
    bp_free(halt);
    if (is(self->out, "running"))
        return;
    if (stuck > 0 && !is(self->out, "finished") && !is(self->out, "silent"))
        set_integer(self->out, "stuck_starts", stuck);
    put_start_failed(self);
}

/* ---- what the job has told ---- */

static void put_told(const reading *self)
{
    static const char *const own[] = {"format",     "format_version", "time",
                                      "phase_time", "start",          "exit"}; /* the file's */
    json_t *told = json_copy(self->told);
    const json_t *starts = json_object_get(self->record, "recent_starts");
    double wall = real_of(self->told, "wall_seconds"), kept = real_of(self->told, "kept_seconds");

    for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
        (void)json_object_del(told, own[k]);
    if (told != NULL)
        (void)json_object_update_missing(self->out, told);
    json_decref(told);
    copy(self->out, json_array_get(starts, json_array_size(starts) - 1), "after");
    if (is(self->out, "running")) {
        wall += age_of(self, self->told, "time");
        set_real(self->out, "phase_seconds", age_of(self, self->told, "phase_time"));
    }
    set_real(self->out, "wall_seconds", wall);
    if (kept > 0)
        set_real(self->out, "effective_time", fmin(1, kept / wall));
    set_integer(self->out, "starts",
                integer_of(self->told == NULL ? self->record : self->told, "starts"));
    set_integer(self->out, "restarts", fmax(0, (double)integer_of(self->out, "starts") - 1));
}

static void put_share(const reading *self, const char *done, const char *all)
{
    int64_t of = integer_of(self->out, all);

    if (of > 0 && is(self->out, "finished"))
        set_integer(self->out, done, of);
    if (of > 0)
        set_real(self->out, "progress", (double)integer_of(self->out, done) / (double)of);
}

static int64_t steps_of(const reading *self)
{
    run_pairs pairs = {0};
    int64_t steps;

    if (run_pairs_read(&pairs, self->folder) != BP_OK)
        pairs = (run_pairs){0}; /* it is told without them */
    steps = run_steps(self->record, &pairs);
    run_pairs_clear(&pairs);
    return steps;
}

/* Steps behind the newest checkpoint are done again, where the run was not stopped in time. */
static void put_training(const reading *self)
{
    int64_t commit = integer_of(json_object_get(self->out, "commit"), "step");
    int64_t told = integer_of(self->told, "step"), steps = steps_of(self);
    int64_t step = told > commit ? told : commit;

    set_integer(self->out, "step", step);
    set_integer(self->out, "steps", steps);
    if (steps > 0)
        set_real(self->out, "progress", (double)step / (double)steps);
    if (is(self->out, "finished"))
        return;
    if (told > 0)
        set_real(self->out, "seconds_left",
                 (double)(steps - step) * real_of(self->told, "tokens") / (double)told /
                     real_of(self->told, "tokens_per_second_median"));
    if (told > commit && !is(self->out, "running"))
        set_integer(self->out, "redone_steps", told - commit);
}

/* ---- checkpoints, and room for more ---- */

static int64_t folder_bytes(const char *folder)
{
    char **names;
    int64_t count, sum = 0;

    if (bp_dir_list(folder, &names, &count) != BP_OK)
        return 0;
    for (int64_t k = 0; k < count; k++) {
        char *path = bp_path_join(folder, names[k]);
        int64_t bytes = path == NULL ? -1 : bp_file_size(path);

        sum += bytes > 0 ? bytes : 0;
        bp_free(path);
    }
    bp_names_free(&names, count);
    return sum;
}

static void put_commit(const reading *self, const char *parent, int64_t step)
{
    char name[BP_STEP_NAME], *folder;
    json_t *commit = json_object();
    struct stat status;

    bp_checkpoint_step_name(name, step);
    folder = bp_path_join(parent, name);
    if (folder != NULL) {
        set_integer(commit, "step", step);
        set_integer(commit, "bytes", folder_bytes(folder));
        if (stat(folder, &status) == 0)
            set_real(commit, "seconds_ago", fmax(0, self->now - (double)status.st_mtime));
        (void)json_object_set(self->out, "commit", commit);
    }
    json_decref(commit);
    bp_free(folder);
}

static void put_checkpoints(const reading *self)
{
    char *parent = bp_path_join(self->folder, "checkpoints");
    int64_t step = parent == NULL ? -1 : bp_checkpoint_newest_step(parent), available, bytes;
    struct statvfs room;

    if (step >= 0)
        put_commit(self, parent, step);
    bp_free(parent);
    if (statvfs(self->folder, &room) != 0)
        return;
    available = (int64_t)room.f_bavail * (int64_t)room.f_frsize;
    bytes = integer_of(json_object_get(self->out, "commit"), "bytes");
    set_integer(self->out, "free_bytes", available);
    if (bytes > 0)
        set_integer(self->out, "room_for_checkpoints", available / bytes);
}

/* ---- members ---- */

static bp_err read_at(json_t **out, const char *folder, const status_watch *watch, bool is_member);

/* Calls `take` with each member's folder. */
static bp_err each_member(const char *folder, void *context,
                          bp_err (*take)(void *context, const char *member, const char *name))
{
    char *parent = bp_path_join(folder, "members"), **names = NULL;
    int64_t count = 0;
    bp_err err = BP_OK;

    if (bp_path_is_dir(parent))
        err = bp_dir_list(parent, &names, &count);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        char *member = names[k][0] == 'm' ? bp_path_join(parent, names[k]) : NULL;

        if (member != NULL)
            err = take(context, member, names[k]);
        bp_free(member);
    }
    bp_names_free(&names, count);
    bp_free(parent);
    return err;
}

typedef struct member_list {
    json_t *members;
    const status_watch *watch;
} member_list;

/* A member that has not begun yet has no run.json; one that can't be read says why. */
static bp_err add_member(void *context, const char *folder, const char *name)
{
    member_list *list = context;
    json_t *member = NULL;
    bp_err err = read_at(&member, folder, list->watch, true);

    if (err == BP_ERR_INPUT)
        member = json_pack("{s:s}", "state", "waiting");
    else if (err != BP_OK)
        member = json_pack("{s:s, s:s}", "state", "damaged", "message", bp_err_message());
    set(member, "name", json_string(name));
    (void)json_array_append_new(list->members, member);
    return err == BP_ERR_INPUT || err == BP_ERR_FORMAT ? BP_OK : err;
}

/* Those that train count as fast as they are, whoever else waits: what is left is shared by them.
 */
static void sum_members(const reading *self, const json_t *members)
{
    int64_t wanted = integer_of(self->out, "members_wanted"), finished = 0, steps = 0;
    double speed = 0, done = 0, tokens = NAN;
    const json_t *member;
    size_t k;

    if (wanted == 0) /* each is trained by a job of its own */
        wanted = (int64_t)json_array_size(members);
    json_array_foreach(members, k, member)
    {
        bool ended = is(member, "finished"); /* one may have before its last step */

        finished += ended;
        done += (double)integer_of(member, ended ? "steps" : "step");
        steps = steps == 0 ? integer_of(member, "steps") : steps;
        if (integer_of(member, "step") > 0 && json_object_get(member, "tokens") != NULL)
            tokens = real_of(member, "tokens") / (double)integer_of(member, "step");
        if (is(member, "running"))
            speed += json_number_value(json_object_get(member, "tokens_per_second_median"));
    }
    set_integer(self->out, "members_wanted", wanted);
    set_integer(self->out, "members_finished", finished);
    if (wanted * steps > 0)
        set_real(self->out, "progress", done / (double)(wanted * steps));
    if (speed > 0) {
        set_real(self->out, "tokens_per_second", speed);
        set_real(self->out, "seconds_left", ((double)(wanted * steps) - done) * tokens / speed);
    }
}

static bp_err put_members(const reading *self, const status_watch *watch)
{
    member_list list = {json_array(), watch};
    bp_err err = each_member(self->folder, &list, add_member);

    if (err == BP_OK) {
        sum_members(self, list.members);
        (void)json_object_set(self->out, "members", list.members);
    }
    json_decref(list.members);
    return err;
}

/* ---- all ---- */

static bp_err put_job(const reading *self, const status_watch *watch)
{
    const char *job = json_string_value(json_object_get(self->record, "job"));

    if (strcmp(job, "ensemble") == 0 && !self->is_member)
        return put_members(self, watch);
    if (strcmp(job, "pretrain") == 0)
        put_training(self);
    put_share(self, "units_done", "units");
    put_share(self, "methods_scored", "methods");
    return BP_OK;
}

static bp_err fill(reading *self, const char *path, const status_watch *watch)
{
    char *next, *log;
    bp_err err = read_record(self, path);

    if (err != BP_OK)
        return err;
    self->told = run_progress_read(self->folder);
    put_state(self, watch);
    put_checkpoints(self);
    put_told(self);
    err = put_job(self, watch);
    put_obstacles(self);
    log = last_line(self, "log.txt"); /* of a job that has no steps it tells how far it is */
    if (log != NULL)
        set(self->out, "log", json_string(log));
    bp_free(log);
    next = status_next(self->out);
    if (next != NULL)
        set(self->out, "next", json_string(next));
    bp_free(next);
    return err;
}

/* Members that jobs of their own train (ensemble.only) stand in a folder that is no run yet; and a
 * job takes the lock before it writes what it is. */
static bp_err without_record(const reading *self, const status_watch *watch)
{
    status_hold hold = status_owner(self->out, self->folder, watch);
    char *members = bp_path_join(self->folder, "members");
    bool has_members = members != NULL && bp_path_is_dir(members) && !self->is_member;

    bp_free(members);
    if (hold == HOLD_ALIVE || hold == HOLD_SILENT) {
        set(self->out, "state", json_string("starting"));
        return BP_OK;
    }
    if (!has_members)
        return BP_FAIL(BP_ERR_INPUT,
                       "there is no run, it has no run.json: at %s; name the run.dir of a job",
                       self->folder);
    set(self->out, "state", json_string("waiting"));
    set(self->out, "job", json_string("ensemble"));
    set(self->out, "next",
        json_string("once all members are finished: the same command without ensemble.only "
                    "gathers them"));
    return put_members(self, watch);
}

static bp_err read_at(json_t **out, const char *folder, const status_watch *watch, bool is_member)
{
    reading self = {
        .folder = folder, .is_member = is_member, .out = json_object(), .now = (double)time(NULL)};
    char *path = bp_path_join(folder, "run.json");
    bp_err err = path == NULL || self.out == NULL ? bp_fail_memory("a status", 1, 1) : BP_OK;

    *out = NULL;
    if (err == BP_OK)
        set(self.out, "run", json_string(folder));
    if (err == BP_OK)
        err = bp_path_exists(path) ? fill(&self, path, watch) : without_record(&self, watch);
    if (err == BP_OK)
        *out = json_incref(self.out);
    json_decref(self.record);
    json_decref(self.told);
    json_decref(self.out);
    bp_free(path);
    return err;
}

static bp_err begin_watch(void *watch, const char *folder, const char *name)
{
    (void)name;
    status_watch_begin(watch, folder);
    return BP_OK;
}

bp_err bp_run_status_read(json_t **out, const char *folder, double watch_seconds)
{
    status_watch watch = {.seconds = watch_seconds};
    struct stat status;
    bp_err err;

    *out = NULL;
    if (stat(folder, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", folder);
    if (!S_ISDIR(status.st_mode))
        return BP_FAIL(BP_ERR_INPUT, "it is no folder: at %s; name the run.dir of a job", folder);
    status_watch_begin(&watch, folder);
    err =
        each_member(folder, &watch, begin_watch); /* all are seen before the first is waited for */
    if (err == BP_OK)
        err = read_at(out, folder, &watch, false);
    status_watch_clear(&watch);
    return err;
}
