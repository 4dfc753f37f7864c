/* Scoring a task: of each document the probability of each of its outcomes, in fixed groups of
 * documents that data ranks take in turn; then figures and predictions. There are no parts: a start
 * after a stop scores anew. */
#include "task_priv.h"

#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "base/signals.h"
#include "infer/score/task_documents_priv.h"
#include "mesh/collective.h"
#include "run/stop_request.h"
#include "tensor/batch.h"

#include <inttypes.h>
#include <string.h>

#define ASKS 64 /* outcomes of a place that are asked for at once, most */

static const json_t *names_of(const task_scoring *task)
{
    return json_object_get(json_object_get(task->state, "model"), "labels");
}

static bool finds_spans(const task_scoring *task)
{
    return task->kind == BP_TASK_SPANS;
}

static bool finds_tags(const task_scoring *task)
{
    return task->kind == BP_TASK_TAGS;
}

/* ---- what is scored ---- */

/* Are outcomes asked for at places, and not of the whole text? */
static bool has_places(const task_scoring *task)
{
    return finds_tags(task) || finds_spans(task);
}

/* Names of classes and tags as they are, or numbers: "LABEL_0" of an import. */
static bp_err find_columns(task_scoring *task)
{
    const char *label = json_string_value(json_object_get(task->state, "label"));
    bool numbers = task->kind == BP_TASK_REGRESSION;
    int64_t count = (int64_t)json_array_size(names_of(task));
    bp_document_columns *columns = &task->columns;
    bp_err err = has_places(task) ? BP_OK
                                  : bp_corpus_column(&task->column, task->self->corpus,
                                                     label && label[0] ? label : NULL, numbers);

    task->names = bp_alloc("score.task", task->outcomes + count, sizeof *task->names);
    for (int64_t k = 0; k < task->outcomes; k++)
        task->names[k] = "";
    for (int64_t k = 0; k < count; k++)
        task->names[k] = json_string_value(json_array_get(names_of(task), (size_t)k));
    columns->all_known = true;
    if (numbers) {
        columns->value = task->column;
    } else if (finds_spans(task)) {
        columns->spans = true;
        columns->windows = bp_task_windows(&task->frame, task->length,
                                           task_span_key(task, "stride", BP_TASK_STRIDE));
    } else if (finds_tags(task)) {
        columns->tags = task->names;
        columns->tag_count = count;
    } else {
        columns->label = task->column;
        columns->classes = task->names;
        columns->class_count = count;
    }
    return err;
}

static bp_err open_documents(task_scoring *task)
{
    const scorer *self = task->self;
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, task->state, "manifest.json");

    if (err == BP_OK)
        err = bp_task_frame_of(&task->frame, &shape, bp_corpus_roles(self->corpus),
                               bp_corpus_file_path(bp_corpus_file_at(self->corpus, 0)));
    if (err == BP_OK)
        err = find_columns(task);
    if (err == BP_OK)
        err = bp_corpus_has_pairs(&task->pairs, self->corpus);
    if (err == BP_OK)
        err = bp_stream_new(&task->stream, &(bp_stream_spec){.corpus = self->corpus});
    return err == BP_OK ? bp_document_table_new(&task->corpus,
                                                &(bp_document_table_spec){.stream = task->stream,
                                                                          .columns = task->columns})
                        : err;
}

static bp_err check(const scorer *self)
{
    const bp_score_keys *keys = bp_score_keys_of(self->config);
    const char *key = keys->candidates   ? "score.candidates"
                      : keys->tokens     ? "score.tokens"
                      : keys->states     ? "score.states"
                      : keys->neighbours ? "score.neighbours"
                                         : NULL;

    if (key)
        return BP_FAIL(BP_ERR_CONFIG, "task.unused_key",
                       "%s is of language models, and this one has the head of a task: at %s; "
                       "leave it out",
                       key, key);
    return BP_OK;
}

/* ---- a group of documents ---- */

