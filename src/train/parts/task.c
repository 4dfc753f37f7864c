/* Fine-tuning: the documents that the task needs, the model's shape with the task's head, and what
 * its checkpoints record of it. Examples are documents from the data loader. */
#include "train/parts/list.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"
#include "statistics/task_metrics.h"
#include "train/parts/pairs.h"
#include "train/parts/sngp.h"
#include "train/parts/task_labels.h"
#include "train/parts/task_survey.h"
#include "train/parts/teacher.h"
#include "train/parts/text.h"

#include <inttypes.h>
#include <string.h>

typedef struct fine_tuning {
    json_t *names;         /* of classes or tags, on all ranks; NULL if the task has no outcomes */
    const char **outcomes; /* [outcome_count] the same, for columns; NULL: not on this rank */
    char *column;          /* on leads and the coordinator; NULL if the task needs no column */
    bool unanswered;       /* some questions have no answer; on leads and the coordinator */
    task_survey survey;    /* on the coordinator */
} fine_tuning;

static const bp_task_kind *kind_of(const trainer *self)
{
    return bp_task_kind_named(bp_task_keys_of(self->config)->kind);
}

/* The class of texts outside the domain, of a prior network; NULL if there is no such class. */
static const char *outside_of(const trainer *self)
{
    return bp_task_kind_has_classes(kind_of(self)) ? bp_task_keys_of(self->config)->outside : NULL;
}

/* ---- keys ---- */

static bp_err refuse_key(const trainer *self, const char *key, const char *where, const char *value)
{
    return bp_config_departs(self->config, key)
               ? BP_FAIL(BP_ERR_CONFIG, "task.unused_key",
                         "%s has no meaning with %s = %s: at %s; leave it out", key, where, value,
                         key)
               : BP_OK;
}

static bool reads(const bp_task_kind *kind, const char *key)
{
    const char *const *known = kind->keys;

    while (*known && strcmp(*known, key) != 0)
        known++;
    return *known != NULL;
}

static bp_err refuse_keys(const trainer *self)
{
    bp_err err = BP_OK;

    for (const bp_option *option = bp_task_options; option->key && err == BP_OK; option++)
        if (strcmp(option->key, "task.kind") != 0 && !reads(kind_of(self), option->key))
            err = refuse_key(self, option->key, "task.kind", kind_of(self)->name);
    if (err == BP_OK && text_is_asked(self->config) && self->shape.family->source)
        err = refuse_key(self, "task.separator", "model.kind", self->shape.family->name);
    return err;
}

static void warn_of_method(const trainer *self, const char *const *keys, const char *why)
{
    for (int k = 0; keys[k]; k++)
        if (bp_config_departs(self->config, keys[k]))
            BP_WARN("config.unused_key", "%s is ignored: without %s", keys[k], why);
}

/* Warns only: the configuration may also be for a fine-tuning, with task.kind on the command
 * line. */
static void warn_of_methods(const trainer *self)
{
    static const char *const OF_TASKS[] = {"dirichlet.outside", "sngp.features", "task.lm_weight",
                                           NULL},
                             *const OF_OUTSIDE[] = {"dirichlet.precision", "dirichlet.smoothing",
                                                    NULL},
                             *const OF_FEATURES[] = {"sngp.length_scale", "sngp.prior",
                                                     "sngp.bound", "sngp.bounded", NULL};

    if (!bp_task_is_asked(self->config)) {
        warn_of_method(self, OF_TASKS, "task.kind a language model is trained");
        return;
    }
    if (!outside_of(self))
        warn_of_method(self, OF_OUTSIDE, "dirichlet.outside there is no prior network");
    if (bp_task_keys_of(self->config)->features == 0)
        warn_of_method(self, OF_FEATURES, "sngp.features there is no Gaussian process");
}

/* ---- outcomes, and the columns that have them ---- */

static void set_columns(trainer *self, fine_tuning *task)
{
    int64_t count = (int64_t)json_array_size(task->names);
    bp_document_columns *columns = &self->examples.columns;

    task->outcomes = bp_alloc("input", count + 1, sizeof *task->outcomes);
    for (int64_t k = 0; k < count; k++)
        task->outcomes[k] = json_string_value(json_array_get(task->names, (size_t)k));
    columns->all_known = true;
    if (kind_of(self)->is_value) {
        columns->value = task->column;
    } else if (kind_of(self)->at_words) {
        columns->tags = task->outcomes;
        columns->tag_count = count;
    } else {
        columns->label = task->column;
        columns->classes = task->outcomes;
        columns->class_count = count;
        if (outside_of(self)) /* after the others */
            task->outcomes[columns->class_count++] = outside_of(self);
    }
}

