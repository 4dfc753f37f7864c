/* Fine-tuning: the task's classes and documents, the model's shape with the task's head, and the
 * examples of a step. Documents lie in memory on the ranks that read; an epoch is a permutation of
 * them, and batch slots have stretches of it, as of a stream's windows. */
#include "train/loop/trainer_priv.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/run_options.h"
#include "mesh/collective.h"
#include "nn/layers.h"

#include <inttypes.h>
#include <string.h>

static bp_task_kind kind_of(const trainer *self)
{
    return (bp_task_kind)bp_task_kind_of(bp_task_keys_of(self->config)->kind);
}

/* ---- classes and documents ---- */

/* Bagged documents stand there as often as they were drawn. */
static void list_entries(trainer *self)
{
    fine_tuning *task = self->task;
    int64_t count = 0;

    for (int64_t d = 0; d < task->train.documents; d++)
        count += bp_stream_drawn(self->stream, d);
    task->entries = bp_alloc("input", count, sizeof *task->entries);
    for (int64_t d = 0; d < task->train.documents; d++)
        for (int64_t k = 0; k < bp_stream_drawn(self->stream, d); k++)
            task->entries[task->entry_count++] = d;
}

static bp_err read_texts(trainer *self)
{
    fine_tuning *task = self->task;
    bp_err err =
        bp_task_label_column(&task->column, self->corpus, bp_task_keys_of(self->config)->label,
                             kind_of(self) == BP_TASK_REGRESSION);

    if (err == BP_OK && kind_of(self) == BP_TASK_CLASSES)
        err = bp_task_classes(&task->classes, self->corpus, task->column);
    if (err == BP_OK)
        err = bp_task_texts_read(&task->train, self->corpus, task->column, task->classes);
    if (err == BP_OK && self->valid_corpus)
        err = bp_task_texts_read(&task->valid, self->valid_corpus, task->column, task->classes);
    if (err == BP_OK)
        list_entries(self);
    return err;
}

static void warn_of_rare_class(const trainer *self)
{
    const fine_tuning *task = self->task;
    int64_t rarest, least;

    if (!task->classes)
        return;
    least = bp_task_rarest(&task->train, (int64_t)json_array_size(task->classes), &rarest);
    if (least == 1)
        BP_WARN("task.rare_class",
                "the class '%.60s' has one document: at corpus.train; what the model says of it "
                "is worth little",
                json_string_value(json_array_get(task->classes, (size_t)rarest)));
}

/* The names of classes, on all ranks. */
static void share_classes(trainer *self)
{
    fine_tuning *task = self->task;
    char *text = task->classes ? json_dumps(task->classes, JSON_COMPACT) : NULL;
    int64_t bytes = text ? (int64_t)strlen(text) + 1 : 0;

    bp_bcast_bytes(&bytes, sizeof bytes, 0, self->mesh->world);
    if (bytes > 0 && !text)
        text = malloc((size_t)bytes); /* freed as jansson's */
    BP_CHECK(bytes == 0 || text);
    bp_bcast_bytes(text, bytes, 0, self->mesh->world);
    if (!task->classes && bytes > 0)
        task->classes = json_loads(text, 0, NULL);
    free(text);
}

bp_err trainer_task_open(trainer *self)
{
    const bp_mesh *mesh = self->mesh;
    fine_tuning *task;
    int64_t counts[2];
    bp_err err = BP_OK;

    if (!bp_task_is_asked(self->config))
        return BP_OK;
    task = self->task = bp_alloc("input", 1, sizeof *task);
    if (kind_of(self) == BP_TASK_TAGS || kind_of(self) == BP_TASK_SPANS)
        return BP_FAIL(BP_ERR_CONFIG, "task.no_corpora",
                       "task.kind = %s has no corpora yet: at task.kind; use classes or regression",
                       bp_task_keys_of(self->config)->kind);
    if (self->leads || mesh->coordinates)
        err = read_texts(self);
    err = bp_agree(mesh->world, err);
    if (err != BP_OK)
        return err;
    if (mesh->coordinates)
        warn_of_rare_class(self);
    share_classes(self);
    counts[0] = task->train.documents;
    counts[1] = task->valid.documents;
    bp_bcast_bytes(counts, sizeof counts, 0, mesh->world);
    task->documents = counts[0];
    self->facts.valid_tokens = counts[1] + 1; /* an example goes by one, and looks at the next */
    return BP_OK;
}

