/* The job of scoring: its files, messages and --plan (job/work.h runs it). */
#include "infer/score/sets.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "infer/score/score.h"
#include "infer/score/unit.h"
#include "math/threads.h"
#include "mesh/collective.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the run folder and its files ---- */

static bool writes(const void *context, const char *file)
{
    const scorer *self = context;

    return scorer_writes(self, file) || (self->page && strcmp(file, "index.html") == 0);
}

static void identify(const void *context, bp_run_identity *out)
{
    const scorer *self = context;

    *out++ = (bp_run_identity){"score.corpus", self->corpus_hash};
    for (int k = -1; (k = scorer_next_set(self, k)) >= 0;)
        if (self->sets[k]->identify)
            *out++ = self->sets[k]->identify(self);
    if (bp_score_keys_of(self->config)->neighbours)
        *out++ = (bp_run_identity){"score.neighbours", self->datastore.hash};
}

/* ---- the job ---- */

const bp_work_units *scorer_units(void *context, int index)
{
    scorer *self = context;
    const bp_work_units *units = NULL;

    for (int k = -1; index >= 0 && (k = scorer_next_set(self, k)) >= 0;)
        if ((units = self->sets[k]->units(self)))
            index--;
    return index < 0 ? units : NULL;
}

static void say(const void *context)
{
    const scorer *self = context;

    for (int k = -1; (k = scorer_next_set(self, k)) >= 0;)
        if (self->sets[k]->say)
            self->sets[k]->say(self);
}

static json_t *started(const void *context)
{
    const scorer *self = context;
    const bp_work_units *set;
    int64_t units = 0;

    for (int k = 0; (set = scorer_units(self->job->self, k)); k++)
        units += set->count;
    return json_pack("{sI sI}", "documents", (json_int_t)self->plan.scored, "units",
                     (json_int_t)units);
}

static void report(const void *context)
{
    const scorer *self = context;

    for (int k = -1; (k = scorer_next_set(self, k)) >= 0;)
        if (self->sets[k]->report)
            self->sets[k]->report(self);
    scorer_report_clusters(self);
}

/* ---- --plan ---- */

/* For a whole batch; for a slower model only a part is measured. */
#define PATIENCE_SECONDS 5

typedef struct measurement {
    int64_t windows, whole; /* of a batch: measured, and in a score */
    double speed;           /* tokens a second through one model group */
    double cores;           /* share of its cores that the rank had during the measurement */
} measurement;

/* Did any rank receive a stop request? */
static bp_err look_for_stop(const scorer *self)
{
    return bp_all_max_int(bp_signals_stop_asked(), self->mesh->compute) == 0
               ? BP_OK
               : bp_stop_request_stopped("while it estimated");
}

/* Some windows of zeros, twice; the last pass is timed; a slow first pass is the last. */
static bp_err run_windows(scorer *self, measurement *m, int64_t windows, double *seconds)
{
    int64_t length = bp_score_piece_inputs(&self->rule);
    int32_t *zeros = bp_try_alloc("score.batch", windows * length, sizeof(*zeros)),
            *targets = bp_try_alloc("score.batch", windows * length, sizeof(*targets));
    const bp_task_kind *kind = bp_task_kind_of(&self->info.task);
    float *values =
        bp_try_alloc("score.batch", self->info.statistics * windows * length, sizeof(*values));
    bp_model_batch batch = {
        .windows = windows, .length = length, .inputs = zeros, .targets = targets};
    int32_t *lengths = NULL;
    bool slow = false;
    bp_err err = zeros && targets && values
                     ? BP_OK
                     : BP_FAIL(BP_ERR_SYSTEM, "memory.short", "no memory for a batch");

    err = bp_agree(self->mesh->compute, err);
    for (int64_t k = 0; err == BP_OK && kind->over_positions && k < windows * length; k++)
        targets[k] = k % length < kind->ends ? 0 : -1;
    if (self->info.reads_source && err == BP_OK) {
        batch.source_length = length;
        batch.sources = zeros;
        batch.source_lengths = lengths = bp_alloc("score.batch", windows, sizeof(*lengths));
        for (int64_t w = 0; w < windows; w++)
            lengths[w] = (int32_t)length;
    }
    for (int pass = 0; err == BP_OK && pass < 2 && !slow; pass++) {
        double began, busy;

        err = look_for_stop(self);
        began = bp_clock_now();
        busy = bp_clock_process();
        if (err == BP_OK)
            err = bp_model_score(self->model, &batch, values);
        *seconds = bp_clock_now() - began;
        m->cores = (bp_clock_process() - busy) / (*seconds * bp_math_threads());
        err = bp_agree(self->mesh->compute, err); /* model copies may differ in it */
        slow = bp_all_max_int(*seconds > PATIENCE_SECONDS, self->mesh->compute) != 0;
    }
    m->windows = windows;
    m->speed = (double)(windows * length) / *seconds;
    bp_free(lengths);
    bp_free(values);
    bp_free(targets);
    bp_free(zeros);
    return err;
}