static bp_err find_columns(trainer *self, fine_tuning *task)
{
    bp_err err = BP_OK;

    if (kind_of(self)->over_positions) {
        self->examples.columns.spans = true;
        return bp_corpus_has_unanswered(&task->unanswered, self->data.corpus);
    }
    if (kind_of(self)->whole_text)
        err = bp_corpus_column(&task->column, self->data.corpus,
                               bp_task_keys_of(self->config)->label, kind_of(self)->is_value);
    if (err == BP_OK && kind_of(self)->has_names)
        err = task_labels_find(&task->names, self, task->column, outside_of(self));
    if (err == BP_OK)
        set_columns(self, task);
    return err;
}

/* On all ranks. */
static void share_names(trainer *self, fine_tuning *task)
{
    char *text = self->mesh->coordinates && task->names ? bp_json_line(task->names) : NULL;

    bp_bcast_text(&text, 0, self->mesh->world);
    if (!task->names && text)
        BP_CHECK(bp_json_parse(&task->names, text, strlen(text), "names") == BP_OK);
    bp_free(text);
    self->outcome_names = task->names;
}

/* Classes or tags, and the columns of documents, where the configuration asks for a task. */
static bp_err open_task(trainer *self, void **own)
{
    const bp_mesh *mesh = self->mesh;
    fine_tuning *task;
    bp_err err = BP_OK;

    if (!bp_task_is_asked(self->config) || text_is_asked(self->config))
        return BP_OK;
    *own = task = bp_alloc("input", 1, sizeof *task);
    if (self->data.leads || mesh->coordinates)
        err = find_columns(self, task);
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        share_names(self, task);
    return err;
}

static void close_task(void *own)
{
    fine_tuning *task = own;

    bp_free(task->outcomes);
    json_decref(task->names);
    bp_free(task->column);
    bp_free(task);
}

/* ---- the shape ---- */

static bp_pool pool_of(const trainer *self, const bp_backbone *backbone)
{
    const char *name = bp_task_keys_of(self->config)->pool;

    if (!kind_of(self)->whole_text)
        return BP_POOL_NONE;
    return strcmp(name, "first") == 0  ? BP_POOL_FIRST
           : strcmp(name, "mean") == 0 ? BP_POOL_MEAN
           : strcmp(name, "last") == 0 ? BP_POOL_LAST
           : backbone->pooler          ? BP_POOL_FIRST
                                       : BP_POOL_LAST;
}

/* Checks that the head of the model that training starts from is a head of this task. */
static bp_err check_same(const trainer *self, const bp_task_shape *asked)
{
    const bp_task_shape *known = &self->shape.task;
    const char *init = bp_model_keys_of(self->config)->init;
    const json_t *model = self->start.source
                              ? json_object_get(bp_checkpoint_state(self->start.source), "model")
                              : NULL;
    const json_t *names = json_object_get(model, "labels");

    if (known->kind == asked->kind && known->outcomes == asked->outcomes &&
        known->pool == asked->pool && known->features == asked->features &&
        (known->features == 0 || known->length_scale == asked->length_scale) &&
        (!self->outcome_names || json_equal(names, self->outcome_names)))
        return BP_OK;
    if (known->features != asked->features || known->length_scale != asked->length_scale)
        return BP_FAIL(BP_ERR_FORMAT, "task.other_task",
                       "the checkpoint has sngp.features = %" PRId64
                       " and sngp.length_scale = %g, not %" PRId64
                       " and %g: at %s; give the same, or start from the language model",
                       known->features, known->length_scale, asked->features, asked->length_scale,
                       init ? init : bp_run_keys_of(self->config)->dir);
    if (known->kind == asked->kind && known->outcomes == asked->outcomes)
        return BP_FAIL(BP_ERR_FORMAT, "task.other_task",
                       "the checkpoint's head has %s: at %s; give the same, or start from the "
                       "language model",
                       known->pool != asked->pool ? "another task.pool than is given here"
                                                  : "other names of task.labels than here, or the "
                                                    "same in another order",
                       init ? init : bp_run_keys_of(self->config)->dir);
    return BP_FAIL(BP_ERR_FORMAT, "task.other_task",
                   "the checkpoint has the head of another task, %s of %" PRId64
                   " outcomes, and task.kind = %s has %" PRId64
                   " here: at %s; start from the language model",
                   bp_task_name(known->kind), known->outcomes, bp_task_name(asked->kind),
                   asked->outcomes, init ? init : bp_run_keys_of(self->config)->dir);
}

