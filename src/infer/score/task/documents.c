/* Documents of a task: their outcomes from the checkpoint, their rows, and groups of them. Called
 * by task.c, and by each.c for a task. */
#include "infer/score/task/documents.h"

#include "base/log.h"
#include "base/mem.h"
#include "infer/score/keys.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- what documents are ---- */

static int64_t span_key(const task_documents *self, const char *key, int64_t asked,
                        int64_t otherwise)
{
    const json_t *value = json_object_get(json_object_get(self->state, "spans"), key);

    return asked > 0                       ? asked
           : json_integer_value(value) > 0 ? json_integer_value(value)
                                           : otherwise;
}

int64_t task_documents_answer_tokens(const task_documents *self)
{
    return span_key(self, "answer_tokens", self->answer_tokens, BP_TASK_ANSWER_TOKENS);
}

bp_err task_documents_id(const task_documents *self, int64_t d, char *id, size_t id_bytes)
{
    int64_t k = 0;

    for (; d >= bp_corpus_file_info(bp_corpus_file_at(self->corpus, k))->documents; k++)
        d -= bp_corpus_file_info(bp_corpus_file_at(self->corpus, k))->documents;
    return bp_corpus_file_doc_id(bp_corpus_file_at(self->corpus, k), d, id, id_bytes);
}

/* Names of classes and tags, or numbers: "LABEL_0" of an import. */
static bp_err find_columns(task_documents *self, const task_documents_spec *spec)
{
    const json_t *names = json_object_get(json_object_get(self->state, "model"), "labels");
    const char *label = json_string_value(json_object_get(self->state, "label"));
    int64_t count = (int64_t)json_array_size(names), outcomes = spec->model->task.outcomes;
    bool numbers = self->kind->is_value;
    bp_document_columns *columns = &self->columns;
    bool named = label && label[0];
    bool none = spec->unlabelled && !named && !bp_corpus_has_columns(self->corpus, numbers);
    bp_err err = BP_OK;

    if (self->kind->whole_text && !none)
        err = bp_corpus_column(&self->column, self->corpus, named ? label : NULL, numbers);
    self->names = bp_alloc("score.task", outcomes + count, sizeof *self->names);
    for (int64_t k = 0; k < outcomes + count; k++)
        self->names[k] = k < count ? json_string_value(json_array_get(names, (size_t)k)) : "";
    columns->all_known = !spec->open;
    columns->may_lack_label = spec->open;
    columns->unlabelled = spec->unlabelled;
    if (numbers) {
        columns->value = self->column;
    } else if (self->kind->over_positions) {
        columns->spans = true;
        columns->windows = bp_task_windows(&self->frame, self->length,
                                           span_key(self, "stride", self->stride, BP_TASK_STRIDE));
    } else if (self->kind->at_words) {
        columns->tags = self->names;
        columns->tag_count = count;
    } else {
        columns->label = self->column;
        columns->classes = self->names;
        columns->class_count = count;
    }
    return err;
}

/* Corpora of single texts and of pairs may be mixed. */
static bp_err find_pairs(task_documents *self)
{
    int64_t at = 0;
    bp_err err = BP_OK;

    self->pair = bp_alloc("score.task", bp_corpus_documents(self->corpus), sizeof *self->pair);
    for (int64_t k = 0; k < bp_corpus_files(self->corpus) && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(self->corpus, k);
        bp_corpus *alone = NULL;
        bool pairs = false, many = bp_corpus_files(self->corpus) > 1;

        if (many) /* one file may have no name any more: the texts of explain.texts */
            err = bp_corpus_open(&alone, bp_corpus_file_path(file));
        if (err == BP_OK)
            err = bp_corpus_has_pairs(&pairs, many ? alone : self->corpus);
        for (int64_t d = 0; d < bp_corpus_file_info(file)->documents; d++)
            self->pair[at++] = pairs;
        bp_corpus_close(&alone);
    }
    return err;
}

