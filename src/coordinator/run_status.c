/* A run's status, put together from the files of its folder. */
#include "coordinator/run_status.h"

#include "base/fs.h"
#include "base/mem.h"
#include "coordinator/restart.h"
#include "coordinator/run_compare_priv.h"
#include "coordinator/run_status_priv.h"
#include "store/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define RUN_LIMIT    ((int64_t)16 << 20)
#define SMALL_LIMIT  ((int64_t)1 << 20)
#define LOG_TAIL     2048
#define MEMBER_DEPTH 1 /* members of an ensemble have none of their own */

/* What is read of one folder. */
typedef struct reading {
    const char *folder;
    json_t *out;
    json_t *record; /* run.json; NULL: there is none yet */
    run_pairs keys; /* config.ini */
    status_metrics metrics;
    status_events events;
    status_hold hold;
    double now;
} reading;

static void set(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

static void set_integer(json_t *object, const char *key, int64_t value)
{
    set(object, key, json_integer(value));
}

/* What is not known is left out. */
static void set_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        set(object, key, json_real(value));
}

static void copy(json_t *to, const json_t *from, const char *key)
{
    json_t *value = json_object_get(from, key);

    if (value != NULL)
        (void)json_object_set(to, key, value);
}

static int64_t key_integer(const reading *self, const char *key)
{
    const char *text = run_pairs_find(&self->keys, key);

    return text == NULL ? 0 : strtoll(text, NULL, 10);
}

static bp_err read_record(reading *self)
{
    char *path = bp_path_join(self->folder, "run.json");
    bp_err err = path == NULL ? bp_fail_memory("a file name", 1, strlen(self->folder)) : BP_OK;

    if (err == BP_OK)
        err = bp_json_load(&self->record, path, RUN_LIMIT);
    if (err == BP_OK && !(json_is_string(json_object_get(self->record, "job")) &&
                          json_is_object(json_object_get(self->record, "exit"))))
        err = BP_FAIL(BP_ERR_FORMAT, "it names no 'job' or no 'exit': in %s", path);
    if (err == BP_ERR_FORMAT)
        err = bp_err_prefix(err, "run.json is damaged");
    bp_free(path);
    return err;
}

static bp_err read_journal(const reading *self, const char *name, void *context,
                           void (*take)(void *context, const json_t *line))
{
    char *path = bp_path_join(self->folder, name);
    bp_err err = path == NULL ? bp_fail_memory("a file name", 1, strlen(self->folder))
                              : status_each_line(path, context, take);

    bp_free(path);
    return err;
}

/* ---- state ---- */

static void put_state(reading *self)
{
    const json_t *ended = json_object_get(self->record, "exit");
    const char *exit_state = json_string_value(json_object_get(ended, "state"));
    const char *state = status_state(exit_state, self->hold);

    set(self->out, "state", json_string(state));
    copy(self->out, self->record, "job");
    copy(self->out, self->record, "version");
    if (strcmp(state, "stopped") == 0 || strcmp(state, "failed") == 0 ||
        strcmp(state, "finished") == 0) {
        double time = status_time(json_string_value(json_object_get(ended, "time")));

        copy(self->out, ended, "code");
        copy(self->out, ended, "reason");
        copy(self->out, ended, "message");
        copy(self->out, ended, "time");
        if (time >= 0)
            set_real(self->out, "ended_seconds_ago", self->now - time);
    }
    set(self->out, "ranks",
        json_deep_copy(json_object_get(json_object_get(self->record, "mesh"), "ranks")));
    copy(self->out, self->record, "hosts");
}

/* A file that asks the run to stop, and keeps it from being started again. */
static void put_halt(reading *self)
{
    char *path = bp_path_join(self->folder, "halt");

    if (path != NULL && bp_path_exists(path))
        set(self->out, "halt", json_true());
    bp_free(path);
}

static bool is_state(const reading *self, const char *state)
{
    return strcmp(json_string_value(json_object_get(self->out, "state")), state) == 0;
}