/* Can the language model's head be kept together with the task's? */
static bp_err check_words(const trainer *self, const bp_task_shape *task,
                          const bp_backbone *backbone)
{
    double weight = bp_task_keys_of(self->config)->lm_weight;

    if (!backbone->tied || !kind_of(self)->with_words)
        return BP_FAIL(
            BP_ERR_CONFIG, "task.no_words",
            "task.lm_weight = %g keeps the head of a language model, which model.kind = "
            "%s does not have beside task.kind = %s: at task.lm_weight; leave it out, or "
            "take a gpt",
            weight, self->shape.family->name, bp_task_name(task->kind));
    if (teacher_gives_targets(self->config))
        return BP_FAIL(BP_ERR_CONFIG, "task.no_words",
                       "task.lm_weight = %g does not go with distill.model, which teaches only "
                       "classes: at task.lm_weight; leave one of both out",
                       weight);
    return BP_OK;
}

/* An encoder-decoder reads a text twice, and has two stacks. */
static bp_err check_decoder(const trainer *self, int64_t frozen)
{
    if (!self->shape.family->source)
        return BP_OK;
    if (frozen > 0)
        return BP_FAIL(BP_ERR_CONFIG, "task.frozen_decoder",
                       "task.frozen_layers = %" PRId64 " counts layers of one stack, and "
                       "model.kind = %s has two: at task.frozen_layers; leave it out",
                       frozen, self->shape.family->name);
    if (teacher_is_asked(self->config))
        return BP_FAIL(BP_ERR_CONFIG, "distill.other_frame",
                       "model.kind = %s reads a text otherwise than a teacher: at distill.model; "
                       "leave it out",
                       self->shape.family->name);
    return BP_OK;
}

/* Returns whether there is a checkpoint. has[]: a layer with tanh in the head, and a token before
 * texts; set to false if the run has a checkpoint without it. */
static bool look_at_begun(const char *run_dir, bool has[2])
{
    bp_model_shape begun = {0};
    char *folder = NULL;
    json_t *manifest = NULL;
    bool is = bp_checkpoint_read_metadata(run_dir, &folder, &manifest) == BP_OK && manifest &&
              bp_model_shape_read(&begun, json_object_get(manifest, "state"), folder) == BP_OK &&
              bp_task_has_head(&begun.task);

    if (is) {
        has[0] = has[0] && begun.task.dense;
        has[1] = has[1] && begun.task.begins;
    }
    json_decref(manifest);
    bp_free(folder);
    return is;
}

/* A member of an ensemble that has not begun is like those that have. */
static void look_at_members(const char *run_dir, bool has[2])
{
    char *folder = bp_path_folder(run_dir), **names = NULL;
    int64_t count = 0;

    if (folder[0] && folder[1]) /* the slash at its end */
        folder[strlen(folder) - 1] = '\0';
    if (strcmp(bp_path_base(folder), "members") == 0 &&
        bp_dir_list(folder, &names, &count) == BP_OK)
        for (int64_t k = 0; k < count; k++)
            (void)look_at_begun(bp_path_in(folder, names[k]).text, has);
    bp_names_free(&names, count);
    bp_free(folder);
}

/* A run that an earlier version began without a feature stays without it. */
static void keep_begun(const trainer *self, bp_task_shape *task)
{
    const char *run_dir = bp_run_keys_of(self->config)->dir;
    bool has[2] = {true, true};

    if (self->mesh->coordinates && !look_at_begun(run_dir, has))
        look_at_members(run_dir, has);
    bp_bcast_bytes(has, sizeof has, 0, self->mesh->world);
    task->dense = task->dense && has[0];
    task->begins = task->begins && has[1];
}

/* Describes the head, from the keys and the corpus. */
static bp_err describe_head(const trainer *self, const fine_tuning *own,
                            const bp_backbone *backbone, bp_task_shape *task)
{
    const bp_task_keys *keys = bp_task_keys_of(self->config);

    *task = (bp_task_shape){.kind = bp_task_kind_number(kind_of(self)),
                            .pool = pool_of(self, backbone)};
    task->dense = backbone->dense && task->pool == BP_POOL_LAST;
    task->begins =
        !backbone->pooler && !self->shape.family->source && self->facts.roles[BP_ROLE_FIRST] >= 0;
    task->outcomes = own->names ? (int64_t)json_array_size(own->names) : kind_of(self)->ends;
    if (outside_of(self)) {
        task->precision = keys->precision;
        task->smoothing = keys->smoothing;
    }
    if (task->smoothing * (double)task->outcomes >= 1)
        return BP_FAIL(BP_ERR_CONFIG, "dirichlet.too_smooth",
                       "dirichlet.smoothing = %g leaves a class of %" PRId64
                       " less than the others: at dirichlet.smoothing; use less than %g",
                       task->smoothing, task->outcomes, 1 / (double)task->outcomes);
    return sngp_shape(self, task);
}

