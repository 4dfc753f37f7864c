/* The loop: units from the queue, batches through the model, results to part files. */
#include "infer/score/scorer_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "infer/score/inference.h"
#include "infer/score/score.h"
#include "infer/score/unit.h"
#include "job/work_queue.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <math.h>

/* What one rank needs in the loop. */
typedef struct score_worker {
    scorer *self;
    bp_work_queue *queue;
    bp_score_unit *unit;    /* a lead's */
    bp_part_writer *writer; /* a lead's */
    bp_buffer result;
    int32_t *inputs, *targets;         /* a follower's copy of the batch, */
    int32_t *sources, *source_lengths; /* and of pairs */
    float *values;                     /* [statistics][a batch] */
    bool scoring_failed;               /* all of the group know */
    int64_t units;                     /* scored by this lead */
    int64_t batches;                   /* seen by this rank */
    int64_t unreported;                /* inputs since the last question */
} score_worker;

/* The coordinator's view, for progress lines. */
typedef struct progress {
    const scorer *self;
    int64_t done_before; /* units of earlier starts */
    double began, printed;
} progress;

/* As many units as the inputs come to: all have about as many. */
static void log_units(const progress *view, int64_t inputs)
{
    const bp_score_plan *plan = &view->self->plan;
    int64_t done = view->done_before +
                   (int64_t)((double)plan->units * (double)inputs / fmax(1, (double)plan->inputs));
    json_t *members =
        json_pack("{s:I}", "units_done", (json_int_t)(done < plan->units ? done : plan->units));

    bp_run_progress(view->self->run, members);
    json_decref(members);
}

static bool tick(void *context, int64_t inputs)
{
    progress *view = context;

    log_units(view, inputs);
    if (bp_log_progress_due(view->printed) && inputs > 0) {
        double now = bp_clock_now();
        const bp_score_plan *plan = &view->self->plan;
        double total = (double)plan->inputs;
        double before = total * (double)view->done_before / (double)plan->units;
        double speed = (double)inputs / (now - view->began);
        double left = total - before - (double)inputs;
        char time_left[64];

        bp_clock_duration(time_left, sizeof(time_left), left > 0 ? left / speed : 0);
        bp_log_progress("%.1f %% of %" PRId64 " inputs  %.0f tokens/s  %s left",
                        100 * (total - (left > 0 ? left : 0)) / total, plan->inputs, speed,
                        time_left);
        view->printed = now;
    }
    return bp_signals_stop_asked();
}

/* ---- a batch, from the lead to its group ---- */

void scorer_share_batch(MPI_Comm group, bp_model_batch *batch, int64_t *unit)
{
    int64_t head[] = {batch->windows,  batch->length, batch->first_slot,   batch->resumes,
                      batch->suspends, *unit,         batch->source_length};

    bp_bcast_bytes(head, sizeof(head), 0, group);
    batch->windows = head[0];
    batch->length = head[1];
    batch->first_slot = head[2];
    batch->resumes = head[3];
    batch->suspends = head[4];
    *unit = head[5];
    /* the lead's buffers are only read by a broadcast from it */
    int64_t bytes = head[0] * head[1] * (int64_t)sizeof(int32_t);
    bp_bcast_bytes((int32_t *)batch->inputs, bytes, 0, group);
    bp_bcast_bytes((int32_t *)batch->targets, bytes, 0, group);
    batch->source_length = head[6];
    if (head[6] == 0)
        return;
    bp_bcast_bytes((int32_t *)batch->sources, head[0] * head[6] * (int64_t)sizeof(int32_t), 0,
                   group);
    bp_bcast_bytes((int32_t *)batch->source_lengths, head[0] * (int64_t)sizeof(int32_t), 0, group);
}

static bp_err follow(score_worker *worker)
{
    bp_err err = BP_OK;

    while (err == BP_OK) {
        bp_model_batch batch = {.inputs = worker->inputs,
                                .targets = worker->targets,
                                .sources = worker->sources,
                                .source_lengths = worker->source_lengths};
        int64_t unit = 0;

        scorer_share_batch(worker->self->mesh->ensemble, &batch, &unit);
        if (batch.windows == 0)
            break;
        bp_heartbeat_step(++worker->batches);
        err = bp_model_score(worker->self->lm, &batch, worker->values);
    }
    return err;
}

static bp_err score_batch(score_worker *worker, int64_t b)
{
    bp_model_batch batch;
    int64_t unit = 0; /* of no use to the others */
    bp_err err = bp_score_unit_batch(worker->unit, b, &batch);

    if (err != BP_OK)
        return err;
    bp_heartbeat_step(++worker->batches);
    scorer_share_batch(worker->self->mesh->ensemble, &batch, &unit);
    err = bp_model_score(worker->self->lm, &batch, worker->values);
    worker->scoring_failed = err != BP_OK;
    if (err == BP_OK)
        err = bp_score_unit_take(worker->unit, b, worker->values);
    return err;
}

/* ---- a lead's units ---- */

static bp_err keep_result(score_worker *worker, int64_t number)
{
    bool tokens = bp_score_keys_of(worker->self->config)->tokens;

    worker->result.bytes = 0;
    bp_score_unit_pack(worker->unit, tokens, &worker->result);
    worker->unreported += bp_score_unit_inputs(worker->unit);
    bp_err err =
        bp_part_writer_add(worker->writer, number, worker->result.data, worker->result.bytes);
    worker->units += err == BP_OK;
    return err;
}

static void ask_for_unit(score_worker *worker)
{
    bp_work_queue_ask(worker->queue, worker->unreported);
    worker->unreported = 0;
}