/* Starts that the run itself knows nothing of, and those that led nowhere. */
static void put_starts(reading *self)
{
    const json_t *failed = self->events.failed;
    int64_t stuck = bp_restart_stuck(self->record, self->folder);
    json_t *told;

    if (is_state(self, "running"))
        return;
    if (stuck > 0 && !is_state(self, "finished") && !is_state(self, "silent"))
        set_integer(self->out, "stuck_starts", stuck);
    if (failed == NULL)
        return;
    told = json_object();
    copy(told, failed, "code");
    copy(told, failed, "message");
    copy(told, failed, "time");
    set_real(told, "seconds_ago",
             self->now - status_time(json_string_value(json_object_get(failed, "time"))));
    set(self->out, "start_failed", told);
}

/* ---- training ---- */

static void put_training(reading *self)
{
    const status_metrics *m = &self->metrics;
    int64_t steps = run_steps(self->record, &self->keys), commit = self->events.commit_step;
    int64_t step = m->step > commit ? m->step : commit;
    double tokens = (double)(key_integer(self, "train.batch") * key_integer(self, "model.context"));

    step = step > 0 ? step : 0;
    set_integer(self->out, "step", step);
    set_integer(self->out, "steps", steps);
    if (steps > 0)
        set_real(self->out, "progress", (double)step / (double)steps);
    set_integer(self->out, "tokens", m->tokens);
    set_real(self->out, "tokens_per_second", m->speed);
    set_real(self->out, "tokens_per_second_median", m->median_speed);
    set_real(self->out, "loss", m->loss);
    set_real(self->out, "valid_loss", m->valid_loss);
    set_real(self->out, "best_valid_loss", m->best_valid_loss);
    if (m->best_step > 0)
        set_integer(self->out, "best_step", m->best_step);
    if (m->lines > 0 && !is_state(self, "finished")) /* a single line is slow or fast by chance */
        set_real(self->out, "seconds_left", (double)(steps - step) * tokens / m->median_speed);
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

static int64_t count_damaged(const char *parent)
{
    char **names;
    int64_t count, damaged = 0;

    if (bp_dir_list(parent, &names, &count) != BP_OK)
        return 0;
    for (int64_t k = 0; k < count; k++)
        damaged += strncmp(names[k], ".bad-", 5) == 0;
    bp_names_free(&names, count);
    return damaged;
}

/* The age by the event, or where a copied folder has none, by the file's own time. */
static double commit_age(const reading *self, int64_t step, const char *folder)
{
    struct stat status;

    if (self->events.commit_step == step)
        return self->now - self->events.commit_time;
    return stat(folder, &status) == 0 ? self->now - (double)status.st_mtime : NAN;
}

static void put_commit(reading *self, const char *parent)
{
    int64_t step = bp_checkpoint_newest_step(parent), bytes, damaged = count_damaged(parent);
    char name[BP_STEP_NAME], *folder;
    json_t *commit;

    if (damaged > 0)
        set_integer(self->out, "damaged_checkpoints", damaged);
    if (step < 0)
        return;
    bp_checkpoint_step_name(name, step);
    folder = bp_path_join(parent, name);
    if (folder == NULL)
        return;
    bytes = folder_bytes(folder);
    commit = json_pack("{s:I, s:I}", "step", (json_int_t)step, "bytes", (json_int_t)bytes);
    set_real(commit, "seconds_ago", commit_age(self, step, folder));
    set(self->out, "commit", commit);
    bp_free(folder);
}

static void put_room(reading *self)
{
    const json_t *commit = json_object_get(self->out, "commit");
    int64_t bytes = json_integer_value(json_object_get(commit, "bytes")), available;
    struct statvfs room;

    if (statvfs(self->folder, &room) != 0)
        return;
    available = (int64_t)room.f_bavail * (int64_t)room.f_frsize;
    set_integer(self->out, "free_bytes", available);
    if (bytes > 0)
        set_integer(self->out, "room_for_checkpoints", available / bytes);
}

static void put_checkpoints(reading *self)
{
    char *parent = bp_path_join(self->folder, "checkpoints");

    if (parent != NULL)
        put_commit(self, parent);
    bp_free(parent);
    put_room(self);
}

/* Steps behind the newest checkpoint are done again, where the run was not stopped in time. */
static void put_redone(reading *self)
{
    const json_t *commit = json_object_get(self->out, "commit");
    int64_t from = json_integer_value(json_object_get(commit, "step")), to = self->metrics.step;

    if (json_object_get(self->out, "steps") != NULL && to > from && !is_state(self, "running") &&
        !is_state(self, "finished"))
        set_integer(self->out, "redone_steps", to - from);
}

/* ---- restarts and effective time ---- */

/* When the run did something last: now, where it runs. */
static double end_of(const reading *self)
{
    double seen = json_number_value(json_object_get(self->out, "seen_seconds"));

    if (is_state(self, "running"))
        return self->now;
    if (self->events.closed < 0 && json_object_get(self->out, "seen_seconds") != NULL &&
        self->now - seen > self->events.last)
        return self->now - seen;
    return self->events.last;
}

static void put_restarts(reading *self)
{
    const status_events *events = &self->events;
    int64_t starts = json_integer_value(json_object_get(self->record, "starts"));
    double wall = events->first < 0 ? NAN : end_of(self) - events->first;

    set_integer(self->out, "starts", events->opened > 0 ? events->opened : starts);
    set_integer(self->out, "restarts",
                events->opened > 0 ? events->opened - 1 : (starts > 0 ? starts - 1 : 0));
    set_real(self->out, "wall_seconds", wall);
    set_real(self->out, "lost_seconds", events->lost);
    if (self->metrics.kept_seconds > 0 && wall >= 1) { /* stamps tell whole seconds */
        double effective = self->metrics.kept_seconds / wall;

        set_real(self->out, "kept_seconds", self->metrics.kept_seconds);
        set_real(self->out, "effective_time", effective < 1 ? effective : 1);
    }
    if (json_object_size(events->counts) > 0) {
        set(self->out, "events", json_incref(events->counts));
        set(self->out, "notes", json_incref(events->notes));
        set_integer(self->out, "notes_older", events->older);
    }
}

/* ---- members ---- */

static bp_err read_at(json_t **out, const char *folder, status_watch *watch, int depth);

/* A member that has not begun yet has no run.json; one that can't be read says why. */
static bp_err add_member(json_t *members, const char *parent, const char *name, status_watch *watch)
{
    char *folder = bp_path_join(parent, name);
    json_t *member = NULL;
    bp_err err = folder == NULL ? bp_fail_memory("a file name", 1, strlen(parent))
                                : read_at(&member, folder, watch, MEMBER_DEPTH);

    if (err == BP_ERR_INPUT)
        member = json_pack("{s:s}", "state", "waiting");
    else if (err != BP_OK)
        member = json_pack("{s:s, s:s}", "state", "damaged", "message", bp_err_message());
    set(member, "name", json_string(name));
    (void)json_array_append_new(members, member);
    bp_free(folder);
    return err == BP_ERR_INPUT || err == BP_ERR_FORMAT ? BP_OK : err;
}

/* Those that train count as fast as they are, whoever else waits: what is left is shared by them.
 */
static void sum_members(reading *self, const json_t *members)
{
    int64_t wanted = key_integer(self, "ensemble.members"), finished = 0, done = 0;
    int64_t steps = run_steps(self->record, &self->keys);

    if (wanted == 0) /* each is trained by a job of its own */
        wanted = (int64_t)json_array_size(members);
    double tokens = (double)(key_integer(self, "train.batch") * key_integer(self, "model.context"));
    double speed = 0;

    for (size_t k = 0; k < json_array_size(members); k++) {
        const json_t *member = json_array_get(members, k);
        const char *state = json_string_value(json_object_get(member, "state"));

        finished += strcmp(state, "finished") == 0;
        done += json_integer_value(/* one may have finished before its last step */
                                   json_object_get(
                                       member, strcmp(state, "finished") == 0 ? "steps" : "step"));
        if (steps == 0)
            steps = json_integer_value(json_object_get(member, "steps"));
        if (strcmp(state, "running") == 0)
            speed += json_number_value(json_object_get(member, "tokens_per_second_median"));
    }
    set_integer(self->out, "members_wanted", wanted);
    set_integer(self->out, "members_finished", finished);
    if (wanted * steps > 0)
        set_real(self->out, "progress", (double)done / (double)(wanted * steps));
    if (speed > 0)
        set_real(self->out, "tokens_per_second", speed);
    if (speed > 0 && tokens > 0)
        set_real(self->out, "seconds_left", (double)(wanted * steps - done) * tokens / speed);
}

static bp_err put_members(reading *self, status_watch *watch)
{
    char *parent = bp_path_join(self->folder, "members"), **names = NULL;
    json_t *members = json_array();
    int64_t count = 0;
    bp_err err = BP_OK;

    if (parent == NULL || members == NULL)
        err = bp_fail_memory("the members of an ensemble", 1, 1);
    if (err == BP_OK && bp_path_is_dir(parent))
        err = bp_dir_list(parent, &names, &count);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (names[k][0] == 'm')
            err = add_member(members, parent, names[k], watch);
    if (err == BP_OK) {
        sum_members(self, members);
        set(self->out, "members", json_incref(members));
    }
    json_decref(members);
    bp_names_free(&names, count);
    bp_free(parent);
    return err;
}

/* ---- other jobs ---- */

/* Methods of a study are done when they are scored. */
static void put_methods(reading *self)
{
    char *path = bp_path_join(self->folder, "uncertainty/record.json");
    json_t *record = NULL, *entry;
    const char *name;
    int64_t scored = 0;

    if (path != NULL && bp_path_exists(path) &&
        bp_json_load(&record, path, 64 * SMALL_LIMIT) == BP_OK) {
        json_object_foreach(json_object_get(record, "methods"), name, entry) scored +=
            json_is_number(json_object_get(entry, "score_seconds"));
    }
    json_decref(record);
    bp_free(path);
    set_integer(self->out, "methods", self->events.methods);
    set_integer(self->out, "methods_scored", scored);
    if (self->events.methods > 0)
        set_real(self->out, "progress", (double)scored / (double)self->events.methods);
}

/* Hosts that the run has found wanting, as they stand there. */
static void put_suspects(reading *self)
{
    char *path = bp_path_join(self->folder, "suspects.json");
    json_t *suspects = NULL;

    if (path != NULL && bp_path_exists(path) && bp_json_load(&suspects, path, SMALL_LIMIT) == BP_OK)
        set(self->out, "suspects", suspects);
    bp_free(path);
}

/* The last whole line of log.txt. */
static void put_log(reading *self)
{
    char *path = bp_path_join(self->folder, "log.txt"), tail[LOG_TAIL + 1], *line, *end;
    int64_t size = 0;
    int fd = -1;
    ssize_t bytes = 0;

    if (path != NULL && bp_file_open(path, &fd, &size) == BP_OK) {
        bytes = pread(fd, tail, LOG_TAIL, size > LOG_TAIL ? size - LOG_TAIL : 0);
        (void)close(fd);
    }
    bp_free(path);
    tail[bytes > 0 ? bytes : 0] = '\0';
    end = strrchr(tail, '\n');
    if (end == NULL)
        return;
    *end = '\0';
    line = strrchr(tail, '\n') == NULL ? tail : strrchr(tail, '\n') + 1;
    set(self->out, "log", json_string(line));
}

static bp_err put_job(reading *self, status_watch *watch, int depth)
{
    const char *job = json_string_value(json_object_get(self->record, "job"));

    if (strcmp(job, "ensemble") == 0 && depth == 0)
        return put_members(self, watch);
    if (strcmp(job, "pretrain") == 0)
        put_training(self);
    else if (strcmp(job, "score") == 0)
        set_integer(self->out, "units", self->events.units);
    else if (strcmp(job, "uncertainty") == 0)
        put_methods(self);
    return BP_OK;
}

/* ---- all ---- */

static bp_err fill(reading *self, status_watch *watch, int depth)
{
    char *next;
    bp_err err = read_record(self);

    if (err == BP_OK && run_pairs_read(&self->keys, self->folder) != BP_OK)
        self->keys = (run_pairs){NULL, 0}; /* it is told without them */
    if (err == BP_OK)
        err = read_journal(self, "metrics.jsonl", &self->metrics, status_metrics_take);
    status_metrics_end(&self->metrics);
    if (err == BP_OK)
        err = read_journal(self, "events.jsonl", &self->events, status_events_take);
    if (err != BP_OK)
        return err;
    self->hold = status_holder(self->out, self->folder, watch);
    put_state(self);
    put_halt(self);
    err = put_job(self, watch, depth);
    put_checkpoints(self);
    put_redone(self);
    put_restarts(self);
    put_starts(self);
    put_suspects(self);
    put_log(self);
    next = status_next(self->out);
    if (next != NULL)
        set(self->out, "next", json_string(next));
    bp_free(next);
    return err;
}

/* Members that jobs of their own train (ensemble.only) stand in a folder that is no run yet. */
static bp_err only_members(reading *self, status_watch *watch)
{
    set(self->out, "state", json_string("waiting"));
    set(self->out, "job", json_string("ensemble"));
    set(self->out, "next",
        json_string("once all members are finished: the same command without ensemble.only "
                    "gathers them"));
    return put_members(self, watch);
}

/* A job takes the lock before it writes what it is: that moment is a state too. */
static bp_err without_record(reading *self, status_watch *watch, int depth)
{
    char *members = depth == 0 ? bp_path_join(self->folder, "members") : NULL;
    bp_err err = BP_OK;

    self->hold = status_holder(self->out, self->folder, watch);
    if (self->hold == HOLD_ALIVE || self->hold == HOLD_SILENT)
        set(self->out, "state", json_string("starting"));
    else if (members != NULL && bp_path_is_dir(members))
        err = only_members(self, watch);
    else
        err = BP_FAIL(BP_ERR_INPUT,
                      "there is no run, it has no run.json: at %s; name the run.dir of a job",
                      self->folder);
    bp_free(members);
    return err;
}

static bp_err read_at(json_t **out, const char *folder, status_watch *watch, int depth)
{
    reading self = {.folder = folder, .out = json_object(), .now = (double)time(NULL)};
    char *path = bp_path_join(folder, "run.json");
    bp_err err = status_events_init(&self.events);

    *out = NULL;
    status_metrics_init(&self.metrics);
    if (err == BP_OK && (path == NULL || self.out == NULL))
        err = bp_fail_memory("a status", 1, 1);
    if (err == BP_OK)
        set(self.out, "run", json_string(folder));
    if (err == BP_OK)
        err =
            bp_path_exists(path) ? fill(&self, watch, depth) : without_record(&self, watch, depth);
    if (err == BP_OK)
        *out = json_incref(self.out);
    run_pairs_clear(&self.keys);
    status_events_clear(&self.events);
    json_decref(self.record);
    json_decref(self.out);
    bp_free(path);
    return err;
}

/* All who may have to be watched, the run and its members, are seen before the first is waited for.
 */
static void begin_watch(status_watch *watch, const char *folder)
{
    char *parent = bp_path_join(folder, "members"), **names = NULL;
    int64_t count = 0;

    status_watch_begin(watch, folder);
    if (parent != NULL && bp_path_is_dir(parent) && bp_dir_list(parent, &names, &count) != BP_OK)
        count = 0; /* put_members says why */
    for (int64_t k = 0; k < count; k++) {
        char *member = names[k][0] == 'm' ? bp_path_join(parent, names[k]) : NULL;

        if (member != NULL)
            status_watch_begin(watch, member);
        bp_free(member);
    }
    bp_names_free(&names, count);
    bp_free(parent);
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
    begin_watch(&watch, folder);
    err = read_at(out, folder, &watch, 0);
    status_watch_clear(&watch);
    return err;
}
