/* Documents of a classifier: what the checkpoint says of their classes, and groups of them. */
#include "infer/score/task_documents_priv.h"

#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <string.h>

/* ---- what they are ---- */

bp_err task_state_read(json_t **state, const char *path)
{
    bp_ensemble_list list = {0};
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_err err = bp_ensemble_is(path) ? bp_ensemble_list_load(&list, path) : BP_OK;

    if (err == BP_OK)
        err = bp_checkpoint_read_metadata(list.count > 0 ? list.members[0].path : path, &folder,
                                          &manifest);
    *state = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    bp_ensemble_list_clear(&list);
    return err;
}

static bp_err open_table(task_documents *self, bool open)
{
    const json_t *names = json_object_get(json_object_get(self->state, "model"), "labels");
    const char *label = json_string_value(json_object_get(self->state, "label"));
    bp_document_table_spec spec = {.columns = {.class_count = (int64_t)json_array_size(names),
                                               .all_known = !open,
                                               .may_lack_label = open}};
    bp_err err =
        bp_corpus_column(&self->column, self->corpus, label && label[0] ? label : NULL, false);

    self->classes = bp_alloc("score.task", spec.columns.class_count, sizeof *self->classes);
    for (int64_t k = 0; k < spec.columns.class_count; k++)
        self->classes[k] = json_string_value(json_array_get(names, (size_t)k));
    spec.columns.label = self->column;
    spec.columns.classes = self->classes;
    if (err == BP_OK)
        err = bp_stream_new(&self->stream, &(bp_stream_spec){.corpus = self->corpus});
    spec.stream = self->stream;
    return err == BP_OK ? bp_document_table_new(&self->table, &spec) : err;
}

/* Corpora of one text and of two may lie side by side. */
static bp_err find_pairs(task_documents *self)
{
    int64_t at = 0;
    bp_err err = BP_OK;

    self->pair = bp_alloc("score.task", bp_corpus_documents(self->corpus), sizeof *self->pair);
    for (int64_t k = 0; k < bp_corpus_files(self->corpus) && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(self->corpus, k);
        bp_corpus *alone = NULL;
        bool pairs = false;

        err = bp_corpus_open(&alone, bp_corpus_file_path(file));
        if (err == BP_OK)
            err = bp_corpus_has_pairs(&pairs, alone);
        for (int64_t d = 0; d < bp_corpus_file_info(file)->documents; d++)
            self->pair[at++] = pairs;
        bp_corpus_close(&alone);
    }
    return err;
}

/* The texts of document d of the corpora. */
static bp_err read_texts(task_documents *self, int64_t d, const bp_document **document,
                         bp_task_pair *pair)
{
    bp_err err = bp_document_table_read(self->table, d, NULL, document);

    if (err == BP_OK)
        err = bp_task_check_document(*document,
                                     bp_corpus_file_path(bp_corpus_file_at(self->corpus, 0)));
    if (err == BP_OK)
        *pair = bp_task_texts(*document, self->pair[d]);
    return err;
}

static bp_err take_documents(task_documents *self, int64_t wanted)
{
    int64_t all = bp_document_table_count(self->table);
    int64_t count = wanted > 0 && wanted < all ? wanted : all;
    bp_err err = BP_OK;

    self->number = bp_alloc("score.task", count, sizeof *self->number);
    self->label = bp_alloc("score.task", count, sizeof *self->label);
    for (int64_t i = 0; i < count && err == BP_OK; i++) {
        int64_t d = (int64_t)((2 * (__int128)i + 1) * all / (2 * count));
        const bp_document *document;
        bp_task_pair pair;

        err = read_texts(self, d, &document, &pair);
        if (err != BP_OK)
            break;
        self->number[i] = d;
        self->label[i] = document->label;
        self->cut += bp_task_places(&self->frame, &pair) > self->length;
        self->count++;
    }
    return err;
}

static bp_err open_documents(task_documents *self, const task_documents_spec *spec)
{
    bp_model_shape shape;
    bp_err err = task_state_read(&self->state, spec->path);

    if (err == BP_OK)
        err = bp_model_shape_read(&shape, self->state, "manifest.json");
    if (err == BP_OK)
        err = bp_task_frame_of(&self->frame, &shape, bp_corpus_roles(self->corpus),
                               bp_corpus_file_path(bp_corpus_file_at(self->corpus, 0)));
    if (err == BP_OK)
        err = find_pairs(self);
    if (err == BP_OK)
        err = open_table(self, spec->open);
    return err == BP_OK ? take_documents(self, spec->wanted) : err;
}

