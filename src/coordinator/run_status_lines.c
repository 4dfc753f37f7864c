/* What the journals of a run add up to. */
#include "coordinator/run_status_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_LIMIT  ((size_t)1 << 20)
#define NOTES_SHOWN 5

bp_err status_each_line(const char *path, void *context,
                        void (*take)(void *context, const json_t *line))
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); /* no FIFO is waited for */
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    bp_err err = BP_OK;

    if (stream == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return errno == ENOENT ? BP_OK : bp_fail_errno(BP_ERR_IO, "can't read", path);
    }
    while ((bytes = getline(&line, &room, stream)) > 0 && line[bytes - 1] == '\n') {
        json_t *value = (size_t)bytes > LINE_LIMIT
                            ? NULL
                            : json_loadb(line, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);

        if (json_is_object(value))
            take(context, value);
        json_decref(value);
    }
    if (ferror(stream))
        err = bp_fail_errno(BP_ERR_IO, "can't read", path);
    free(line); /* getline's */
    (void)fclose(stream);
    return err;
}

double status_time(const char *stamp)
{
    struct tm parts = {0};
    const char *end = stamp == NULL ? NULL : strptime(stamp, "%Y-%m-%dT%H:%M:%SZ", &parts);

    return end == NULL || *end != '\0' ? STATUS_NO_TIME : (double)timegm(&parts);
}

static double real_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static int64_t integer_of(const json_t *line, const char *key)
{
    return json_integer_value(json_object_get(line, key));
}

/* ---- metrics.jsonl ---- */

void status_metrics_init(status_metrics *out)
{
    *out = (status_metrics){
        .loss = NAN, .valid_loss = NAN, .best_valid_loss = NAN, .speed = NAN, .median_speed = NAN};
}

static void keep_speed(status_metrics *metrics, double speed)
{
    if (metrics->lines >= metrics->room) {
        int64_t room = 2 * metrics->room + 256;
        double *speeds = bp_realloc("run.status", metrics->speeds, room, sizeof *speeds);

        metrics->short_of_memory = metrics->short_of_memory || speeds == NULL;
        if (speeds == NULL)
            return;
        metrics->speeds = speeds;
        metrics->room = room;
    }
    metrics->speeds[metrics->lines++] = speed;
}

void status_metrics_take(void *context, const json_t *line)
{
    status_metrics *metrics = context;
    double seconds = real_of(line, "seconds"), valid = real_of(line, "valid_loss");

    if (!json_is_integer(json_object_get(line, "step")))
        return;
    metrics->step = integer_of(line, "step");
    metrics->tokens = integer_of(line, "tokens");
    metrics->loss = real_of(line, "loss");
    metrics->speed = real_of(line, "tokens_per_second");
    if (isfinite(metrics->speed) && isfinite(seconds) && seconds > 0) {
        keep_speed(metrics, metrics->speed);
        metrics->line_seconds += seconds;
        metrics->line_tokens += seconds * metrics->speed;
    }
    if (!isfinite(valid))
        return;
    metrics->valid_loss = valid;
    metrics->valid_step = metrics->step;
    if (!(valid >= metrics->best_valid_loss)) { /* the first one too */
        metrics->best_valid_loss = valid;
        metrics->best_step = metrics->step;
    }
}

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Steps between the last line that was kept and the checkpoint that the run went on from have no
 * line: they are taken to be as fast as all others. */
void status_metrics_end(status_metrics *metrics)
{
    double tokens = (double)metrics->tokens;

    if (metrics->lines > 0) {
        qsort(metrics->speeds, (size_t)metrics->lines, sizeof *metrics->speeds, compare_reals);
        metrics->median_speed = metrics->speeds[metrics->lines / 2];
        metrics->kept_seconds = metrics->line_seconds;
        if (tokens > metrics->line_tokens && metrics->line_tokens > 0)
            metrics->kept_seconds *= tokens / metrics->line_tokens;
    }
    bp_free(metrics->speeds);
    metrics->speeds = NULL;
}

/* ---- events.jsonl ---- */

bp_err status_events_init(status_events *out)
{
    *out = (status_events){.first = STATUS_NO_TIME,
                           .last = STATUS_NO_TIME,
                           .before = STATUS_NO_TIME,
                           .closed = STATUS_NO_TIME,
                           .commit_step = -1,
                           .commit_time = STATUS_NO_TIME,
                           .counts = json_object(),
                           .notes = json_array()};
    if (out->counts != NULL && out->notes != NULL)
        return BP_OK;
    status_events_clear(out);
    return bp_fail_memory("the events of a run", 1, 1);
}

