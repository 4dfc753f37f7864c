/* The loop: units from the queue, through the model, results to part files. Called by work.c. */
#include "job/work_priv.h"

#include "base/fault.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "mesh/collective.h"
#include "mesh/lockstep.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>

/* The state of one rank in the loop. */
typedef struct worker {
    bp_work_job *job;
    const bp_work_units *units;
    bp_parts *parts;        /* the coordinator's: of earlier starts */
    bp_part_writer *writer; /* a lead's */
    bp_buffer result;
    int64_t done;          /* units of this lead */
    double began, printed; /* the coordinator's, for progress lines */
} worker;

/* ---- progress, on the coordinator ---- */

static double all_of(const bp_work_units *units)
{
    return units->noun ? units->amount : (double)units->count;
}

static double usual_unit(const bp_work_units *units)
{
    return all_of(units) / fmax(1, (double)units->count);
}

/* The amount in whole units of the usual size; all units if the whole amount is done. */
static void log_units(const worker *self, int64_t amount)
{
    const bp_work_units *units = self->units;
    double unit = fmax(1, usual_unit(units)), before = (double)self->parts->done_count * unit;
    int64_t done = amount > 0 && before + (double)amount >= all_of(units)
                       ? units->count
                       : self->parts->done_count + (int64_t)((double)amount / unit + 1e-9);

    done = self->job->sets_done + (done < units->count ? done : units->count);
    json_t *members = json_pack("{s:I}", "units_done", (json_int_t)done);

    bp_run_progress(self->job->run, members);
    json_decref(members);
}

static bool report_progress(void *context, int64_t amount)
{
    worker *self = context;

    log_units(self, amount);
    if (bp_log_progress_due(self->printed) && amount > 0) {
        const bp_work_units *units = self->units;
        const char *noun = units->noun ? units->noun : "work units";
        double now = bp_clock_now(), speed = (double)amount / (now - self->began);
        double all = all_of(units), before = (double)self->parts->done_count * usual_unit(units);
        double left = fmax(0, all - before - (double)amount);
        char time_left[64];

        bp_clock_duration(time_left, sizeof time_left, left / speed);
        bp_log_progress("%.1f %% of %.0f %s  %.*f %s%s  %s left", 100 * (all - left) / all, all,
                        noun, units->speed_digits, speed, units->speed ? units->speed : noun,
                        units->speed ? "" : "/s", time_left);
        self->printed = now;
    }
    return bp_signals_stop_asked();
}

/* ---- units ---- */

bool bp_work_between(bp_work_job *job)
{
    if (job->queue) /* not for --plan */
        bp_work_queue_serve(job->queue);
    return bp_signals_stop_asked();
}

void bp_work_ask_next(bp_work_job *job)
{
    if (!job->queue)
        return;
    bp_work_queue_ask(job->queue, job->unreported);
    job->unreported = 0;
    job->asked = true;
}

/* Commands of a lead to its group, other than the number of a unit. */
enum { NO_MORE = -1, PASS_OF_OTHERS = -2 };

/* The number of the next one, from the lead to its group. */
static int64_t share_number(const bp_work_job *job, int64_t number)
{
    if (bp_comm_size(job->mesh->replica) > 1)
        bp_bcast_bytes(&number, sizeof number, 0, job->mesh->replica);
    return number;
}

bp_err work_run_unit(bp_work_job *job, const bp_work_units *units, int64_t unit, bp_buffer *out,
                     bool *stopped)
{
    if (!units->answer)
        return units->run(job->self, unit, out, stopped);
    job->requests =
        (bp_requests){.group = job->mesh->replica, .answer = units->answer, .context = job->self};
    if (!job->leads)
        return bp_requests_follow(&job->requests);
    bp_err err = units->run(job->self, unit, out, stopped);

    bp_requests_end(&job->requests);
    return err;
}

/* After an error, passes of other ranks still follow. */
static bp_err follow(const worker *self)
{
    bp_work_job *job = self->job;
    bp_err err = BP_OK;
    int64_t number;

    while ((number = share_number(job, NO_MORE)) != NO_MORE) {
        bool stopped = false;

        if (number == PASS_OF_OTHERS)
            bp_lockstep_follow(job->mesh->lockstep);
        else
            err = bp_agree(job->mesh->replica,
                           work_run_unit(job, self->units, number, NULL, &stopped));
    }
    return err;
}