static bp_err read_document(task_scoring *task, int64_t number, const bp_document **document)
{
    bp_err err = bp_document_table_read(task->corpus, task->number[number], NULL, document);

    return err == BP_OK
               ? bp_task_check_document(*document, bp_score_keys_of(task->self->config)->corpus)
               : err;
}

static bp_task_pair texts_of(const task_scoring *task, const bp_document *document)
{
    return finds_spans(task) ? bp_task_window(document, &task->columns.windows)
                             : bp_task_texts(document, task->pairs);
}

/* Example `w` of a group, at `length` places each. */
static bp_err add_document(task_scoring *task, int64_t number, int64_t w, int64_t *longest)
{
    int32_t *inputs = task->inputs + w * task->length, *tagged = task->tagged + w * task->length;
    const bp_document *document;
    bp_task_pair pair;
    int64_t cut, length;
    bp_err err = read_document(task, number, &document);

    if (err != BP_OK)
        return err;
    pair = texts_of(task, document);
    length = bp_task_fill(inputs, task->segments + w * task->length, task->length, &task->frame,
                          &pair, &cut);
    for (int64_t t = length; t < task->length; t++)
        inputs[t] = -1;
    memset(tagged, 0, (size_t)task->length * sizeof *tagged);
    for (int64_t r = task->first_row[number]; finds_tags(task) && r < task->first_row[number + 1];
         r++)
        tagged[task->place[r]] = 1;
    if (finds_spans(task)) {
        tagged[task->none[number]] = 1;
        for (int64_t t = length - 1 - pair.tokens[1]; t < length - 1; t++)
            tagged[t] = 1;
    }
    *longest = length > *longest ? length : *longest;
    return BP_OK;
}

/* As long as its longest document, but for outcomes that have to be asked for at places. */
static bp_err make_group(task_scoring *task, int64_t first, bp_model_batch *batch)
{
    int64_t end = first + TASK_GROUP < task->documents ? first + TASK_GROUP : task->documents,
            longest = 1;
    int32_t *arrays[] = {task->inputs, task->segments, task->tagged};
    bp_err err = BP_OK;

    if (!has_places(task))
        longest = task->outcomes < task->length ? task->outcomes : task->length;
    for (int64_t d = first; d < end && err == BP_OK; d++)
        err = add_document(task, d, d - first, &longest);
    for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; k++)
        for (int64_t w = 1; w < end - first; w++)
            memmove(arrays[k] + w * longest, arrays[k] + w * task->length,
                    (size_t)longest * sizeof(int32_t));
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
                              .segments = task->segments,
                              .asks = task->asks};
    if (head[0] < 0)
        return;
    bytes = head[0] * head[1] * (int64_t)sizeof(int32_t);
    bp_bcast_bytes(task->inputs, bytes, 0, group);
    bp_bcast_bytes(task->segments, bytes, 0, group);
    if (has_places(task))
        bp_bcast_bytes(task->tagged, bytes, 0, group);
}

/* Outcomes from `from` on are asked for: of a text one at each place, of words some at each. */
static bp_err ask(task_scoring *task, const bp_model_batch *batch, int64_t from)
{
    for (int64_t k = 0; k < batch->windows * batch->length * task->asks; k++) {
        int64_t outcome = from + k % (has_places(task) ? task->asks : batch->length);
        bool asked =
            outcome < task->outcomes && (!has_places(task) || task->tagged[k / task->asks]);

        task->targets[k] = asked ? (int32_t)outcome : -1;
    }
    return bp_model_score(task->self->lm, batch, task->values);
}

/* Of row r, whose example is window w. */
static void take_row(task_scoring *task, const bp_model_batch *batch, int64_t r, int64_t w,
                     int64_t from)
{
    int64_t stride = batch->windows * batch->length, K = task->outcomes,
            place = finds_tags(task) ? task->place[r] : 0,
            count = finds_tags(task) ? task->asks : batch->length;
    const float *values = task->values + (w * batch->length + place) * task->asks;
    float *row = task->table + r * task->width;

    for (int64_t k = 0; k < count && from + k < K; k++)
        row[from + k] = values[k] + 0.0F; /* sums over ranks leave no -0 */
    if (task->width > K && task->kind == BP_TASK_REGRESSION) {
        row[K] = values[BP_MODEL_LOGPROB_VARIANCE * stride];
    } else if (task->width > K) {
        row[K + TASK_ENTROPY] = values[BP_MODEL_TOTAL_ENTROPY * stride];
        row[K + TASK_MUTUAL] = values[BP_MODEL_MUTUAL_INFORMATION * stride];
    }
}

