/* Scoring a task: of each document the probability of each of its outcomes, in fixed groups of
 * documents that data ranks take in turn; then figures and predictions. There are no parts: a start
 * after a stop scores anew. */
#include "infer/score/scorer_priv.h"

#include "base/buffer.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "base/signals.h"
#include "data/document_table.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "models/task.h"
#include "run/stop_request.h"
#include "statistics/task_metrics.h"
#include "tensor/batch.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define GROUP   32 /* documents of a batch */
#define ENTROPY 0  /* columns behind the outcomes': of an ensemble */
#define MUTUAL  1

typedef struct task_scoring {
    scorer *self;
    int64_t kind, outcomes;
    json_t *state; /* of the checkpoint, or the first member's: on leads and the coordinator */
    bp_task_frame frame;
    /* On leads and the coordinator: */
    char *column;
    const char **classes; /* [outcomes], of the state */
    bp_document_columns columns;
    bool pairs; /* documents have two texts */
    bp_stream *stream;
    bp_document_table *table_of; /* all documents of the corpora */
    int64_t
        *number;    /* [documents] in the corpora; those that score.select leaves out are missing */
    int32_t *label; /* [documents] targets */
    int64_t documents, length;
    int64_t width; /* of a document's row: an outcome each, and of an ensemble two more */
    float *table;  /* [documents][width] */
    int32_t *inputs, *targets, *segments; /* [GROUP][length] */
    float *values;                        /* [statistics][GROUP][length] */
    int64_t cut;                          /* documents that are longer than the context */
} task_scoring;

static const json_t *classes_of(const task_scoring *task)
{
    return json_object_get(json_object_get(task->state, "model"), "labels");
}

static const char *class_name(const task_scoring *task, int64_t k)
{
    const char *name = json_string_value(json_array_get(classes_of(task), (size_t)k));

    return name ? name : "";
}

/* ---- what is scored ---- */

static bp_err read_state(task_scoring *task)
{
    const char *path = bp_score_keys_of(task->self->config)->model;
    bp_ensemble_list list = {0};
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_err err = bp_ensemble_is(path) ? bp_ensemble_list_load(&list, path) : BP_OK;

    if (err == BP_OK)
        err = bp_checkpoint_read_metadata(list.count > 0 ? list.members[0].path : path, &folder,
                                          &manifest);
    task->state = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    bp_ensemble_list_clear(&list);
    return err;
}

/* Names of classes as they are, or numbers: "LABEL_0" of an import. */
static bp_err find_columns(task_scoring *task)
{
    const char *label = json_string_value(json_object_get(task->state, "label"));
    bool numbers = task->kind == BP_TASK_REGRESSION;
    bp_document_columns *columns = &task->columns;
    bp_err err = bp_corpus_column(&task->column, task->self->corpus,
                                  label && label[0] ? label : NULL, numbers);

    task->classes = bp_alloc("score.task", task->outcomes, sizeof *task->classes);
    for (int64_t k = 0; k < task->outcomes; k++)
        task->classes[k] = class_name(task, k);
    columns->all_known = true;
    if (numbers) {
        columns->value = task->column;
    } else {
        columns->label = task->column;
        columns->classes = task->classes;
        columns->class_count = (int64_t)json_array_size(classes_of(task));
    }
    return err;
}

static bp_err open_documents(task_scoring *task)
{
    const scorer *self = task->self;
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, task->state, "manifest.json");

    if (err == BP_OK)
        err = bp_task_frame_of(&task->frame, &shape, bp_corpus_roles(self->corpus));
    if (err == BP_OK)
        err = find_columns(task);
    if (err == BP_OK)
        err = bp_corpus_has_pairs(&task->pairs, self->corpus);
    if (err == BP_OK)
        err = bp_stream_new(&task->stream, &(bp_stream_spec){.corpus = self->corpus});
    return err == BP_OK ? bp_document_table_new(&task->table_of,
                                                &(bp_document_table_spec){.stream = task->stream,
                                                                          .columns = task->columns})
                        : err;
}

