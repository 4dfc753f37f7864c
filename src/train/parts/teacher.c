/* distill.*: another model, or an ensemble, on the same ranks. The training learns its
 * probabilities, or states (teacher_states.c). Each step its backbone runs over the batch first;
 * the head asks for logits by rows. */
#include "train/parts/teacher.h"

#include "base/config/ignored.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "models/open.h"
#include "nn/heads/distill.h"
#include "text/tokenizer/tokenizer.h"
#include "train/loop/learning.h"
#include "train/loop/trainer.h"
#include "train/parts/list.h"
#include "train/parts/teacher_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct teacher_keys {
    const char *model; /* NULL: there is no teacher */
    double temperature;
    double weight;
    const char *layers;
    const char *states;
    double states_weight;
} teacher_keys;

const bp_option training_teacher_options[] = {
    {BP_STRING_KEY("distill.model", NULL),
     .help = "CHECKPOINT or ensemble.json of a teacher, on the same ranks: the model learns from "
             "its probabilities too",
     .at = BP_AT(teacher_keys, model)},
    {BP_REAL_KEY("distill.temperature", "2", 0.01, 1000),
     .help = "of both models' logits, for that", .at = BP_AT(teacher_keys, temperature)},
    {BP_REAL_KEY("distill.weight", "0.5", 0, 1),
     .help = "of that loss; one less it is of the targets' own", .at = BP_AT(teacher_keys, weight)},
    {BP_STRING_KEY("distill.layers", NULL),
     .help = "layers whose states learn from the teacher's, MODEL:TEACHER: 1:2,2:4; 0 is what the "
             "embedding leaves; where widths differ a projection is learned",
     .at = BP_AT(teacher_keys, layers)},
    {BP_CHOICE_KEY("distill.states", "mse", "mse|cosine"),
     .help = "the loss of these states: mean squared error, or 1 - cosine",
     .at = BP_AT(teacher_keys, states)},
    {BP_REAL_KEY("distill.states_weight", "1", 0, 1e6),
     .help = "of that loss, beside the other two", .at = BP_AT(teacher_keys, states_weight)},
    {.key = NULL},
};

static const teacher_keys *keys_of(const bp_config *config)
{
    return bp_config_bound(config, training_teacher_options);
}

bool teacher_is_asked(const bp_config *config)
{
    return keys_of(config)->model != NULL;
}

bool teacher_gives_targets(const bp_config *config)
{
    return teacher_is_asked(config) && keys_of(config)->weight > 0;
}

static void ask(const bp_config *config, bp_engine_spec *spec)
{
    spec->distills = teacher_gives_targets(config);
}

static void warn(const bp_config *config)
{
    bool alone = !teacher_is_asked(config), no_states = alone || !keys_of(config)->layers;
    const bp_unused_key rows[] = {
        {"distill.temperature", alone, "without distill.model there is no teacher"},
        {"distill.weight", alone, "without distill.model there is no teacher"},
        {"distill.layers", alone, "without distill.model there is no teacher"},
        {"distill.states", no_states, "without distill.layers no states are compared"},
        {"distill.states_weight", no_states, "without distill.layers no states are compared"},
        {NULL, false, NULL}};

    bp_warn_of_unused(config, rows);
}

typedef struct teacher {
    bp_teacher face;
    int64_t bytes;              /* estimate for a rank */
    char digest[BP_SHA256_HEX]; /* of its members' weights */
    teacher_layers taught;
    teacher_states *states; /* NULL if no states are learned */
    bp_model **members;     /* [face.members] */
    float **hidden;         /* of each, [slots][T][its width], on ranks of the last stage */
    int32_t *inputs;        /* [slots][T] of a task: -1 after a text's end, */
    int32_t *targets;       /* and [slots][T] of -1 */
    int64_t first_slot;
} teacher;

/* A CHECKPOINT is a list of one. */
static bp_err list_members(bp_ensemble_list *list, const char *path)
{
    if (bp_ensemble_is(path))
        return bp_ensemble_list_load(list, path);
    list->members = bp_alloc("train.teacher", 1, sizeof *list->members);
    list->count = 1;
    list->members[0] = (bp_ensemble_member){.name = bp_strdup("teacher"), .path = bp_strdup(path)};
    return BP_OK;
}

/* Soft targets are the softmax of one row of logits. */
static bool has_plain_head(const bp_model_shape *shape)
{
    return shape->softmaxes <= 1 && shape->head_entmax == 0;
}

