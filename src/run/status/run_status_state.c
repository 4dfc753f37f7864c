/* The state of a run, and its user's next step. Called by run_status.c. */
#include "run/status/run_status_priv.h"

#include "base/buffer.h"

#include <string.h>

const char *status_state(const char *exit_state, status_hold hold)
{
    static const char *const ended[] = {"finished", "stopped", "failed", "dead", NULL};

    if (hold == HOLD_ALIVE)
        return "running";
    if (exit_state && is_among(exit_state, ended))
        return exit_state;
    return hold == HOLD_SILENT ? "silent" : "dead"; /* no end is recorded, and no process runs it */
}

/* The row of the run's job; an empty one if it is not listed. */
static bp_run_status_job job_of(const json_t *status, const bp_run_status_job *jobs)
{
    for (; jobs && jobs->job; jobs++)
        if (says(status, "job", jobs->job))
            return *jobs;
    return (bp_run_status_job){.results = {"the results are in ", ""}};
}

static bool ended_by(const json_t *status, const char *identifier)
{
    return strstr(text_of(status, "message"), identifier) != NULL;
}

/* Is one of the last start's events of this kind? */
static bool has_noted(const json_t *status, const char *event)
{
    const json_t *note;
    size_t k;

    json_array_foreach((json_t *)json_object_get(status, "notes"), k, note) /* not changed */
    {
        if (says(note, "event", event))
            return true;
    }
    return false;
}

static void add_after_finish(bp_buffer *out, const json_t *status, const bp_run_status_job *job)
{
    const char *run = text_of(status, "run");

    if (job->trains && has_noted(status, "worse_than_guessing"))
        bp_buffer_printf(out,
                         "its loss is worse than that of a guess, so the training diverged, or "
                         "has hardly begun: a new run with a smaller optimizer.lr or a longer "
                         "optimizer.warmup");
    else if (job->trains)
        bp_buffer_printf(out, "nothing: a larger train.%s goes on, score.model=%s scores with it",
                         says(status, "reason", "patience") ? "patience" : "steps or train.epochs",
                         run);
    else
        bp_buffer_printf(out, "nothing: %s%s%s", job->results[0], run, job->results[1]);
}

/* What must be done before the same command helps; nothing after a stop. */
static void add_remedy(bp_buffer *out, const json_t *status)
{
    const char *job = text_of(status, "slurm_job"), *host = text_of(status, "host");

    if (has(status, "halt")) {
        bp_buffer_printf(out, "remove its file halt, then ");
    } else if (has(status, "start_failed")) {
        bp_buffer_printf(out, "put right what the last start failed with, then ");
    } else if (has(status, "stuck_starts")) {
        bp_buffer_printf(out,
                         "no progress, %lld starts in a row have committed nothing, and a batch "
                         "job is not queued again: look into log.txt, put it right, then ",
                         integer_of(status, "stuck_starts"));
    } else if (says(status, "state", "failed")) {
        bp_buffer_printf(out, "do what the message says, then ");
    } else if (says(status, "state", "dead")) {
        if (says(status, "message", "")) /* after SIGKILL there is no message */
            bp_buffer_printf(out, "it died without a word, as by kill -9, Ctrl-C of mpirun or for lack of memory: ");
        if (job[0] != '\0')
            bp_buffer_printf(out, "'sacct -j %.40s -o JobID,State,ExitCode,MaxRSS'", job);
        else
            bp_buffer_printf(out, "dmesg%s%.100s", host[0] != '\0' ? " on " : "", host);
        bp_buffer_printf(out, " and what the launcher printed may say why; then ");
    }
}

/* From which step, or from where it was. */
static void add_going_on(bp_buffer *out, const json_t *status, const bp_run_status_job *job)
{
    const json_t *commit = json_object_get(status, "commit");
    long long redone = integer_of(status, "redone_steps");

    if (!commit) {
        bp_buffer_printf(out, "the same command %s", job->again ? job->again : "goes on");
        return;
    }
    bp_buffer_printf(out, "the same command goes on from step %lld", integer_of(commit, "step"));
    if (redone > 0)
        bp_buffer_printf(out, " (%lld step%s after it %s done again)", redone,
                         redone == 1 ? "" : "s", redone == 1 ? "is" : "are");
}

char *status_next(const json_t *status, const bp_run_status_job *jobs)
{
    const bp_run_status_job row = job_of(status, jobs);
    const char *job = text_of(status, "slurm_job");
    bp_buffer out = {0};

    if (says(status, "state", "finished")) {
        add_after_finish(&out, status, &row);
    } else if (says(status, "state", "queued")) {
        bp_buffer_printf(&out,
                         "nothing: Slurm starts job %s again, and it goes on; 'scancel %s' before "
                         "you start it otherwise",
                         job, job);
    } else if (says(status, "state", "running")) {
        bp_buffer_printf(&out, "nothing: it runs; its lines are in %s/log.txt",
                         text_of(status, "run"));
    } else if (says(status, "state", "silent") && !has(status, "halt") &&
               !has(status, "start_failed")) {
        if (job[0] != '\0')
            bp_buffer_printf(&out, "ask Slurm: squeue -j %s", job);
        else
            bp_buffer_printf(&out, "look on %s for process %lld", text_of(status, "host"),
                             integer_of(status, "pid"));
        bp_buffer_printf(&out, "; if it is gone, the same command takes the run over after a "
                               "minute of watching");
    } else if (ended_by(status, "[training.diverged]")) {
        bp_buffer_printf(&out,
                         "a new run, as the message says: the same command ends the same way");
    } else {
        add_remedy(&out, status);
        add_going_on(&out, status, &row);
    }
    return bp_buffer_take(&out);
}
