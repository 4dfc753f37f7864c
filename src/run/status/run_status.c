/* A run's status: what the job has written of itself, who holds the folder, and what is in it.
 * Called by jobs/doctor.c, jobs/status.c and run_history.c. */
#include "run/status/run_status.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "run/restart.h"
#include "run/run_compare.h"
#include "run/status/run_progress.h"
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
    const status_watch *watch;
    const bp_run_status_job *jobs;
    json_t *out;
    json_t *record;   /* run.json */
    json_t *progress; /* status.json; NULL if missing: an older program ran */
    double now;
} reading;

static void copy(json_t *to, const json_t *from, const char *key)
{
    json_t *value = json_object_get(from, key);

    if (value)
        (void)json_object_set(to, key, value);
}

/* Seconds since a stamp; a clock that was set back since then makes them 0. */
static double age_of(const reading *self, const json_t *object, const char *key)
{
    double then = status_time(text_of(object, key));

    return then < 0 ? NAN : fmax(0, self->now - then);
}

/* The last whole line of a file as text; NULL if there is none. Free with bp_free(). */
static char *last_line(const reading *self, const char *name)
{
    char tail[TAIL + 1] = "", *end;
    int64_t size = 0;
    int fd;

    if (bp_file_open(bp_path_in(self->folder, name).text, &fd, &size) == BP_OK) {
        if (pread(fd, tail, TAIL, size > TAIL ? size - TAIL : 0) < 0)
            tail[0] = '\0';
        (void)close(fd);
    }
    end = strrchr(tail, '\n');
    if (!end)
        return NULL;
    *end = '\0';
    end = strrchr(tail, '\n');
    return bp_strdup(!end ? tail : end + 1);
}

/* ---- state ---- */

/* Slurm's state of the job that ran it last, if that job may start again. */
static void put_queue(const reading *self)
{
    static const char *const waits[] = {"PENDING",   "CONFIGURING", "REQUEUED", "REQUEUE_HOLD",
                                        "SUSPENDED", "STOPPED",     NULL};
    json_t *queue;

    if (!has(self->out, "slurm_job"))
        copy(self->out, last_start_of(self->record), "slurm_job");
    queue = status_queue(text_of(self->out, "slurm_job"));
    if (!queue)
        return;
    set(self->out, "queue", queue);
    if (is_among(text_of(queue, "state"), waits))
        set(self->out, "state", json_string("queued"));
    if (says(self->out, "state", "dead") && !has(self->out, "message") &&
        !says(queue, "state", "gone"))
        set(self->out, "message",
            json_sprintf("Slurm says %s (%s)", text_of(queue, "state"), text_of(queue, "reason")));
}

static void put_state(const reading *self)
{
    static const char *const ends[] = {"code", "reason", "message", "time"};
    status_hold hold = status_owner(self->out, self->folder, self->watch);
    json_t *end = run_words_of_end(self->folder, self->record, self->progress);
    const char *kept = text_of(json_object_get(self->record, "exit"), "state");

    if (kept && kept[0] != '\0' &&
        strcmp(kept, "running") != 0) /* it has ended: its job is only drawing its page */
        hold = HOLD_NONE;
    set(self->out, "state", bp_json_string(status_state(text_of(end, "state"), hold)));
    copy(self->out, self->record, "job");
    copy(self->out, self->record, "version");
    copy(self->out, json_object_get(self->record, "mesh"), "ranks");
    copy(self->out, self->record, "hosts");
    if (!says(self->out, "state", "running") && !says(self->out, "state", "silent")) {
        for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++)
            copy(self->out, end, ends[k]);
        if (!says(end, "cause", "") && !has(end, "message"))
            set(self->out, "message", bp_json_string(text_of(end, "cause")));
        set_real(self->out, "ended_seconds_ago", age_of(self, end, "time"));
        if (!self->is_member && !says(self->out, "state", "finished"))
            put_queue(self);
    }
    json_decref(end);
}

/* Obstacles to another start, and starts without commits or that failed before they opened the
 * run. */
