/* Scoring a task: the distribution of each document or word, in fixed groups of
 * documents that data ranks take in turn; then figures and predictions. There are no parts: a start
 * after a stop scores anew. */
#include "task_priv.h"

#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "base/signals.h"
#include "mesh/collective.h"
#include "run/stop_request.h"
#include "tensor/batch.h"

#include <inttypes.h>
#include <string.h>

static bool finds_spans(const task_scoring *task)
{
    return task->kind->over_places;
}

static bool finds_tags(const task_scoring *task)
{
    return task->kind->at_words;
}

/* ---- a group of documents ---- */

/* Of row r, which is row `at` of the batch's distributions and has its target at place k. */
static void take_row(task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t at,
                     int64_t k)
{
    int64_t stride = batch->windows * batch->length, K = task->outcomes;
    const float *log_p = task->log_p + at * K,
                *values = task->values ? task->values + k : NULL; /* of an ensemble */
    float *row = task->table + r * task->width;

    for (int64_t v = 0; v < K; v++)
        row[v] = log_p[v] + 0.0F; /* sums over ranks leave no -0 */
    if (task->width > K && task->kind->is_value) {
        row[K] = values[BP_MODEL_LOGPROB_VARIANCE * stride];
    } else if (task->width > K) {
        row[K + TASK_ENTROPY] = values[BP_MODEL_TOTAL_ENTROPY * stride];
        row[K + TASK_MUTUAL] = values[BP_MODEL_MUTUAL_INFORMATION * stride];
    }
}

static void take(task_scoring *task, const bp_model_batch *batch, int64_t g)
{
    const task_documents *documents = &task->documents;
    const int64_t *first_row = documents->first_row + g * TASK_GROUP;

    for (int64_t w = 0; w < batch->windows; w++)
        for (int64_t r = first_row[w]; r < first_row[w + 1]; r++)
            if (finds_spans(task))
                task_take_span(task, batch, r, w);
            else
                take_row(task, batch, r, r - first_row[0],
                         task_documents_at(documents, &documents->row[r], 0, w, batch->length));
}

/* Where there is no label outcome 0 is the target. */
static bp_err score_group(task_scoring *task, int64_t g)
{
    bp_model_batch batch;
    bp_err err = task_documents_group(&task->documents, g, 0, &batch);

    if (batch.windows < 0)
        return err;
    bp_heartbeat_progress();
    err = bp_model_distribution(task->self->lm, &batch, task->log_p, task->values);
    if (err == BP_OK && task->self->leads)
        take(task, &batch, g);
    return err;
}

/* Data ranks take groups in turn, and agree after each on whether to stop. */
static bp_err score_groups(task_scoring *task)
{
    const bp_mesh *mesh = task->self->mesh;
    int64_t groups = task_documents_groups(&task->documents);
    bp_err err = BP_OK;

    for (int64_t first = 0; first < groups && err == BP_OK; first += mesh->datas) {
        if (first + mesh->data_at < groups)
            err = score_group(task, first + mesh->data_at);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_stop_request_stopped("at %s %" PRId64 " of %" PRId64,
                                          finds_spans(task) ? "window" : "document",
                                          first * TASK_GROUP, task->documents.count);
        err = bp_agree(mesh->compute, err);
    }
    return err;
}

/* The rows of all data ranks, on the coordinator. */
static void gather(task_scoring *task)
{
    const bp_mesh *mesh = task->self->mesh;
    int64_t floats = task->documents.rows * task->width;

    if (mesh->computes && task->self->leads && mesh->datas > 1) {
        float *scratch = bp_alloc("score.task", floats, sizeof *scratch);

        bp_all_sum(task->table, floats, scratch, mesh->data);
        bp_free(scratch);
    }
    if (mesh->dedicated)
        bp_bcast_bytes(task->table, floats * (int64_t)sizeof *task->table, 1, mesh->world);
}

static bp_err finish(task_scoring *task)
{
    scorer *self = task->self;
    bp_phase before = bp_heartbeat_phase(BP_PHASE_MERGE);
    bp_err err = BP_OK;

    if (self->mesh->coordinates) {
        err = bp_run_check_owner(self->job->run);
        if (err == BP_OK)
            err = bp_dir_make(self->folder);
        if (err == BP_OK)
            err = task_report(task);
    }
    (void)bp_heartbeat_phase(before);
    return bp_agree(self->mesh->world, err);
}

/* ---- the whole ---- */

/* What a group takes, and the table. */
static bp_err reserve(task_scoring *task)
{
    const scorer *self = task->self;
    int64_t places = TASK_GROUP * task->documents.length,
            rows = finds_tags(task) ? places : TASK_GROUP * task_documents_ends(&task->documents),
            floats = task->documents.rows * task->width;

    task->table = bp_try_alloc("score.task", floats, sizeof(float));
    task->log_p = bp_try_alloc(
        "score.task", rows * bp_model_columns(&self->info, task->documents.length), sizeof(float));
    if (self->info.members > 0)
        task->values = bp_try_alloc("score.task", self->info.statistics * places, sizeof(float));
    return task->table && task->log_p && (task->values || self->info.members == 0)
               ? BP_OK
               : bp_fail_memory("the outcomes of documents", floats, sizeof(float));
}

static bp_err prepare(task_scoring *task)
{
    scorer *self = task->self;
    bool reads = self->leads || self->mesh->coordinates;
    task_documents_spec spec = {.mesh = self->mesh,
                                .model = &self->info,
                                .path = bp_score_keys_of(self->config)->model,
                                .corpus = reads ? self->corpus : NULL,
                                .plan = &self->plan,
                                .unlabelled = true,
                                .config = self->config};
    bp_err err;

    err = task_documents_open(&task->documents, &spec, self->mesh->world);
    if (err != BP_OK)
        return err;
    if (self->mesh->coordinates)
        task_documents_tell_cut(&task->documents);
    return bp_agree(self->mesh->world, reserve(task));
}

/* Columns of a row: an outcome each, and of an ensemble more. */
static int64_t width_of(const task_scoring *task)
{
    int64_t more = task->self->info.members == 0 ? 0 : task->kind->is_value ? 1 : TASK_MORE;

    return more + (finds_spans(task) ? TASK_SPAN_COLUMNS : task->outcomes);
}

bp_err scorer_run_task(scorer *self)
{
    task_scoring task = {.self = self,
                         .kind = bp_task_kind_of(&self->info.task),
                         .outcomes = self->info.task.outcomes};
    bp_err err;

    task.width = width_of(&task);
    err = prepare(&task);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->computes ? score_groups(&task) : BP_OK);
    if (err == BP_OK) {
        gather(&task);
        err = finish(&task);
    }
    task_documents_clear(&task.documents);
    bp_free(task.table);
    bp_free(task.log_p);
    bp_free(task.values);
    return err;
}
