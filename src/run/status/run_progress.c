/* RUN/status.json, written by the job: the job always knows what `bagpipe status` reports; readers
 * would have to read all files of the run. */
#include "run/status/run_progress.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"
#include "run/run_fields.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPEEDS 32 /* the median is of this many lines */
#define NOTES  5
#define SHARE  100 /* writing takes at most 1/SHARE of the time, commits aside, */
#define BURST  0.1 /* and these seconds */

struct run_progress {
    const char *folder;
    json_t *file; /* what is written */
    double speeds[SPEEDS];
    int64_t lines;  /* of this start */
    double opened;  /* by the monotonic clock, as all durations */
    double before;  /* wall seconds of the run until then, waiting in between included */
    double spent;   /* seconds of writing */
    run_lock *lock; /* borrowed */
    bool ended, warned;
    run_progress *outer; /* of a run around this one */
};

static run_progress *innermost; /* the one that phases are of */

/* What the watchdog's thread notes, until the thread that runs the job takes it. */
static _Atomic(json_t *) noted;

static double known(double value)
{
    return isfinite(value) ? value : 0;
}

double status_time(const char *stamp)
{
    struct tm parts = {0};
    const char *end = strptime(stamp, "%Y-%m-%dT%H:%M:%SZ", &parts);

    return !end || *end != '\0' ? STATUS_NO_TIME : (double)timegm(&parts);
}

static void set_stamp(json_t *object, const char *key)
{
    set(object, key, bp_json_string(bp_clock_stamp().text));
}

/* ---- the file ---- */

/* A failure to write does not end the job, nor hide the job's own failure. */
static void write_now(run_progress *self)
{
    char *text;
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (!self->ended && run_lock_is_own(self->lock)) {
        set_stamp(self->file, "time");
        set_real(self->file, "wall_seconds", self->before + bp_clock_now() - self->opened);
        text = bp_json_text(self->file);
        if (bp_file_write_lightly(bp_path_in(self->folder, RUN_STATUS_FILE).text, text,
                                  strlen(text)) != BP_OK &&
            !self->warned && run_lock_is_own(self->lock)) {
            self->warned = true;
            bp_warn_failure("%s; `bagpipe status` shows what was known before", bp_err_text());
        }
        bp_free(text);
    }
    bp_err_set_message(message);
}

void run_progress_note(json_t *line)
{
    json_decref(atomic_exchange(&noted, line));
}

json_t *run_progress_noted(void)
{
    return atomic_exchange(&noted, NULL);
}

/* Lines may come faster than a file system can write files. */
static void write_soon(run_progress *self)
{
    double began = bp_clock_now();

    if (self->spent > BURST + (began - self->opened) / SHARE)
        return;
    write_now(self);
    self->spent += bp_clock_now() - began;
}

json_t *run_progress_read(const char *folder)
{
    const bp_path path = bp_path_in(folder, RUN_STATUS_FILE);
    json_t *value = NULL;

    if (bp_path_exists(path.text) && bp_json_load(&value, path.text, RUN_STATUS_LIMIT) == BP_OK &&
        (!json_is_object(value) || integer_of(value, "format_version") != RUN_STATUS_VERSION)) {
        json_decref(value);
        value = NULL;
    }
    return value;
}

/* ---- a start ---- */

static void on_phase(bp_phase phase)
{
    if (!innermost)
        return;
    set(innermost->file, "phase", bp_json_string(bp_phase_name(phase)));
    set_stamp(innermost->file, "phase_time");
    write_soon(innermost);
}

/* Between two starts there is only the wall clock, which may be set back. */
static void take_over(run_progress *self, const json_t *record, const json_t *before)
{
    double then = status_time(text_of(self->file, "time"));
    int64_t starts = integer_of(self->file, "starts");

    self->before = fmax(0, known(bp_json_number(self->file, "wall_seconds"))) +
                   (then < 0 ? 0 : fmax(0, (double)time(NULL) - then));
    (void)json_object_del(self->file, "exit");
    if (!json_is_object(json_object_get(self->file, "events")))
        set(self->file, "events", json_object());
    set(self->file, "notes", json_array());
    set(self->file, "format", bp_json_string(RUN_STATUS_FORMAT));
    set_integer(self->file, "format_version", RUN_STATUS_VERSION);
    set_integer(self->file, "start", integer_of(record, "starts"));
    set_integer(self->file, "starts", 1 + (starts > 0 ? starts : integer_of(before, "starts")));
}

run_progress *run_progress_open(const char *folder, run_lock *lock, const json_t *record,
                                const json_t *before)
{
    run_progress *self = bp_alloc("run.status", 1, sizeof *self);
    bp_heartbeat heartbeat;

    bp_dir_sweep(folder); /* a job that was killed as it wrote leaves half a file */
    self->folder = folder;
    self->lock = lock;
    self->opened = bp_clock_now();
    self->file = !before ? NULL : run_progress_read(folder);
    if (!self->file)
        self->file = json_object();
    take_over(self, record, before);
    run_words_clear(folder);
    self->outer = innermost;
    innermost = self;
    bp_heartbeat_listen(on_phase);
    bp_heartbeat_read(&heartbeat);
    on_phase(heartbeat.phase);
    return self;
}