/* The texts of document d of the table. */
static bp_err read_texts(task_documents *self, int64_t d, const bp_document **document,
                         bp_task_pair *pair)
{
    bp_err err = bp_document_table_read(self->table, d, NULL, document);

    if (err == BP_OK)
        err = bp_task_check_document(*document,
                                     bp_corpus_file_path(bp_corpus_file_at(self->corpus, 0)));
    if (err == BP_OK)
        *pair = self->kind->over_positions
                    ? bp_task_window(*document, &self->columns.windows)
                    : bp_task_texts(*document, self->pair[(*document)->number]);
    return err;
}

/* ---- what is requested of them ---- */

static void add_row(task_documents *self, int64_t *capacity, task_row row)
{
    if (self->rows == *capacity) {
        *capacity = *capacity == 0 ? 1024 : 2 * *capacity;
        self->row = bp_realloc("score.task", self->row, *capacity, sizeof *self->row);
    }
    self->row[self->rows++] = row;
}

static task_row row_of_window(const task_documents *self, const bp_document *document,
                              const bp_task_pair *pair)
{
    int64_t first = pair->text[1] - document->tokens, end = first + pair->tokens[1],
            place = bp_task_positions(&self->frame, pair) - 1 - pair->tokens[1];
    int32_t none = (int32_t)bp_task_no_answer(&self->frame, place + pair->tokens[1] + 1);
    bool holds =
        document->answer[1] > 0 && document->answer[0] >= first && document->answer[1] <= end;
    task_row row = {.window = (int32_t)document->window,
                    .none = none,
                    .context = {(int32_t)place, (int32_t)(place + pair->tokens[1])},
                    .token = (int32_t)(first - document->starts[1] - place)};

    for (int k = 0; k < 2; k++)
        row.answer[k] = holds ? (int32_t)(place + document->answer[k] - k - first) : none;
    return row;
}

/* For a document, or for each of its words that fits. */
static void add_rows(task_documents *self, int64_t *capacity, const bp_document *document,
                     const bp_task_pair *pair)
{
    int64_t begin = bp_task_first_place(&self->frame, pair), end = self->length - 1, word = 0;

    if (self->kind->over_positions) {
        add_row(self, capacity, row_of_window(self, document, pair));
        self->cut += document->window == 0 && pair->tokens[0] < document->starts[1];
    } else if (self->kind->is_value) {
        add_row(self, capacity,
                (task_row){isnan(document->value) ? -1 : bp_target_of_value(document->value),
                           .value = document->value});
    } else if (self->kind->whole_text) {
        add_row(self, capacity, (task_row){document->label});
    }
    for (int64_t t = 0; self->kind->at_words && t < document->count; t++)
        if (document->tags[t] != BP_DOCUMENT_NO_WORD) {
            if (begin + t < end)
                add_row(self, capacity,
                        (task_row){document->tags[t] >= 0 ? document->tags[t] : -1,
                                   .word = (int32_t)word, .place = (int32_t)(begin + t)});
            self->words_cut += begin + t >= end;
            word++;
        }
}

/* For a document that is read to its end, or is truncated. */
static int64_t tokens_of(const task_documents *self, int64_t d, const bp_document *document)
{
    const int64_t *first = bp_document_table_first(self->table);

    return document->is_cut ? first[d + 1] - first[d] - (bp_corpus_eod(self->corpus) >= 0)
                            : document->count;
}

static bp_err take_documents(task_documents *self, const task_documents_spec *spec)
{
    int64_t all = bp_document_table_count(self->table), capacity = 0;
    int64_t count = spec->wanted > 0 && spec->wanted < all ? spec->wanted : all;
    bp_err err = BP_OK;

    self->number = bp_alloc("score.task", count, sizeof *self->number);
    self->tokens = bp_alloc("score.task", count, sizeof *self->tokens);
    self->first_row = bp_alloc("score.task", count + 1, sizeof *self->first_row);
    for (int64_t i = 0; i < count && err == BP_OK; i++) {
        int64_t d = (int64_t)((2 * (__int128)i + 1) * all / (2 * count));
        const bp_document *document;
        bp_task_pair pair;

        if (spec->plan &&
            !bp_score_plan_has(spec->plan, bp_document_table_document(self->table, d)))
            continue;
        err = read_texts(self, d, &document, &pair);
        if (err != BP_OK)
            break;
        self->number[self->count] = d;
        self->tokens[self->count] = tokens_of(self, d, document);
        add_rows(self, &capacity, document, &pair);
        self->cut += bp_task_positions(&self->frame, &pair) > self->length;
        self->first_row[++self->count] = self->rows;
    }
    return err;
}

