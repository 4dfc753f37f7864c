/* What state a run is in, and what its user does next. */
#include "run/status/run_status_priv.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

const char *status_state(const char *exit_state, status_hold hold)
{
    static const char *const ended[] = {"finished", "stopped", "failed"};

    if (hold == HOLD_ALIVE)
        return "running";
    for (size_t k = 0; k < sizeof ended / sizeof ended[0]; k++)
        if (exit_state != NULL && strcmp(exit_state, ended[k]) == 0)
            return ended[k];
    if (exit_state != NULL && strcmp(exit_state, "dead") == 0)
        return exit_state;
    return hold == HOLD_SILENT ? "silent" : "dead"; /* it says nothing, and nobody runs it */
}

/* ---- what next ---- */

/* "from step 40", or from where it was. */
static char *go_on(const json_t *status, const char *before)
{
    const json_t *step = json_object_get(json_object_get(status, "commit"), "step");
    long long redone = json_integer_value(json_object_get(status, "redone_steps"));
    char again[64] = "";

    if (redone > 0)
        (void)snprintf(again, sizeof again, " (%lld step%s after it %s done again)", redone,
                       redone == 1 ? "" : "s", redone == 1 ? "is" : "are");
    if (json_is_integer(step))
        return bp_sprintf("%sthe same command goes on from step %lld%s", before,
                          (long long)json_integer_value(step), again);
    if (strcmp(text_of(status, "job"), "pretrain") == 0)
        return bp_sprintf("%sthe same command begins anew: nothing was committed yet", before);
    if (strcmp(text_of(status, "job"), "bench") == 0)
        return bp_sprintf("%sthe same command measures anew", before);
    return bp_sprintf("%sthe same command goes on", before);
}

/* A SIGKILL leaves no word of ours. */
static char *after_death(const json_t *status)
{
    const char *job = text_of(status, "slurm_job"), *host = text_of(status, "host");
    char before[512], where[256];

    if (job[0] != '\0')
        (void)snprintf(where, sizeof where, "'sacct -j %.40s -o JobID,State,ExitCode,MaxRSS'", job);
    else
        (void)snprintf(where, sizeof where, "dmesg%s%.100s", host[0] != '\0' ? " on " : "", host);
    (void)snprintf(before, sizeof before, "%s%s and what the launcher printed may tell; then ",
                   text_of(status, "message")[0] != '\0'
                       ? ""
                       : "it died without a word, as by kill -9 or for lack of memory: ",
                   where);
    return go_on(status, before);
}

/* What is done before the same command is of use. */
static char *after_stuck(const json_t *status)
{
    char before[256];

    (void)snprintf(
        before, sizeof before,
        "no progress, %lld starts in a row have committed nothing, and a batch job is not "
        "queued again: look into log.txt, put it right, then ",
        (long long)json_integer_value(json_object_get(status, "stuck_starts")));
    return go_on(status, before);
}

static char *after_finish(const json_t *status)
{
    const char *job = text_of(status, "job"), *run = text_of(status, "run");

    if (strcmp(job, "score") == 0)
        return bp_sprintf("nothing: the scores are in %s/score", run);
    if (strcmp(job, "generate") == 0)
        return bp_sprintf("nothing: the texts are in %s/generate", run);
    if (strcmp(job, "uncertainty") == 0)
        return bp_sprintf("nothing: the study is in %s/uncertainty/index.html", run);
    if (strcmp(job, "ensemble") == 0)
        return bp_sprintf("nothing: score.model=%s scores with it", run);
    if (strcmp(job, "bench") == 0)
        return bp_sprintf("nothing: the figures are in %s/bench.json", run);
    return bp_sprintf("nothing: a larger train.%s goes on, score.model=%s scores with it",
                      strcmp(text_of(status, "reason"), "patience") == 0 ? "patience"
                                                                         : "steps or train.epochs",
                      run);
}

char *status_next(const json_t *status)
{
    const char *state = text_of(status, "state"), *job = text_of(status, "slurm_job");

    if (strcmp(state, "finished") == 0)
        return after_finish(status);
    if (strcmp(state, "queued") == 0)
        return bp_sprintf(
            "nothing: Slurm starts job %s again, and it goes on; 'scancel %s' before you "
            "start it otherwise",
            job, job);
    if (json_object_get(status, "halt") != NULL && strcmp(state, "running") != 0)
        return go_on(status, "remove its file halt, then ");
    if (json_object_get(status, "start_failed") != NULL)
        return go_on(status, "put right what the last start failed with, then ");
    if (json_object_get(status, "stuck_starts") != NULL)
        return after_stuck(status);
    if (strcmp(state, "stopped") == 0)
        return go_on(status, "");
    if (strcmp(state, "failed") == 0)
        return go_on(status, "do what the message says, then ");
    if (strcmp(state, "dead") == 0)
        return after_death(status);
    if (strcmp(state, "silent") != 0)
        return bp_sprintf("nothing: it runs; its lines are in %s/log.txt", text_of(status, "run"));
    if (job[0] != '\0')
        return bp_sprintf("ask Slurm: squeue -j %s; if it is gone, the same command takes the run "
                          "over after a minute of watching",
                          job);
    return bp_sprintf("look on %s for process %lld; if it is gone, the same command takes the run "
                      "over after a minute of watching",
                      text_of(status, "host"),
                      (long long)json_integer_value(json_object_get(status, "pid")));
}
