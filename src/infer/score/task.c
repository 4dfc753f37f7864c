/* Scoring a task: of each document the probability of each of its outcomes, in fixed groups of
 * documents that data ranks take in turn; then figures and predictions. There are no parts: a start
 * after a stop scores anew. */
#include "infer/score/scorer_priv.h"
#include "infer/score/tables/tables.h"
#include "infer/score/task_documents_priv.h"

#include "base/buffer.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "base/signals.h"
#include "mesh/collective.h"
#include "models/task.h"
#include "run/stop_request.h"
#include "statistics/task_metrics.h"
#include "tensor/batch.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ENTROPY 0 /* columns behind the outcomes': of an ensemble */
#define MUTUAL  1

typedef struct task_scoring {
    scorer *self;
    task_documents texts;
    int64_t width;   /* of a document's row: an outcome each, and of an ensemble two more */
    float *table;    /* [documents][width] */
    int64_t columns; /* of `told`: an ensemble's statistics where a study asks; 0: none */
    float *told;     /* [columns][documents]; NaN: not known, since there is no label */
    float *values;   /* [statistics][TASK_GROUP][length] */
} task_scoring;

static const json_t *classes_of(const task_scoring *task)
{
    return task_documents_classes(&task->texts);
}

/* ---- what is scored ---- */

static bp_err check(const scorer *self)
{
    const bp_score_keys *keys = bp_score_keys_of(self->config);
    const char *key = keys->candidates ? "score.candidates"
                      : keys->tokens   ? "score.tokens"
                      : keys->states   ? "score.states"
                                       : NULL;

    BP_ASSERT(!self->method || self->info.task.kind == BP_TASK_CLASSES);
    if (key && !self->method)
        return BP_FAIL(BP_ERR_CONFIG, "task.unused_key",
                       "%s is of language models, and this one has the head of a task: at %s; "
                       "leave it out",
                       key, key);
    if (self->info.task.kind == BP_TASK_TAGS || self->info.task.kind == BP_TASK_SPANS)
        return BP_FAIL(BP_ERR_CONFIG, "task.no_corpora",
                       "a model for %s can't be scored yet: at %s; use classes or regression",
                       bp_task_name(self->info.task.kind), keys->model);
    return BP_OK;
}

/* ---- a group of documents ---- */

/* Outcomes [from, from + length) are asked for, one at each place of a text. */
static bp_err ask(task_scoring *task, const bp_model_batch *batch, int64_t from)
{
    for (int64_t k = 0; k < batch->windows * batch->length; k++) {
        int64_t outcome = from + k % batch->length;

        task->texts.targets[k] = outcome < task->texts.outcomes ? (int32_t)outcome : -1;
    }
    return bp_model_score(task->self->lm, batch, task->values);
}

/* Is a statistic one of the label's, and not of the distribution alone? */
static bool is_of_label(int64_t statistic)
{
    return statistic == BP_MODEL_LOGPROB || statistic == BP_MODEL_LOGPROB_VARIANCE ||
           statistic == BP_MODEL_CORRECT || statistic == BP_MODEL_BRIER ||
           statistic >= BP_MODEL_MEMBER;
}

/* Those of document d, where its label is asked for; without one, where outcome 0 is. */
static void take_statistics(task_scoring *task, int64_t d, int64_t from, const float *values,
                            const bp_model_batch *batch)
{
    int32_t label = task->texts.label[d];
    int64_t place = (label < 0 ? 0 : label) - from;

    for (int64_t c = 0; c < task->columns && place >= 0 && place < batch->length; c++)
        task->told[c * task->texts.documents + d] =
            label < 0 && is_of_label(c) ? NAN : values[c * batch->windows * batch->length + place];
}

static void take(task_scoring *task, const bp_model_batch *batch, int64_t first, int64_t from)
{
    int64_t stride = batch->windows * batch->length;

    for (int64_t w = 0; w < batch->windows; w++) {
        float *row = task->table + (first + w) * task->width;
        const float *values = task->values + w * batch->length;

        for (int64_t t = 0; t < batch->length && from + t < task->texts.outcomes; t++)
            row[from + t] = values[t] + 0.0F; /* sums over ranks leave no -0 */
        if (task->width > task->texts.outcomes) {
            row[task->texts.outcomes + ENTROPY] = values[BP_MODEL_TOTAL_ENTROPY * stride];
            row[task->texts.outcomes + MUTUAL] = values[BP_MODEL_MUTUAL_INFORMATION * stride];
        }
        take_statistics(task, first + w, from, values, batch);
    }
}