static bp_err check(const scorer *self)
{
    const bp_score_keys *keys = bp_score_keys_of(self->config);
    const char *key = keys->candidates ? "score.candidates"
                      : keys->tokens   ? "score.tokens"
                      : keys->states   ? "score.states"
                                       : NULL;

    if (key)
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

static bp_err read_document(task_scoring *task, int64_t number, const bp_document **document)
{
    bp_err err = bp_document_table_read(task->table_of, task->number[number], NULL, document);

    if (err == BP_OK && (*document)->count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "task.empty_document",
                      "document %" PRId64 " has no token: at %s; leave it out", (*document)->number,
                      bp_score_keys_of(task->self->config)->corpus);
    return err;
}

/* The texts of a group's documents, one behind the other at `length` places each. */
static bp_err add_document(task_scoring *task, int64_t number, int64_t row, int64_t *longest)
{
    int32_t *inputs = task->inputs + row * task->length;
    const bp_document *document;
    bp_task_pair pair;
    int64_t cut, length;
    bp_err err = read_document(task, number, &document);

    if (err != BP_OK)
        return err;
    pair = bp_task_texts(document, task->pairs);
    length = bp_task_fill(inputs, task->segments + row * task->length, task->length, &task->frame,
                          &pair, &cut);
    for (int64_t t = length; t < task->length; t++)
        inputs[t] = -1;
    *longest = length > *longest ? length : *longest;
    return BP_OK;
}

/* As long as its longest document, but for outcomes that have to be asked for. */
static bp_err make_group(task_scoring *task, int64_t first, bp_model_batch *batch)
{
    int64_t end = first + GROUP < task->documents ? first + GROUP : task->documents,
            longest = task->outcomes < task->length ? task->outcomes : task->length;
    bp_err err = BP_OK;

    for (int64_t d = first; d < end && err == BP_OK; d++)
        err = add_document(task, d, d - first, &longest);
    for (int64_t w = 1; w < end - first; w++) {
        memmove(task->inputs + w * longest, task->inputs + w * task->length,
                (size_t)longest * sizeof(int32_t));
        memmove(task->segments + w * longest, task->segments + w * task->length,
                (size_t)longest * sizeof(int32_t));
    }
    batch->windows = err == BP_OK ? end - first : -1;
    batch->length = longest;
    return err;
}

/* Hand a lead's group to the other ranks of its model; windows -1: it could not be read. */
static void share_group(task_scoring *task, bp_model_batch *batch)
{
    MPI_Comm group = task->self->mesh->ensemble;
    int64_t head[2] = {batch->windows, batch->length}, bytes;

    bp_bcast_bytes(head, sizeof head, 0, group);
    *batch = (bp_model_batch){.windows = head[0],
                              .length = head[1],
                              .inputs = task->inputs,
                              .targets = task->targets,
                              .segments = task->segments};
    if (head[0] < 0)
        return;
    bytes = head[0] * head[1] * (int64_t)sizeof(int32_t);
    bp_bcast_bytes(task->inputs, bytes, 0, group);
    bp_bcast_bytes(task->segments, bytes, 0, group);
}

/* Outcomes [from, from + length) are asked for, one at each place of a text. */
static bp_err ask(task_scoring *task, const bp_model_batch *batch, int64_t from)
{
    for (int64_t k = 0; k < batch->windows * batch->length; k++) {
        int64_t outcome = from + k % batch->length;

        task->targets[k] = outcome < task->outcomes ? (int32_t)outcome : -1;
    }
    return bp_model_score(task->self->lm, batch, task->values);
}

static void take(task_scoring *task, const bp_model_batch *batch, int64_t first, int64_t from)
{
    int64_t stride = batch->windows * batch->length;

    for (int64_t w = 0; w < batch->windows; w++) {
        float *row = task->table + (first + w) * task->width;
        const float *values = task->values + w * batch->length;

        for (int64_t t = 0; t < batch->length && from + t < task->outcomes; t++)
            row[from + t] = values[t] + 0.0F; /* sums over ranks leave no -0 */
        if (task->width > task->outcomes) {
            row[task->outcomes + ENTROPY] = values[BP_MODEL_TOTAL_ENTROPY * stride];
            row[task->outcomes + MUTUAL] = values[BP_MODEL_MUTUAL_INFORMATION * stride];
        }
    }
}

static bp_err score_group(task_scoring *task, int64_t first)
{
    bp_model_batch batch = {0};
    bp_err err = BP_OK;

    if (task->self->leads)
        err = make_group(task, first, &batch);
    share_group(task, &batch);
    if (batch.windows < 0)
        return err;
    for (int64_t from = 0; from < task->outcomes && err == BP_OK; from += batch.length) {
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
    int64_t each = GROUP * (int64_t)mesh->datas;

    for (int64_t round = 0; round < task->documents && err == BP_OK; round += each) {
        int64_t first = round + GROUP * (int64_t)mesh->data_at;

        if (first < task->documents)
            err = score_group(task, first);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_stop_request_stopped("at document %" PRId64 " of %" PRId64, first,
                                          task->documents);
        err = bp_agree(mesh->compute, err);
    }
    return err;
}

/* The rows of all data ranks, on the coordinator. */
static void gather(task_scoring *task)
{
    const bp_mesh *mesh = task->self->mesh;
    int64_t floats = task->documents * task->width;

    if (mesh->computes && task->self->leads && mesh->datas > 1) {
        float *scratch = bp_alloc("score.task", floats, sizeof *scratch);

        bp_all_sum(task->table, floats, scratch, mesh->data);
        bp_free(scratch);
    }
    if (mesh->dedicated)
        bp_bcast_bytes(task->table, floats * (int64_t)sizeof *task->table, 1, mesh->world);
}

/* ---- what is told ---- */

static int32_t best_of(const task_scoring *task, int64_t d)
{
    const float *row = task->table + d * task->width;
    int32_t best = 0;

    for (int32_t k = 1; k < task->outcomes; k++)
        if (row[k] > row[best])
            best = k;
    return best;
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

    bp_buffer_printf(out, "%" PRId64 ",", task->number[d]);
    if (task->kind == BP_TASK_REGRESSION) {
        bp_buffer_printf(out, "%.9g,%.9g\n", (double)bp_target_value(task->label[d]),
                         (double)row[0]);
        return;
    }
    add_field(out, class_name(task, task->label[d]));
    bp_buffer_printf(out, ",");
    add_field(out, class_name(task, best));
    bp_buffer_printf(out, ",%.9g", exp((double)row[best]));
    if (task->width > task->outcomes)
        bp_buffer_printf(out, ",%.9g,%.9g", (double)row[task->outcomes + ENTROPY],
                         (double)row[task->outcomes + MUTUAL]);
    bp_buffer_printf(out, "\n");
}

static bp_err write_predictions(const task_scoring *task)
{
    char *path = bp_path_join(task->self->folder, "predictions.csv");
    bp_buffer out = {0};
    bp_err err;

    bp_buffer_printf(&out, "document,label,prediction%s%s\n",
                     task->kind == BP_TASK_REGRESSION ? "" : ",probability",
                     task->width > task->outcomes ? ",entropy,mutual_information" : "");
    for (int64_t d = 0; d < task->documents; d++)
        add_prediction(&out, task, d);
    err = bp_file_write(path, out.data, out.bytes);
    bp_buffer_clear(&out);
    bp_free(path);
    return err;
}

/* More classes than that have a table that nobody reads. */
#define CONFUSION_CLASSES 1000

/* Rows are labels, columns predictions; null of many classes. New reference. */
static json_t *confusion_of(const task_scoring *task, const int32_t *predicted)
{
    int64_t K = task->outcomes, *counts;
    json_t *rows;

    if (K > CONFUSION_CLASSES)
        return json_null();
    counts = bp_alloc("score.task", K * K, sizeof *counts);
    rows = json_array();
    for (int64_t d = 0; d < task->documents; d++)
        counts[task->label[d] * K + predicted[d]]++;
    for (int64_t k = 0; k < K; k++) {
        json_t *row = json_array();

        for (int64_t j = 0; j < K; j++)
            (void)json_array_append_new(row, json_integer((json_int_t)counts[k * K + j]));
        (void)json_array_append_new(rows, row);
    }
    bp_free(counts);
    return rows;
}

/* "task" of the summary, with the means of an ensemble's statistics. */
static bp_err measure_classes(const task_scoring *task, json_t **out, uint64_t seed)
{
    bp_figure figures[BP_METRIC_FIGURES];
    int32_t *predicted = bp_alloc("score.task", task->documents, sizeof *predicted);
    bp_class_answers answers = {task->documents, task->outcomes, task->label, predicted};
    double sums[2] = {0};
    bp_err err;

    for (int64_t d = 0; d < task->documents; d++) {
        const float *more = task->table + d * task->width + task->outcomes;

        predicted[d] = best_of(task, d);
        for (int k = 0; k < 2 && task->width > task->outcomes; k++)
            sums[k] += (double)more[k];
    }
    err = bp_metric_estimate(figures, &bp_metric_classes, &answers, task->documents, seed);
    if (err == BP_OK) {
        *out = bp_metric_json(&bp_metric_classes, figures);
        (void)json_object_set_new(*out, "confusion", confusion_of(task, predicted));
        if (classes_of(task))
            (void)json_object_set(*out, "labels", (json_t *)classes_of(task));
        if (task->width > task->outcomes) {
            (void)json_object_set_new(*out, "entropy",
                                      bp_json_real(sums[ENTROPY] / (double)task->documents));
            (void)json_object_set_new(*out, "mutual_information",
                                      bp_json_real(sums[MUTUAL] / (double)task->documents));
        }
    }
    bp_free(predicted);
    return err;
}

static bp_err measure_values(const task_scoring *task, json_t **out, uint64_t seed)
{
    bp_figure figures[BP_METRIC_FIGURES];
    double *label = bp_alloc("score.task", task->documents, sizeof *label),
           *predicted = bp_alloc("score.task", task->documents, sizeof *predicted);
    bp_real_answers answers;
    bp_err err;

    for (int64_t d = 0; d < task->documents; d++) {
        label[d] = (double)bp_target_value(task->label[d]);
        predicted[d] = (double)task->table[d * task->width];
    }
    bp_real_answers_init(&answers, label, predicted, task->documents);
    err = bp_metric_estimate(figures, &bp_metric_regression, &answers, task->documents, seed);
    if (err == BP_OK)
        *out = bp_metric_json(&bp_metric_regression, figures);
    bp_real_answers_clear(&answers);
    bp_free(label);
    bp_free(predicted);
    return err;
}

static void add_likelihood(const task_scoring *task, json_t *summary)
{
    double nll = 0;

    if (task->kind == BP_TASK_REGRESSION)
        return;
    for (int64_t d = 0; d < task->documents; d++)
        nll -= (double)task->table[d * task->width + task->label[d]];
    (void)json_object_set_new(summary, "nll_nats", bp_json_real(nll));
    (void)json_object_set_new(summary, "perplexity",
                              bp_json_real(exp(nll / (double)task->documents)));
}

static bp_err summarise(task_scoring *task)
{
    scorer *self = task->self;
    uint64_t seed = (uint64_t)bp_run_keys_of(self->config)->seed;
    char *path = bp_path_join(self->folder, "summary.json");
    json_t *told = NULL;
    bp_err err = task->kind == BP_TASK_REGRESSION ? measure_values(task, &told, seed)
                                                  : measure_classes(task, &told, seed);

    if (err == BP_OK) {
        (void)json_object_set_new(told, "kind", json_string(bp_task_name(task->kind)));
        self->summary =
            json_pack("{s:I, s:I, s:o, s:{s:s, s:I, s:s}, s:{s:s, s:I}}", "documents",
                      (json_int_t)task->documents, "documents_cut", (json_int_t)task->cut, "task",
                      told, "convention", "name", "task", "context", (json_int_t)task->length,
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
    bp_err err = BP_OK;

    if (self->mesh->coordinates) {
        err = bp_run_check_owner(self->run);
        if (err == BP_OK)
            err = bp_dir_make(self->folder);
        if (err == BP_OK)
            err = write_predictions(task);
        if (err == BP_OK)
            err = summarise(task);
        if (err == BP_OK)
            report(task);
    }
    (void)bp_heartbeat_phase(before);
    return bp_agree(self->mesh->world, err);
}

/* ---- the whole ---- */

/* Those that are scored, how many of them are cut, and their targets. */
static bp_err select_documents(task_scoring *task)
{
    int64_t all = bp_document_table_count(task->table_of);
    const bp_document *document;
    bp_err err = BP_OK;

    task->number = bp_alloc("score.task", all, sizeof *task->number);
    task->label = bp_alloc("score.task", all, sizeof *task->label);
    for (int64_t d = 0; d < all && err == BP_OK; d++) {
        int64_t number = task->documents;

        if (!bp_score_plan_has(&task->self->plan, d))
            continue;
        task->number[task->documents++] = d;
        err = read_document(task, number, &document);
        if (err != BP_OK)
            break;
        bp_task_pair pair = bp_task_texts(document, task->pairs);
        task->label[number] = task->kind == BP_TASK_REGRESSION ? bp_target_of_value(document->value)
                                                               : document->label;
        task->cut += bp_task_places(&task->frame, &pair) > task->length;
    }
    return err;
}

static bp_err prepare(task_scoring *task)
{
    scorer *self = task->self;
    int64_t places = GROUP * task->length, known[2];
    bool reads = self->leads || self->mesh->coordinates;
    bp_err err = check(self);

    if (err == BP_OK && reads)
        err = read_state(task);
    if (err == BP_OK && reads)
        err = open_documents(task);
    if (err == BP_OK && reads)
        err = select_documents(task);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    known[0] = task->documents;
    known[1] = task->cut;
    bp_bcast_bytes(known, sizeof known, 0, self->mesh->world);
    task->documents = known[0];
    task->table = bp_try_alloc("score.task", task->documents * task->width, sizeof(float));
    task->inputs = bp_alloc("score.task", places, sizeof *task->inputs);
    task->targets = bp_alloc("score.task", places, sizeof *task->targets);
    task->segments = bp_alloc("score.task", places, sizeof *task->segments);
    task->values = bp_try_alloc("score.task", self->info.statistics * places, sizeof(float));
    if (task->cut > 0 && self->mesh->coordinates)
        bp_log("%" PRId64 " of %" PRId64 " documents are longer than the model's %" PRId64
               " places: their longer text is cut",
               task->cut, task->documents, task->length);
    return bp_agree(self->mesh->world,
                    task->table && task->values
                        ? BP_OK
                        : bp_fail_memory("the outcomes of documents", task->documents * task->width,
                                         sizeof(float)));
}

bp_err scorer_run_task(scorer *self)
{
    task_scoring task = {.self = self,
                         .kind = self->info.task.kind,
                         .outcomes = self->info.task.outcomes,
                         .length = self->info.context};
    bp_err err;

    task.width = task.outcomes + (self->info.members > 0 ? 2 : 0);
    err = prepare(&task);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->computes ? score_groups(&task) : BP_OK);
    if (err == BP_OK) {
        gather(&task);
        err = finish(&task);
    }
    bp_document_table_free(&task.table_of);
    bp_stream_free(&task.stream);
    bp_free(task.classes);
    bp_free(task.column);
    json_decref(task.state);
    bp_free(task.number);
    bp_free(task.label);
    bp_free(task.table);
    bp_free(task.inputs);
    bp_free(task.targets);
    bp_free(task.segments);
    bp_free(task.values);
    return err;
}
