/* Lines of a run's journals. */
#include "coordinator/run_status_priv.h"

#include <errno.h>
#include <fcntl.h>
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

bp_err status_events_init(status_events *out)
{
    *out = (status_events){.counts = json_object(), .notes = json_array()};
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
    *events = (status_events){.counts = NULL};
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
void status_events_take(void *context, const json_t *line)
{
    status_events *events = context;
    const char *name = json_string_value(json_object_get(line, "event"));
    bool opened = name != NULL && strcmp(name, "opened") == 0;
    bool failed = name != NULL && strcmp(name, "start_failed") == 0;

    if (name == NULL)
        return;
    if (opened || failed) {
        json_decref(events->failed);
        events->failed = opened ? NULL : json_deep_copy(line);
    }
    if (opened) {
        events->older += (int64_t)json_array_size(events->notes);
        (void)json_array_clear(events->notes);
    }
    if (failed) /* it was no start of the run */
        return;
    count_event(events, name);
    keep_note(events, line, name);
}
