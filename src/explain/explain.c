/* The job of explanations (job/work.h runs it): a unit is a document, its part has the results of
 * each method, one after another. */
#include "explain/explain_priv.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "io/checkpoint/ensemble_file.h"
#include "math/math.h"
#include "models/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BATCH_PLACES 1024 /* of windows side by side */
#define MOST_PLACES  1024 /* of a document, unless explain.context says otherwise */
#define LOG_P_PLACES 64   /* whose distributions are looked at together */

/* ---- before there is a mesh ---- */

static void find_methods(explainer *self)
{
    const char *list = bp_explain_keys_of(self->job->config)->methods;

    self->count = 0;
    for (const bp_explain_method *const *method = bp_explain_methods; *method; method++)
        if (bp_explain_position(list, *method))
            self->methods[self->count++] = *method;
}

static int64_t most_places(const bp_config *config, int64_t context)
{
    int64_t asked = bp_explain_keys_of(config)->context,
            most = asked > 0 || context < MOST_PLACES ? context : MOST_PLACES;

    return asked > 0 && asked < most ? asked : most;
}

/* Of windows side by side: as many as the longest has room for, so that the plan's batch is the
 * largest. */
static int64_t batch_places(int64_t most)
{
    return most > BATCH_PLACES ? most : BATCH_PLACES / most * most;
}

/* Besides the model's own: vectors, a batch, sums in double, results; of the lens states. */
static int64_t work_floats(const explainer *self, const bp_work_models *models, int64_t most,
                           const bp_model_memory *of)
{
    const json_t *shape = json_object_get(models->states[0], "model");
    int64_t batch = batch_places(most),
            layers = json_integer_value(json_object_get(shape, "layers")),
            states = (layers + 1) * most * of->width;
    const bp_explain_form form = {most, layers,
                                  json_integer_value(json_object_get(shape, "heads"))};
    const char *methods = bp_explain_keys_of(models->config)->methods;
    bool looks = bp_explain_position(methods, &bp_explain_lens),
         watches = bp_explain_position(methods, &bp_explain_attention);

    return 2 * (most + batch) * of->width + 2 * most * of->width + LOG_P_PLACES * of->vocab_size +
           2 * explain_floats(self, &form) + (looks ? 2 * states : 0) +
           (watches ? (2 * layers + 5) * most * most : 0);
}

/* bp_work_memory.rank */
static bp_err estimate_rank(const void *context, const bp_work_models *models,
                            const bp_work_place *place, bp_rank_memory *out)
{
    const explainer *self = context;
    int64_t most = most_places(models->config, bp_model_state_context(models->states[0]));
    bp_model_task task = {
        .mesh = place->mesh, .stage = place->stage, .length = most, .differentiates = true};
    bp_work_model_bytes bytes;
    bp_err err;

    if (most <= 0) /* no shape: opening the model says what is wrong */
        return BP_ERR_CONFIG;
    if (!place->computes)
        return BP_OK;
    task.windows = batch_places(most) / most;
    err = bp_work_model_bytes_of(&bytes, models, &task, place->member);
    if (err != BP_OK)
        return err;
    out->node_bytes += bytes.node;
    out->own_bytes += bytes.weights + bytes.work +
                      (int64_t)sizeof(float) * work_floats(self, models, most, &bytes.widest);
    return BP_OK;
}

static bp_err describe(void *context, MPI_Comm world, bp_work_memory *out)
{
    explainer *self = context;

    (void)world;
    find_methods(self);
    out->model = bp_explain_keys_of(self->job->config)->model;
    out->remedy = "use a smaller explain.context, or a smaller model";
    out->rank = estimate_rank;
    out->context = self;
    return BP_OK;
}

/* ---- the model ---- */

static bp_err open_model(void *context, bp_model **out)
{
    const explainer *self = context;
    const bp_config *config = self->job->config;
    const char *path = bp_explain_keys_of(config)->model;

    if (self->job->ensemble)
        return BP_FAIL(BP_ERR_CONFIG, "explain.of_one",
                       "explanations are of one model, and explain.model is an ensemble: at "
                       "explain.model; name one of its members");
    return bp_model_open_differentiable(out, self->job->mesh, config, path,
                                        bp_explain_keys_of(config)->context);
}