static void put_obstacles(const reading *self)
{
    char *line = last_line(self, "events.jsonl");
    json_t *event = !line ? NULL : json_loads(line, JSON_REJECT_DUPLICATES, NULL), *failed;
    int64_t stuck = bp_restart_stuck(self->record, self->folder);
    bool ended = !says(self->out, "state", "running");

    if (bp_path_exists(bp_path_in(self->folder, "halt").text))
        set(self->out, "halt", json_true());
    if (ended && stuck > 0 && !says(self->out, "state", "finished") &&
        !says(self->out, "state", "silent"))
        set_integer(self->out, "stuck_starts", stuck);
    if (ended && says(event, "event", "start_failed")) { /* before it held the folder */
        failed =
            json_pack("{s:O, s:O, s:O}", "code", json_object_get(event, "code"), "message",
                      json_object_get(event, "message"), "time", json_object_get(event, "time"));
        set_real(failed, "seconds_ago", age_of(self, event, "time"));
        set(self->out, "start_failed", failed);
    }
    json_decref(event);
    bp_free(line);
}

/* ---- what the job reported ---- */

static void put_progress(const reading *self)
{
    static const char *const own[] = {"format",     "format_version", "time",
                                      "phase_time", "start",          "exit"}; /* the file's */
    json_t *progress = json_copy(self->progress);
    double wall = bp_json_number(self->progress, "wall_seconds"),
           kept = bp_json_number(self->progress, "kept_seconds");
    long long starts = integer_of(!self->progress ? self->record : self->progress, "starts");

    for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
        (void)json_object_del(progress, own[k]);
    (void)json_object_update_missing(self->out, progress);
    json_decref(progress);
    copy(self->out, last_start_of(self->record), "after");
    if (says(self->out, "state", "running")) {
        wall += age_of(self, self->progress, "time");
        set_real(self->out, "phase_seconds", age_of(self, self->progress, "phase_time"));
    }
    set_real(self->out, "wall_seconds", wall);
    if (kept > 0)
        set_real(self->out, "effective_time", fmin(1, kept / wall));
    set_integer(self->out, "starts", starts);
    set_integer(self->out, "restarts", starts > 0 ? starts - 1 : 0);
}

static void put_share(const reading *self, const char *done, const char *all)
{
    int64_t of = integer_of(self->out, all);

    if (of > 0 && says(self->out, "state", "finished"))
        set_integer(self->out, done, of);
    if (of > 0)
        set_real(self->out, "progress", (double)integer_of(self->out, done) / (double)of);
}

/* Steps after the newest checkpoint are repeated if the run was not stopped in time. */
static void put_training(const reading *self)
{
    int64_t commit = integer_of(json_object_get(self->out, "commit"), "step");
    int64_t reported = integer_of(self->progress, "step"),
            step = reported > commit ? reported : commit, steps;
    run_pairs pairs;

    (void)bp_run_pairs_read(&pairs, self->folder); /* reported without them */
    steps = run_steps(self->record, &pairs);
    bp_run_pairs_clear(&pairs);
    set_integer(self->out, "step", step);
    set_integer(self->out, "steps", steps);
    if (steps > 0)
        set_real(self->out, "progress", (double)step / (double)steps);
    if (says(self->out, "state", "finished"))
        return;
    if (reported > 0)
        set_real(self->out, "seconds_left",
                 (double)(steps - step) * bp_json_number(self->progress, "tokens") /
                     (double)reported / bp_json_number(self->progress, "tokens_per_second_median"));
    if (reported > commit && !says(self->out, "state", "running"))
        set_integer(self->out, "redone_steps", reported - commit);
}

/* ---- checkpoints, and space for more ---- */

static int64_t folder_bytes(const char *folder)
{
    char **names = NULL;
    int64_t count = 0, sum = 0;

    (void)bp_dir_list(folder, &names, &count);
    for (int64_t k = 0; k < count; k++) {
        int64_t bytes = bp_file_size(bp_path_in(folder, names[k]).text);

        sum += bytes > 0 ? bytes : 0;
    }
    bp_names_free(&names, count);
    return sum;
}