static bp_err run_unit(worker *self, int64_t number, bool *stopped)
{
    bp_work_job *job = self->job;
    bp_err err;

    self->result.bytes = 0;
    job->asked = false;
    (void)share_number(job, number);
    err = bp_agree(job->mesh->replica,
                   work_run_unit(job, self->units, number, &self->result, stopped));
    if (err != BP_OK || *stopped)
        return err;
    err = bp_part_writer_add(self->writer, number, self->result.data, self->result.bytes);
    job->unreported += self->units->amount_of ? self->units->amount_of(job->self, number) : 1;
    self->done += err == BP_OK;
    if (err == BP_OK && !job->asked)
        bp_work_ask_next(job);
    *stopped = bp_work_between(job);
    return err;
}

/* ---- passes with experts of other data ranks ---- */

static void serve_queue(void *context)
{
    bp_work_queue_serve(((bp_work_job *)context)->queue);
}

static void tell_followers(void *context)
{
    (void)share_number(context, PASS_OF_OTHERS);
}

/* The next unit; while it waits, others may need this rank's experts. */
static int64_t take_unit(bp_work_job *job)
{
    while (job->mesh->lockstep && !bp_work_queue_has_come(job->queue))
        (void)bp_lockstep_idle(job->mesh->lockstep, false);
    return bp_work_queue_take(job->queue);
}

static bp_err lead(worker *self)
{
    bp_work_job *job = self->job;
    bp_lockstep *lockstep = job->mesh->lockstep;
    bool stopped = false;
    bp_err err = BP_OK;

    if (lockstep)
        bp_lockstep_set(lockstep, &(bp_lockstep_calls){serve_queue, tell_followers, job});
    bp_work_ask_next(job);
    while (err == BP_OK && !stopped) {
        int64_t number = take_unit(job);

        if (number < 0)
            break;
        err = run_unit(self, number, &stopped);
    }
    /* before the passes of others: after an error here they get no more units */
    bp_work_queue_end(job->queue, err != BP_OK || stopped, job->unreported);
    while (lockstep && bp_lockstep_idle(lockstep, true))
        ;
    (void)share_number(job, NO_MORE);
    if (lockstep)
        bp_lockstep_set(lockstep, NULL);
    bp_work_queue_leave(job->queue, false, 0);
    return err;
}

/* ---- before and after ---- */

const bp_work_units *work_units_at(const bp_work_job *job, int index)
{
    if (job->work->units)
        return job->work->units(job->self, index);
    return index == 0 ? &job->units : NULL;
}

char *work_parts_folder(const bp_work_job *job, const bp_work_units *units)
{
    return bp_path_join(job->folder, units->parts ? units->parts : "parts");
}

static void warn_of_parts(const worker *self, const char *folder)
{
    const bp_work_units *units = self->units;
    const char *again = units->again ? units->again : "computed";

    if (self->parts->foreign > 0)
        BP_WARN("parts.unusable",
                "%" PRId64 " part files of an earlier start are of no use, they were made %s%s%s "
                "by another version of bagpipe, or are damaged: at %s; what they hold is %s again",
                self->parts->foreign, units->mesh_keys ? "with another " : "",
                units->mesh_keys ? units->mesh_keys : "",
                units->mesh_keys ? " or precision or" : "", folder, again);
    if (self->parts->damaged > 0)
        BP_WARN("parts.damaged",
                "%" PRId64 " part files of an earlier start are damaged: at %s; what they hold "
                "after the damaged part is %s again",
                self->parts->damaged, folder, again);
    if (self->parts->done_count > 0)
        bp_log("going on: %" PRId64 " of %" PRId64 " work units are done", self->parts->done_count,
               units->count);
    else if (self->job->run && bp_run_is_resumed(self->job->run))
        bp_log("no work unit is done: %s from the first one on", again);
}

/* The results of earlier starts, on the coordinator. */
static bp_err open_parts(worker *self)
{
    const bp_work_job *job = self->job;
    char *folder = work_parts_folder(job, self->units);
    bp_err err = bp_fence_check(); /* no files are made in a run that was lost */

    if (err == BP_OK)
        err = bp_dir_make(folder);
    bp_dir_sweep(job->folder);
    if (err == BP_OK)
        err = bp_parts_open(&self->parts, folder, self->units->key, self->units->count, false);
    if (err == BP_OK)
        warn_of_parts(self, folder);
    if (err == BP_OK)
        log_units(self, 0);
    bp_free(folder);
    return err;
}

