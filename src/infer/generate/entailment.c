/* Pairs of texts through a classifier. Called by results/outputs.c on the coordinator. */
#include "infer/generate/entailment.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "models/open.h"
#include "models/task.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#define BATCH 32   /* pairs at a time */
#define MOST  4096 /* places, of a model without a limit */

struct bp_entailment {
    bp_config *config;
    bp_mesh *mesh;
    bp_model *lm;
    bp_tokenizer *tokenizer;
    bp_encoder *encoder;
    bp_task_frame frame;
    int64_t entails, classes; /* the class, of how many */
    int64_t context;
    int64_t pairs, shortened, cut; /* asked about; without their prompts' front; and texts' ends */
    int32_t *inputs, *segments, *places; /* [BATCH][context] */
    float *log_p;                        /* [BATCH][classes] */
};

/* ---- opening ---- */

/* The class that begins with "entail"; -1: there is none. */
static int64_t find_class(const json_t *state, int64_t *classes)
{
    const json_t *names = json_object_get(json_object_get(state, "model"), "labels");

    *classes = (int64_t)json_array_size(names);
    for (int64_t k = 0; k < *classes; k++) {
        const char *name = json_string_value(json_array_get(names, (size_t)k));

        if (name && strncasecmp(name, "entail", 6) == 0)
            return k;
    }
    return -1;
}

static bp_err read_manifest(json_t **state, int64_t *entails, int64_t *classes, const char *path)
{
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_model_shape shape = {0};
    bp_err err = bp_checkpoint_read_metadata(path, &folder, &manifest);

    *state = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    if (err == BP_OK)
        err = bp_model_shape_read(&shape, *state, path);
    if (err != BP_OK)
        return err;
    *entails = find_class(*state, classes);
    if (!bp_task_kind_has_classes(bp_task_kind_of(&shape.task)) || *entails < 0)
        return BP_FAIL(
            BP_ERR_CONFIG, "generate.no_entailment",
            "the model is not a classifier with a class that begins with 'entail': at "
            "generate.entails = %s; fine-tune one on pairs of texts, as SICK or MNLI are",
            path);
    return BP_OK;
}

bp_err bp_entailment_check(const char *path)
{
    int64_t entails, classes;
    json_t *state = NULL;
    bp_err err = read_manifest(&state, &entails, &classes, path);

    json_decref(state);
    return err;
}

static bp_err open_tokenizer(bp_entailment *self, const char *path)
{
    bp_checkpoint *checkpoint = NULL;
    bp_err err = bp_checkpoint_open_any(MPI_COMM_SELF, path, &checkpoint);
    const char *file = err == BP_OK ? bp_checkpoint_tokenizer(checkpoint) : NULL;

    if (err == BP_OK && !file)
        err = BP_FAIL(BP_ERR_CONFIG, "generate.no_tokenizer",
                      "the classifier brings no tokenizer: at generate.entails = %s; fine-tune it "
                      "on corpora that keep theirs",
                      path);
    if (err == BP_OK)
        err = bp_tokenizer_load(&self->tokenizer, file);
    bp_checkpoint_close(&checkpoint);
    return err == BP_OK ? bp_encoder_new(&self->encoder, self->tokenizer) : err;
}

static bp_err find_frame(bp_entailment *self, const json_t *state, const char *path)
{
    int64_t roles[BP_ROLES];
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, state, path);

    for (int k = 0; k < BP_ROLES; k++)
        roles[k] = bp_tokenizer_role(self->tokenizer, (bp_role)k);
    roles[BP_ROLE_FIRST] = bp_roles_get(state, BP_ROLE_FIRST); /* as it was trained */
    return err == BP_OK ? bp_task_frame_of(&self->frame, &shape, roles, path) : err;
}

static const bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};