void trainer_task_close(trainer *self)
{
    fine_tuning *task = self->task;

    if (!task)
        return;
    bp_task_texts_clear(&task->train);
    bp_task_texts_clear(&task->valid);
    json_decref(task->classes);
    bp_free(task->column);
    bp_free(task->entries);
    bp_free(task);
    self->task = NULL;
}

/* ---- the shape ---- */

static bp_pool pool_of(const trainer *self, const bp_backbone *backbone)
{
    const char *name = bp_task_keys_of(self->config)->pool;

    if (kind_of(self) == BP_TASK_TAGS || kind_of(self) == BP_TASK_SPANS)
        return BP_POOL_NONE;
    return strcmp(name, "first") == 0  ? BP_POOL_FIRST
           : strcmp(name, "mean") == 0 ? BP_POOL_MEAN
           : strcmp(name, "last") == 0 ? BP_POOL_LAST
           : backbone->pooler          ? BP_POOL_FIRST
                                       : BP_POOL_LAST;
}

/* The model that training starts from has a head already: that of this task. */
static bp_err check_same(const trainer *self, const bp_task_shape *asked)
{
    const bp_task_shape *known = &self->shape.task;
    const char *init = bp_model_keys_of(self->config)->init;
    const json_t *model =
        self->source ? json_object_get(bp_checkpoint_state(self->source), "model") : NULL;
    const json_t *classes = json_object_get(model, "labels");

    if (known->kind == asked->kind && known->outcomes == asked->outcomes &&
        known->pool == asked->pool &&
        (!self->task->classes || json_equal(classes, self->task->classes)))
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "task.other_task",
                   "the checkpoint has the head of another task, %s of %" PRId64
                   " outcomes, and task.kind = %s has %" PRId64
                   " here: at %s; start from the language model",
                   bp_task_name(known->kind), known->outcomes, bp_task_name(asked->kind),
                   asked->outcomes, init ? init : bp_run_keys_of(self->config)->dir);
}

/* Can the language model's head stay beside the task's? */
static bp_err check_words(const trainer *self, const bp_task_shape *task,
                          const bp_backbone *backbone)
{
    double weight = bp_task_keys_of(self->config)->lm_weight;

    if (!backbone->tied || task->kind == BP_TASK_SPANS)
        return BP_FAIL(
            BP_ERR_CONFIG, "task.no_words",
            "task.lm_weight = %g keeps the head of a language model, which model.kind = "
            "%s does not have beside task.kind = %s: at task.lm_weight; leave it out, or "
            "take a gpt",
            weight, self->shape.family->name, bp_task_name(task->kind));
    if (self->spec.distills || bp_train_keys_of(self->config)->teacher)
        return BP_FAIL(BP_ERR_CONFIG, "task.no_words",
                       "task.lm_weight = %g does not go with distill.model, which teaches classes "
                       "alone: at task.lm_weight; leave one of both out",
                       weight);
    return BP_OK;
}