static bp_err score_group(task_scoring *task, int64_t first)
{
    bp_model_batch batch = {0};
    bp_err err = BP_OK;

    if (task->self->leads)
        batch = task_documents_group(&task->texts, first, task->texts.outcomes);
    task_documents_share(&task->texts, &batch, false);
    for (int64_t from = 0; from < task->texts.outcomes && err == BP_OK; from += batch.length) {
        bp_heartbeat_progress();
        err = ask(task, &batch, from);
        if (err == BP_OK && task->self->leads)
            take(task, &batch, first, from);
    }
    return err;
}

/* Data ranks take groups in turn, and agree after each on whether to stop. */
static bp_err score_groups(task_scoring *task)
{
    const bp_mesh *mesh = task->self->mesh;
    bp_err err = BP_OK;
    int64_t each = TASK_GROUP * (int64_t)mesh->datas;

    for (int64_t round = 0; round < task->texts.documents && err == BP_OK; round += each) {
        int64_t first = round + TASK_GROUP * (int64_t)mesh->data_at;

        if (first < task->texts.documents)
            err = score_group(task, first);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_stop_request_stopped("at document %" PRId64 " of %" PRId64, first,
                                          task->texts.documents);
        err = bp_agree(mesh->compute, err);
    }
    return err;
}

/* What all data ranks have found, on the coordinator. */
static void gather(const task_scoring *task, float *values, int64_t floats)
{
    const bp_mesh *mesh = task->self->mesh;

    if (mesh->computes && task->self->leads && mesh->datas > 1) {
        float *scratch = bp_alloc("score.task", floats, sizeof *scratch);

        bp_all_sum(values, floats, scratch, mesh->data);
        bp_free(scratch);
    }
    if (mesh->dedicated)
        bp_bcast_bytes(values, floats * (int64_t)sizeof *values, 1, mesh->world);
}

/* ---- what is told ---- */

static int32_t best_of(const task_scoring *task, int64_t d)
{
    const float *row = task->table + d * task->width;
    int32_t best = 0;

    for (int32_t k = 1; k < task->texts.outcomes; k++)
        if (row[k] > row[best])
            best = k;
    return best;
}

static const char *class_name(const task_scoring *task, int64_t k)
{
    const char *name = json_string_value(json_array_get(classes_of(task), (size_t)k));

    return name ? name : "";
}

/* As CSV has it: in quotation marks where it must be. */
static void add_field(bp_buffer *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        bp_buffer_printf(out, "%s", text);
        return;
    }
    bp_buffer_printf(out, "\"");
    for (; *text; text++)
        bp_buffer_printf(out, *text == '"' ? "\"\"" : "%c", *text);
    bp_buffer_printf(out, "\"");
}

static void add_prediction(bp_buffer *out, const task_scoring *task, int64_t d)
{
    const float *row = task->table + d * task->width;
    int32_t best = best_of(task, d);

    bp_buffer_printf(out, "%" PRId64 ",", task->texts.number[d]);
    if (task->texts.kind == BP_TASK_REGRESSION) {
        bp_buffer_printf(out, "%.9g,%.9g\n", (double)bp_target_value(task->texts.label[d]),
                         (double)row[0]);
        return;
    }
    add_field(out, class_name(task, task->texts.label[d]));
    bp_buffer_printf(out, ",");
    add_field(out, class_name(task, best));
    bp_buffer_printf(out, ",%.9g", exp((double)row[best]));
    if (task->width > task->texts.outcomes)
        bp_buffer_printf(out, ",%.9g,%.9g", (double)row[task->texts.outcomes + ENTROPY],
                         (double)row[task->texts.outcomes + MUTUAL]);
    bp_buffer_printf(out, "\n");
}

static bp_err write_predictions(const task_scoring *task)
{
    char *path = bp_path_join(task->self->folder, "predictions.csv");
    bp_buffer out = {0};
    bp_err err;

    bp_buffer_printf(&out, "document,label,prediction%s%s\n",
                     task->texts.kind == BP_TASK_REGRESSION ? "" : ",probability",
                     task->width > task->texts.outcomes ? ",entropy,mutual_information" : "");
    for (int64_t d = 0; d < task->texts.documents; d++)
        add_prediction(&out, task, d);
    err = bp_file_write(path, out.data, out.bytes);
    bp_buffer_clear(&out);
    bp_free(path);
    return err;
}

/* More classes than that have a table that nobody reads. */
#define CONFUSION_CLASSES 1000