/* The time of a whole batch is estimated from one window; one pass is enough if it is long. */
static bp_err measure(void *context, double figures[BP_WORK_FIGURES])
{
    scorer *self = context;
    measurement m = {.whole = bp_score_batch_windows(bp_score_piece_inputs(&self->rule))};
    double seconds = 0;
    bool short_enough;
    bp_err err = run_windows(self, &m, 1, &seconds);

    short_enough = seconds * (double)m.whole < PATIENCE_SECONDS;
    if (err == BP_OK && m.whole > 1 &&
        bp_all_max_int(!short_enough, self->mesh->compute) == 0) /* the same on all ranks */
        err = run_windows(self, &m, m.whole, &seconds);
    figures[0] = (double)m.windows;
    figures[1] = (double)m.whole;
    figures[2] = m.speed;
    figures[3] = m.cores;
    return err;
}

/* The parts of the model's memory on a rank, as measured on this mesh. */
static void print_memory(const scorer *self, const measurement *m, int64_t bytes)
{
    const bp_mesh *mesh = self->mesh;
    int ranks = mesh->members * mesh->pipeline_ranks * mesh->tensor_ranks;
    char batch[80] = "batch";

    if (m->windows < m->whole)
        snprintf(batch, sizeof batch, "%" PRId64 " of the %" PRId64 " windows of a batch",
                 m->windows, m->whole);
    if (!self->job->ensemble) {
        bp_log("tried: model and %s take %.1f MiB of a rank's memory (measured on %d rank%s a "
               "model)",
               batch, (double)bytes / 1048576, ranks, ranks == 1 ? "" : "s");
        return;
    }
    bp_log("tried: %" PRId64 " members and %s take %.1f MiB of a rank's memory (measured with all "
           "of them on %d rank%s); of it up to score.memory = %.1f MiB for their distributions",
           self->info.members, batch, (double)bytes / 1048576, ranks, ranks == 1 ? "" : "s",
           (double)bp_score_rule_keys_of(self->config)->memory / 1048576);
}

/* Assumptions of the time that were not measured; nothing if all was measured. */
static void print_caveats(const scorer *self, const measurement *m)
{
    const bp_mesh *mesh = self->job->mesh;
    bool part = m->windows<m->whole, others = self->job->mesh_shape.data> mesh->data_ranks;

    if (part || others)
        bp_log("the time supposes that %s%s%s",
               part ? "a whole batch is as fast as one window" : "",
               part && others ? ", and that " : "",
               others ? "each copy is as fast as the one that was tried here" : "");
    if (m->cores < BP_CORES_SHARED)
        bp_log("other work had %.0f %% of these cores while that was measured: the time is a guess",
               100 * (1 - m->cores));
}

static void print(const void *context, const double figures[BP_WORK_FIGURES], int64_t bytes)
{
    const scorer *self = context;
    const bp_mesh_shape *shape = &self->job->mesh_shape;
    const measurement m = {(int64_t)figures[0], (int64_t)figures[1], figures[2], figures[3]};
    /* members side by side are faster by that factor than measured one after another */
    double speed = m.speed * (double)shape->members / self->mesh->members;
    char duration[64];

    print_memory(self, &m, bytes);
    bp_clock_duration(duration, sizeof(duration),
                      (double)self->plan.inputs / (speed * shape->data));
    bp_log("time: about %s at %.0f tokens/s from %s%d %s cop%s", duration, speed,
           shape->data == 1 ? "" : "each of ", shape->data,
           self->job->ensemble ? "ensemble" : "model", shape->data == 1 ? "y" : "ies");
    print_caveats(self, &m);
}

/* ---- the table ---- */

static const bp_work SCORE = {.name = "score",
                              .shares_experts = true,
                              .model_key = "score.model",
                              .results = "scores",
                              .writes = writes,
                              .page = "score",
                              .describe = scorer_describe,
                              .open_model = scorer_open_model,
                              .open = scorer_open,
                              .identify = identify,
                              .say = say,
                              .started = started,
                              .units = scorer_units,
                              .report = report,
                              .measure = measure,
                              .print = print,
                              .close = scorer_close};

static bp_err score(scorer *self, MPI_Comm world, const bp_planned_world *plan)
{
    const char *files[SCORE_FILES_MOST + 1];
    bp_work work = SCORE;
    bp_work_job job = {.work = &work, .self = self, .config = self->config};

    scorer_list_files(files);
    work.files = files;
    self->job = &job;
    return bp_work_run(&job, world, plan);
}

bp_err bp_score(MPI_Comm world, bp_config *config, const bp_planned_world *plan)
{
    return score(&(scorer){.config = config, .planned = plan != NULL, .page = true}, world, plan);
}

bp_err bp_score_as(MPI_Comm world, bp_config *config, const bp_ensemble_spec *method)
{
    return score(&(scorer){.config = config, .method = method}, world, NULL);
}
