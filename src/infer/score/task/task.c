/* Scoring a task: a unit is a group of documents, which is one batch, and its part has the rows of
 * these documents. Predictions and figures are then computed from all rows in order. A set of
 * sets.h. */
#include "infer/score/task/task_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "tensor/batch.h"

#include <inttypes.h>
#include <string.h>

/* ---- rows of predictions: a probability of each outcome ---- */

/* One column per outcome, and more for an ensemble. */
static int64_t width_of(const task_scoring *task)
{
    int64_t more = task->self->info.members == 0 ? 0 : task->kind->is_value ? 1 : TASK_MORE;

    return more + (task->kind->over_positions ? TASK_SPAN_COLUMNS : task->outcomes);
}

static void take(const task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                 int64_t at, float *out)
{
    const task_documents *documents = &task->documents;
    int64_t stride = batch->windows * batch->length, K = task->outcomes,
            k = bp_task_documents_at(documents, &documents->row[r], 0, w, batch->length);
    const float *log_p = task->log_p + at * K,
                *values = task->values ? task->values + k : NULL; /* of an ensemble */

    if (task->kind->over_positions) {
        task_take_span(task, batch, r, w, out);
        return;
    }
    for (int64_t v = 0; v < K; v++)
        out[v] = log_p[v] + 0.0F; /* files have no -0 */
    if (task->width > K && task->kind->is_value) {
        out[K] = values[BP_MODEL_LOGPROB_VARIANCE * stride];
    } else if (task->width > K) {
        out[K + TASK_ENTROPY] = values[BP_MODEL_TOTAL_ENTROPY * stride];
        out[K + TASK_MUTUAL] = values[BP_MODEL_MUTUAL_INFORMATION * stride];
    }
}

static void put(task_scoring *task, int64_t first, int64_t rows, const char *from)
{
    if (rows > 0)
        memcpy(task->table + first * task->width, from,
               (size_t)(rows * task->width) * sizeof(float));
}

static const task_results PREDICTIONS = {
    .width_of = width_of, .take = take, .put = put, .write = task_report, .distribution = true};

/* ---- a unit ---- */

static task_scoring *task_of(const void *context)
{
    return scorer_own(context, &score_task_set);
}

static bp_err prepare(void *context)
{
    scorer *self = context;
    task_scoring *task = task_of(self);
    int64_t positions = TASK_GROUP * task->documents.length,
            rows = task->kind->at_words ? positions : TASK_GROUP * task->documents.kind->ends,
            columns = bp_model_columns(&self->info, task->documents.length),
            floats = task->results->distribution ? rows * columns : 0,
            values = self->info.members > 0 ? self->info.statistics * positions : 0;

    task->row = bp_alloc("score.task", task->width, sizeof(float));
    task->log_p = bp_try_alloc("score.task", floats, sizeof(float));
    task->values = values > 0 ? bp_try_alloc("score.task", values, sizeof(float)) : NULL;
    return task->log_p && (task->values || values == 0)
               ? BP_OK
               : bp_fail_memory("the outcomes of documents", floats + values, sizeof(float));
}

static void release(void *context)
{
    task_scoring *task = task_of(context);

    bp_free(task->row);
    bp_free(task->log_p);
    bp_free(task->values);
}

static void pack(const task_scoring *task, const bp_model_batch *batch, int64_t g, bp_buffer *out)
{
    const int64_t *first_row = task->documents.first_row + g * TASK_GROUP;
    size_t bytes = (size_t)task->width * sizeof(float);

    for (int64_t w = 0; w < batch->windows; w++)
        for (int64_t r = first_row[w]; r < first_row[w + 1]; r++) {
            memset(task->row, 0, bytes);
            task->results->take(task, batch, r, w, r - first_row[0], task->row);
            bp_buffer_add(out, task->row, bytes);
        }
}

/* Without a label, outcome 0 is the target. A unit is one batch; job/work_units.c checks for a stop
 * request between units. */
static bp_err run_unit(void *context, int64_t g, bp_buffer *out, bool *stopped)
{
    scorer *self = context;
    task_scoring *task = task_of(self);
    bp_model_batch batch;

    (void)stopped;
    if (self->leads)
        bp_work_ask_next(self->job);
    bp_err err = task_documents_group(&task->documents, g, 0, &batch);
    if (err != BP_OK)
        return err;
    bp_heartbeat_progress();
    err = task->results->distribution
              ? bp_model_distribution(self->model, &batch, task->log_p, task->values)
              : bp_model_score(self->model, &batch, task->values);
    if (err == BP_OK && self->leads)
        pack(task, &batch, g, out);
    return err;
}