/* ---- open and clear ---- */

static bp_err open_documents(task_documents *self, const task_documents_spec *spec)
{
    int64_t roles[BP_ROLES];
    bp_model_shape shape;
    bp_err err = bp_ensemble_read_state(&self->state, spec->path);

    memcpy(roles, bp_corpus_roles(self->corpus), sizeof roles);
    if (err == BP_OK) {
        roles[BP_ROLE_FIRST] = bp_roles_get(self->state, BP_ROLE_FIRST); /* as it was trained */
        err = bp_model_shape_read(&shape, self->state, "manifest.json");
    }
    if (err == BP_OK)
        err = bp_task_frame_of(&self->frame, &shape, roles,
                               bp_corpus_file_path(bp_corpus_file_at(self->corpus, 0)));
    if (err == BP_OK)
        err = find_pairs(self);
    if (err == BP_OK)
        err = find_columns(self, spec);
    if (err == BP_OK)
        err = bp_stream_new(&self->stream, &(bp_stream_spec){.corpus = self->corpus});
    if (err == BP_OK)
        err = bp_document_table_new(
            &self->table,
            &(bp_document_table_spec){.stream = self->stream, .columns = self->columns});
    return err == BP_OK ? take_documents(self, spec) : err;
}

bp_err bp_task_documents_open(task_documents *self, const task_documents_spec *spec, MPI_Comm world)
{
    int64_t length = spec->length > 0 ? spec->length : spec->model->context,
            positions = TASK_GROUP * length;
    bp_err err;

    *self = (task_documents){.mesh = spec->mesh,
                             .kind = bp_task_kind_of(&spec->model->task),
                             .length = length,
                             .corpus = spec->corpus};
    if (spec->config) {
        self->stride = bp_score_rule_keys_of(spec->config)->span_stride;
        self->answer_tokens = bp_score_rule_keys_of(spec->config)->answer_tokens;
    }
    self->inputs = bp_alloc("score.task", positions, sizeof *self->inputs);
    self->segments = bp_alloc("score.task", positions, sizeof *self->segments);
    self->targets = bp_alloc("score.task", positions, sizeof *self->targets);
    err = bp_agree(world, spec->corpus ? open_documents(self, spec) : BP_OK);
    int64_t *known[] = {&self->count, &self->rows, &self->cut, &self->words_cut};
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        bp_bcast_bytes(known[k], sizeof *known[k], 0, world);
    return err;
}

void bp_task_documents_clear(task_documents *self)
{
    void *blocks[] = {self->column,    self->names, self->pair,   self->number,  self->tokens,
                      self->first_row, self->row,   self->inputs, self->targets, self->segments};

    bp_document_table_free(&self->table);
    bp_stream_free(&self->stream);
    json_decref(self->state);
    for (size_t k = 0; k < sizeof blocks / sizeof blocks[0]; k++)
        bp_free(blocks[k]);
    *self = (task_documents){0};
}

static bool has_pairs(const task_documents *self)
{
    for (int64_t d = 0; d < bp_corpus_documents(self->corpus); d++)
        if (self->pair[d])
            return !self->kind->at_words;
    return false;
}

void task_documents_tell_cut(const task_documents *self)
{
    if (self->cut > 0 && self->kind->over_positions)
        bp_log("%" PRId64 " questions are longer than half of the model's %" PRId64
               " positions: their end is cut",
               self->cut, self->length);
    else if (self->cut > 0)
        bp_log("%" PRId64 " of %" PRId64 " documents are longer than the model's %" PRId64
               " positions: the end of %s is cut",
               self->cut, self->count, self->length,
               has_pairs(self) ? "their longer text" : "each");
    if (self->words_cut > 0)
        bp_log("%" PRId64 " words have no place, and count for nothing", self->words_cut);
}