/* Are masked words predicted by one head only, without SpanBERT's boundary head? */
static bool masks_words(const bp_model_shape *shape)
{
    return !bp_task_has_head(&shape->task) && shape->family->objective == &bp_objective_masked;
}
static bool masks_by_one_head(const bp_model_shape *shape)
{
    bp_batch_form form = bp_objective_masked.maker(shape, shape->context, NULL).form;
    int heads = 0;

    for (int t = 0; t < BP_TERMS; t++)
        heads += form.targets[t] == shape->context;
    return heads == 1;
}

/* Soft targets are distributions of words, classes or tags; a Dirichlet has none. */
static bool gives_soft_targets(const bp_model_shape *shape)
{
    if (!bp_task_has_head(&shape->task))
        return has_plain_head(shape) &&
               (masks_words(shape) ? masks_by_one_head(shape)
                                   : shape->family->objective == &bp_objective_causal);
    return bp_task_is_softmax(&shape->task) && shape->task.precision == 0;
}

/* If only states are learned, any teacher that has them is accepted. */
static bool needs_soft_targets(const trainer *self, const teacher *own)
{
    return self->spec.distills || own->taught.count == 0;
}

/* Checks that the teacher has the same task, and that texts are framed alike. */
static bp_err check_task(const trainer *self, const bp_model_shape *shape, const json_t *state,
                         const char *path)
{
    const bp_task_shape *ours = &self->shape.task, *theirs = &shape->task;
    const json_t *labels = json_object_get(json_object_get(state, "model"), "labels"),
                 *classes = self->outcome_names;
    bp_backbone a, b;

    if (ours->kind != theirs->kind || ours->outcomes != theirs->outcomes ||
        (classes && !json_equal(labels, classes)))
        return BP_FAIL(BP_ERR_CONFIG, "distill.other_task",
                       "the teacher has the head of another task (%s, %lld outcomes) than the "
                       "model (%s, %lld): at distill.model = %s; take a teacher of the same "
                       "classes",
                       bp_task_name(theirs->kind), (long long)theirs->outcomes,
                       bp_task_name(ours->kind), (long long)ours->outcomes, path);
    if (!bp_task_has_head(ours) && !masks_words(&self->shape) && !masks_words(shape))
        return BP_OK;
    if (bp_task_has_head(ours) || (masks_words(&self->shape) && masks_words(shape))) {
        a = self->shape.family->blocks->backbone(&self->shape);
        b = shape->family->blocks->backbone(shape);
        if (a.pooler == b.pooler && (b.segments <= 1 || a.segments > 1) &&
            bp_task_is_framed_as(ours, theirs))
            return BP_OK;
    }
    return BP_FAIL(BP_ERR_CONFIG, "distill.other_frame",
                   "a %s reads texts otherwise than the model, a %s (in another frame, or with "
                   "another beginning): at distill.model = %s; take a teacher of the model's kind "
                   "and tokenizer, trained by this version",
                   shape->family->name, self->shape.family->name, path);
}

static bp_err check_state(trainer *self, teacher *own, const json_t *state, const char *path)
{
    const char *hash = json_string_value(json_object_get(state, "tokenizer_hash")),
               *ours = self->facts.tokenizer_hash;
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, state, path);

    if (err != BP_OK)
        return err;
    if (shape.vocab_size != self->shape.vocab_size ||
        (hash && hash[0] && ours[0] && !bp_tokenizer_same_hash(hash, ours)))
        return BP_FAIL(BP_ERR_CONFIG, "distill.vocabulary",
                       "the teacher's vocabulary has %lld tokens (tokenizer %.12s...), the "
                       "model's %lld (%.12s...): at distill.model = %s; take a teacher with the "
                       "corpus's tokenizer",
                       (long long)shape.vocab_size, hash ? hash : "",
                       (long long)self->shape.vocab_size, ours, path);
    err = check_task(self, &shape, state, path);
    if (err != BP_OK)
        return err;
    if (needs_soft_targets(self, own) && !gives_soft_targets(&shape))
        return BP_FAIL(BP_ERR_CONFIG, "distill.no_teacher",
                       "a model of kind %s gives no soft targets here: at distill.model = %s; take "
                       "a causal or masked network whose head is one softmax, or one of classes or "
                       "tags, no prior network; or learn only its states (distill.layers, "
                       "distill.weight=0)",
                       shape.family->name, path);
    if (bp_model_most_inputs(&shape) < self->shape.context)
        return BP_FAIL(BP_ERR_CONFIG, "distill.short_context",
                       "the teacher's context is %lld, and model.context = %lld: at distill.model "
                       "= %s; use a shorter model.context",
                       (long long)bp_model_most_inputs(&shape), (long long)self->shape.context,
                       path);
    return teacher_states_find(&own->taught, self, &shape);
}