/* Rows are labels, columns predictions; null of many classes. New reference. */
static json_t *confusion_of(const bp_class_answers *answers)
{
    int64_t K = answers->classes, *counts;
    json_t *rows;

    if (K > CONFUSION_CLASSES)
        return json_null();
    counts = bp_alloc("score.task", K * K, sizeof *counts);
    rows = json_array();
    for (int64_t d = 0; d < answers->documents; d++)
        counts[answers->label[d] * K + answers->predicted[d]]++;
    for (int64_t k = 0; k < K; k++) {
        json_t *row = json_array();

        for (int64_t j = 0; j < K; j++)
            (void)json_array_append_new(row, json_integer((json_int_t)counts[k * K + j]));
        (void)json_array_append_new(rows, row);
    }
    bp_free(counts);
    return rows;
}

/* "task" of the summary, of documents that have a label, with the means of an ensemble's
 * statistics over all. */
static bp_err measure_classes(const task_scoring *task, json_t **out, uint64_t seed)
{
    int64_t documents = task->texts.documents, labelled = 0;
    bp_figure figures[BP_METRIC_FIGURES];
    int32_t *label = bp_alloc("score.task", documents, sizeof *label),
            *predicted = bp_alloc("score.task", documents, sizeof *predicted);
    double sums[2] = {0};
    bp_err err;

    for (int64_t d = 0; d < documents; d++) {
        const float *more = task->table + d * task->width + task->texts.outcomes;

        label[labelled] = task->texts.label[d];
        predicted[labelled] = best_of(task, d);
        labelled += task->texts.label[d] >= 0;
        for (int k = 0; k < 2 && task->width > task->texts.outcomes; k++)
            sums[k] += (double)more[k];
    }
    bp_class_answers answers = {labelled, task->texts.outcomes, label, predicted};
    err = bp_metric_estimate(figures, &bp_metric_classes, &answers, labelled, seed);
    if (err == BP_OK) {
        *out = bp_metric_json(&bp_metric_classes, figures);
        (void)json_object_set_new(*out, "confusion", confusion_of(&answers));
        if (classes_of(task))
            (void)json_object_set(*out, "labels", (json_t *)classes_of(task));
        if (task->width > task->texts.outcomes) {
            (void)json_object_set_new(*out, "entropy",
                                      bp_json_real(sums[ENTROPY] / (double)documents));
            (void)json_object_set_new(*out, "mutual_information",
                                      bp_json_real(sums[MUTUAL] / (double)documents));
        }
    }
    bp_free(label);
    bp_free(predicted);
    return err;
}

static bp_err measure_values(const task_scoring *task, json_t **out, uint64_t seed)
{
    bp_figure figures[BP_METRIC_FIGURES];
    double *label = bp_alloc("score.task", task->texts.documents, sizeof *label),
           *predicted = bp_alloc("score.task", task->texts.documents, sizeof *predicted);
    bp_real_answers answers;
    bp_err err;

    for (int64_t d = 0; d < task->texts.documents; d++) {
        label[d] = (double)bp_target_value(task->texts.label[d]);
        predicted[d] = (double)task->table[d * task->width];
    }
    bp_real_answers_init(&answers, label, predicted, task->texts.documents);
    err = bp_metric_estimate(figures, &bp_metric_regression, &answers, task->texts.documents, seed);
    if (err == BP_OK)
        *out = bp_metric_json(&bp_metric_regression, figures);
    bp_real_answers_clear(&answers);
    bp_free(label);
    bp_free(predicted);
    return err;
}

static void add_likelihood(const task_scoring *task, json_t *summary)
{
    int64_t labelled = 0;
    double nll = 0;

    if (task->texts.kind == BP_TASK_REGRESSION)
        return;
    for (int64_t d = 0; d < task->texts.documents; d++)
        if (task->texts.label[d] >= 0) {
            nll -= (double)task->table[d * task->width + task->texts.label[d]];
            labelled++;
        }
    (void)json_object_set_new(summary, "nll_nats", bp_json_real(nll));
    (void)json_object_set_new(summary, "perplexity", bp_json_real(exp(nll / (double)labelled)));
}

static bp_err summarise(task_scoring *task)
{
    scorer *self = task->self;
    uint64_t seed = (uint64_t)bp_run_keys_of(self->config)->seed;
    char *path = bp_path_join(self->folder, "summary.json");
    json_t *told = NULL;
    bp_err err = task->texts.kind == BP_TASK_REGRESSION ? measure_values(task, &told, seed)
                                                        : measure_classes(task, &told, seed);

    if (err == BP_OK) {
        (void)json_object_set_new(told, "kind", json_string(bp_task_name(task->texts.kind)));
        self->summary = json_pack("{s:I, s:I, s:o, s:{s:s, s:I, s:s}, s:{s:s, s:I}}", "documents",
                                  (json_int_t)task->texts.documents, "documents_cut",
                                  (json_int_t)task->texts.cut, "task", told, "convention", "name",
                                  "task", "context", (json_int_t)task->texts.length,
                                  "tokenizer_hash", self->info.tokenizer_hash, "model", "digest",
                                  self->info.digest, "step", (json_int_t)self->info.step);
        add_likelihood(task, self->summary);
        err = bp_json_save(path, self->summary);
    }
    bp_free(path);
    return err;
}