static bp_err find_shape(trainer *self)
{
    int64_t frozen = bp_task_keys_of(self->config)->frozen_layers;
    bp_task_shape task = {.kind = kind_of(self)};
    bp_model_shape *shape = &self->shape;

    if (!shape->family->backbone || shape->layers == 0)
        return shape->family->backbone ? BP_OK : /* a missing key is a fault already */
                   BP_FAIL(BP_ERR_CONFIG, "task.no_backbone",
                           "model.kind = %s can't have the head of a task: at model.kind; use "
                           "gpt, llama, gpt_neox, bert, roberta or electra",
                           shape->family->name);
    bp_backbone backbone = shape->family->backbone(shape);
    task.pool = pool_of(self, &backbone);
    task.outcomes = self->task->classes          ? (int64_t)json_array_size(self->task->classes)
                    : task.kind == BP_TASK_SPANS ? 2
                                                 : 1;
    if (shape->task.kind != BP_TASK_NONE) {
        bp_err err = check_same(self, &task);
        if (err != BP_OK)
            return err;
    }
    if (frozen > shape->layers)
        return BP_FAIL(BP_ERR_CONFIG, "task.too_many_layers",
                       "task.frozen_layers = %" PRId64 ", but the model has %" PRId64
                       ": at task.frozen_layers; use %" PRId64 " or less",
                       frozen, shape->layers, shape->layers);
    if (frozen > 0 && shape->adapter.kind != BP_ADAPTER_NONE)
        return BP_FAIL(BP_ERR_CONFIG, "task.frozen_adapters",
                       "task.frozen_layers = %" PRId64 ", but all layers are adapted and stay as "
                       "they are: at task.frozen_layers; leave it out",
                       frozen);
    if (shape->context < BP_TASK_CONTEXT)
        return BP_FAIL(BP_ERR_CONFIG, "task.short_context",
                       "model.context = %" PRId64 " has no room for a text between the tokens that "
                       "begin, divide and end it: at model.context; use %d or more",
                       shape->context, BP_TASK_CONTEXT);
    if (bp_config_is_set(self->config, "corpus.weights"))
        return BP_FAIL(BP_ERR_CONFIG, "task.has_weights",
                       "corpus.weights = %s, but a task goes through each document once an epoch: "
                       "at corpus.weights; leave it out",
                       bp_corpus_keys_of(self->config)->weights);
    if (bp_task_keys_of(self->config)->lm_weight > 0) {
        bp_err err = check_words(self, &task, &backbone);
        if (err != BP_OK)
            return err;
    }
    task.lm_weight = bp_task_keys_of(self->config)->lm_weight;
    task.frozen = frozen > 0 ? backbone.layers_from + frozen : 0;
    shape->task = task;
    return bp_task_frame_of(&self->task->frame, shape, self->facts.roles);
}

bp_err trainer_task_shape(trainer *self)
{
    bp_err err = BP_OK;

    const char *init = bp_model_keys_of(self->config)->init;

    if (self->task)
        err = find_shape(self);
    else if (self->shape.task.kind != BP_TASK_NONE)
        err = BP_FAIL(BP_ERR_FORMAT, "task.other_task",
                      "the checkpoint has the head of a task, %s: at %s; start from a language "
                      "model, or use finetune",
                      bp_task_name(self->shape.task.kind),
                      init ? init : bp_run_keys_of(self->config)->dir);
    return bp_agree(self->mesh->world, err);
}

/* A tenth of the steps, unless the run began with another number. */
bp_err trainer_task_warmup(trainer *self)
{
    char *before = NULL;
    int64_t warmup = self->spec.rate.steps / 10;
    bp_err err;

    if (!self->task || bp_config_is_given(self->config, "optimizer.warmup"))
        return BP_OK;
    err = bp_run_previous(self->mesh->world, bp_run_keys_of(self->config)->dir, "optimizer.warmup",
                          &before);
    if (err == BP_OK && before)
        warmup = strtoll(before, NULL, 10);
    bp_free(before);
    if (err == BP_OK)
        err = bp_config_set_int(self->config, "optimizer.warmup", warmup);
    self->spec.rate.warmup = warmup;
    return bp_agree(self->mesh->world, err);
}

/* ---- examples ---- */

/* Of the document whose number stands in place of a window's tokens. */
static void make_example(const bp_example_maker *maker, const int32_t *document, int64_t step,
                         int64_t slot, bp_example *out)
{
    const task_source *source = maker->rules;
    const bp_task_texts *texts = source->texts;
    int64_t d = document[0], cut;
    const int32_t *tokens = texts->tokens;
    bp_task_pair pair = {
        {tokens + texts->start[d], tokens + texts->second[d]},
        {texts->second[d] - texts->start[d], texts->start[d + 1] - texts->second[d]}};

    (void)step, (void)slot;
    *out->length[0] = (int32_t)bp_task_fill(out->inputs[0], out->segments[0],
                                            maker->form.stream[0].T, source->frame, &pair, &cut);
    out->targets[0][0] = texts->target[d];
    if (source->keeps_words)
        bp_task_fill_words(out->targets[BP_TASK_WORDS], out->inputs[0], *out->length[0],
                           maker->form.stream[0].T);
}

bp_example_maker trainer_task_maker(trainer *self, bool valid)
{
    fine_tuning *task = self->task;
    bp_example_maker maker = trainer_maker(self, self->shape.context);
    task_source *source = &task->source[valid];

    *source = (task_source){valid ? &task->valid : &task->train, &task->frame,
                            bp_task_keeps_words(&self->shape)};
    maker.rules = source;
    maker.window = 2; /* a stride of one document */
    maker.make = make_example;
    return maker;
}