/* In full precision, whatever the processor is best at. */
static bp_err make_config(bp_config **out)
{
    static const bp_option *const tables[] = {bp_math_options, bp_mesh_options, NULL};
    bp_err err = bp_config_new(out, tables, tables);

    return err == BP_OK ? bp_config_set(*out, "math.precision", "f32") : err;
}

bp_err bp_entailment_estimate(int64_t *bytes, const char *path)
{
    int64_t entails, classes, context;
    json_t *state = NULL;
    bp_config *config = NULL;
    bp_model_memory memory = {0};
    bp_err err = read_manifest(&state, &entails, &classes, path);

    if (err == BP_OK)
        err = make_config(&config);
    if (err == BP_OK) {
        context = bp_model_state_context(state);
        err = bp_model_estimate(&memory, state, config,
                                &(bp_model_task){.mesh = &alone,
                                                 .windows = BATCH,
                                                 .length = context < MOST ? context : MOST});
    }
    *bytes = memory.weights_bytes + memory.work_bytes + memory.node_bytes;
    bp_config_free(&config);
    json_decref(state);
    return err;
}

static bp_err open_model(bp_entailment *self, const char *path)
{
    bp_err err = make_config(&self->config);

    if (err == BP_OK)
        err = bp_mesh_new(&self->mesh, MPI_COMM_SELF, &alone);
    return err == BP_OK ? bp_model_open(&self->lm, self->mesh, self->config, path) : err;
}

bp_err bp_entailment_open(bp_entailment **out, const char *path)
{
    bp_entailment *self = bp_alloc("generate.entailment", 1, sizeof *self);
    json_t *state = NULL;
    bp_err err = read_manifest(&state, &self->entails, &self->classes, path);

    if (err == BP_OK)
        err = open_tokenizer(self, path);
    if (err == BP_OK)
        err = find_frame(self, state, path);
    if (err == BP_OK)
        err = open_model(self, path);
    if (err == BP_OK) {
        int64_t context = self->lm->info.context, places;

        self->context = context < MOST ? context : MOST;
        places = BATCH * self->context;

        self->inputs = bp_alloc("generate.entailment", places, sizeof *self->inputs);
        self->segments = bp_alloc("generate.entailment", places, sizeof *self->segments);
        self->places = bp_alloc("generate.entailment", places, sizeof *self->places);
        self->log_p =
            bp_alloc("generate.entailment", BATCH * self->lm->info.vocab_size, sizeof *self->log_p);
    } else {
        bp_entailment_free(&self);
    }
    json_decref(state);
    *out = self;
    return err;
}

void bp_entailment_free(bp_entailment **out)
{
    bp_entailment *self = *out;

    if (!self)
        return;
    bp_free(self->log_p);
    bp_free(self->places);
    bp_free(self->segments);
    bp_free(self->inputs);
    bp_encoder_free(&self->encoder);
    bp_tokenizer_free(&self->tokenizer);
    bp_model_free(&self->lm);
    bp_mesh_free(&self->mesh);
    bp_config_free(&self->config);
    bp_free(self);
    *out = NULL;
}

json_t *bp_entailment_json(const bp_entailment *self)
{
    return json_pack("{s:s, s:I}", "digest", self->lm->info.digest, "step",
                     (json_int_t)self->lm->info.step);
}

/* ---- pairs ---- */

/* Take as many of a prompt's tokens from the front of both texts as the pair needs. */
static bool shorten(bp_task_pair *pair, const bp_task_frame *frame, int64_t prompt, int64_t T)
{
    bool too_long = bp_task_places(frame, pair) > T;

    for (int64_t k = 0; k < prompt && bp_task_places(frame, pair) > T; k++)
        for (int side = 0; side < 2; side++)
            if (pair->tokens[side] > 1) {
                pair->text[side]++;
                pair->tokens[side]--;
            }
    return too_long;
}