/* Predictions that are not of the next token are not explained yet. */
static bp_err check_model(const bp_model_info *info)
{
    const char *why = bp_task_has_head(&info->task) ? "has the head of a task"
                      : info->masks                 ? "fills in masked tokens"
                      : info->reads_source          ? "reads a source"
                                                    : NULL;

    if (!why)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "explain.not_causal",
                   "explanations are of models that continue texts, and this one (%s) %s: at "
                   "explain.model; take another model",
                   info->kind, why);
}

static bp_err check_methods(const explainer *self)
{
    for (int k = 0; k < self->count; k++) {
        const char *lacks =
            self->methods[k]->lacks ? self->methods[k]->lacks(&self->job->info) : NULL;

        if (lacks)
            return BP_FAIL(BP_ERR_CONFIG, "explain.lacking",
                           "a model of kind %s can't be explained by %s: %s: at explain.methods; "
                           "leave it out",
                           self->job->info.kind, self->methods[k]->name, lacks);
    }
    if (strcmp(bp_explain_keys_of(self->job->config)->target, "best") == 0 &&
        self->job->lm->info.log_probabilities)
        return BP_FAIL(
            BP_ERR_CONFIG, "explain.no_best",
            "a head that mixes softmaxes, or of entmax, gives no whole distributions: at "
            "explain.target = best; use explain.target=next");
    return BP_OK;
}

/* ---- inputs ---- */

/* The baseline's token. */
static bp_err find_baseline(explainer *self)
{
    const char *name = bp_explain_keys_of(self->job->config)->baseline;
    int64_t eod = bp_corpus_eod(self->texts.corpus);
    const struct {
        const char *name;
        int64_t token;
    } ROWS[] = {
        {"eod", eod}, {"mask", self->roles[BP_ROLE_MASK]}, {"pad", self->roles[BP_ROLE_PAD]}};

    self->settings.baseline = -1;
    for (size_t k = 0; k < sizeof ROWS / sizeof ROWS[0]; k++)
        if (strcmp(name, ROWS[k].name) == 0)
            self->settings.baseline = ROWS[k].token;
    if (self->settings.baseline >= 0 || strcmp(name, "zero") == 0 ||
        !bp_explain_position(bp_explain_keys_of(self->job->config)->methods,
                             &bp_explain_integrated))
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "explain.no_token",
                   "neither model nor corpus names a token for '%s': at explain.baseline; use "
                   "explain.baseline=zero, or make the corpus with a tokenizer that has one",
                   name);
}

static void make_key(explainer *self)
{
    const bp_explain_settings *s = &self->settings;
    char names[BP_EXPLAIN_ARRAYS * EXPLAIN_METHODS] = "";

    for (int k = 0; k < self->count; k++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s,",
                 self->methods[k]->name);
    bp_work_key(self->key,
                "explain 1 %s %s %s %" PRId64 " %" PRId64 " %d %" PRId64 " %" PRId64 " %" PRId64
                " %s %d",
                self->corpus_hash, self->job->info.digest, names, s->most, s->batch, s->best,
                s->steps, s->baseline, s->lead, bp_math_keys_of(self->job->config)->precision,
                self->job->mesh->tensors);
}

static bp_err load(explainer *self)
{
    bp_err err = explain_texts_open(&self->texts, bp_explain_keys_of(self->job->config)->corpus,
                                    &self->job->info, self->settings.most);

    if (err != BP_OK)
        return err;
    memcpy(self->corpus_hash, bp_corpus_hash(self->texts.corpus), BP_SHA256_HEX);
    memcpy(self->roles, bp_corpus_roles(self->texts.corpus), sizeof self->roles);
    self->settings.lead = self->texts.plan.rule.lead;
    if (self->job->mesh->coordinates && self->texts.cut > 0)
        BP_WARN("explain.cut_documents",
                "%" PRId64 " of %" PRId64 " documents have more than the %" PRId64
                " inputs that are read, and only their beginning is explained: at explain.corpus; "
                "cut them before, or use another explain.context",
                self->texts.cut, self->texts.plan.documents, self->texts.most);
    return find_baseline(self);
}