/* Which entry of which epoch, as the loader counts windows. */
static int64_t find_document(const trainer *self, int64_t step, int64_t slot)
{
    const fine_tuning *task = self->task;
    int64_t W = task->entry_count, B = self->spec.batch, length = W / B,
            index = (step - 1) * B + slot, epoch = length > 0 ? (step - 1) / length : index / W,
            entry = length > 0 ? slot * length + (step - 1) % length : index % W;
    bp_rng_key key = bp_rng_key_of(self->spec.seed, BP_RNG_SHUFFLE, 0, epoch, 0);

    return task->entries[bp_rng_permute(&key, entry, W)];
}

void trainer_task_batch(trainer *self, int64_t step)
{
    bp_example_maker maker = trainer_task_maker(self, false);
    int64_t first, slots;

    bp_engine_slots(self->engine, &first, &slots);
    for (int64_t b = 0; b < slots; b++) {
        int32_t document = (int32_t)find_document(self, step, first + b);

        bp_example_make(&maker, &document, step, first + b, self->examples, slots, b);
    }
}

/* ---- what is labels ---- */

static int64_t count_cut(const trainer *self, const bp_task_texts *texts, int64_t *tokens)
{
    int64_t documents = 0, T = self->shape.context;
    int32_t *inputs = bp_alloc("input", T, sizeof *inputs);

    *tokens = 0;
    for (int64_t d = 0; d < texts->documents; d++) {
        bp_task_pair pair = {
            {texts->tokens + texts->start[d], texts->tokens + texts->second[d]},
            {texts->second[d] - texts->start[d], texts->start[d + 1] - texts->second[d]}};
        int64_t cut;

        (void)bp_task_fill(inputs, NULL, T, &self->task->frame, &pair, &cut);
        documents += cut > 0;
        *tokens += cut;
    }
    bp_free(inputs);
    return documents;
}

bp_err trainer_task_begin(trainer *self)
{
    const fine_tuning *task = self->task;
    int64_t tokens, documents;
    char *path;
    bp_err err;

    if (!task || !self->mesh->coordinates)
        return BP_OK;
    documents = count_cut(self, &task->train, &tokens);
    if (documents > 0)
        bp_log("task: %" PRId64 " of %" PRId64 " documents are longer than model.context = %" PRId64
               ": %" PRId64 " tokens are cut from the end of their longer text",
               documents, task->train.documents, self->shape.context, tokens);
    bp_log("task: %s of label '%s', %" PRId64 " outcome%s, %" PRId64 " documents",
           bp_task_keys_of(self->config)->kind, task->column, self->shape.task.outcomes,
           self->shape.task.outcomes == 1 ? "" : "s", task->train.documents);
    json_t *labels =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "kind", bp_task_keys_of(self->config)->kind,
                  "label", task->column, "documents", (json_int_t)task->train.documents, "outcomes",
                  (json_int_t)self->shape.task.outcomes, "documents_cut", (json_int_t)documents,
                  "tokens_cut", (json_int_t)tokens);
    if (task->classes)
        (void)json_object_set(labels, "labels", task->classes);
    path = bp_path_join(bp_run_keys_of(self->config)->dir, "task.json");
    err = bp_json_save(path, labels);
    bp_free(path);
    json_decref(labels);
    return err;
}

void trainer_task_put_state(const trainer *self, json_t *state)
{
    json_t *model = json_object_get(state, "model");

    if (!self->task)
        return;
    if (self->task->classes)
        (void)json_object_set(model, "labels", self->task->classes);
    (void)json_object_set_new(state, "label",
                              json_string(self->task->column ? self->task->column : ""));
}

/* ---- initial values ---- */

/* A new head, or a pooler that pretraining had none of, keeps its initial values. */
int64_t trainer_task_keep_known(const trainer *self, bp_slice *slices, int64_t count)
{
    char last[sizeof slices->name] = "";
    int64_t kept = 0;

    for (int64_t k = 0; k < count; k++) {
        bool known = bp_checkpoint_has(self->source, slices[k].name);

        if (known)
            slices[kept++] = slices[k];
        else if (strcmp(last, slices[k].name) != 0) {
            snprintf(last, sizeof last, "%s", slices[k].name);
            bp_log("new, with initial values of run.seed: %s", last);
        }
    }
    return kept;
}