static void report(const task_scoring *task)
{
    const json_t *told = json_object_get(task->self->summary, "task"), *value;
    const char *name;

    json_object_foreach((json_t *)told, name, value)
    {
        const json_t *figure = json_object_get(value, "value");

        if (json_is_number(figure))
            bp_log("%-10s %8.4f  (95 %% interval %.4f to %.4f)", name, json_number_value(figure),
                   json_number_value(json_object_get(value, "low")),
                   json_number_value(json_object_get(value, "high")));
    }
    bp_log("in %s: summary.json, predictions.csv", task->self->folder);
}

static bp_err finish(task_scoring *task)
{
    scorer *self = task->self;
    bp_phase before = bp_heartbeat_phase(BP_PHASE_MERGE);
    char *path = bp_path_join(self->folder, "outcomes.h5");
    bp_err err = BP_OK;

    if (self->mesh->coordinates) {
        err = bp_run_check_owner(self->run);
        if (err == BP_OK)
            err = bp_dir_make(self->folder);
        if (err == BP_OK)
            err = write_predictions(task);
        if (err == BP_OK && task->columns > 0)
            err = bp_outcomes_write(path, &self->plan, &self->statistics, task->told);
        if (err == BP_OK)
            err = summarise(task);
        if (err == BP_OK)
            report(task);
    }
    bp_free(path);
    (void)bp_heartbeat_phase(before);
    return bp_agree(self->mesh->world, err);
}

/* ---- the whole ---- */

static bp_err reserve(task_scoring *task)
{
    const bp_model_info *info = &task->self->info;
    int64_t documents = task->texts.documents;

    task->table = bp_try_alloc("score.task", documents * task->width, sizeof(float));
    task->told = bp_try_alloc("score.task", documents * task->columns, sizeof(float));
    task->values =
        bp_try_alloc("score.task", info->statistics * TASK_GROUP * info->context, sizeof(float));
    return task->table && task->told && task->values
               ? BP_OK
               : bp_fail_memory("the outcomes of documents",
                                documents * (task->width + task->columns), sizeof(float));
}

static bp_err prepare(task_scoring *task)
{
    scorer *self = task->self;
    task_documents_spec spec = {.mesh = self->mesh,
                                .model = &self->info,
                                .path = bp_score_keys_of(self->config)->model,
                                .corpus = self->corpus,
                                .open = self->method != NULL,
                                .reads = self->leads || self->mesh->coordinates};
    int64_t known[2];
    bp_err err = check(self);

    if (err == BP_OK)
        err = task_documents_open(&task->texts, &spec);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    for (int64_t d = 0; d < task->texts.texts.documents; d++)
        if (bp_score_plan_has(&self->plan, d))
            task_documents_take(&task->texts, d);
    known[0] = task->texts.documents;
    known[1] = task->texts.cut;
    bp_bcast_bytes(known, sizeof known, 0, self->mesh->world);
    task->texts.documents = known[0];
    task->texts.cut = known[1];
    if (task->texts.cut > 0 && self->mesh->coordinates)
        bp_log("%" PRId64 " of %" PRId64 " documents are longer than the model's %" PRId64
               " places: their longer text is cut",
               task->texts.cut, task->texts.documents, task->texts.length);
    return bp_agree(self->mesh->world, reserve(task));
}

bp_err scorer_run_task(scorer *self)
{
    task_scoring task = {.self = self,
                         .columns = self->method ? self->info.statistics : 0,
                         .width = self->info.task.outcomes + (self->info.members > 0 ? 2 : 0)};
    bp_err err = prepare(&task);

    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->computes ? score_groups(&task) : BP_OK);
    if (err == BP_OK) {
        gather(&task, task.table, task.texts.documents * task.width);
        if (task.columns > 0)
            gather(&task, task.told, task.texts.documents * task.columns);
        err = finish(&task);
    }
    task_documents_clear(&task.texts);
    bp_free(task.table);
    bp_free(task.told);
    bp_free(task.values);
    return err;
}
