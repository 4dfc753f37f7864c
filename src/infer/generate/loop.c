/* The loop: units from the queue, results to part files. */
#include "infer/generate/generator_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "infer/score/inference.h"
#include "job/work_queue.h"
#include "mesh/collective.h"

#include <inttypes.h>

/* What one rank needs in the loop. */
typedef struct generate_worker {
    generator *self;
    bp_work_queue *queue;
    bp_unit *unit;
    bp_part_writer *writer; /* a lead's */
    bp_buffer result;
    bool failed;        /* all of the group know */
    int64_t units;      /* done by this lead */
    int64_t unreported; /* prompts since the last question */
} generate_worker;

/* The coordinator's view, for progress lines. */
typedef struct progress {
    const generator *self;
    int64_t done_before; /* units of earlier starts */
    double began, printed;
} progress;

static void log_units(const progress *view, int64_t prompts)
{
    const bp_generate_plan *plan = &view->self->plan;
    int64_t done = view->done_before + (prompts + plan->unit_prompts - 1) / plan->unit_prompts;
    json_t *members =
        json_pack("{s:I}", "units_done", (json_int_t)(done < plan->units ? done : plan->units));

    bp_run_progress(view->self->run, members);
    json_decref(members);
}

static bool tick(void *context, int64_t prompts)
{
    progress *view = context;

    log_units(view, prompts);
    if (bp_log_progress_due(view->printed) && prompts > 0) {
        double now = bp_clock_now();
        const bp_generate_plan *plan = &view->self->plan;
        int64_t before = view->done_before * plan->unit_prompts;
        int64_t done = before + prompts < plan->prompts ? before + prompts : plan->prompts;
        double speed = (double)prompts / (now - view->began);
        char time_left[64];

        bp_clock_duration(time_left, sizeof time_left, (double)(plan->prompts - done) / speed);
        bp_log_progress("%.1f %% of %" PRId64 " prompts  %.2f prompts/s  %s left",
                        100 * (double)done / (double)plan->prompts, plan->prompts, speed,
                        time_left);
        view->printed = now;
    }
    return bp_signals_stop_asked();
}

/* Behind each step of a unit, on the lead. */
static bool look(void *context)
{
    generate_worker *worker = context;

    bp_work_queue_serve(worker->queue);
    return bp_signals_stop_asked();
}

/* ---- units ---- */

/* The number of the next one, from the lead to its group; -1: no more. */
static int64_t share_number(const generate_worker *worker, int64_t number)
{
    MPI_Comm comm = worker->self->mesh->ensemble;

    if (bp_comm_size(comm) > 1)
        bp_bcast_bytes(&number, sizeof number, 0, comm);
    return number;
}

static bp_err follow(generate_worker *worker)
{
    bp_err err = BP_OK;

    while (err == BP_OK) {
        int64_t number = share_number(worker, -1);
        bool stopped = false;

        if (number < 0)
            break;
        err = bp_unit_run(worker->unit, number, NULL, &stopped);
    }
    return err;
}

static bp_err run_unit(generate_worker *worker, int64_t number, bool *stopped)
{
    const bp_generate_plan *plan = &worker->self->plan;
    int64_t left = plan->prompts - number * plan->unit_prompts;
    bp_err err;

    worker->result.bytes = 0;
    share_number(worker, number);
    err = bp_unit_run(worker->unit, number, &worker->result, stopped);
    worker->failed = err != BP_OK;
    if (err != BP_OK || *stopped)
        return err;
    err = bp_part_writer_add(worker->writer, number, worker->result.data, worker->result.bytes);
    worker->units += err == BP_OK;
    worker->unreported += left < plan->unit_prompts ? left : plan->unit_prompts;
    return err;
}