static bp_err open(void *context)
{
    explainer *self = context;
    bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    int64_t shared[2];
    bp_err err = check_model(&job->info);

    if (err == BP_OK && keys->context > job->info.context)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.context_too_long",
                      "explain.context = %" PRId64 " is more than the model's %" PRId64
                      ": at explain.context; use %" PRId64 " or less",
                      keys->context, job->info.context, job->info.context);
    if (err == BP_OK && job->lm)
        err = check_methods(self);
    self->layers = bp_all_max_int(job->lm ? job->lm->info.layers : 0, job->mesh->world);
    self->heads = bp_all_max_int(job->lm ? job->lm->info.heads : 0, job->mesh->world);
    self->settings =
        (bp_explain_settings){.info = job->lm ? &job->lm->info : &job->info,
                              .group = job->mesh->model,
                              .last = job->mesh->pipeline_at == job->mesh->pipelines - 1,
                              .most = most_places(job->config, job->info.context),
                              .batch = batch_places(most_places(job->config, job->info.context)),
                              .best = strcmp(keys->target, "best") == 0,
                              .steps = keys->steps,
                              .baseline = -1,
                              .roles = self->roles,
                              .lead = -1};
    if (err == BP_OK && (job->leads || job->mesh->coordinates))
        err = load(self);
    err = bp_agree(job->mesh->world, err);
    bp_bcast_bytes(self->corpus_hash, BP_SHA256_HEX, 0, job->mesh->world);
    bp_bcast_bytes(self->roles, sizeof self->roles, 0, job->mesh->world);
    memcpy(shared, (int64_t[]){self->settings.lead, self->settings.baseline}, sizeof shared);
    bp_bcast_bytes(shared, sizeof shared, 0, job->mesh->world);
    self->settings.lead = shared[0];
    self->settings.baseline = shared[1];
    make_key(self);
    return err;
}

static void close(void *context)
{
    explainer *self = context;

    explain_texts_clear(&self->texts);
    json_decref(self->summary);
}

static void identify(const void *context, bp_run_identity *out)
{
    *out = (bp_run_identity){"explain.corpus", ((const explainer *)context)->corpus_hash};
}

/* ---- a unit ---- */

static bp_err prepare(void *context)
{
    explainer *self = context;
    const bp_explain_form form = explain_form(self, self->settings.most);
    int64_t most = self->settings.most, floats = explain_floats(self, &form);

    self->tokens = bp_alloc("explain", most + 1, sizeof *self->tokens);
    if (self->settings.best) {
        self->best = bp_alloc("explain", most, sizeof *self->best);
        self->log_p = bp_try_alloc("explain", LOG_P_PLACES * self->settings.info->vocab_size,
                                   sizeof *self->log_p);
    }
    self->results = bp_try_alloc("explain", floats, sizeof *self->results);
    return self->results && (self->log_p || !self->settings.best)
               ? BP_OK
               : bp_fail_memory("results", floats, sizeof *self->results);
}

static void release(void *context)
{
    explainer *self = context;

    bp_free(self->results);
    bp_free(self->log_p);
    bp_free(self->best);
    bp_free(self->tokens);
}

/* The outcomes that the model prefers after places [first, first + count). Of equal ones the
 * first. */
static bp_err find_some_best(explainer *self, bp_explained *document, int64_t first, int64_t count)
{
    int64_t V = self->settings.info->vocab_size, length = first + count;
    int32_t *targets = bp_alloc("explain", length, sizeof *targets);
    bp_model_batch batch = {
        .windows = 1, .length = length, .inputs = document->inputs, .targets = targets};
    bp_err err;

    for (int64_t t = 0; t < length; t++)
        targets[t] = t < first ? -1 : 0;
    err = bp_model_distribution(self->job->lm, &batch, self->log_p, NULL);
    for (int64_t r = 0; r < count && err == BP_OK; r++) {
        const float *row = self->log_p + r * V;
        int64_t best = 0;

        for (int64_t v = 1; v < V; v++)
            if (row[v] > row[best])
                best = v;
        self->best[first + r] = (int32_t)best;
    }
    bp_free(targets);
    return err;
}

static bp_err find_best(explainer *self, bp_explained *document)
{
    bp_err err = BP_OK;

    for (int64_t first = 0, count; first < document->T && err == BP_OK; first += count) {
        count = document->T - first < LOG_P_PLACES ? document->T - first : LOG_P_PLACES;
        bp_heartbeat_progress();
        err = find_some_best(self, document, first, count);
    }
    document->targets = self->best;
    return err;
}