/* inputs[context] of a pair, padded. *empty: a text has no token, and entails nothing. */
static bp_err fill_pair(bp_entailment *self, int64_t prompt, const char *premise,
                        const char *hypothesis, int64_t w, int64_t *longest, bool *empty)
{
    int64_t T = self->context, length, cut;
    bp_ids ids = {0};
    bp_err err = bp_encode(self->encoder, premise, strlen(premise), &ids);
    int64_t first = ids.count;

    if (err == BP_OK)
        err = bp_encode(self->encoder, hypothesis, strlen(hypothesis), &ids);
    if (err == BP_OK) {
        static const int32_t none;
        const int32_t *tokens = ids.count > 0 ? (const int32_t *)ids.data : &none;
        bp_task_pair pair = {{tokens, tokens + first}, {first, ids.count - first}};

        self->shortened += shorten(&pair, &self->frame, prompt, T);
        length = bp_task_fill(self->inputs + w * T, self->segments + w * T, T, &self->frame, &pair,
                              &cut);
        self->cut += cut > 0;
        self->pairs++;
        for (int64_t t = length; t < T; t++)
            self->inputs[w * T + t] = -1;
        *longest = length > *longest ? length : *longest;
        *empty = pair.tokens[0] == 0 || pair.tokens[1] == 0;
    }
    bp_ids_clear(&ids);
    return err;
}

/* Windows of the longest pair's length. */
static bp_err run_batch(bp_entailment *self, int64_t windows, int64_t length, bool *holds)
{
    int64_t T = self->context, classes = self->lm->info.vocab_size;
    bp_model_batch batch = {.windows = windows,
                            .length = length,
                            .inputs = self->inputs,
                            .targets = self->places,
                            .segments = self->segments};
    bp_err err;

    for (int64_t w = 0; w < windows; w++) {
        memmove(self->inputs + w * length, self->inputs + w * T, (size_t)length * sizeof(int32_t));
        memmove(self->segments + w * length, self->segments + w * T,
                (size_t)length * sizeof(int32_t));
        for (int64_t t = 0; t < length; t++)
            self->places[w * length + t] = t == 0 ? 0 : -1; /* any class: all are returned */
    }
    err = bp_model_distribution(self->lm, &batch, self->log_p, NULL);
    for (int64_t w = 0; w < windows && err == BP_OK; w++) {
        const float *row = self->log_p + w * classes;
        int64_t best = 0;

        for (int64_t k = 1; k < self->classes; k++)
            best = row[k] > row[best] ? k : best;
        holds[w] = best == self->entails;
    }
    return err;
}

bp_err bp_entailment_ask(bp_entailment *self, const char *prompt, const char *const *premises,
                         const char *const *hypotheses, int64_t count, bool *holds)
{
    bp_ids before = {0};
    bp_err err = bp_encode(self->encoder, prompt, strlen(prompt), &before);

    for (int64_t first = 0; first < count && err == BP_OK; first += BATCH) {
        int64_t windows = count - first < BATCH ? count - first : BATCH, longest = 1;
        bool empty[BATCH];

        for (int64_t w = 0; w < windows && err == BP_OK; w++)
            err = fill_pair(self, before.count, premises[first + w], hypotheses[first + w], w,
                            &longest, &empty[w]);
        if (err == BP_OK)
            err = run_batch(self, windows, longest, holds + first);
        for (int64_t w = 0; w < windows && err == BP_OK; w++)
            holds[first + w] = holds[first + w] && !empty[w];
    }
    bp_ids_clear(&before);
    return err;
}

void bp_entailment_warn(const bp_entailment *self)
{
    if (self->shortened > 0)
        BP_WARN("generate.cut_pairs",
                "%" PRId64 " of %" PRId64 " pairs of texts have more tokens than the classifier's "
                "context of %" PRId64
                ": at generate.entails; prompts before them lose their beginning, "
                "and %" PRId64 " pairs the end of a text too%s",
                self->shortened, self->pairs, self->context, self->cut,
                self->cut > 0 ? ": use a classifier of a longer context, or fewer generate.tokens"
                              : "");
}
