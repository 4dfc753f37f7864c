/* A run's status as lines for people. Everything comes from the object that --json prints. Called
 * by jobs/status.c. */
#include "base/process/clock.h"
#include "run/run_fields.h"
#include "run/status/run_status.h"

#include <stdio.h>
#include <string.h>

#define LABEL          "  %-11s"
#define INDENT         "             " /* of text after a label */
#define CAPACITY_SHOWN 20              /* more is enough space */
#define SHORT_SECONDS  60              /* in shorter runs the start dominates */

static const char *plural(long long count)
{
    return count == 1 ? "" : "s";
}

/* The duration between two texts; nothing if unknown. */
static void add_duration(bp_buffer *out, const char *before, double seconds, const char *after)
{
    char text[64];

    if (!isfinite(seconds))
        return;
    if (seconds >= 48 * 3600.0 && seconds < 1e9)
        (void)snprintf(text, sizeof text, "%.1f days", seconds / 86400);
    else
        bp_clock_duration(text, sizeof text, seconds < 0 ? 0 : seconds);
    bp_buffer_printf(out, "%s%s%s", before, text, after);
}

/* ---- a line each ---- */

static void add_place(bp_buffer *out, const json_t *status)
{
    size_t hosts = json_object_size(json_object_get(status, "hosts"));
    long long ranks = integer_of(status, "ranks");

    if (has(status, "host")) {
        bp_buffer_printf(out, " on %s", text_of(status, "host"));
        if (has(status, "slurm_job"))
            bp_buffer_printf(out, ", Slurm job %s", text_of(status, "slurm_job"));
        if (hosts > 1)
            bp_buffer_printf(out, ", %zu hosts", hosts);
        if (ranks > 0)
            bp_buffer_printf(out, ", %lld rank%s", ranks, plural(ranks));
    }
    if (says(status, "state", "silent"))
        bp_buffer_printf(out, ", which can't be asked from here");
    add_duration(out, "; seen alive ", bp_json_number(status, "seen_seconds"), " ago");
}

static void add_state(bp_buffer *out, const json_t *status)
{
    static const char *const placeless[] = {"finished", "stopped", "failed", "queued", NULL};
    const char *state = text_of(status, "state"), *job = text_of(status, "job");
    const json_t *queue = json_object_get(status, "queue");

    bp_buffer_printf(out, "%s: %s%s%s", text_of(status, "run"), job, job[0] != '\0' ? ", " : "",
                     state);
    if (strcmp(state, "queued") == 0)
        bp_buffer_printf(out, " again, %s (%s), Slurm job %s; it ended", text_of(queue, "state"),
                         text_of(queue, "reason"), text_of(status, "slurm_job"));
    if (!says(status, "reason", "")) /* stopped, or finished before its last step */
        bp_buffer_printf(out, " (%s)", text_of(status, "reason"));
    if (strcmp(state, "dead") == 0)
        bp_buffer_printf(out, ": its job is gone%s", has(status, "host") ? "; it ran" : "");
    if (!is_among(state, placeless))
        add_place(out, status);
    add_duration(out, " ", bp_json_number(status, "ended_seconds_ago"), " ago");
    if (strcmp(state, "failed") == 0)
        bp_buffer_printf(out, " with status %lld", integer_of(status, "code"));
    bp_buffer_printf(out, "\n");
}

/* A text of one line continues the current one, after `gap`; several lines, such as a
 * configuration's faults, are printed on separate lines. */
static void add_lines(bp_buffer *out, const char *gap, const char *text)
{
    bool several = strchr(text, '\n') != NULL;

    for (const char *line = text; *line != '\0'; line += strspn(line, "\n")) {
        int bytes = (int)strcspn(line, "\n");

        bp_buffer_printf(out, "%s%.*s", several ? "\n" INDENT "- " : gap, bytes, line);
        line += bytes;
    }
    bp_buffer_printf(out, "\n");
}

/* Adds a line if the text is not empty. */
static void add_text(bp_buffer *out, const char *label, const char *before, const char *text)
{
    if (text[0] == '\0')
        return;
    bp_buffer_printf(out, LABEL "%s", label, before);
    add_lines(out, "", text);
}

/* The previous start; and a start that failed before it opened the run, because an input could not
 * be read. */
