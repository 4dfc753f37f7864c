/* Texts through a classifier. Called by generate's entailment and by bagpipe-data toxicity. */
#include "infer/score/classifier.h"

#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "models/open.h"

#include <string.h>

#define MOST 4096 /* positions, for a model without a limit */

struct bp_classifier {
    bp_config *config;
    bp_mesh *mesh;
    bp_model *model;
    bp_tokenizer *tokenizer;
    bp_encoder *encoder;
    bp_task_frame frame;
    int64_t classes, context;
    int32_t *inputs, *segments, *positions; /* [BP_CLASSIFIER_BATCH][context] */
    float *log_p;                           /* [BP_CLASSIFIER_BATCH][the model's outcomes] */
};

static const bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};

/* ---- opening ---- */

static bp_err read_manifest(json_t **state, bp_model_shape *shape, const char *path)
{
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_err err = bp_checkpoint_read_metadata(path, &folder, &manifest);

    *state = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    return err == BP_OK ? bp_model_shape_read(shape, *state, path) : err;
}

bp_err bp_classifier_labels(json_t **labels, const char *path)
{
    bp_model_shape shape = {0};
    json_t *state = NULL;
    bp_err err = read_manifest(&state, &shape, path);

    *labels = NULL;
    if (err == BP_OK && bp_task_kind_has_classes(bp_task_kind_of(&shape.task)))
        *labels = json_incref(json_object_get(json_object_get(state, "model"), "labels"));
    json_decref(state);
    return err;
}

static bp_err open_tokenizer(bp_classifier *self, const char *path, const char *key)
{
    bp_checkpoint *checkpoint = NULL;
    bp_err err = bp_checkpoint_open_any(MPI_COMM_SELF, path, &checkpoint);
    const char *file = err == BP_OK ? bp_checkpoint_tokenizer(checkpoint) : NULL;

    if (err == BP_OK && !file)
        err =
            BP_FAIL(BP_ERR_CONFIG, "generate.no_tokenizer",
                    "the classifier brings no tokenizer: at %s = %s; fine-tune it on corpora that "
                    "keep theirs",
                    key, path);
    if (err == BP_OK)
        err = bp_tokenizer_load(&self->tokenizer, file);
    bp_checkpoint_close(&checkpoint);
    return err == BP_OK ? bp_encoder_new(&self->encoder, self->tokenizer) : err;
}

static bp_err find_frame(bp_classifier *self, const json_t *state, const bp_model_shape *shape,
                         const char *path)
{
    int64_t roles[BP_ROLES];

    for (int k = 0; k < BP_ROLES; k++)
        roles[k] = bp_tokenizer_role(self->tokenizer, (bp_role)k);
    roles[BP_ROLE_FIRST] = bp_roles_get(state, BP_ROLE_FIRST); /* as it was trained */
    return bp_task_frame_of(&self->frame, shape, roles, path);
}

/* In full precision, on any processor. */
static bp_err make_config(bp_config **out)
{
    static const bp_option *const tables[] = {bp_math_options, bp_mesh_options, NULL};
    bp_err err = bp_config_new(out, tables, tables);

    return err == BP_OK ? bp_config_set(*out, "math.precision", "f32") : err;
}

bp_err bp_classifier_estimate(int64_t *bytes, const char *path)
{
    bp_model_shape shape = {0};
    json_t *state = NULL;
    bp_config *config = NULL;
    bp_model_memory memory = {0};
    bp_err err = read_manifest(&state, &shape, path);

    if (err == BP_OK)
        err = make_config(&config);
    if (err == BP_OK) {
        int64_t context = bp_model_state_context(state);

        err = bp_model_estimate(&memory, state, config,
                                &(bp_model_task){.mesh = &alone,
                                                 .windows = BP_CLASSIFIER_BATCH,
                                                 .length = context < MOST ? context : MOST});
    }
    *bytes = memory.weights_bytes + memory.work_bytes + memory.node_bytes;
    bp_config_free(&config);
    json_decref(state);
    return err;
}

static bp_err open_model(bp_classifier *self, const char *path)
{
    bp_err err = make_config(&self->config);

    if (err == BP_OK)
        err = bp_mesh_new(&self->mesh, MPI_COMM_SELF, &alone);
    return err == BP_OK ? bp_model_open(&self->model, self->mesh, self->config, path) : err;
}