/* A checkpoint of only an adapter is useless without the model that it names. */
static void put_missing_base(const reading *self, const char *checkpoint)
{
    char *folder = NULL;
    json_t *manifest = NULL;
    const json_t *base;

    if (bp_checkpoint_read_metadata(checkpoint, &folder, &manifest) == BP_OK) {
        base = json_object_get(json_object_get(manifest, "state"), "base");
        if (base && !bp_path_exists(text_of(base, "path")))
            set(self->out, "missing_base", bp_json_string(text_of(base, "path")));
    }
    json_decref(manifest);
    bp_free(folder);
}

static void put_checkpoints(const reading *self)
{
    char *newest, name[BP_STEP_NAME];
    const bp_path parent = bp_path_in(self->folder, "checkpoints");
    int64_t step = bp_checkpoint_newest_step(parent.text), bytes = 0;
    struct statvfs disk;
    struct stat status;

    if (step >= 0) {
        json_t *commit = json_object();

        bp_checkpoint_step_name(name, step);
        newest = bp_path_join(parent.text, name);
        bytes = folder_bytes(newest);
        set_integer(commit, "step", step);
        set_integer(commit, "bytes", bytes);
        if (stat(newest, &status) == 0)
            set_real(commit, "seconds_ago", fmax(0, self->now - (double)status.st_mtime));
        set(self->out, "commit", commit);
        put_missing_base(self, newest);
        bp_free(newest);
    }
    if (statvfs(self->folder, &disk) != 0)
        return;
    set_integer(self->out, "free_bytes", (int64_t)disk.f_bavail * (int64_t)disk.f_frsize);
    if (bytes > 0)
        set_integer(self->out, "room_for_checkpoints",
                    (int64_t)disk.f_bavail * (int64_t)disk.f_frsize / bytes);
}

/* ---- members ---- */

static bp_err read_at(json_t **out, const char *folder, const status_watch *watch,
                      const bp_run_status_job *jobs, bool is_member);

/* Calls `take` with each member's folder. */
static bp_err each_member(const char *folder, void *context,
                          bp_err (*take)(void *context, const char *member))
{
    char **names = NULL;
    const bp_path parent = bp_path_in(folder, "members");
    int64_t count = 0;
    bp_err err = bp_path_is_dir(parent.text) ? bp_dir_list(parent.text, &names, &count) : BP_OK;

    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        if (names[k][0] == 'm')
            err = take(context, bp_path_in(parent.text, names[k]).text);
    }
    bp_names_free(&names, count);
    return err;
}

/* A member that has not begun has no run.json; for an unreadable one the reason is reported. */
static bp_err add_member(void *context, const char *folder)
{
    const reading *self = context;
    json_t *member = NULL;
    bp_err err = read_at(&member, folder, self->watch, self->jobs, true);

    if (err == BP_ERR_INPUT)
        member = json_pack("{s:s}", "state", "waiting");
    else if (err != BP_OK)
        member = json_pack("{s:s, s:s}", "state", "damaged", "message", bp_err_message());
    set(member, "name", bp_json_string(bp_path_base(folder)));
    (void)json_array_append_new(json_object_get(self->out, "members"), member);
    return err == BP_ERR_INPUT || err == BP_ERR_FORMAT ? BP_OK : err;
}