/* A document of T places, which the lead has, by its group. */
static bp_err explain_document(explainer *self, int64_t T)
{
    bp_explained document = {.inputs = self->tokens, .targets = self->tokens + 1};
    float *at = self->results;
    bp_err err = BP_OK;
    bp_explain_form form;

    bp_bcast_bytes(&T, sizeof T, 0, self->settings.group);
    document.T = T;
    form = explain_form(self, T);
    if (T == 0)
        return BP_OK;
    bp_bcast_bytes(self->tokens, (T + 1) * (int64_t)sizeof *self->tokens, 0, self->settings.group);
    memset(self->results, 0, (size_t)explain_floats(self, &form) * sizeof *self->results);
    if (self->settings.best)
        err = find_best(self, &document);
    for (int k = 0; k < self->count && err == BP_OK; k++) {
        err = self->methods[k]->run(self->job->lm, &self->settings, &document, at);
        at += bp_explain_floats(self->methods[k], &form);
    }
    return err;
}

static bp_err run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    explainer *self = context;
    int64_t T = 0;
    bp_err err = BP_OK, given;

    (void)stopped;
    if (self->job->leads) {
        err = explain_texts_read(&self->texts, unit, self->tokens);
        T = err == BP_OK ? self->texts.places[unit] : 0;
        bp_work_ask_next(self->job);
    }
    given = explain_document(self, T);
    if (err == BP_OK && given == BP_OK && self->job->leads && T > 0) {
        const bp_explain_form form = explain_form(self, T);

        bp_buffer_add(out, self->settings.best ? self->best : self->tokens + 1,
                      (size_t)T * sizeof *self->tokens);
        bp_buffer_add(out, self->results, (size_t)explain_floats(self, &form) * sizeof(float));
    }
    return err == BP_OK ? given : err;
}

static int64_t count_tokens(const void *context, int64_t unit)
{
    return ((const explainer *)context)->texts.places[unit];
}

static bp_err open_job(void *context)
{
    explainer *self = context;
    bp_err err = open(self);

    self->job->units = (bp_work_units){.key = self->key,
                                       .count = self->texts.plan.documents,
                                       .mesh_keys = "mesh.tensor",
                                       .amount = (double)self->texts.tokens,
                                       .noun = "tokens",
                                       .speed = "tokens/s",
                                       .speed_digits = 1,
                                       .prepare = prepare,
                                       .run = run_unit,
                                       .amount_of = count_tokens,
                                       .release = release,
                                       .merge = explain_merge};
    return err;
}

/* ---- what is said ---- */

static void say(const void *context)
{
    const explainer *self = context;

    bp_log("explaining %" PRId64 " predictions in %" PRId64 " documents by %s", self->texts.tokens,
           self->texts.plan.documents, bp_explain_keys_of(self->job->config)->methods);
}

static json_t *started(const void *context)
{
    const explainer *self = context;

    return json_pack("{sI sI}", "documents", (json_int_t)self->texts.plan.documents, "targets",
                     (json_int_t)self->texts.tokens);
}

static void report(const void *context)
{
    const explainer *self = context;
    const json_t *integrated =
        json_object_get(json_object_get(self->summary, "methods"), bp_explain_integrated.name);
    int64_t flagged = json_integer_value(json_object_get(integrated, "flagged"));

    if (flagged > 0)
        BP_WARN("explain.incomplete",
                "the integrated gradients of %" PRId64 " of %" PRId64
                " targets miss what the baseline changes by more than 1 %%: at explain.steps = "
                "%" PRId64 "; use more, or another explain.baseline",
                flagged, self->texts.tokens, self->settings.steps);
}

/* ---- the table ---- */

static bool writes(const void *context, const char *file)
{
    const explainer *self = context;

    for (int k = 0; k < self->count; k++)
        if (strncmp(file, self->methods[k]->name, strcspn(file, ".")) == 0 &&
            strlen(self->methods[k]->name) == strcspn(file, "."))
            return true;
    return strcmp(file, "summary.json") == 0;
}

const bp_work bp_explain = {.name = "explain",
                            .self_bytes = sizeof(explainer),
                            .model_key = "explain.model",
                            .results = "explanations",
                            .files = bp_explain_files,
                            .writes = writes,
                            .describe = describe,
                            .open_model = open_model,
                            .open = open_job,
                            .identify = identify,
                            .say = say,
                            .started = started,
                            .report = report,
                            .close = close};