static bp_err lead(generate_worker *worker)
{
    bool stopped = false;
    bp_err err = BP_OK;

    while (err == BP_OK && !stopped) {
        int64_t number;

        bp_work_queue_ask(worker->queue, worker->unreported);
        worker->unreported = 0;
        number = bp_work_queue_take(worker->queue);
        if (number < 0)
            break;
        err = run_unit(worker, number, &stopped);
    }
    if (!worker->failed)
        share_number(worker, -1);
    bp_work_queue_leave(worker->queue, err != BP_OK || stopped, worker->unreported);
    return err;
}

/* ---- before and after ---- */

static bp_inference_work work_of(const generator *self)
{
    return (bp_inference_work){.folder = self->folder,
                               .parts_folder = self->parts_folder,
                               .key = self->key,
                               .units = self->plan.units,
                               .mesh_keys = "mesh.pipeline, mesh.tensor, mesh.members",
                               .again = "made"};
}

static bp_err prepare_unit(generate_worker *worker)
{
    generator *self = worker->self;
    const bp_unit_spec spec = {.mesh = self->mesh,
                               .lm = self->lm,
                               .rule = &self->rule,
                               .prompts = &self->prompts,
                               .plan = &self->plan,
                               .look = look,
                               .context = worker};

    return self->mesh->computes ? bp_unit_new(&worker->unit, &spec) : BP_OK;
}

static bp_err prepare_part(generate_worker *worker, int64_t start)
{
    const generator *self = worker->self;
    bp_inference_work work = work_of(self);

    return self->leads ? bp_inference_part_new(&worker->writer, &work, start, self->mesh->rank)
                       : BP_OK;
}

static bp_err do_units(generate_worker *worker)
{
    const generator *self = worker->self;

    if (self->leads)
        return lead(worker);
    bp_err err = self->mesh->computes ? follow(worker) : BP_OK;
    bp_work_queue_leave(worker->queue, false, 0);
    return err;
}

/* `before`: units of earlier starts. */
static bp_err do_work(generate_worker *worker, const bp_work_spec *spec, int64_t before)
{
    const bp_mesh *mesh = worker->self->mesh;
    bp_inference_work work = work_of(worker->self);
    bp_err err, closed;

    bp_work_queue_new(&worker->queue, spec);
    err = do_units(worker);
    closed = bp_part_writer_close(&worker->writer);
    err = bp_agree(mesh->world, err != BP_OK ? err : closed);
    int64_t units = bp_all_sum_int(worker->units, mesh->world);
    if (err != BP_OK)
        return err;
    return bp_agree(mesh->world,
                    mesh->coordinates ? bp_inference_check_done(&work, before + units) : BP_OK);
}

static bp_err run_units(generator *self)
{
    const bp_mesh *mesh = self->mesh;
    bp_parts *parts = NULL;
    generate_worker worker = {.self = self};
    progress view = {.self = self, .began = bp_clock_now(), .printed = bp_clock_now()};
    bp_work_spec spec = {.mesh = mesh, .tick = tick, .context = &view};
    int64_t start = 0;
    bp_inference_work work = work_of(self);
    bp_err err = mesh->coordinates ? bp_inference_open_parts(&parts, &work) : BP_OK;

    if (err == BP_OK && parts) {
        start = parts->start;
        view.done_before = parts->done_count;
        spec.units = self->plan.units;
        spec.done = parts->done;
        log_units(&view, 0);
    }
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        err = bp_agree(mesh->world, prepare_unit(&worker));
    if (err == BP_OK) {
        bp_bcast_bytes(&start, sizeof start, 0, mesh->world);
        err = bp_agree(mesh->world, prepare_part(&worker, start));
    }
    if (err == BP_OK)
        err = do_work(&worker, &spec, view.done_before);
    (void)bp_part_writer_close(&worker.writer); /* after an error: nothing is in it */
    bp_work_queue_free(&worker.queue);
    bp_unit_free(&worker.unit);
    bp_buffer_clear(&worker.result);
    bp_parts_free(&parts);
    return err;
}

bp_err generator_run_units(generator *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_SCORE);
    bp_err err = run_units(self);

    (void)bp_heartbeat_phase(before);
    return err;
}