static void take_memory(bp_classifier *self)
{
    int64_t context = self->model->info.context, positions;

    self->context = context < MOST ? context : MOST;
    positions = BP_CLASSIFIER_BATCH * self->context;
    self->inputs = bp_alloc("classifier", positions, sizeof *self->inputs);
    self->segments = bp_alloc("classifier", positions, sizeof *self->segments);
    self->positions = bp_alloc("classifier", positions, sizeof *self->positions);
    self->log_p = bp_alloc("classifier", BP_CLASSIFIER_BATCH * self->model->info.vocab_size,
                           sizeof *self->log_p);
}

bp_err bp_classifier_open(bp_classifier **out, const char *path, const char *key)
{
    bp_classifier *self = bp_alloc("classifier", 1, sizeof *self);
    bp_model_shape shape = {0};
    json_t *state = NULL;
    bp_err err = read_manifest(&state, &shape, path);

    self->classes =
        (int64_t)json_array_size(json_object_get(json_object_get(state, "model"), "labels"));
    if (err == BP_OK)
        err = open_tokenizer(self, path, key);
    if (err == BP_OK)
        err = find_frame(self, state, &shape, path);
    if (err == BP_OK)
        err = open_model(self, path);
    if (err == BP_OK)
        take_memory(self);
    else
        bp_classifier_free(&self);
    json_decref(state);
    *out = self;
    return err;
}

void bp_classifier_free(bp_classifier **out)
{
    bp_classifier *self = *out;

    if (!self)
        return;
    bp_free(self->log_p);
    bp_free(self->positions);
    bp_free(self->segments);
    bp_free(self->inputs);
    bp_encoder_free(&self->encoder);
    bp_tokenizer_free(&self->tokenizer);
    bp_model_free(&self->model);
    bp_mesh_free(&self->mesh);
    bp_config_free(&self->config);
    bp_free(self);
    *out = NULL;
}

int64_t bp_classifier_classes(const bp_classifier *self)
{
    return self->classes;
}

int64_t bp_classifier_context(const bp_classifier *self)
{
    return self->context;
}

const bp_task_frame *bp_classifier_frame(const bp_classifier *self)
{
    return &self->frame;
}

bp_encoder *bp_classifier_encoder(const bp_classifier *self)
{
    return self->encoder;
}

json_t *bp_classifier_json(const bp_classifier *self)
{
    return json_pack("{s:s, s:I}", "digest", self->model->info.digest, "step",
                     (json_int_t)self->model->info.step);
}

/* ---- asking ---- */

/* Windows of the longest pair's length. */
static bp_err run_batch(bp_classifier *self, int64_t windows, int64_t length)
{
    int64_t T = self->context;
    bp_model_batch batch = {.windows = windows,
                            .length = length,
                            .inputs = self->inputs,
                            .targets = self->positions,
                            .segments = self->segments};

    for (int64_t w = 0; w < windows; w++) {
        memmove(self->inputs + w * length, self->inputs + w * T, (size_t)length * sizeof(int32_t));
        memmove(self->segments + w * length, self->segments + w * T,
                (size_t)length * sizeof(int32_t));
        for (int64_t t = 0; t < length; t++)
            self->positions[w * length + t] = t == 0 ? 0 : -1; /* any class: all are returned */
    }
    return bp_model_distribution(self->model, &batch, self->log_p, NULL);
}

bp_err bp_classifier_ask(bp_classifier *self, const bp_task_pair *pairs, int64_t count,
                         float *log_p, int64_t *cut)
{
    int64_t T = self->context, longest = 1, width = self->model->info.vocab_size;
    bp_err err;

    for (int64_t w = 0; w < count; w++) {
        int64_t length = bp_task_fill(self->inputs + w * T, self->segments + w * T, T, &self->frame,
                                      &pairs[w], &cut[w]);

        for (int64_t t = length; t < T; t++)
            self->inputs[w * T + t] = -1;
        longest = length > longest ? length : longest;
    }
    err = run_batch(self, count, longest);
    for (int64_t w = 0; w < count && err == BP_OK; w++)
        memcpy(log_p + w * self->classes, self->log_p + w * width,
               (size_t)self->classes * sizeof *log_p);
    return err;
}