/* Adds a member's bytes on a rank of the stage that needs most. */
static bp_err add_bytes(const trainer *self, teacher *own, const json_t *state)
{
    const bp_mesh_shape *mesh = &self->mesh_shape;
    int64_t most = 0, slots = self->spec.batch / mesh->data;
    bp_err err = BP_OK;

    for (int stage = 0; stage < mesh->pipeline && err == BP_OK; stage++) {
        bp_model_memory memory;

        err = bp_model_estimate(&memory, state, self->config,
                                &(bp_model_task){.mesh = mesh,
                                                 .stage = stage,
                                                 .windows = self->spec.micro_batch,
                                                 .length = self->shape.context});
        int64_t here = memory.weights_bytes + memory.work_bytes;

        if (stage == mesh->pipeline - 1 && self->spec.distills)
            here += slots * self->shape.context * memory.width * (int64_t)sizeof(float);
        here += teacher_states_bytes(&own->taught, self, stage);
        most = here > most ? here : most;
    }
    own->bytes += most;
    return err;
}

static bp_err check_members(trainer *self, teacher *own)
{
    bp_ensemble_list list = {0};
    bp_err err = list_members(&list, keys_of(self->config)->model);

    if (err == BP_OK && own->taught.count > 0 && list.count > 1)
        err = BP_FAIL(BP_ERR_CONFIG, "distill.no_states",
                      "distill.layers asks for the states of one teacher, and distill.model = %s "
                      "lists %lld: at distill.layers; leave it out, or take one of them",
                      keys_of(self->config)->model, (long long)list.count);
    for (int64_t k = 0; k < list.count && err == BP_OK; k++) {
        char *folder = NULL;
        json_t *manifest = NULL;

        err = bp_checkpoint_read_metadata(list.members[k].path, &folder, &manifest);
        bp_checkpoint_warn_not_best(list.members[k].path);
        if (err == BP_OK && manifest) {
            const json_t *state = json_object_get(manifest, "state");

            err = check_state(self, own, state, list.members[k].path);
            if (err == BP_OK)
                err = add_bytes(self, own, state);
        }
        json_decref(manifest);
        bp_free(folder);
    }
    bp_ensemble_list_clear(&list);
    return err;
}

static bp_err open_teacher(trainer *self, void **own)
{
    *own = teacher_is_asked(self->config) ? bp_alloc("train.teacher", 1, sizeof(teacher)) : NULL;
    return BP_OK;
}

/* Checks that the teacher fits the model. */
static bp_err ready(trainer *self, void *part)
{
    const bp_mesh *mesh = self->mesh;
    teacher *own = part;
    bp_err err = BP_OK;

    if (!own)
        return BP_OK;
    err = bp_agree(mesh->world, teacher_states_read(&own->taught, keys_of(self->config)->layers));
    if (err != BP_OK)
        return err;
    if (trainer_learner(self) || trainer_counts(self) ||
        (needs_soft_targets(self, own) && !gives_soft_targets(&self->shape)))
        return BP_FAIL(BP_ERR_CONFIG, "distill.no_student",
                       "distill.model is given, but a model of kind %s learns from no soft "
                       "targets here: at distill.model; leave it out, train a causal or masked "
                       "network whose head is one softmax, or classes or tags, or learn only "
                       "states (distill.layers, distill.weight=0)",
                       self->shape.family->name);
    if (mesh->coordinates)
        err = check_members(self, own);
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        bp_bcast_bytes(&own->bytes, sizeof own->bytes, 0, mesh->world);
    if (err == BP_OK)
        teacher_states_share(&own->taught, self);
    return err;
}

static void teacher_logits(const bp_teacher *face, int member, int64_t slot, int64_t T,
                           int64_t first, int64_t rows, float *logits)
{
    const teacher *self = (const teacher *)face;
    bp_model *model = self->members[member];
    int64_t row = (slot - self->first_slot) * T + first;

    model->ops->logits(model, 0, self->hidden[member] + row * model->info.width, rows, logits);
}

static const float *teacher_states_of(const bp_teacher *face, int match, int64_t slot, int64_t T,
                                      int64_t row)
{
    const teacher *self = (const teacher *)face;

    return teacher_states_at(self->states, match, (slot - self->first_slot) * T + row);
}