bp_err task_documents_open(task_documents *self, const task_documents_spec *spec, MPI_Comm world)
{
    int64_t places = TASK_GROUP * spec->model->context, known[2];
    bp_err err;

    *self = (task_documents){
        .mesh = spec->mesh, .length = spec->model->context, .corpus = spec->corpus};
    self->inputs = bp_alloc("score.task", places, sizeof *self->inputs);
    self->targets = bp_alloc("score.task", places, sizeof *self->targets);
    self->segments = bp_alloc("score.task", places, sizeof *self->segments);
    err = bp_agree(world, spec->corpus ? open_documents(self, spec) : BP_OK);
    known[0] = self->count;
    known[1] = self->cut;
    bp_bcast_bytes(known, sizeof known, 0, world);
    self->count = known[0];
    self->cut = known[1];
    return err;
}

void task_documents_clear(task_documents *self)
{
    bp_document_table_free(&self->table);
    bp_stream_free(&self->stream);
    json_decref(self->state);
    bp_free(self->column);
    bp_free(self->classes);
    bp_free(self->pair);
    bp_free(self->number);
    bp_free(self->label);
    bp_free(self->inputs);
    bp_free(self->targets);
    bp_free(self->segments);
    *self = (task_documents){0};
}

/* ---- a group of documents ---- */

/* Example `w`, at `length` places each; *longest grows with it. */
static bp_err add_document(task_documents *self, int64_t number, int64_t w, int64_t *longest)
{
    int32_t *inputs = self->inputs + w * self->length;
    const bp_document *document;
    bp_task_pair pair;
    int64_t cut, length;
    bp_err err = read_texts(self, self->number[number], &document, &pair);

    if (err != BP_OK)
        return err;
    length = bp_task_fill(inputs, self->segments + w * self->length, self->length, &self->frame,
                          &pair, &cut);
    for (int64_t t = length; t < self->length; t++)
        inputs[t] = -1;
    *longest = length > *longest ? length : *longest;
    return BP_OK;
}

static bp_err make_group(task_documents *self, int64_t first, int32_t unknown,
                         bp_model_batch *batch)
{
    int64_t end = first + TASK_GROUP < self->count ? first + TASK_GROUP : self->count, longest = 1;
    bp_err err = BP_OK;

    for (int64_t d = first; d < end && err == BP_OK; d++)
        err = add_document(self, d, d - first, &longest);
    for (int64_t w = 0; w < end - first; w++) {
        memmove(self->inputs + w * longest, self->inputs + w * self->length,
                (size_t)longest * sizeof(int32_t));
        memmove(self->segments + w * longest, self->segments + w * self->length,
                (size_t)longest * sizeof(int32_t));
        for (int64_t t = 1; t < longest; t++)
            self->targets[w * longest + t] = -1;
        self->targets[w * longest] = self->label[first + w] >= 0 ? self->label[first + w] : unknown;
    }
    batch->windows = err == BP_OK ? end - first : -1;
    batch->length = longest;
    return err;
}

bp_err task_documents_group(task_documents *self, int64_t g, int32_t unknown, bp_model_batch *batch)
{
    MPI_Comm group = self->mesh->ensemble;
    int64_t head[2], bytes;
    bp_err err = BP_OK;

    /* the first document keys dropout at test time */
    *batch = (bp_model_batch){.inputs = self->inputs,
                              .targets = self->targets,
                              .segments = self->segments,
                              .first_slot = g * TASK_GROUP};
    if (bp_comm_is_root(group))
        err = make_group(self, g * TASK_GROUP, unknown, batch);
    head[0] = batch->windows;
    head[1] = batch->length;
    bp_bcast_bytes(head, sizeof head, 0, group);
    batch->windows = head[0];
    batch->length = head[1];
    if (batch->windows < 0)
        return err;
    bytes = head[0] * head[1] * (int64_t)sizeof(int32_t);
    bp_bcast_bytes(self->inputs, bytes, 0, group);
    bp_bcast_bytes(self->segments, bytes, 0, group);
    bp_bcast_bytes(self->targets, bytes, 0, group);
    return BP_OK;
}