static void take(task_scoring *task, const bp_model_batch *batch, int64_t first, int64_t from)
{
    for (int64_t w = 0; w < batch->windows; w++)
        for (int64_t r = task->first_row[first + w]; r < task->first_row[first + w + 1]; r++)
            if (finds_spans(task))
                task_take_span(task, batch, r, w);
            else
                take_row(task, batch, r, w, from);
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
    for (int64_t from = 0; from < task->outcomes && err == BP_OK;
         from += has_places(task) ? task->asks : batch.length) {
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

    for (int64_t round = 0; round < task->documents && err == BP_OK; round += each) {
        int64_t first = round + TASK_GROUP * (int64_t)mesh->data_at;

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
    int64_t floats = task->rows * task->width;

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
        err = bp_run_check_owner(self->run);
        if (err == BP_OK)
            err = bp_dir_make(self->folder);
        if (err == BP_OK)
            err = task_report(task);
    }
    (void)bp_heartbeat_phase(before);
    return bp_agree(self->mesh->world, err);
}

/* ---- the whole ---- */

static void add_row(task_scoring *task, int64_t *capacity, int32_t label, int64_t word,
                    int64_t place)
{
    int32_t **lists[] = {&task->label, &task->word, &task->place, &task->none};

    if (task->rows == *capacity) {
        *capacity = *capacity == 0 ? 1024 : 2 * *capacity;
        for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++)
            *lists[k] = bp_realloc("score.task", *lists[k], *capacity, sizeof(int32_t));
    }
    task->label[task->rows] = label;
    task->word[task->rows] = (int32_t)word;
    task->place[task->rows++] = (int32_t)place;
}

/* A window of a question: what makes of a place a token of the context, and where no answer is. */
static void add_window(task_scoring *task, int64_t *capacity, const bp_document *document)
{
    bp_task_pair pair = texts_of(task, document);
    int64_t first = pair.text[1] - document->tokens - document->starts[1],
            length = bp_task_places(&task->frame, &pair);

    add_row(task, capacity, 0, document->window, first - (length - 1 - pair.tokens[1]));
    task->none[task->rows - 1] = (int32_t)bp_task_no_answer(&task->frame, length);
    task->cut += document->window == 0 && pair.tokens[0] < document->starts[1];
}

/* A document, or each of its words that has a place. */
static void add_rows(task_scoring *task, int64_t *capacity, const bp_document *document)
{
    int64_t begin = task->frame.begin >= 0, end = task->length - 1, word = 0;

    if (finds_spans(task))
        add_window(task, capacity, document);
    else if (task->kind == BP_TASK_REGRESSION)
        add_row(task, capacity, bp_target_of_value(document->value), 0, 0);
    else if (!finds_tags(task))
        add_row(task, capacity, document->label, 0, 0);
    for (int64_t t = 0; finds_tags(task) && t < document->count; t++)
        if (document->tags[t] >= 0) {
            if (begin + t < end)
                add_row(task, capacity, document->tags[t], word, begin + t);
            task->words_cut += begin + t >= end;
            word++;
        }
}