static void add_starts(bp_buffer *out, const json_t *status)
{
    const json_t *failed = json_object_get(status, "start_failed");

    if (!says(status, "state", "finished"))
        add_text(out, "before", "the previous start ", text_of(status, "after"));
    if (failed) {
        bp_buffer_printf(out, LABEL "the last start failed with status %lld", "start",
                         integer_of(failed, "code"));
        add_duration(out, ", ", bp_json_number(failed, "seconds_ago"), " ago");
        bp_buffer_printf(out, ":");
        add_lines(out, " ", text_of(failed, "message"));
    }
}

static void add_progress(bp_buffer *out, const json_t *status)
{
    static const char *const counts[][3] = {
        {"step", "steps", ""},
        {"units_done", "units", " work units"},
        {"methods_scored", "methods", " methods scored"},
        {"members_finished", "members_wanted", " members finished"}};
    const char *state = text_of(status, "state");
    bool runs = strcmp(state, "running") == 0;
    size_t k = 0;

    while (k < sizeof counts / sizeof counts[0] && !has(status, counts[k][1]))
        k++;
    if (k < sizeof counts / sizeof counts[0]) {
        bp_buffer_printf(out, LABEL "%s%lld of %lld%s", "progress", k == 0 ? "step " : "",
                         integer_of(status, counts[k][0]), integer_of(status, counts[k][1]),
                         counts[k][2]);
        if (has(status, "progress"))
            bp_buffer_printf(out, " (%.1f %%)", 100 * bp_json_number(status, "progress"));
        if (strcmp(state, "finished") != 0 && bp_json_number(status, "seconds_left") > 0)
            add_duration(out, ", ", bp_json_number(status, "seconds_left"),
                         runs ? " left" : " of work left");
        bp_buffer_printf(out, "\n");
    }
    if (has(status, "trials_done")) /* of a search */
        bp_buffer_printf(out, LABEL "%lld trial%s done by this start\n", "progress",
                         integer_of(status, "trials_done"),
                         plural(integer_of(status, "trials_done")));
    if (strcmp(state, "finished") != 0)
        add_text(out, "doing", "", text_of(status, "doing"));
    if (has(status, "phase") && strcmp(state, "finished") != 0) {
        bp_buffer_printf(out, LABEL "%s", "phase", text_of(status, "phase"));
        add_duration(out, ", for ", bp_json_number(status, "phase_seconds"), "");
        bp_buffer_printf(out, "\n");
    }
}

static void add_figures(bp_buffer *out, const json_t *status)
{
    if (has(status, "tokens_per_second_median"))
        bp_buffer_printf(out, LABEL "%.0f tokens/s (median), %.0f last\n", "speed",
                         bp_json_number(status, "tokens_per_second_median"),
                         bp_json_number(status, "tokens_per_second"));
    else if (has(status, "tokens_per_second"))
        bp_buffer_printf(out, LABEL "%.0f tokens/s\n", "speed",
                         bp_json_number(status, "tokens_per_second"));
    if (!has(status, "loss") && !has(status, "best_valid_loss"))
        return;
    bp_buffer_printf(out, LABEL, "loss");
    if (has(status, "loss"))
        bp_buffer_printf(out, "%.4f", bp_json_number(status, "loss"));
    if (has(status, "valid_loss"))
        bp_buffer_printf(out, "%svalid %.4f", has(status, "loss") ? ", " : "",
                         bp_json_number(status, "valid_loss"));
    if (has(status, "best_valid_loss"))
        bp_buffer_printf(out, ", the best %.4f at step %lld",
                         bp_json_number(status, "best_valid_loss"),
                         integer_of(status, "best_step"));
    bp_buffer_printf(out, "\n");
}

static void add_disk(bp_buffer *out, const json_t *status)
{
    const json_t *commit = json_object_get(status, "commit");
    long long capacity = integer_of(status, "room_for_checkpoints");

    if (commit) {
        bp_buffer_printf(out, LABEL "step %lld", "committed", integer_of(commit, "step"));
        add_duration(out, ", ", bp_json_number(commit, "seconds_ago"), " ago");
        bp_buffer_printf(out, ", %s\n", bp_size_text(bp_json_number(commit, "bytes")).text);
    } else if (has(status, "steps")) {
        bp_buffer_printf(out, LABEL "nothing yet\n", "committed");
    }
    if (has(status, "missing_base"))
        bp_buffer_printf(out,
                         LABEL "%s is not there: the checkpoints hold only an adapter, and cannot "
                               "be used until that model is back\n",
                         "base model", text_of(status, "missing_base"));
    if (!has(status, "free_bytes"))
        return;
    bp_buffer_printf(out, LABEL "%s", "free",
                     bp_size_text(bp_json_number(status, "free_bytes")).text);
    if (has(status, "room_for_checkpoints") && capacity < CAPACITY_SHOWN)
        bp_buffer_printf(out, ", space for %lld more checkpoint%s%s", capacity, plural(capacity),
                         capacity < 2 ? ": free some space, or the run stops" : "");
    bp_buffer_printf(out, "\n");
}