void status_events_clear(status_events *events)
{
    json_decref(events->counts);
    json_decref(events->notes);
    json_decref(events->failed);
    bp_free(events->commits);
    *events = (status_events){.counts = NULL};
}

static void on_checkpoint(status_events *events, int64_t step, double time)
{
    events->commit_step = step;
    events->commit_time = time;
    if (events->commit_count >= events->commit_room) {
        int64_t room = 2 * events->commit_room + 64;
        struct status_commit *grown =
            bp_realloc("run.status", events->commits, room, sizeof *grown);

        events->short_of_memory = events->short_of_memory || grown == NULL;
        if (grown == NULL)
            return;
        events->commits = grown;
        events->commit_room = room;
    }
    events->commits[events->commit_count++] = (struct status_commit){step, time, events->lost};
}

/* What nothing has counted yet of the time from `kept` until work goes on: what was lost by then
 * stands at the commit, so that no second counts twice where several starts begin from one. */
static void lose(status_events *events, double lost_by_then, double kept, double now)
{
    if (events->begun++ > 0)
        events->lost = lost_by_then + (now > kept ? now - kept : 0);
}

/* Work goes on from `step`: all since the commit of that step is lost, be it work or waiting. */
static void on_begun_at(status_events *events, int64_t step, double time)
{
    const struct status_commit *last;

    while (events->commit_count > 0 && events->commits[events->commit_count - 1].step > step)
        events->commit_count--;
    events->commit_step = -1;
    if (events->commit_count == 0) {
        lose(events, 0, events->first, time);
        return;
    }
    last = &events->commits[events->commit_count - 1];
    events->commit_step = last->step;
    events->commit_time = last->time;
    lose(events, last->lost, last->time, time);
}

/* A job whose units are kept one by one loses what lies between its last sign of life and work. */
static void on_begun(status_events *events, const json_t *line, double time)
{
    if (json_is_integer(json_object_get(line, "step")))
        on_begun_at(events, integer_of(line, "step"), time);
    else
        lose(events, events->lost, events->before, time);
    events->units = integer_of(line, "units");
    events->methods = integer_of(line, "methods");
    events->members = integer_of(line, "members");
}

static void count_event(status_events *events, const char *name)
{
    static const char *const routine[] = {"opened",         "closed",     "started",
                                          "resumed",        "checkpoint", "member_started",
                                          "member_trained", NULL};
    bool known = false;

    for (int k = 0; routine[k] != NULL; k++)
        known = known || strcmp(name, routine[k]) == 0;
    if (!known)
        (void)json_object_set_new(
            events->counts, name,
            json_integer(json_integer_value(json_object_get(events->counts, name)) + 1));
}

static void keep_note(status_events *events, const json_t *line, const char *name)
{
    if (json_object_get(events->counts, name) == NULL)
        return;
    (void)json_array_append_new(events->notes, json_deep_copy(line));
    if (json_array_size(events->notes) > NOTES_SHOWN) {
        (void)json_array_remove(events->notes, 0);
        events->older++;
    }
}

/* Notes are of one start: what went wrong before it is counted, not told again. */
static void on_opened(status_events *events)
{
    events->opened++;
    events->before = events->last;
    events->older += (int64_t)json_array_size(events->notes);
    (void)json_array_clear(events->notes);
}

void status_events_take(void *context, const json_t *line)
{
    status_events *events = context;
    const char *name = json_string_value(json_object_get(line, "event"));
    double time = status_time(json_string_value(json_object_get(line, "time")));
    bool opened = name != NULL && strcmp(name, "opened") == 0;

    if (name == NULL || time < 0)
        return;
    if (opened || strcmp(name, "start_failed") == 0) {
        json_decref(events->failed);
        events->failed = opened ? NULL : json_deep_copy(line);
    }
    if (strcmp(name, "start_failed") == 0) /* it ran no second of the run */
        return;
    if (opened)
        on_opened(events);
    if (events->first < 0)
        events->first = events->before = time;
    events->last = time;
    events->closed = strcmp(name, "closed") == 0 ? time : STATUS_NO_TIME;
    if (strcmp(name, "checkpoint") == 0)
        on_checkpoint(events, integer_of(line, "step"), time);
    if (strcmp(name, "started") == 0 || strcmp(name, "resumed") == 0)
        on_begun(events, line, time);
    count_event(events, name);
    keep_note(events, line, name);
}