/* Those that are scored, how many of them are cut, and their targets. */
static bp_err select_documents(task_scoring *task)
{
    int64_t all = bp_document_table_count(task->corpus), capacity = 0;
    const bp_document *document;
    bp_err err = BP_OK;

    task->number = bp_alloc("score.task", all, sizeof *task->number);
    task->first_row = bp_alloc("score.task", all + 1, sizeof *task->first_row);
    for (int64_t d = 0; d < all && err == BP_OK; d++) {
        if (!bp_score_plan_has(&task->self->plan, bp_document_table_document(task->corpus, d)))
            continue;
        task->number[task->documents] = d;
        err = read_document(task, task->documents, &document);
        if (err != BP_OK)
            break;
        bp_task_pair pair = texts_of(task, document);
        add_rows(task, &capacity, document);
        task->cut += bp_task_places(&task->frame, &pair) > task->length;
        task->first_row[++task->documents] = task->rows;
    }
    return err;
}

/* What a group takes, and the table. */
static bp_err reserve(task_scoring *task)
{
    const scorer *self = task->self;
    int64_t places = TASK_GROUP * task->length;

    task->table = bp_try_alloc("score.task", task->rows * task->width, sizeof(float));
    task->inputs = bp_alloc("score.task", places, sizeof *task->inputs);
    task->segments = bp_alloc("score.task", places, sizeof *task->segments);
    task->tagged = bp_alloc("score.task", places, sizeof *task->tagged);
    task->targets = bp_alloc("score.task", places * task->asks, sizeof *task->targets);
    task->values =
        bp_try_alloc("score.task", self->info.statistics * places * task->asks, sizeof(float));
    return task->table && task->values ? BP_OK
                                       : bp_fail_memory("the outcomes of documents",
                                                        task->rows * task->width, sizeof(float));
}

static bp_err prepare(task_scoring *task)
{
    scorer *self = task->self;
    int64_t known[4];
    bool reads = self->leads || self->mesh->coordinates;
    bp_err err = check(self);

    if (err == BP_OK && reads)
        err = task_state_read(&task->state, bp_score_keys_of(self->config)->model);
    if (err == BP_OK && reads)
        err = open_documents(task);
    if (err == BP_OK && reads)
        err = select_documents(task);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    memcpy(known, (int64_t[]){task->documents, task->rows, task->cut, task->words_cut},
           sizeof known);
    bp_bcast_bytes(known, sizeof known, 0, self->mesh->world);
    task->documents = known[0];
    task->rows = known[1];
    if (task->cut > 0 && self->mesh->coordinates)
        bp_log("%" PRId64 " of %" PRId64 " documents are longer than the model's %" PRId64
               " places: their longer text is cut",
               task->cut, task->documents, task->length);
    if (task->words_cut > 0 && self->mesh->coordinates)
        bp_log("%" PRId64 " words have no place, and count for nothing", task->words_cut);
    return bp_agree(self->mesh->world, reserve(task));
}

bp_err scorer_run_task(scorer *self)
{
    task_scoring task = {.self = self,
                         .kind = self->info.task.kind,
                         .outcomes = self->info.task.outcomes,
                         .length = self->info.context,
                         .asks = 1};
    bp_err err;

    task.width = task.outcomes + (self->info.members == 0           ? 0
                                  : task.kind == BP_TASK_REGRESSION ? 1
                                                                    : TASK_MORE);
    if (finds_tags(&task) && self->info.members == 0) /* an ensemble is asked outcome by outcome */
        task.asks = task.outcomes < ASKS ? task.outcomes : ASKS;
    if (finds_spans(&task)) { /* where each place would begin and end one; see task_spans.c */
        task.asks = 2;
        task.width = TASK_SPAN_COLUMNS + (self->info.members > 0 ? TASK_MORE : 0);
    }
    err = prepare(&task);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->computes ? score_groups(&task) : BP_OK);
    if (err == BP_OK) {
        gather(&task);
        err = finish(&task);
    }
    bp_document_table_free(&task.corpus);
    bp_stream_free(&task.stream);
    json_decref(task.state);
    void *blocks[] = {task.names,    task.column, task.number,  task.first_row, task.label,
                      task.word,     task.place,  task.none,    task.table,     task.inputs,
                      task.segments, task.tagged, task.targets, task.values};
    for (size_t k = 0; k < sizeof blocks / sizeof blocks[0]; k++)
        bp_free(blocks[k]);
    return err;
}