/* A step older than the newest may have been opened, because the newest is damaged. */
static bp_err check_opened(const trainer *self, const teacher *own, const bp_model_info *info,
                           const char *path)
{
    bool teaches = info->task.precision == 0 && !info->log_probabilities && !info->may_be_zero;

    if (info->words == self->shape.vocab_size &&
        info->vocab_size == bp_model_outcomes(&self->shape) &&
        info->task.kind == self->shape.task.kind &&
        bp_task_is_framed_as(&info->task, &self->shape.task) &&
        info->masks == masks_words(&self->shape) && (teaches || !needs_soft_targets(self, own)) &&
        info->context >= self->shape.context)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "distill.no_teacher",
                   "the newest step of the teacher that is not damaged is a %s of %lld tokens and "
                   "context %lld, which can't teach this model: at distill.model = %s; take "
                   "another teacher",
                   info->kind, (long long)info->words, (long long)info->context, path);
}

static bp_err open_member(trainer *self, teacher *own, int k, const char *path)
{
    int64_t slots = bp_trainer_slots(self, &self->spec, self->mesh->data_ranks);
    bool keeps = self->spec.distills && self->mesh->pipeline_rank == self->mesh->pipeline_ranks - 1;
    bp_err err = bp_model_open(&own->members[k], self->mesh, self->config, path);

    if (err == BP_OK)
        err = check_opened(self, own, &own->members[k]->info, path);
    if (err != BP_OK)
        return err;
    if (keeps)
        own->hidden[k] =
            bp_try_alloc("train.teacher", slots * self->shape.context * own->members[k]->info.width,
                         sizeof(float));
    if (keeps && !own->hidden[k])
        err = BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                      "memory is short: at what the teacher says of a batch; use a smaller "
                      "train.batch or more data ranks");
    return bp_agree(self->mesh->member, err);
}

/* For tasks and masked models. */
static bool gives_lengths(const trainer *self)
{
    return bp_task_has_head(&self->shape.task) || masks_words(&self->shape);
}

static bp_err open_marked(const trainer *self, teacher *own)
{
    int64_t positions =
        bp_trainer_slots(self, &self->spec, self->mesh->data_ranks) * self->shape.context;

    own->inputs = bp_try_alloc("train.teacher", positions, sizeof *own->inputs);
    own->targets = bp_try_alloc("train.teacher", positions, sizeof *own->targets);
    for (int64_t r = 0; r < positions && own->targets; r++)
        own->targets[r] = -1;
    return bp_agree(self->mesh->member,
                    own->inputs && own->targets
                        ? BP_OK
                        : bp_fail_memory("a teacher's texts", positions, sizeof *own->inputs));
}

/* The digest of the members' digests in their order. */
static void find_digest(teacher *own)
{
    bp_sha256 *hash = bp_sha256_new();

    for (int k = 0; k < own->face.members; k++)
        bp_sha256_update(hash, own->members[k]->info.digest, strlen(own->members[k]->info.digest));
    bp_sha256_finish(&hash, own->digest);
}

/* A dedicated coordinator has no digest: takes the maximum over ranks, four digits at a time. */
static void share_digest(const trainer *self, teacher *own)
{
    enum { DIGITS = 4, PARTS = (BP_SHA256_HEX - 1) / DIGITS };
    float parts[PARTS];

    for (int k = 0; k < PARTS; k++) {
        char digits[DIGITS + 1] = "0";

        memcpy(digits, own->digest + k * DIGITS, self->mesh->computes ? DIGITS : 0);
        parts[k] = (float)strtol(digits, NULL, 16);
    }
    bp_all_max(parts, PARTS, self->mesh->world);
    for (int k = 0; k < PARTS; k++)
        (void)snprintf(own->digest + k * DIGITS, DIGITS + 1, "%04x", (unsigned)parts[k]);
}

/* A resumed training has the teacher that it began with. */
static bp_err check_same(const trainer *self, const teacher *own)
{
    const char *began = NULL;

    if (self->start.resumes)
        began =
            json_string_value(json_object_get(bp_checkpoint_state(self->start.source), "teacher"));
    if (!began || strcmp(began, own->digest) == 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "distill.changed",
                   "the teacher has the digest %.12s... now, and the training began with %.12s...: "
                   "at distill.model = %s; name the checkpoint that it began with, or train anew "
                   "with another run.dir",
                   own->digest, began, keys_of(self->config)->model);
}