/* An existing head must be the same, and keeps its layers. */
static bp_err keep_head(const trainer *self, bp_task_shape *task)
{
    const bp_task_shape *known = &self->shape.task;

    if (bp_task_has_head(known)) {
        bp_err err = check_same(self, task);

        if (err != BP_OK)
            return err;
        task->dense = known->dense; /* an older one keeps its head */
        task->begins = known->begins && self->facts.roles[BP_ROLE_FIRST] >= 0;
        task->separators = known->separators;
        task->unframed = known->unframed;
        task->unbiased = known->unbiased;
        task->one_segment = known->one_segment;
        task->padding = known->padding;
    }
    if (task->dense || task->begins)
        keep_begun(self, task);
    return BP_OK;
}

static bp_err check_layers(const bp_model_shape *shape, int64_t frozen)
{
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
                       "model.context = %" PRId64
                       " is too short for a text between the tokens that "
                       "begin, divide and end it: at model.context; use %d or more",
                       shape->context, BP_TASK_CONTEXT);
    return BP_OK;
}

static bp_err find_head(trainer *self, const fine_tuning *own)
{
    const bp_task_keys *keys = bp_task_keys_of(self->config);
    bp_model_shape *shape = &self->shape;
    bp_backbone backbone = shape->family->blocks->backbone(shape);
    bp_task_shape task;
    bp_err err = describe_head(self, own, &backbone, &task);

    if (err == BP_OK)
        err = keep_head(self, &task);
    if (err == BP_OK)
        err = check_layers(shape, keys->frozen_layers);
    if (err == BP_OK && keys->lm_weight > 0)
        err = check_words(self, &task, &backbone);
    if (err != BP_OK)
        return err;
    task.lm_weight = keys->lm_weight;
    task.frozen = keys->frozen_layers > 0 ? backbone.layers_from + keys->frozen_layers : 0;
    shape->task = task;
    return BP_OK;
}

static bp_err find_shape(trainer *self, const fine_tuning *own)
{
    const bp_model_shape *shape = &self->shape;
    bp_err err;

    if (!bp_family_has_backbone(shape->family))
        return BP_FAIL(BP_ERR_CONFIG, "task.no_backbone",
                       "model.kind = %s can't have the head of a task: at model.kind; use a "
                       "Transformer",
                       shape->family->name);
    if (shape->layers == 0) /* a missing key is a fault already */
        return BP_OK;
    err = check_decoder(self, bp_task_keys_of(self->config)->frozen_layers);
    return err == BP_OK ? find_head(self, own) : err;
}

/* Puts the task's head into the shape, once the shape is found. */
static bp_err shape(trainer *self, void *own)
{
    const char *init = bp_model_keys_of(self->config)->init;
    bool asked = bp_task_is_asked(self->config);
    bp_err err = asked ? refuse_keys(self) : BP_OK;

    if (err == BP_OK && self->mesh->coordinates)
        warn_of_methods(self);
    self->start.adds_tensors = own != NULL;
    if (err == BP_OK && own)
        err = find_shape(self, own);
    else if (err == BP_OK && bp_task_has_head(&self->shape.task))
        err = BP_FAIL(BP_ERR_FORMAT, "task.other_task",
                      "the checkpoint has the head of a task, %s: at %s; start from a language "
                      "model, or use finetune",
                      bp_task_name(self->shape.task.kind),
                      init ? init : bp_run_keys_of(self->config)->dir);
    return bp_agree(self->mesh->world, err);
}