/* ---- a group of documents ---- */

int64_t bp_task_documents_at(const task_documents *self, const task_row *row, int64_t end,
                             int64_t w, int64_t length)
{
    return w * length + (self->kind->at_words ? row->place : end);
}

bp_err bp_task_documents_one(task_documents *self, int64_t number, int32_t *inputs,
                             int32_t *segments, int64_t *length)
{
    const bp_document *document;
    bp_task_pair pair;
    int64_t cut;
    bp_err err = read_texts(self, self->number[number], &document, &pair);

    *length = 0;
    if (err != BP_OK)
        return err;
    *length = bp_task_fill(inputs, segments, self->length, &self->frame, &pair, &cut);
    for (int64_t t = *length; t < self->length; t++)
        inputs[t] = -1;
    return BP_OK;
}

/* Example `w`, at `length` positions each; updates *longest. */
static bp_err add_document(task_documents *self, int64_t number, int64_t w, int64_t *longest)
{
    int64_t length;
    bp_err err = bp_task_documents_one(self, number, self->inputs + w * self->length,
                                       self->segments + w * self->length, &length);

    *longest = length > *longest ? length : *longest;
    return err;
}

static void fill_targets(task_documents *self, int64_t d, int64_t w, int64_t length,
                         int32_t unknown)
{
    for (int64_t r = self->first_row[d]; r < self->first_row[d + 1]; r++)
        for (int64_t end = 0; end < task_documents_ends(self); end++) {
            const task_row *row = &self->row[r];
            int32_t label = row->label >= 0 ? row->label : unknown;

            self->targets[bp_task_documents_at(self, row, end, w, length)] =
                self->kind->over_positions ? row->answer[end] : label;
        }
}

static bp_err make_group(task_documents *self, int64_t first, int32_t unknown,
                         bp_model_batch *batch)
{
    int64_t end = first + TASK_GROUP < self->count ? first + TASK_GROUP : self->count, longest = 1;
    bp_err err = BP_OK;

    for (int64_t d = first; d < end && err == BP_OK; d++)
        err = add_document(self, d, d - first, &longest);
    for (int64_t w = 1; w < end - first; w++) {
        memmove(self->inputs + w * longest, self->inputs + w * self->length,
                (size_t)longest * sizeof(int32_t));
        memmove(self->segments + w * longest, self->segments + w * self->length,
                (size_t)longest * sizeof(int32_t));
    }
    for (int64_t k = 0; k < (end - first) * longest; k++)
        self->targets[k] = -1;
    for (int64_t d = first; d < end; d++)
        fill_targets(self, d, d - first, longest, unknown);
    batch->windows = end - first;
    batch->length = longest;
    return err;
}

bp_err task_documents_group(task_documents *self, int64_t g, int32_t unknown, bp_model_batch *batch)
{
    MPI_Comm group = self->mesh->replica;
    int64_t head[2], bytes;

    /* the first document keys dropout at test time */
    *batch = (bp_model_batch){.inputs = self->inputs,
                              .targets = self->targets,
                              .segments = self->segments,
                              .first_slot = g * TASK_GROUP};
    bp_err err = bp_agree(
        group, bp_comm_is_root(group) ? make_group(self, g * TASK_GROUP, unknown, batch) : BP_OK);
    if (err != BP_OK)
        return err;
    head[0] = batch->windows;
    head[1] = batch->length;
    bp_bcast_bytes(head, sizeof head, 0, group);
    batch->windows = head[0];
    batch->length = head[1];
    bytes = head[0] * head[1] * (int64_t)sizeof(int32_t);
    bp_bcast_bytes(self->inputs, bytes, 0, group);
    bp_bcast_bytes(self->segments, bytes, 0, group);
    bp_bcast_bytes(self->targets, bytes, 0, group);
    return BP_OK;
}