/* The speed is that of the members that train: they share the remaining work. */
static bp_err put_members(reading *self)
{
    int64_t wanted = integer_of(self->out, "members_wanted"), finished = 0, steps = 0;
    double speed = 0, done = 0, tokens = NAN;
    json_t *members = json_array(), *member;
    size_t k;
    bp_err err;

    set(self->out, "members", members);
    err = each_member(self->folder, self, add_member);
    if (wanted == 0) /* each is trained by a job of its own */
        wanted = (int64_t)json_array_size(members);
    json_array_foreach(members, k, member)
    {
        bool ended =
            says(member, "state", "finished"); /* a member may finish before its last step */

        finished += ended;
        done += (double)integer_of(member, ended ? "steps" : "step");
        steps = steps == 0 ? integer_of(member, "steps") : steps;
        if (integer_of(member, "step") > 0 && has(member, "tokens"))
            tokens = bp_json_number(member, "tokens") / (double)integer_of(member, "step");
        if (says(member, "state", "running"))
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
    return err;
}

/* ---- all ---- */

static bp_err read_run(reading *self, const char *path)
{
    bp_err err = bp_json_load(&self->record, path, RUN_LIMIT);
    char *next, *log;

    if (err == BP_OK && !(json_is_string(json_object_get(self->record, "job")) &&
                          json_is_object(json_object_get(self->record, "exit"))))
        err = BP_FAIL(BP_ERR_FORMAT, "run.damaged_record", "it names no 'job' or no 'exit': in %s",
                      path);
    if (err != BP_OK)
        return err == BP_ERR_FORMAT ? bp_err_prefix(err, "run.json is damaged") : err;
    self->progress = run_progress_read(self->folder);
    put_state(self);
    put_checkpoints(self);
    put_progress(self);
    if (says(self->record, "job", "ensemble") && !self->is_member) {
        err = put_members(self);
    } else {
        if (says(self->record, "job", "pretrain") || says(self->record, "job", "finetune"))
            put_training(self);
        put_share(self, "units_done", "units");
        put_share(self, "methods_scored", "methods");
    }
    put_obstacles(self);
    log = last_line(self, "log.txt"); /* for a job without steps it shows the progress */
    if (log)
        set(self->out, "log", bp_json_string(log));
    bp_free(log);
    next = status_next(self->out, self->jobs);
    set(self->out, "next", bp_json_string(next));
    bp_free(next);
    return err;
}

/* Members trained by separate jobs (ensemble.only) are in a folder that is not yet a run; and a job
 * takes the lock before it writes run.json. */
static bp_err read_without_record(reading *self)
{
    status_hold hold = status_owner(self->out, self->folder, self->watch);
    bool has_members = bp_path_is_dir(bp_path_in(self->folder, "members").text) && !self->is_member;

    if (hold == HOLD_ALIVE || hold == HOLD_SILENT) {
        set(self->out, "state", json_string("starting"));
        return BP_OK;
    }
    if (!has_members)
        return BP_FAIL(BP_ERR_INPUT, "run.missing",
                       "there is no run, it has no run.json: at %s; name the run.dir of a job",
                       self->folder);
    set(self->out, "state", json_string("waiting"));
    set(self->out, "job", json_string("ensemble"));
    set(self->out, "next",
        json_string("once all members are finished: the same command without ensemble.only "
                    "gathers them"));
    return put_members(self);
}

static bp_err read_at(json_t **out, const char *folder, const status_watch *watch,
                      const bp_run_status_job *jobs, bool is_member)
{
    reading self = {.folder = folder,
                    .is_member = is_member,
                    .watch = watch,
                    .jobs = jobs,
                    .out = json_pack("{s:o}", "run", bp_json_string(folder)),
                    .now = (double)time(NULL)};
    const bp_path path = bp_path_in(folder, "run.json");
    bp_err err =
        bp_path_exists(path.text) ? read_run(&self, path.text) : read_without_record(&self);

    *out = err == BP_OK ? json_incref(self.out) : NULL;
    json_decref(self.record);
    json_decref(self.progress);
    json_decref(self.out);
    return err;
}

static bp_err begin_watch(void *watch, const char *folder)
{
    status_watch_begin(watch, folder);
    return BP_OK;
}

bp_err bp_run_status_read(json_t **out, const char *folder, double watch_seconds,
                          const bp_run_status_job *jobs)
{
    status_watch watch = {.seconds = watch_seconds};
    struct stat status;
    bp_err err;

    *out = NULL;
    if (stat(folder, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", folder);
    if (!S_ISDIR(status.st_mode))
        return BP_FAIL(BP_ERR_INPUT, "run.missing",
                       "it is not a folder: at %s; name the run.dir of a job", folder);
    status_watch_begin(&watch, folder);
    err = each_member(folder, &watch, begin_watch); /* all are read before the first wait */
    if (err == BP_OK)
        err = read_at(out, folder, &watch, jobs, false);
    status_watch_clear(&watch);
    return err;
}