/* A tenth of the steps, unless the run began with another number. */
static bp_err find_warmup(trainer *self)
{
    char *before = NULL;
    int64_t warmup = self->spec.rate.steps / 10;
    bp_err err;

    if (!bp_task_is_asked(self->config) || bp_config_is_given(self->config, "optimizer.warmup"))
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

/* The steps are known. */
static bp_err counted(trainer *self, void *own)
{
    fine_tuning *task = own;
    bp_err err =
        bp_agree(self->mesh->world,
                 task && self->mesh->coordinates ? task_survey_run(&task->survey, self) : BP_OK);

    return err == BP_OK ? find_warmup(self) : err;
}

/* ---- examples ---- */

static bp_err rules(trainer *self, void *own)
{
    int64_t stride;
    bp_err err;

    if (!own)
        return BP_OK;
    stride = bp_task_keys_of(self->config)->stride;
    err = bp_task_frame_of(&self->rules.frame, &self->shape, self->facts.roles, "corpus.train");
    if (err == BP_OK && self->shape.family->source)
        err = pairs_find_start(self);
    self->rules.pairs = self->facts.has_pairs;
    self->rules.outside = outside_of(self) ? self->shape.task.outcomes : 0;
    if (kind_of(self)->over_positions)
        self->rules.windows = self->examples.columns.windows =
            bp_task_windows(&self->rules.frame, self->shape.context, stride);
    return err;
}

/* ---- what is labels ---- */

/* task.json, and lines for people. On the coordinator. */
static bp_err save(const trainer *self, const fine_tuning *task)
{
    const char *kind = bp_task_keys_of(self->config)->kind;
    const task_survey *survey = &task->survey;
    char *path;
    bp_err err;

    task_survey_log_cuts(survey, self);
    bp_log("task: %s%s%s%s, %" PRId64 " outcome%s, %" PRId64 " %s", kind,
           task->column ? " of label '" : "", task->column ? task->column : "",
           task->column ? "'" : "", self->shape.task.outcomes,
           self->shape.task.outcomes == 1 ? "" : "s", survey->documents,
           self->examples.columns.spans ? "questions" : "documents");
    bp_log("task: %.1f %% of the positions of examples are padding", 100 * survey->padding);
    json_t *labels = json_pack("{s:s, s:s*, s:I, s:I, s:I, s:I, s:f}", "kind", kind, "label",
                               task->column, "documents", (json_int_t)survey->documents, "outcomes",
                               (json_int_t)self->shape.task.outcomes, "documents_cut",
                               (json_int_t)survey->documents_cut, "tokens_cut",
                               (json_int_t)survey->tokens_cut, "padding", survey->padding);
    if (self->examples.columns.spans)
        (void)json_object_update_new(labels, json_pack("{s:I, s:I, s:b}", "windows",
                                                       (json_int_t)survey->windows, "answers_lost",
                                                       (json_int_t)survey->answers_lost,
                                                       "unanswered", (int)task->unanswered));
    if (task->names)
        (void)json_object_set(labels, "labels", task->names);
    path = bp_path_join(bp_run_keys_of(self->config)->dir, "task.json");
    err = bp_json_save(path, labels);
    bp_free(path);
    json_decref(labels);
    return err;
}

static bp_err begin(trainer *self, void *own)
{
    bp_err err = BP_OK;

    if (self->mesh->coordinates && bp_task_is_asked(self->config))
        err = own ? save(self, own) : text_save(self);
    return bp_agree(self->mesh->world, err);
}

/* If task.json is missing. */
static bp_err finished(trainer *self, void *own)
{
    static const char *const names[] = {"task.json"};
    const char *run_dir = bp_run_keys_of(self->config)->dir;

    if (!bp_task_is_asked(self->config))
        return BP_OK;
    if (!self->mesh->coordinates || !bp_run_first_missing(run_dir, names, 1))
        return bp_agree(self->mesh->world, BP_OK);
    bp_run_say_missing(run_dir, names[0]);
    return begin(self, own);
}

static void put_state(const trainer *self, const void *own, bool best, json_t *state)
{
    const fine_tuning *task = own;
    json_t *model = json_object_get(state, "model");

    (void)best;
    if (!task)
        return;
    if (task->names)
        (void)json_object_set(model, "labels", task->names);
    if (kind_of(self)->over_positions)
        (void)json_object_set_new(
            state, "spans",
            json_pack("{s:I, s:I, s:b}", "stride",
                      (json_int_t)bp_task_keys_of(self->config)->stride, "answer_tokens",
                      (json_int_t)bp_task_keys_of(self->config)->answer_tokens, "unanswered",
                      (int)task->unanswered));
    (void)json_object_set_new(state, "label", bp_json_string(task->column ? task->column : ""));
}

const bp_training_part training_task = {
    .name = "task",
    .open = open_task,
    .at = {[PART_SHAPE] = shape,
           [PART_RULES] = rules,
           [PART_COUNTED] = counted,
           [PART_BEGIN] = begin,
           [PART_FINISHED] = finished},
    .put_state = put_state,
    .close = close_task,
};