void run_progress_free(run_progress **out)
{
    run_progress *self = *out;

    if (!self)
        return;
    if (innermost == self)
        innermost = self->outer;
    if (!innermost) {
        bp_heartbeat_listen(NULL);
        json_decref(atomic_exchange(&noted, NULL));
    }
    json_decref(self->file);
    bp_free(self);
    *out = NULL;
}

void run_progress_end(run_progress *self, json_t *ended)
{
    if (!self)
        return;
    (void)json_object_set(self->file, "exit", ended);
    write_now(self);
    self->ended = true;
}

/* ---- lines ---- */

void run_progress_metric(run_progress *self, const json_t *line)
{
    double speed = bp_json_number(line, "tokens_per_second"),
           valid = bp_json_number(line, "valid_loss");
    double seconds = known(bp_json_number(line, "seconds")), sorted[SPEEDS];
    int64_t count;

    if (!self || !json_is_integer(json_object_get(line, "tokens")))
        return; /* an ensemble's lines are about its members */
    if (isfinite(speed))
        self->speeds[self->lines++ % SPEEDS] = speed;
    count = self->lines < SPEEDS ? self->lines : SPEEDS;
    memcpy(sorted, self->speeds, sizeof sorted);
    bp_sort_reals(sorted, count);
    set_integer(self->file, "step", integer_of(line, "step"));
    set_integer(self->file, "tokens", integer_of(line, "tokens"));
    set_real(self->file, "loss", bp_json_number(line, "loss"));
    set_real(self->file, "tokens_per_second", speed);
    set_real(self->file, "tokens_per_second_median", count > 0 ? sorted[count / 2] : NAN);
    set_real(self->file, "kept_seconds",
             known(bp_json_number(self->file, "kept_seconds")) + seconds);
    if (isfinite(valid)) {
        set_real(self->file, "valid_loss", valid);
        if (!(valid >= bp_json_number(self->file, "best_valid_loss"))) { /* the first one, too */
            set_real(self->file, "best_valid_loss", valid);
            set_integer(self->file, "best_step", integer_of(line, "step"));
        }
    }
    write_soon(self);
}

/* A training resumes from a step: scales totals in proportion to the steps. */
static void go_back(run_progress *self, int64_t step)
{
    json_t *file = self->file;
    int64_t last = integer_of(file, "step");
    double share = last > 0 ? (double)step / (double)last : 0;

    set_real(file, "kept_seconds", known(bp_json_number(file, "kept_seconds")) * share);
    set_integer(file, "tokens", (int64_t)((double)integer_of(file, "tokens") * share));
    set_integer(file, "step", step);
    if (step < last)
        (void)json_object_del(file, "loss");
    if (integer_of(file, "best_step") > step) {
        (void)json_object_del(file, "best_step");
        (void)json_object_del(file, "best_valid_loss");
        (void)json_object_del(file, "valid_loss");
    }
}

static void on_begun(run_progress *self, const json_t *line)
{
    static const char *const counts[][2] = {
        {"units", "units"}, {"methods", "methods"}, {"members", "members_wanted"}};

    if (integer_of(self->file, "starts") > 1 && json_is_integer(json_object_get(line, "step")))
        go_back(self, integer_of(line, "step"));
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
        if (json_object_get(line, counts[k][0]))
            (void)json_object_set(self->file, counts[k][1], json_object_get(line, counts[k][0]));
}

/* Counts events that are not routine, and keeps the newest of this start. */
static void keep_note(run_progress *self, const json_t *line)
{
    static const char *const routine[] = {"opened",         "closed",     "started",
                                          "resumed",        "checkpoint", "member_started",
                                          "member_trained", NULL};
    const char *name = text_of(line, "event");
    json_t *counts = json_object_get(self->file, "events"),
           *notes = json_object_get(self->file, "notes");

    if (is_among(name, routine))
        return;
    set_integer(counts, name, integer_of(counts, name) + 1);
    (void)json_array_append(notes, (json_t *)line); /* which is not changed */
    if (json_array_size(notes) > NOTES)
        (void)json_array_remove(notes, 0);
}

void run_progress_event(run_progress *self, const json_t *line)
{
    if (!self || !has(line, "event"))
        return;
    keep_note(self, line);
    if (says(line, "event", "started") || says(line, "event", "resumed")) {
        on_begun(self, line);
        write_now(self); /* what the next start reckons from */
    } else {
        write_soon(self);
    }
}

void run_progress_take(run_progress *self, const json_t *members)
{
    (void)json_object_update(self->file, (json_t *)members); /* which is not changed */
    write_soon(self);
}