/* The part file of this rank and start. */
static bp_err open_part(worker *self, int64_t start)
{
    char *folder = work_parts_folder(self->job, self->units);
    char *path = bp_sprintf("%s/%06" PRId64 "-%05d.part", folder, start, self->job->mesh->rank);
    bp_err err = bp_part_writer_new(&self->writer, path, self->units->key);

    bp_free(path);
    bp_free(folder);
    return err;
}

static bp_err prepare(worker *self)
{
    const bp_mesh *mesh = self->job->mesh;
    int64_t start = self->parts ? self->parts->start : 0;
    bp_err err = BP_OK;

    if (mesh->computes && self->units->prepare)
        err = self->units->prepare(self->job->self);
    err = bp_agree(mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&start, sizeof start, 0, mesh->world);
    return bp_agree(mesh->world, self->job->leads ? open_part(self, start) : BP_OK);
}

/* Units are missing if a rank was asked to stop. On the coordinator. */
static bp_err check_done(const worker *self, int64_t done)
{
    bp_work_job *job = self->job;
    const bp_work_units *units;
    int64_t all = 0;

    done += self->parts->done_count;
    if (done >= self->units->count)
        return BP_OK;
    for (int k = 0; job->work && (units = work_units_at(job, k)); k++)
        all += units->count;
    return bp_stop_request_stopped("after %" PRId64 " of %" PRId64 " work units, at %s",
                                   job->sets_done + done, all > 0 ? all : self->units->count,
                                   job->folder);
}

static bp_err do_work(worker *self)
{
    bp_work_job *job = self->job;
    const bp_mesh *mesh = job->mesh;
    bp_work_spec spec = {.mesh = mesh, .report_progress = report_progress, .context = self};
    bp_err err, closed;

    if (self->parts) {
        spec.units = self->units->count;
        spec.done = self->parts->done;
    }
    job->unreported = 0;
    bp_work_queue_new(&job->queue, &spec);
    err = job->leads ? lead(self) : mesh->computes ? follow(self) : BP_OK;
    if (!job->leads)
        bp_work_queue_leave(job->queue, false, 0);
    closed = bp_part_writer_close(&self->writer);
    err = bp_agree(mesh->world, err != BP_OK ? err : closed);
    int64_t done = bp_all_sum_int(self->done, mesh->world);
    if (err == BP_OK)
        err = bp_agree(mesh->world, self->parts ? check_done(self, done) : BP_OK);
    return err;
}

bp_err bp_work_do_units(bp_work_job *job, const bp_work_units *units)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_SCORE);
    worker self = {.job = job, .units = units, .began = bp_clock_now(), .printed = bp_clock_now()};
    bp_err err = bp_agree(job->mesh->world, job->mesh->coordinates ? open_parts(&self) : BP_OK);

    if (err == BP_OK)
        err = prepare(&self);
    if (err == BP_OK)
        err = do_work(&self);
    job->sets_done += units->count;
    (void)bp_part_writer_close(&self.writer); /* after an error: it is empty */
    bp_work_queue_free(&job->queue);
    if (job->mesh->computes && units->release)
        units->release(job->self);
    bp_buffer_clear(&self.result);
    bp_parts_free(&self.parts);
    (void)bp_heartbeat_phase(before);
    return err;
}

static bp_err merge_parts(const bp_work_job *job, const bp_work_units *units)
{
    char *folder = work_parts_folder(job, units);
    bp_parts *parts = NULL;

    bp_dir_refresh(folder); /* other nodes wrote there */
    bp_err err = bp_parts_open(&parts, folder, units->key, units->count, true);

    if (err == BP_OK)
        err = bp_fence_check(); /* early: a merge may take long */
    if (bp_fault("work.merge"))
        err = BP_FAIL(BP_ERR_IO, "fault.injected", "the parts can't be merged (fault injected)");
    if (err == BP_OK)
        err = units->merge(job->self, parts);
    bp_parts_free(&parts);
    bp_free(folder);
    return err;
}

bp_err bp_work_merge(bp_work_job *job, const bp_work_units *units)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_MERGE);
    bp_err err = BP_OK;

    if (units->help)
        job->requests =
            (bp_requests){.group = job->mesh->world, .answer = units->help, .context = job->self};
    if (job->mesh->coordinates && units->merge)
        err = merge_parts(job, units);
    if (units->help && job->mesh->coordinates)
        bp_requests_end(&job->requests);
    else if (units->help)
        err = bp_requests_follow(&job->requests);
    err = bp_agree(job->mesh->world, err);
    (void)bp_heartbeat_phase(before);
    return err;
}