static void add_restarts(bp_buffer *out, const json_t *status)
{
    long long restarts = integer_of(status, "restarts");
    double wall = bp_json_number(status, "wall_seconds");
    bool effective = has(status, "effective_time") && (restarts > 0 || wall >= SHORT_SECONDS);

    if (!effective && restarts == 0)
        return;
    bp_buffer_printf(out, LABEL, "time");
    if (effective)
        bp_buffer_printf(out, "effective %.0f %% of ",
                         100 * bp_json_number(status, "effective_time"));
    add_duration(out, "", wall, "");
    bp_buffer_printf(out, ", %lld restart%s\n", restarts, plural(restarts));
}

/* The newest event of the last start that is not routine, and the number of others: "slow rank:
 * rank 3 on n2 at step 7, TIME (+2 older)". */
static void add_events(bp_buffer *out, const json_t *status)
{
    const json_t *notes = json_object_get(status, "notes");
    const json_t *note = json_array_get(notes, json_array_size(notes) - 1);
    const char *name;
    json_t *times;
    long long others = -1;

    if (!note)
        return;
    bp_buffer_printf(out, LABEL, "events");
    for (const char *c = text_of(note, "event"); *c != '\0'; c++)
        bp_buffer_printf(out, "%c", *c == '_' ? ' ' : *c);
    if (has(note, "rank"))
        bp_buffer_printf(out, ": rank %lld on %s", integer_of(note, "rank"), text_of(note, "host"));
    if (has(note, "step"))
        bp_buffer_printf(out, " at step %lld", integer_of(note, "step"));
    if (says(note, "event", "slow_rank") && json_object_size(json_object_get(status, "hosts")) == 1)
        bp_buffer_printf(out, " (the only host: other work is on its cores, or a part is larger)");
    bp_buffer_printf(out, ", %s", text_of(note, "time"));
    json_object_foreach(json_object_get(status, "events"), name, times) others +=
        json_integer_value(times);
    if (others > 0)
        bp_buffer_printf(out, " (+%lld older)", others);
    bp_buffer_printf(out, "\n");
}

static void add_members(bp_buffer *out, const json_t *status)
{
    const json_t *members = json_object_get(status, "members"), *member;
    size_t k;

    json_array_foreach(members, k, member)
    {
        const char *state = text_of(member, "state");

        bp_buffer_printf(out, LABEL "%-9s", text_of(member, "name"), state);
        if (has(member, "steps"))
            bp_buffer_printf(out, "%lld/%lld", integer_of(member, "step"),
                             integer_of(member, "steps"));
        if (has(member, "loss"))
            bp_buffer_printf(out, "  loss %.4f", bp_json_number(member, "loss"));
        if (has(member, "best_valid_loss"))
            bp_buffer_printf(out, "  best valid %.4f", bp_json_number(member, "best_valid_loss"));
        if (strcmp(state, "running") == 0 && has(member, "tokens_per_second_median"))
            bp_buffer_printf(out, "  %.0f tokens/s",
                             bp_json_number(member, "tokens_per_second_median"));
        if (has(member, "message"))
            bp_buffer_printf(out, "  %s", text_of(member, "message"));
        bp_buffer_printf(out, "\n");
    }
}

void bp_run_status_text(bp_buffer *out, const json_t *status)
{
    add_state(out, status);
    add_text(out, "message", "", text_of(status, "message"));
    if (has(status, "halt"))
        add_text(out, "halt", "", "it was asked to stop: there is a file halt");
    add_starts(out, status);
    add_progress(out, status);
    add_figures(out, status);
    add_members(out, status);
    add_disk(out, status);
    add_restarts(out, status);
    add_events(out, status);
    if (!has(status, "steps"))
        add_text(out, "log", "", text_of(status, "log"));
    if (has(status, "starts") && !has(status, "phase"))
        add_text(out, "note", "", "there is no status.json, an older program ran: less is known");
    add_text(out, "next", "", text_of(status, "next"));
}