/* Collective over mesh->member. */
static bp_err open_members(trainer *self, teacher *own)
{
    const teacher_keys *keys = keys_of(self->config);
    bp_ensemble_list list = {0};
    bp_err err = bp_agree(self->mesh->member, list_members(&list, keys->model));
    own->face = (bp_teacher){.members = (int)list.count,
                             .temperature = keys->temperature,
                             .weight = keys->weight,
                             .logits = teacher_logits,
                             .states_weight = keys->states_weight,
                             .cosine = strcmp(keys->states, "cosine") == 0,
                             .states = teacher_states_of};
    own->members = bp_alloc("train.teacher", list.count, sizeof(bp_model *));
    own->hidden = bp_alloc("train.teacher", list.count, sizeof *own->hidden);
    for (int k = 0; k < (int)list.count && err == BP_OK; k++)
        err = open_member(self, own, k, list.members[k].path);
    bp_ensemble_list_clear(&list);
    if (err == BP_OK && gives_lengths(self))
        err = open_marked(self, own);
    if (err == BP_OK)
        err = bp_agree(self->mesh->member, teacher_states_open(&own->states, &own->taught, self));
    if (err != BP_OK)
        return err;
    find_digest(own);
    bp_engine_slots(self->engine, &own->first_slot, &(int64_t){0});
    bp_engine_teach(self->engine, &own->face);
    return BP_OK;
}

static bp_err build(trainer *self, void *part)
{
    teacher *own = part;
    bp_err err = BP_OK;

    if (!own)
        return BP_OK;
    if (bp_corpus_keys_of(self->config)->bucket > 0)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.bucket_unused",
                       "corpus.bucket sorts examples by length, but a teacher sees batches of one "
                       "length: at corpus.bucket; leave it out");
    if (self->mesh->computes)
        err = open_members(self, own);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    share_digest(self, own);
    return bp_agree(self->mesh->world, check_same(self, own));
}

static void put_state(const trainer *self, const void *part, bool best, json_t *state)
{
    const teacher *own = part;

    (void)self;
    (void)best;
    if (own)
        (void)json_object_set_new(state, "teacher", bp_json_string(own->digest));
}

static bp_err bytes_of(const trainer *self, const void *part, const bp_mesh_shape *mesh, int stage,
                       size_t *bytes)
{
    const teacher *own = part;

    (void)self;
    (void)mesh;
    (void)stage;
    *bytes = own ? (size_t)own->bytes : 0;
    return BP_OK;
}

/* Inputs of -1 mark a text's end for a model outside training. */
static void mark_ends(teacher *own, const bp_batch *batch, int64_t T)
{
    const int32_t *lengths = batch->stream[0].lengths;

    for (int64_t r = 0; r < batch->B * T; r++)
        own->inputs[r] = !lengths || r % T < lengths[r / T] ? batch->stream[0].inputs[r] : -1;
}

/* Its outputs for a step's batch. */
static bp_err teach(trainer *self, void *part, const bp_batch *batch)
{
    teacher *own = part;
    int64_t T = self->shape.context, each = self->spec.micro_batch;
    bool marks = gives_lengths(self);
    const int32_t *segments = batch->stream[0].segments,
                  *inputs = own && marks ? own->inputs : batch->stream[0].inputs,
                  *targets = own && marks ? own->targets : batch->term[0].targets;
    bp_err err = BP_OK;

    if (!own)
        return BP_OK;
    if (marks)
        mark_ends(own, batch, T);
    for (int k = 0; k < own->face.members; k++)
        for (int64_t first = 0; first < batch->B && err == BP_OK; first += each) {
            bp_model *model = own->members[k];
            bp_model_batch part_of = {.windows = each,
                                      .length = T,
                                      .inputs = inputs + first * T,
                                      .targets = targets + first * T,
                                      .segments = segments ? segments + first * T : NULL,
                                      .first_slot = own->first_slot + first};

            model->ops->set_probe(model, teacher_states_probe(own->states, first));
            err = model->ops->backbone(
                model, &part_of, BP_MODEL_NO_DROPOUT,
                own->hidden[k] ? own->hidden[k] + first * T * model->info.width : NULL);
        }
    err = bp_agree(self->mesh->compute, err);
    if (err == BP_OK)
        teacher_states_send(own->states);
    return err;
}

static void close_teacher(void *part)
{
    teacher *own = part;

    for (int k = 0; k < own->face.members; k++) {
        bp_model_free(&own->members[k]);
        bp_free(own->hidden[k]);
    }
    teacher_states_close(&own->states);
    bp_free(own->inputs);
    bp_free(own->targets);
    bp_free(own->members);
    bp_free(own->hidden);
    bp_free(own);
}

const bp_training_part training_teacher = {
    .name = "teacher",
    .memory = "its weights, and what it says of a batch",
    .ask = ask,
    .warn = warn,
    .open = open_teacher,
    .bytes = bytes_of,
    .at = {[PART_READY] = ready, [PART_BUILD] = build},
    .before_step = teach,
    .put_state = put_state,
    .close = close_teacher,
};
