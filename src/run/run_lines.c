/* Lines of an open run's journals: what a job reports while it runs. */
#include "run/run_folder.h"

#include "run/run_priv.h"

#include "base/log.h"
#include "base/process/clock.h"
#include "run/run_fields.h"
#include "run/run_tensorboard_priv.h"

bp_err bp_run_sync(bp_run *run)
{
    bp_err err = BP_OK;

    if (!run->mesh->coordinates)
        return BP_OK;
    err = run_journal_sync(&run->metrics);
    if (err == BP_OK)
        err = run_journal_sync(&run->samples);
    if (err == BP_OK)
        err = run_journal_sync(&run->tensorboard);
    return err == BP_OK ? run_journal_sync(&run->events) : err;
}

/* Adds the watchdog's event: before a diagnosis its thread opens no file, which might hang. */
static bp_err add_noted(bp_run *run)
{
    json_t *line = run_progress_noted();
    bp_err err = has(line, "event") ? bp_run_event(run, text_of(line, "event"), line) : BP_OK;

    if (has(line, "warning"))
        BP_WARN("watchdog.unheard_rank", "%s", text_of(line, "warning"));
    json_decref(line);
    return err;
}

bp_err bp_run_metric(bp_run *run, const json_t *line)
{
    bp_err err;

    if (!run->mesh->coordinates)
        return BP_OK;
    err = add_noted(run);
    if (err == BP_OK)
        err = bp_run_check_owner(run);
    if (err == BP_OK)
        err = run_journal_add(&run->metrics, line);
    if (err == BP_OK)
        run_progress_metric(run->progress, line);
    if (err == BP_OK && run->tensorboard.fd >= 0)
        err = run_tensorboard_add(&run->tensorboard, line);
    return err;
}

bp_err bp_run_sample(bp_run *run, const json_t *line)
{
    bp_err err = bp_run_check_owner(run);

    return err == BP_OK && run->mesh->coordinates ? run_journal_add(&run->samples, line) : err;
}

void bp_run_progress(bp_run *run, const json_t *members)
{
    if (!run || !run->progress || !run_lock_is_own(run->lock))
        return;
    (void)add_noted(run); /* a failure will also affect the job's own lines */
    run_progress_take(run->progress, members);
}

bp_err bp_run_event(bp_run *run, const char *name, const json_t *members)
{
    json_t *line;
    bp_err err;

    if (!run->mesh->coordinates)
        return BP_OK;
    line = json_pack("{s:s, s:s}", "time", bp_clock_stamp().text, "event", name);
    (void)json_object_update_missing(line, (json_t *)members); /* which is not changed */
    err = bp_run_check_owner(run);
    if (err == BP_OK)
        err = run_journal_add(&run->events, line);
    if (err == BP_OK)
        run_progress_event(run->progress, line);
    json_decref(line);
    return err;
}

void bp_run_needs(bp_run *run, double seconds)
{
    if (run->stop_request)
        bp_stop_request_needs(run->stop_request, seconds);
}

bp_err bp_run_cut_metrics(bp_run *run, int64_t step)
{
    int64_t committed = step;
    bp_err err;

    if (!run->mesh->coordinates)
        return BP_OK;
    err = bp_run_check_owner(run);
    if (err == BP_OK)
        err = run_journal_cut(&run->metrics, step, run->log_every);
    if (err == BP_OK && step < 0 && run->resumed && run->metrics.is_new)
        BP_WARN("run.file_empty",
                "missing, though the run has started before: at %s; its lines are made anew",
                run->metrics.path);
    run->metrics.is_new = false;
    if (err == BP_OK && run->samples.fd >= 0)
        err = run_journal_cut(&run->samples, step, 0);
    if (err == BP_OK && step >= 0)
        err = run_journal_committed(&run->events, &committed);
    if (committed > step)
        BP_WARN("checkpoint.gone",
                "the checkpoint of step %lld was committed, but is not there any more: in "
                "%s/checkpoints; the training goes on after step %lld",
                (long long)committed, run->folder, (long long)step);
    run_journal_close(&run->tensorboard);
    if (err == BP_OK && run->for_tensorboard)
        err = run_tensorboard_open(&run->tensorboard, run->folder, step + 1);
    return err;
}
