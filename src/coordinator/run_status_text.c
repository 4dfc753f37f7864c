/* A run's status as lines for people. Everything comes from the object that --json prints. */
#include "base/clock.h"
#include "coordinator/run_status.h"
#include "coordinator/run_status_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL         "  %-11s"
#define ROOM_SHOWN    20 /* more is room enough */
#define STRIKES       2  /* once is chance */
#define SHORT_SECONDS 60 /* of so short a run the start is the most */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static bool has(const json_t *object, const char *key)
{
    return json_object_get(object, key) != NULL;
}

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static long long integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void add_duration(bp_buffer *out, double seconds)
{
    char text[64];

    if (seconds >= 48 * 3600.0 && seconds < 1e9)
        (void)snprintf(text, sizeof text, "%.1f days", seconds / 86400);
    else
        bp_clock_duration(text, sizeof text, seconds < 0 ? 0 : seconds);
    bp_buffer_printf(out, "%s", text);
}

static void add_bytes(bp_buffer *out, double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;

    for (; bytes >= 1024 && unit < 5; unit++)
        bytes /= 1024;
    bp_buffer_printf(out, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

/* ---- a line each ---- */

static void add_place(bp_buffer *out, const json_t *status)
{
    if (!has(status, "host"))
        return;
    bp_buffer_printf(out, " on %s", text_of(status, "host"));
    if (has(status, "slurm_job"))
        bp_buffer_printf(out, ", Slurm job %s", text_of(status, "slurm_job"));
    if (json_object_size(json_object_get(status, "hosts")) > 1)
        bp_buffer_printf(out, ", %d hosts",
                         (int)json_object_size(json_object_get(status, "hosts")));
    if (integer_of(status, "ranks") > 0)
        bp_buffer_printf(out, ", %lld rank%s", integer_of(status, "ranks"),
                         integer_of(status, "ranks") == 1 ? "" : "s");
}

static void add_seen(bp_buffer *out, const json_t *status)
{
    if (!has(status, "seen_seconds"))
        return;
    bp_buffer_printf(out, "; seen alive ");
    add_duration(out, real_of(status, "seen_seconds"));
    bp_buffer_printf(out, " ago");
}

static void add_state(bp_buffer *out, const json_t *status)
{
    const char *state = text_of(status, "state"), *message = text_of(status, "message");

    bp_buffer_printf(out, "%s: ", text_of(status, "run"));
    if (has(status, "job"))
        bp_buffer_printf(out, "%s, ", text_of(status, "job"));
    bp_buffer_printf(out, "%s", state);
    if (text_of(status, "reason")[0] != '\0') /* stopped, or finished before its last step */
        bp_buffer_printf(out, " (%s)", text_of(status, "reason"));
    if (strcmp(state, "running") == 0 || strcmp(state, "starting") == 0) {
        add_place(out, status);
        add_seen(out, status);
    } else if (strcmp(state, "silent") == 0) {
        add_place(out, status);
        bp_buffer_printf(out, ", which can't be asked from here");
        add_seen(out, status);
    } else if (strcmp(state, "dead") == 0) {
        bp_buffer_printf(out, ": its job is gone%s", has(status, "host") ? "; it ran" : "");
        add_place(out, status);
        add_seen(out, status);
    }
    if (has(status, "ended_seconds_ago")) {
        bp_buffer_printf(out, " ");
        add_duration(out, real_of(status, "ended_seconds_ago"));
        bp_buffer_printf(out, " ago");
    }
    if (strcmp(state, "failed") == 0)
        bp_buffer_printf(out, " with status %lld", integer_of(status, "code"));
    bp_buffer_printf(out, "\n");
    if (message[0] != '\0')
        bp_buffer_printf(out, LABEL "%s\n", "message", message);
    if (has(status, "halt"))
        bp_buffer_printf(out, LABEL "it was asked to stop: there is a file halt\n", "halt");
}

/* A start that the run itself knows nothing of: what it needed could not be read. */
static void add_failed_start(bp_buffer *out, const json_t *status)
{
    const json_t *failed = json_object_get(status, "start_failed");

    if (failed == NULL)
        return;
    bp_buffer_printf(out, LABEL "the last start failed with status %lld, ", "start",
                     integer_of(failed, "code"));
    add_duration(out, real_of(failed, "seconds_ago"));
    bp_buffer_printf(out, " ago: %s\n", text_of(failed, "message"));
}

static void add_left(bp_buffer *out, const json_t *status)
{
    const char *state = text_of(status, "state");

    if (strcmp(state, "finished") != 0 && real_of(status, "seconds_left") > 0) {
        bp_buffer_printf(out, ", ");
        add_duration(out, real_of(status, "seconds_left"));
        bp_buffer_printf(out, strcmp(state, "running") == 0 ? " left" : " of work left");
    }
    bp_buffer_printf(out, "\n");
}

static void add_progress(bp_buffer *out, const json_t *status)
{
    double percent = 100 * real_of(status, "progress");

    if (has(status, "steps"))
        bp_buffer_printf(out, LABEL "step %lld of %lld", "progress", integer_of(status, "step"),
                         integer_of(status, "steps"));
    else if (integer_of(status, "units") > 0)
        bp_buffer_printf(out, LABEL "%lld of %lld work units", "progress",
                         integer_of(status, "units_done"), integer_of(status, "units"));
    else if (integer_of(status, "methods") > 0)
        bp_buffer_printf(out, LABEL "%lld of %lld methods scored", "progress",
                         integer_of(status, "methods_scored"), integer_of(status, "methods"));
    else if (has(status, "members_wanted"))
        bp_buffer_printf(out, LABEL "%lld of %lld members finished", "progress",
                         integer_of(status, "members_finished"),
                         integer_of(status, "members_wanted"));
    else
        return;
    if (isfinite(percent))
        bp_buffer_printf(out, " (%.1f %%)", percent);
    add_left(out, status);
}

static void add_speed(bp_buffer *out, const json_t *status)
{
    if (!has(status, "tokens_per_second"))
        return;
    if (has(status, "tokens_per_second_median"))
        bp_buffer_printf(out, LABEL "%.0f tokens/s (median), %.0f last\n", "speed",
                         real_of(status, "tokens_per_second_median"),
                         real_of(status, "tokens_per_second"));
    else
        bp_buffer_printf(out, LABEL "%.0f tokens/s\n", "speed",
                         real_of(status, "tokens_per_second"));
}

static void add_loss(bp_buffer *out, const json_t *status)
{
    if (!has(status, "loss") && !has(status, "best_valid_loss"))
        return;
    bp_buffer_printf(out, LABEL, "loss");
    if (has(status, "loss"))
        bp_buffer_printf(out, "%.4f", real_of(status, "loss"));
    if (has(status, "valid_loss"))
        bp_buffer_printf(out, "%svalid %.4f", has(status, "loss") ? ", " : "",
                         real_of(status, "valid_loss"));
    if (has(status, "best_valid_loss"))
        bp_buffer_printf(out, ", the best %.4f at step %lld", real_of(status, "best_valid_loss"),
                         integer_of(status, "best_step"));
    bp_buffer_printf(out, "\n");
}

static void add_commit(bp_buffer *out, const json_t *status)
{
    const json_t *commit = json_object_get(status, "commit");

    if (commit != NULL) {
        bp_buffer_printf(out, LABEL "step %lld", "committed", integer_of(commit, "step"));
        if (has(commit, "seconds_ago")) {
            bp_buffer_printf(out, ", ");
            add_duration(out, real_of(commit, "seconds_ago"));
            bp_buffer_printf(out, " ago");
        }
        bp_buffer_printf(out, ", ");
        add_bytes(out, real_of(commit, "bytes"));
        bp_buffer_printf(out, "\n");
    } else if (has(status, "steps")) {
        bp_buffer_printf(out, LABEL "nothing yet\n", "committed");
    }
    if (integer_of(status, "damaged_checkpoints") > 0)
        bp_buffer_printf(out,
                         LABEL "%lld checkpoint%s put aside as checkpoints/.bad-*, which may be "
                               "deleted\n",
                         "damaged", integer_of(status, "damaged_checkpoints"),
                         integer_of(status, "damaged_checkpoints") == 1 ? "" : "s");
}

static void add_room(bp_buffer *out, const json_t *status)
{
    long long room = integer_of(status, "room_for_checkpoints");

    if (!has(status, "free_bytes"))
        return;
    bp_buffer_printf(out, LABEL, "free");
    add_bytes(out, real_of(status, "free_bytes"));
    if (has(status, "room_for_checkpoints") && room < ROOM_SHOWN)
        bp_buffer_printf(out, ", room for %lld more checkpoint%s%s", room, room == 1 ? "" : "s",
                         room < 2 ? ": make room, or the run stops" : "");
    bp_buffer_printf(out, "\n");
}

static void add_restarts(bp_buffer *out, const json_t *status)
{
    long long restarts = integer_of(status, "restarts");
    double wall = real_of(status, "wall_seconds"), lost = real_of(status, "lost_seconds");
    bool effective = has(status, "effective_time") && (restarts > 0 || wall >= SHORT_SECONDS);

    if (!effective && restarts == 0)
        return;
    bp_buffer_printf(out, LABEL, "time");
    if (effective)
        bp_buffer_printf(out, "effective %.0f %% of ", 100 * real_of(status, "effective_time"));
    add_duration(out, wall);
    bp_buffer_printf(out, ": %lld restart%s", restarts, restarts == 1 ? "" : "s");
    if (lost > 0) {
        bp_buffer_printf(out, " lost ");
        add_duration(out, lost);
    }
    bp_buffer_printf(out, "\n");
}

/* One event as a sentence; of those that are not known here, the name. */
static void add_sentence(bp_buffer *out, const json_t *note)
{
    const char *event = text_of(note, "event");

    if (strcmp(event, "skipped") == 0)
        bp_buffer_printf(out, "a step was skipped, its gradient was not finite");
    else if (strcmp(event, "no_progress") == 0)
        bp_buffer_printf(out, "rank %lld on %s stood still (%s)", integer_of(note, "rank"),
                         text_of(note, "host"), text_of(note, "reason"));
    else if (strcmp(event, "slow_rank") == 0)
        bp_buffer_printf(out, "rank %lld on %s was slow, %.1f times the others' time",
                         integer_of(note, "rank"), text_of(note, "host"), real_of(note, "ratio"));
    else if (strcmp(event, "no_launcher") == 0)
        bp_buffer_printf(out, "%s was gone", text_of(note, "launcher"));
    else if (strcmp(event, "patience") == 0)
        bp_buffer_printf(out, "the training ended after %lld validation%s without a new best",
                         integer_of(note, "validations"),
                         integer_of(note, "validations") == 1 ? "" : "s");
    else if (strcmp(event, "digest_mismatch") == 0)
        bp_buffer_printf(out, "bits had changed (%s)", text_of(note, "found"));
    else
        bp_buffer_printf(out, "%s", event);
    if (has(note, "step"))
        bp_buffer_printf(out, " at step %lld", integer_of(note, "step"));
    bp_buffer_printf(out, ", %s", text_of(note, "time"));
}

/* The newest event of the last start that is not routine, and how many there were besides. */
static void add_events(bp_buffer *out, const json_t *status)
{
    const json_t *notes = json_object_get(status, "notes");
    size_t count = json_array_size(notes);
    long long others = integer_of(status, "notes_older") + (long long)count - 1;

    if (count == 0)
        return;
    bp_buffer_printf(out, LABEL, "events");
    add_sentence(out, json_array_get(notes, count - 1));
    if (others > 0)
        bp_buffer_printf(out, " (+%lld older)", others);
    bp_buffer_printf(out, "\n");
}

/* "n2 2 times; sbatch takes --exclude=n2": once, or where there is no other host, it is no choice.
 */
static void add_suspects(bp_buffer *out, const json_t *status)
{
    json_t *hosts = json_object_get(json_object_get(status, "suspects"), "hosts"), *entry;
    bool choice = json_object_size(json_object_get(status, "hosts")) > 1;
    const char *host;
    int shown = 0;

    json_object_foreach(hosts, host, entry)
    {
        if (!choice || integer_of(entry, "count") < STRIKES)
            continue;
        if (shown++ == 0)
            bp_buffer_printf(out, LABEL, "suspects");
        else
            bp_buffer_printf(out, ", ");
        bp_buffer_printf(out, "%s %lld times", host, integer_of(entry, "count"));
    }
    if (shown == 0)
        return;
    shown = 0;
    json_object_foreach(hosts, host, entry) if (integer_of(entry, "count") >= STRIKES)
        bp_buffer_printf(out, "%s%s", shown++ == 0 ? "; sbatch takes --exclude=" : ",", host);
    bp_buffer_printf(out, "\n");
}

/* ---- members ---- */

static void add_members(bp_buffer *out, const json_t *status)
{
    const json_t *members = json_object_get(status, "members");

    for (size_t k = 0; k < json_array_size(members); k++) {
        const json_t *member = json_array_get(members, k);
        const char *state = text_of(member, "state");

        bp_buffer_printf(out, LABEL "%-9s", text_of(member, "name"), state);
        if (has(member, "steps"))
            bp_buffer_printf(out, "%lld/%lld", integer_of(member, "step"),
                             integer_of(member, "steps"));
        if (has(member, "loss"))
            bp_buffer_printf(out, "  loss %.4f", real_of(member, "loss"));
        if (has(member, "best_valid_loss"))
            bp_buffer_printf(out, "  best valid %.4f", real_of(member, "best_valid_loss"));
        if (strcmp(state, "running") == 0 && has(member, "tokens_per_second_median"))
            bp_buffer_printf(out, "  %.0f tokens/s", real_of(member, "tokens_per_second_median"));
        if (has(member, "message"))
            bp_buffer_printf(out, "  %s", text_of(member, "message"));
        bp_buffer_printf(out, "\n");
    }
}

void bp_run_status_text(bp_buffer *out, const json_t *status)
{
    add_state(out, status);
    add_failed_start(out, status);
    add_progress(out, status);
    add_speed(out, status);
    add_loss(out, status);
    add_members(out, status);
    add_commit(out, status);
    add_room(out, status);
    add_restarts(out, status);
    add_events(out, status);
    add_suspects(out, status);
    if (!has(status, "steps") && has(status, "log"))
        bp_buffer_printf(out, LABEL "%s\n", "log", text_of(status, "log"));
    if (has(status, "next"))
        bp_buffer_printf(out, LABEL "%s\n", "next", text_of(status, "next"));
}
