/* Lines of an open run's journals. */
#include "run/run_folder.h"

#include "run/run_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "run/run_tensorboard_priv.h"

bp_err bp_run_sync(bp_run *run)
{
    bp_err err = BP_OK;

    if (!run->mesh->coordinates)
        return BP_OK;
    err = run_journal_sync(&run->metrics);
    if (err == BP_OK)
        err = run_journal_sync(&run->tensorboard);
    return err == BP_OK ? run_journal_sync(&run->events) : err;
}

static bp_err add_line(bp_run *run, const run_journal *journal, const json_t *line)
{
    bp_err err = bp_run_check_owner(run);

    return err == BP_OK ? run_journal_add(journal, line) : err;
}

/* What the watchdog has noted: its thread touches no file that may hang before a diagnosis. */
static bp_err add_noted(bp_run *run)
{
    json_t *line = run_progress_noted();
    const char *event = json_string_value(json_object_get(line, "event"));
    const char *warning = json_string_value(json_object_get(line, "warning"));
    bp_err err = event == NULL ? BP_OK : bp_run_event(run, event, line);

    if (warning != NULL)
        bp_warn("%s", warning);
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
        err = add_line(run, &run->metrics, line);
    if (err == BP_OK)
        run_progress_metric(run->progress, line);
    if (err == BP_OK && run->tensorboard.fd >= 0)
        err = run_tensorboard_add(&run->tensorboard, line);
    return err;
}

void bp_run_progress(bp_run *run, const json_t *members)
{
    if (run == NULL || run->progress == NULL || !run_lock_is_own(run->lock))
        return;
    (void)add_noted(run); /* what hinders it meets the job's own lines, too */
    run_progress_take(run->progress, members);
}

bp_err bp_run_event(bp_run *run, const char *name, const json_t *members)
{
    json_t *line;
    char now[32];
    bp_err err;

    if (!run->mesh->coordinates)
        return BP_OK;
    bp_clock_stamp(now, sizeof now);
    line = json_pack("{s:s, s:s}", "time", now, "event", name);
    if (line == NULL ||
        (members != NULL && json_object_update_missing(line, (json_t *)members) != 0))
        err = bp_fail_memory("an event", 1, 1);
    else
        err = add_line(run, &run->events, line);
    if (err == BP_OK)
        run_progress_event(run->progress, line);
    json_decref(line);
    return err;
}

void bp_run_needs(bp_run *run, double seconds)
{
    if (run->stop_request != NULL)
        bp_stop_request_needs(run->stop_request, seconds);
}

/* A checkpoint that was committed and is not there any more. */
static bp_err warn_of_commit(const bp_run *run, int64_t step)
{
    int64_t committed;
    bp_err err = run_journal_committed(&run->events, &committed);

    if (err == BP_OK && committed > step)
        bp_warn("the checkpoint of step %lld was committed, but is not there any more: in "
                "%s/checkpoints; the training goes on after step %lld",
                (long long)committed, run->folder, (long long)step);
    return err;
}

bp_err bp_run_cut_metrics(bp_run *run, int64_t step)
{
    bp_err err;

    if (!run->mesh->coordinates)
        return BP_OK;
    err = bp_run_check_owner(run);
    if (err == BP_OK)
        err = run_journal_cut(&run->metrics, step, run->log_every);
    if (err == BP_OK && step >= 0)
        err = warn_of_commit(run, step);
    run_journal_close(&run->tensorboard);
    if (err == BP_OK && run->for_tensorboard)
        err = run_tensorboard_open(&run->tensorboard, run->folder, step + 1);
    return err;
}