/* The next unit is asked for before the last batch of this one. */
static bp_err score_unit(score_worker *worker, int64_t number, bool *stopped)
{
    bp_err err = bp_score_unit_load(worker->unit, number);
    int64_t batches = err == BP_OK ? bp_score_unit_batches(worker->unit) : 0;

    for (int64_t b = 0; err == BP_OK && b < batches; b++) {
        *stopped = bp_signals_stop_asked();
        if (*stopped)
            return BP_OK;
        if (b == batches - 1)
            ask_for_unit(worker);
        err = score_batch(worker, b);
        bp_work_queue_serve(worker->queue);
    }
    if (err == BP_OK)
        err = keep_result(worker, number);
    if (err == BP_OK && batches == 0) {
        ask_for_unit(worker);
        bp_work_queue_serve(worker->queue);
    }
    return err;
}

static bp_err lead(score_worker *worker)
{
    bool stopped = false;
    bp_err err = BP_OK;

    ask_for_unit(worker);
    while (err == BP_OK && !stopped) {
        int64_t number = bp_work_queue_take(worker->queue);

        if (number < 0)
            break;
        err = score_unit(worker, number, &stopped);
    }
    if (!worker->scoring_failed)
        scorer_share_batch(worker->self->mesh->ensemble, &(bp_model_batch){0}, &(int64_t){0});
    bp_work_queue_leave(worker->queue, err != BP_OK || stopped, worker->unreported);
    return err;
}

/* ---- before and after ---- */

static bp_inference_work work_of(const scorer *self)
{
    return (bp_inference_work){.folder = self->folder,
                               .parts_folder = self->parts_folder,
                               .key = self->key,
                               .units = self->plan.units,
                               .mesh_keys = "mesh.tensor, mesh.members",
                               .again = "scored"};
}

static bp_err prepare(score_worker *worker, int64_t start)
{
    scorer *self = worker->self;
    int64_t tokens = bp_score_batch_tokens(bp_score_piece_inputs(&self->rule));

    if (!self->mesh->computes)
        return BP_OK;
    worker->values =
        bp_try_alloc("score.batch", self->statistics.count * tokens, sizeof(*worker->values));
    worker->inputs = bp_alloc("score.batch", self->leads ? 0 : tokens, sizeof(int32_t));
    worker->targets = bp_alloc("score.batch", self->leads ? 0 : tokens, sizeof(int32_t));
    if (self->info.reads_source && !self->leads) {
        worker->sources = bp_alloc("score.batch", tokens, sizeof(int32_t));
        worker->source_lengths = bp_alloc("score.batch", BP_SCORE_BATCH_TOKENS, sizeof(int32_t));
    }
    if (!worker->values)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "no memory for a batch of %" PRId64 " tokens",
                       tokens);
    if (!self->leads)
        return BP_OK;
    bp_err err = bp_score_unit_new(&worker->unit, &self->plan, self->statistics.count);

    if (err != BP_OK)
        return err;
    bp_inference_work work = work_of(self);
    return bp_inference_part_new(&worker->writer, &work, start, self->mesh->rank);
}

/* What earlier starts have left, on the coordinator. */
static bp_err open_parts(const scorer *self, bp_parts **parts)
{
    bp_inference_work work = work_of(self);
    bp_err err = bp_inference_open_parts(parts, &work);

    if (err == BP_OK && (*parts)->done_count == 0 && self->run && bp_run_is_resumed(self->run))
        bp_log("no work unit is done: scored from the first one on");
    return err;
}

static bp_err run_units(scorer *self, score_worker *worker)
{
    const bp_mesh *mesh = self->mesh;
    bp_parts *parts = NULL;
    progress view = {.self = self, .began = bp_clock_now(), .printed = bp_clock_now()};
    bp_work_spec spec = {.mesh = mesh, .tick = tick, .context = &view};
    int64_t start = 0;
    bp_inference_work work = work_of(self);
    bp_err err = bp_agree(mesh->world, mesh->coordinates ? open_parts(self, &parts) : BP_OK);

    if (err == BP_OK && parts) {
        start = parts->start;
        view.done_before = parts->done_count;
        spec.units = self->plan.units;
        spec.done = parts->done;
        log_units(&view, 0);
    }
    if (err == BP_OK) {
        bp_bcast_bytes(&start, sizeof(start), 0, mesh->world);
        err = bp_agree(mesh->world, prepare(worker, start));
    }
    if (err == BP_OK) {
        bp_work_queue_new(&worker->queue, &spec);
        err = self->leads ? lead(worker) : mesh->computes ? follow(worker) : BP_OK;
        if (!self->leads)
            bp_work_queue_leave(worker->queue, false, 0);
        bp_err closed = bp_part_writer_close(&worker->writer);
        err = bp_agree(mesh->world, err != BP_OK ? err : closed);
        int64_t done = view.done_before + bp_all_sum_int(worker->units, mesh->world);
        if (err == BP_OK)
            err = bp_agree(mesh->world,
                           mesh->coordinates ? bp_inference_check_done(&work, done) : BP_OK);
    }
    bp_parts_free(&parts);
    return err;
}

bp_err scorer_run_units(scorer *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_SCORE);
    score_worker worker = {.self = self};
    bp_err err = run_units(self, &worker);

    (void)bp_part_writer_close(&worker.writer); /* after an error: nothing is in it */
    bp_work_queue_free(&worker.queue);
    bp_score_unit_free(&worker.unit);
    bp_buffer_clear(&worker.result);
    bp_free(worker.source_lengths);
    bp_free(worker.sources);
    bp_free(worker.targets);
    bp_free(worker.inputs);
    bp_free(worker.values);
    (void)bp_heartbeat_phase(before);
    return err;
}