static int64_t first_of(const task_documents *documents, int64_t g)
{
    return g * TASK_GROUP < documents->count ? g * TASK_GROUP : documents->count;
}

static int64_t count_documents(const void *context, int64_t g)
{
    const task_documents *documents = &task_of(context)->documents;

    return first_of(documents, g + 1) - first_of(documents, g);
}

/* ---- all units ---- */

static bp_err put_unit(task_scoring *task, const bp_part_result *part)
{
    const task_documents *documents = &task->documents;
    int64_t first = documents->first_row[first_of(documents, part->unit)],
            end = documents->first_row[first_of(documents, part->unit + 1)];
    bp_err err = bp_part_result_expect(part, (size_t)((end - first) * task->width) * sizeof(float));

    if (err == BP_OK)
        task->results->put(task, first, end - first, part->data);
    return err;
}

static bp_err merge(void *context, bp_parts *parts)
{
    scorer *self = context;
    task_scoring *task = task_of(self);
    int64_t floats = task->documents.rows * task->width;
    bp_part_result part = {0};
    bp_err err = BP_OK;

    task->table = bp_try_alloc("score.task", floats, sizeof(float));
    if (!task->table)
        err = bp_fail_memory("the outcomes of documents", floats, sizeof(float));
    while (bp_parts_next(parts, &part, &err))
        err = put_unit(task, &part);
    if (err == BP_OK)
        err = task->results->write(task);
    bp_free(task->table);
    json_decref(task->misses);
    return err;
}

/* ---- open and close ---- */

static bp_work_units units_of(const task_scoring *task)
{
    int64_t groups = task_documents_groups(&task->documents);
    double count = (double)task->documents.count;
    bool spans = task->kind->over_positions;

    return (bp_work_units){.parts = "parts",
                           .key = task->self->key,
                           .count = groups,
                           .mesh_keys = "mesh.tensor, mesh.members",
                           .again = "scored",
                           .amount = count,
                           .noun = spans ? "windows" : "documents",
                           .speed_digits = 1,
                           .prepare = prepare,
                           .run = run_unit,
                           .amount_of = count_documents,
                           .release = release,
                           .merge = merge};
}

static bp_err open_set(scorer *self, void **own)
{
    bool reads = self->leads || self->mesh->coordinates, compared = self->method != NULL;
    task_documents_spec spec = {.mesh = self->mesh,
                                .model = &self->info,
                                .path = bp_score_keys_of(self->config)->model,
                                .corpus = reads ? self->corpus : NULL,
                                .plan = compared ? NULL : &self->plan,
                                .open = compared,
                                .unlabelled = !compared,
                                .config = self->config};
    task_scoring *task = *own = bp_alloc("score.task", 1, sizeof *task);
    bp_err err;

    BP_ASSERT(!compared || self->info.members > 0);
    task->self = self;
    task->results = compared ? &task_outcomes : &PREDICTIONS;
    task->kind = bp_task_kind_of(&self->info.task);
    task->outcomes = self->info.task.outcomes;
    err = bp_task_documents_open(&task->documents, &spec, self->mesh->world);
    self->predicted = task->documents.column; /* the set's, as long as the scorer reports */
    task->width = task->results->width_of(task);
    task->units = units_of(task);
    return err;
}

static void close_set(void *own)
{
    bp_task_documents_clear(&((task_scoring *)own)->documents);
    bp_free(own);
}

static const bp_work_units *units(scorer *self)
{
    return &task_of(self)->units;
}

static void say(const scorer *self)
{
    const task_scoring *task = task_of(self);

    bp_log("scoring %" PRId64 " %s in %" PRId64 " work units", task->documents.count,
           task->units.noun, task->units.count);
    task_documents_tell_cut(&task->documents);
}

/* ---- the set ---- */

static bool is_asked(const scorer *self)
{
    return bp_task_has_head(&self->info.task);
}

static bool is_compared(const scorer *self)
{
    return self->method != NULL;
}

static bool is_told(const scorer *self)
{
    return !self->method;
}

static bool has_answers(const scorer *self)
{
    return !self->method && bp_task_kind_of(&self->info.task)->over_positions;
}

/* Instead of windows. */
const score_set score_task_set = {
    .is_asked = is_asked,
    .files = (const score_file[]){{"summary.json", is_told},
                                  {"outcomes.h5", is_compared},
                                  {"predictions.csv", is_told},
                                  {"predictions.json", has_answers},
                                  {0}},
    .open = open_set,
    .close = close_set,
    .units = units,
    .say = say,
};
