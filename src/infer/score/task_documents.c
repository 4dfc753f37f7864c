/* Documents of a task: what the checkpoint says of them, their texts, and groups of them. */
#include "infer/score/task_documents_priv.h"

#include "base/mem.h"
#include "infer/score/scorer_priv.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "tensor/batch.h"

#include <string.h>

/* ---- what they are ---- */

static bp_err read_state(task_documents *self, const char *path)
{
    bp_ensemble_list list = {0};
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_err err = bp_ensemble_is(path) ? bp_ensemble_list_load(&list, path) : BP_OK;

    if (err == BP_OK)
        err = bp_checkpoint_read_metadata(list.count > 0 ? list.members[0].path : path, &folder,
                                          &manifest);
    self->state = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    bp_ensemble_list_clear(&list);
    return err;
}

const json_t *task_documents_classes(const task_documents *self)
{
    return json_object_get(json_object_get(self->state, "model"), "labels");
}

/* Names of classes as they are, or numbers: "LABEL_0" of an import. */
static bp_err read_texts(task_documents *self, const task_documents_spec *spec)
{
    const char *label = json_string_value(json_object_get(self->state, "label"));
    bool numbers = self->kind == BP_TASK_REGRESSION;
    bool known = label && label[0];
    bp_model_shape shape;
    char *column = spec->open && known ? bp_strdup(label) : NULL;
    bp_err err = bp_model_shape_read(&shape, self->state, "manifest.json");

    if (err == BP_OK)
        err = bp_task_frame_of(&self->frame, &shape, bp_corpus_roles(spec->corpus));
    if (err == BP_OK && !column)
        err = bp_task_label_column(&column, spec->corpus, known ? label : NULL, numbers);
    if (err == BP_OK)
        err = bp_task_texts_read(&self->texts, spec->corpus, column,
                                 numbers ? NULL : task_documents_classes(self), spec->open);
    bp_free(column);
    return err;
}

bp_err task_documents_open(task_documents *self, const task_documents_spec *spec)
{
    int64_t places = TASK_GROUP * spec->model->context;
    bp_err err = BP_OK;

    *self = (task_documents){.mesh = spec->mesh,
                             .kind = spec->model->task.kind,
                             .outcomes = spec->model->task.outcomes,
                             .length = spec->model->context};
    self->inputs = bp_alloc("score.task", places, sizeof *self->inputs);
    self->targets = bp_alloc("score.task", places, sizeof *self->targets);
    self->segments = bp_alloc("score.task", places, sizeof *self->segments);
    if (spec->reads)
        err = read_state(self, spec->path);
    if (err == BP_OK && spec->reads)
        err = read_texts(self, spec);
    self->number = bp_alloc("score.task", self->texts.documents, sizeof *self->number);
    self->label = bp_alloc("score.task", self->texts.documents, sizeof *self->label);
    return err;
}

void task_documents_clear(task_documents *self)
{
    bp_task_texts_clear(&self->texts);
    json_decref(self->state);
    bp_free(self->number);
    bp_free(self->label);
    bp_free(self->inputs);
    bp_free(self->targets);
    bp_free(self->segments);
    *self = (task_documents){0};
}

/* Places that a document takes. */
static int64_t places_of(const task_documents *self, int64_t number)
{
    const bp_task_texts *texts = &self->texts;
    int64_t d = self->number[number];

    return texts->start[d + 1] - texts->start[d] + (self->frame.begin >= 0) + 1 +
           (texts->second[d] < texts->start[d + 1]);
}

void task_documents_take(task_documents *self, int64_t d)
{
    int64_t number = self->documents++;

    self->number[number] = d;
    self->label[number] = self->texts.target[d];
    self->cut += places_of(self, number) > self->length;
}

/* ---- a group of documents ---- */

static void add_document(task_documents *self, int64_t number, int64_t row, int64_t longest)
{
    const bp_task_texts *texts = &self->texts;
    int64_t d = self->number[number];
    bp_task_pair pair = {
        {texts->tokens + texts->start[d], texts->tokens + texts->second[d]},
        {texts->second[d] - texts->start[d], texts->start[d + 1] - texts->second[d]}};
    int32_t *inputs = self->inputs + row * longest;
    int64_t cut, length = bp_task_fill(inputs, self->segments + row * longest, longest,
                                       &self->frame, &pair, &cut);

    for (int64_t t = length; t < longest; t++)
        inputs[t] = -1;
}

/* Its first document keys dropout at test time. */
static bp_model_batch batch_of(const task_documents *self, const int64_t *head)
{
    return (bp_model_batch){.windows = head[0],
                            .length = head[1],
                            .first_slot = head[2],
                            .inputs = self->inputs,
                            .targets = self->targets,
                            .segments = self->segments};
}

bp_model_batch task_documents_group(task_documents *self, int64_t first, int64_t places)
{
    int64_t end = first + TASK_GROUP < self->documents ? first + TASK_GROUP : self->documents,
            longest = places < self->length ? places : self->length;

    for (int64_t d = first; d < end; d++)
        longest = places_of(self, d) > longest ? places_of(self, d) : longest;
    longest = longest < self->length ? longest : self->length;
    for (int64_t d = first; d < end; d++)
        add_document(self, d, d - first, longest);
    return batch_of(self, (int64_t[]){end - first, longest, first});
}

void task_documents_share(task_documents *self, bp_model_batch *batch, bool targets)
{
    MPI_Comm group = self->mesh->ensemble;
    int64_t head[] = {batch->windows, batch->length, batch->first_slot}, bytes;

    bp_bcast_bytes(head, sizeof head, 0, group);
    bytes = head[0] * head[1] * (int64_t)sizeof(int32_t);
    bp_bcast_bytes(self->inputs, bytes, 0, group);
    bp_bcast_bytes(self->segments, bytes, 0, group);
    if (targets)
        bp_bcast_bytes(self->targets, bytes, 0, group);
    *batch = batch_of(self, head);
}
