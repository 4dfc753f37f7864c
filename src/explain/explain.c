/* The job of explanations (job/work.h runs it): a unit is a document, its part has the results of
 * each method, one after another. */
#include "explain/explain_priv.h"

#include "base/config/run_options.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/ensemble/ensemble.h"
#include "infer/ensemble/model_tokenizer.h"
#include "math/math.h"
#include "models/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BATCH_PLACES   1024              /* of windows side by side */
#define MOST_PLACES    1024              /* of a document, unless explain.context says otherwise */
#define ENSEMBLE_BYTES ((size_t)1 << 28) /* for distributions of all members of some rows */
#define LOG_P_PLACES   64                /* whose distributions are looked at together */

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

/* The largest document that there may be, of the model whose "model" object this is. */
static bp_explain_form largest_form(const json_t *shape, const char *target, int64_t most)
{
    const char *task = json_string_value(json_object_get(shape, "task"));
    int64_t outcomes = json_integer_value(json_object_get(shape, "outcomes")),
            encoders = task ? 0 : json_integer_value(json_object_get(shape, "encoder_layers")),
            each = target && strcmp(target, "every") == 0 ? outcomes : 1;
    const bp_task_kind *kind = task ? bp_task_kind_named(task) : NULL;
    bp_explain_form form = {.K = most,
                            .T = most,
                            .S = encoders > 0 ? most : 0,
                            .layers = json_integer_value(json_object_get(shape, "layers")),
                            .heads = json_integer_value(json_object_get(shape, "heads")),
                            .source_layers = encoders,
                            .foils = 1};

    if (form.layers == 0)
        form.layers = json_integer_value(json_object_get(shape, "decoder_layers"));
    if (kind)
        form.K = each * (kind->at_words ? most : kind->ends);
    if (kind && bp_task_kind_has_classes(kind))
        form.foils = outcomes - 1;
    return form;
}

/* Besides the model's own: vectors, a batch, sums in double, results; of the lens states, of
 * attention matrices. */
static int64_t work_floats(const explainer *self, const bp_work_models *models, int64_t most,
                           const bp_model_memory *of)
{
    const bp_explain_keys *keys = bp_explain_keys_of(models->config);
    bp_explain_form form =
        largest_form(json_object_get(models->states[0], "model"), keys->target, most);
    int64_t own_width = json_integer_value(
                json_object_get(json_object_get(models->states[0], "model"), "width")),
            wide = own_width > of->width ? own_width : of->width; /* of what layers leave */
    int64_t sides = form.S > 0 ? 2 : 1, states = (form.layers + 1) * most * wide,
            stack = form.layers > form.source_layers ? form.layers : form.source_layers;
    bool looks = bp_explain_position(keys->methods, &bp_explain_lens),
         watches = bp_explain_position(keys->methods, &bp_explain_attention),
         contrasts = bp_explain_position(keys->methods, &bp_explain_contrast);

    int64_t inner = json_integer_value(
                json_object_get(json_object_get(models->states[0], "model"), "inner")),
            collected = 0;
    const bp_explain_sizes sizes = {.T = most,
                                    .C = wide,
                                    .V = of->vocab_size,
                                    .layers = form.layers,
                                    .triggers = keys->keys,
                                    .factors = keys->factors,
                                    .keys = inner > 0 ? inner : 4 * wide};

    for (int k = 0; k < self->count; k++) {
        int64_t own = self->methods[k]->floats ? self->methods[k]->floats(&sizes) : 0;

        collected = own > collected ? own : collected;
    }
    form.flips = keys->flips;
    form.edits = keys->edits;
    form.curves = (self->count + 1) * BP_EXPLAIN_SHARES;
    return collected +
           sides * (2 * (most + batch_places(most)) + (2 + contrasts) * most) * of->width +
           LOG_P_PLACES * of->vocab_size + (2 + models->members) * explain_floats(self, &form) +
           (looks ? 3 * states : 0) +
           (watches ? (form.layers + form.source_layers + stack + 5 * sides) * most * most +
                          2 * explain_weights_floats(&form)
                    : 0) +
           explain_setup_floats(self, models->config, &form, of->width);
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
    if (models->ensemble)
        out->own_bytes += bp_ensemble_work_bytes(&bytes.widest, place->mesh, models->members,
                                                 batch_places(most), ENSEMBLE_BYTES, false);
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

/* Members are explained one after another, by what a mean of them means something for. */
static bp_err check_ensemble(const explainer *self)
{
    int members = self->job->mesh->members;

    if (members > 1)
        return BP_FAIL(BP_ERR_CONFIG, "explain.members_in_turn",
                       "mesh.members = %d, but explanations take the members of an ensemble in "
                       "turn: at mesh.members; leave it at 1, and use more data ranks",
                       members);
    for (int k = 0; k < self->count; k++)
        if (!self->methods[k]->averages)
            return BP_FAIL(BP_ERR_CONFIG, "explain.of_one",
                           "an ensemble can't be explained by %s, of which members have no mean: "
                           "at explain.methods; leave it out, or name one of its members at "
                           "explain.model",
                           self->methods[k]->name);
    return BP_OK;
}

static bp_err open_model(void *context, bp_model **out)
{
    const explainer *self = context;
    const bp_config *config = self->job->config;
    const char *path = bp_explain_keys_of(config)->model;

    if (self->job->ensemble) {
        const bp_ensemble_spec spec = {.path = path,
                                       .context = bp_explain_keys_of(config)->context,
                                       .memory_bytes = ENSEMBLE_BYTES,
                                       .differentiates = true};
        bp_err err = check_ensemble(self);

        return err == BP_OK ? bp_ensemble_open(out, self->job->mesh, config, &spec) : err;
    }
    return bp_model_open_differentiable(out, self->job->mesh, config, path,
                                        bp_explain_keys_of(config)->context);
}

/* ---- what is explained ---- */

static const struct {
    const char *word;
    explain_target target;
    bool words, masks, classes, spans; /* of models that write, masked ones, tasks */
} TARGETS[] = {{"next", EXPLAIN_NEXT, true, false, false, false},
               {"best", EXPLAIN_BEST, true, true, true, true},
               {"label", EXPLAIN_LABEL, false, true, true, true},
               {"every", EXPLAIN_EVERY, false, false, true, false}};

/* A value has no classes to choose from. */
static bp_err refuse_target(const bp_model_info *info, const char *word, const char *others)
{
    return BP_FAIL(BP_ERR_CONFIG, "explain.no_target",
                   "a model of kind %s%s%s can't be explained by explain.target = %s: at "
                   "explain.target; use %s",
                   info->kind, bp_task_has_head(&info->task) ? " for " : "",
                   bp_task_has_head(&info->task) ? bp_task_name(info->task.kind) : "", word,
                   others);
}

static bp_err find_target(explainer *self, const bp_model_info *info)
{
    const char *word = bp_explain_keys_of(self->job->config)->target;
    const bp_task_kind *kind = bp_task_kind_of(&info->task);
    bool task = bp_task_has_head(&info->task);

    self->target = task ? EXPLAIN_BEST : info->masks ? EXPLAIN_HIDDEN : EXPLAIN_NEXT;
    if (!word)
        return BP_OK;
    for (size_t k = 0; k < sizeof TARGETS / sizeof TARGETS[0]; k++)
        if (strcmp(word, TARGETS[k].word) == 0) {
            self->target = TARGETS[k].target;
            if (task          ? kind->is_value    ? self->target == EXPLAIN_BEST
                                : kind->has_names ? TARGETS[k].classes
                                                  : TARGETS[k].spans
                : info->masks ? TARGETS[k].masks
                              : TARGETS[k].words)
                return BP_OK;
            return refuse_target(info, word,
                                 task          ? kind->is_value    ? "best"
                                                 : kind->has_names ? "best, label, every, or a name"
                                                                   : "best or label"
                                 : info->masks ? "label or best"
                                               : "next or best");
        }
    self->target = EXPLAIN_CLASS;
    if (task && kind->has_names)
        return BP_OK;
    return refuse_target(info, word,
                         task && kind->is_value ? "best"
                         : task                 ? "best or label"
                         : info->masks          ? "label or best"
                                                : "next or best");
}

static bp_err check_methods(const explainer *self)
{
    for (int k = 0; k < self->count; k++) {
        const char *lacks =
            self->methods[k]->lacks ? self->methods[k]->lacks(self->settings.info) : NULL;

        if (lacks)
            return BP_FAIL(BP_ERR_CONFIG, "explain.lacking",
                           "a model of kind %s can't be explained by %s: %s: at explain.methods; "
                           "leave it out",
                           self->settings.info->kind, self->methods[k]->name, lacks);
    }
    if (self->prefers && self->job->lm->info.log_probabilities)
        return BP_FAIL(
            BP_ERR_CONFIG, "explain.no_best",
            "a head that mixes softmaxes, or of entmax, gives no whole distributions: at "
            "explain.target = best, or explain.methods = contrast; use explain.target=next and "
            "other methods");
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
    const bp_explain_keys *keys = s->keys;
    char names[BP_EXPLAIN_ARRAYS * EXPLAIN_METHODS] = "";

    for (int k = 0; k < self->count; k++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s,",
                 self->methods[k]->name);
    bp_work_key(self->key,
                "explain 2 %s %s %s %" PRId64 " %" PRId64 " %d %d %s %s %" PRId64 " %" PRId64
                " %" PRId64 " %" PRId64 " %s %d %" PRId64 " %s %s %" PRId64 " %" PRId64 " %" PRId64
                " %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s %s %s %" PRId64 " %" PRId64
                " %" PRId64,
                self->corpus_hash, self->job->info.digest, names, s->most, s->batch,
                (int)self->target, self->texts.outcome, self->masks_hash,
                s->separators ? s->separators : "-", bp_explain_keys_of(self->job->config)->places,
                s->steps, s->baseline, s->lead, bp_math_keys_of(self->job->config)->precision,
                self->job->mesh->tensor_ranks, bp_run_keys_of(self->job->config)->seed,
                s->keys->removal, s->keys->features, s->keys->group, s->keys->samples,
                s->keys->most_words, s->keys->shapley, s->keys->flips, s->keys->edits,
                s->keys->beam, s->keys->examples, s->keys->choose, keys->layers ? keys->layers : "",
                keys->words ? keys->words : "", keys->factors, keys->keys, keys->neighbours);
}

/* The model, or a member of the ensemble; NULL: not on this rank. */
static bp_model *model_of(const explainer *self, int64_t member)
{
    bp_model *lm = self->job->lm;

    return lm && self->members > 0 ? bp_ensemble_member_model(lm, member) : lm;
}

/* Only readers know it. */
static bp_err find_facts(explainer *self)
{
    const bp_corpus *corpus = self->texts.corpus;
    bp_err err;

    memcpy(self->corpus_hash, bp_corpus_hash(corpus), BP_SHA256_HEX);
    memcpy(self->roles, bp_corpus_roles(corpus), sizeof self->roles);
    self->settings.lead = self->texts.plan.rule.lead;
    self->settings.eod = bp_corpus_eod(corpus);
    if (self->job->mesh->coordinates && self->texts.cut > 0)
        BP_WARN("explain.cut_documents",
                "%" PRId64 " of %" PRId64 " documents have more than the %" PRId64
                " inputs that are read, and only their beginning is explained: at explain.corpus; "
                "cut them before, or use another explain.context",
                self->texts.cut, self->texts.documents, self->texts.wish.most);
    err = find_baseline(self);
    if (err == BP_OK && self->job->mesh->coordinates)
        err = explain_find_chosen(self);
    return err == BP_OK ? explain_setup_load(self) : err;
}

/* Of explain.texts, on all ranks; NULL: there is a corpus. */
static bp_err open_tokenizer(const explainer *self, bp_tokenizer **out)
{
    const bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    bp_err err = keys->texts ? bp_model_tokenizer_open(out, job->config, keys->model, &job->info,
                                                       job->mesh->world)
                             : BP_OK;

    if (err == BP_OK && keys->texts && !*out)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.no_tokenizer",
                      "explain.texts needs a tokenizer, and the model brings none: at "
                      "tokenizer.path; set it");
    return bp_agree(job->mesh->world, err);
}

static bp_err load(explainer *self, bool reads)
{
    bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    bp_tokenizer *tokenizer = NULL;
    bp_err err = open_tokenizer(self, &tokenizer);

    if (err != BP_OK) {
        bp_tokenizer_free(&tokenizer);
        return err;
    }
    const explain_wish wish = {.corpus = keys->corpus,
                               .texts = keys->texts,
                               .tokenizer = tokenizer,
                               .model = keys->model,
                               .info = &job->info,
                               .most = self->settings.most,
                               .target = self->target,
                               .outcome = keys->target,
                               .masks = keys->masks,
                               .places = keys->places};
    int64_t shared[3];

    err = explain_texts_open(&self->texts, &wish, job->mesh, reads);
    bp_tokenizer_free(&tokenizer);

    if (err == BP_OK)
        err = bp_agree(job->mesh->world, reads ? find_facts(self) : BP_OK);
    bp_bcast_bytes(self->corpus_hash, BP_SHA256_HEX, 0, job->mesh->world);
    bp_bcast_bytes(self->roles, sizeof self->roles, 0, job->mesh->world);
    memcpy(shared, (int64_t[]){self->settings.lead, self->settings.baseline, self->settings.eod},
           sizeof shared);
    bp_bcast_bytes(shared, sizeof shared, 0, job->mesh->world);
    self->settings.lead = shared[0];
    self->settings.baseline = shared[1];
    self->settings.eod = shared[2];
    return err;
}

static bp_err check(explainer *self)
{
    const bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    const bp_model_info *info = self->settings.info;
    int64_t bytes;
    bp_err err = job->lm ? find_target(self, info) : BP_OK;

    self->prefers = self->target == EXPLAIN_BEST || self->target == EXPLAIN_HIDDEN ||
                    bp_explain_position(keys->methods, &bp_explain_contrast);
    if (err == BP_OK && keys->context > info->context)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.context_too_long",
                      "explain.context = %" PRId64 " is more than the model's %" PRId64
                      ": at explain.context; use %" PRId64 " or less",
                      keys->context, info->context, info->context);
    if (err == BP_OK && (info->masks || bp_task_has_head(&info->task)) && keys->context > 0 &&
        keys->context < BP_TASK_CONTEXT)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.context_too_short",
                      "explain.context = %" PRId64 " has no place for a text between the model's "
                      "special tokens: at explain.context; use %d or more",
                      keys->context, BP_TASK_CONTEXT);
    if (err == BP_OK && keys->masks && !info->masks)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.unused_masks",
                      "explain.masks is of masked models, which explain.model is not: at "
                      "explain.masks; leave it out");
    if (err == BP_OK && keys->masks)
        err = bp_sha256_of_file(keys->masks, self->masks_hash, &bytes);
    if (err == BP_OK && job->lm && strcmp(keys->choose, "hardest") == 0 &&
        (info->masks || bp_task_has_head(&info->task)))
        err = BP_FAIL(BP_ERR_CONFIG, "explain.no_hardest",
                      "explain.choose = hardest is of models that write texts, which explain.model "
                      "is not: at explain.choose; use first or random");
    return err == BP_OK && job->lm ? check_methods(self) : err;
}

/* The model's kind, for a dedicated coordinator too. */
static void share_kind(explainer *self)
{
    bp_work_job *job = self->job;

    self->kind = job->lm ? bp_strdup(job->lm->info.kind) : NULL;
    bp_bcast_text(&self->kind, job->mesh->dedicated ? 1 : 0, job->mesh->world);
    job->info.kind = self->kind;
}

static bp_err open(void *context)
{
    explainer *self = context;
    bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    int64_t most = most_places(job->config, job->info.context), target;
    bp_err err;

    share_kind(self);

    self->members = job->ensemble ? job->info.members : 0;
    self->settings =
        (bp_explain_settings){.info = model_of(self, 0) ? &model_of(self, 0)->info : &job->info,
                              .group = job->mesh->model,
                              .job = job,
                              .counts = job->mesh->tensor_rank == 0,
                              .last = job->mesh->pipeline_rank == job->mesh->pipeline_ranks - 1,
                              .most = most,
                              .batch = batch_places(most),
                              .steps = keys->steps,
                              .baseline = -1,
                              .roles = self->roles,
                              .lead = -1,
                              .eod = -1,
                              .separators = keys->separators};
    explain_setup(self);
    err = check(self);
    if (err == BP_OK)
        err = explain_find_layers(self);
    if (err == BP_OK && self->members > 0 && job->mesh->coordinates)
        err = bp_ensemble_list_load(&self->list, keys->model);
    err = bp_agree(job->mesh->world, err);
    target = bp_all_max_int(job->lm ? (int64_t)self->target : 0, job->mesh->world);
    self->target = (explain_target)target;
    if (err == BP_OK)
        err = load(self, job->leads || job->mesh->coordinates);
    explain_setup_share(self);
    self->settings.best =
        self->texts.wish.target == EXPLAIN_BEST && !bp_task_kind_of(&job->info.task)->is_value;
    make_key(self);
    self->examples.weights = bp_explain_position(keys->methods, &bp_explain_attention) != NULL;
    return err;
}

static void close(void *context)
{
    explainer *self = context;

    bp_free(self->kind);
    explain_clear_chosen(self);
    bp_free(self->chosen_layers);
    bp_buffer_clear(&self->shares);
    explain_texts_clear(&self->texts);
    explain_examples_clear(&self->examples);
    bp_ensemble_list_clear(&self->list);
    explain_words_clear(&self->words);
    json_decref(self->summary);
}

static void identify(const void *context, bp_run_identity *out)
{
    const explainer *self = context;

    *out = (bp_run_identity){bp_explain_keys_of(self->job->config)->texts ? "explain.texts"
                                                                          : "explain.corpus",
                             self->corpus_hash};
}

/* ---- a unit ---- */

/* The most floats of a document's results. */
static int64_t most_floats(const explainer *self)
{
    const explain_sizes *largest = &self->texts.largest;
    const bp_explained document = {.K = largest->K, .T = largest->T, .S = largest->S};
    const bp_explain_form form = explain_form(self, &document);

    return explain_unit_floats(self, &form, true);
}

static bp_err prepare(void *context)
{
    explainer *self = context;
    int64_t floats = most_floats(self),
            columns = bp_model_columns(self->settings.info, self->settings.most);
    bp_err err = self->job->leads && self->job->run ? explain_choose(self) : BP_OK;

    explain_reading_new(&self->read, &self->texts);
    if (self->prefers)
        self->log_p = bp_try_alloc("explain", LOG_P_PLACES * columns, sizeof *self->log_p);
    self->results = bp_try_alloc("explain", floats, sizeof *self->results);
    if (!self->results || (!self->log_p && self->prefers))
        return bp_fail_memory("results", floats, sizeof *self->results);
    return err == BP_OK ? explain_prepare_memories(self) : err;
}

static void release(void *context)
{
    explainer *self = context;

    bp_triggers_clear(&self->running);
    bp_free(self->results);
    bp_free(self->log_p);
    explain_reading_clear(&self->read);
}

/* The outcome with the highest probability, of equal ones the first; but for `other`. */
static int32_t find_first(const float *row, int64_t count, int32_t other)
{
    int32_t best = other == 0 && count > 1 ? 1 : 0;

    for (int64_t v = best; v < count; v++)
        if (v != other && row[v] > row[best])
            best = (int32_t)v;
    return best;
}

/* The target that the model prefers, and foils: of a text's class all others; else the model's
 * first choice, or its second where the target is the first. */
static void choose(explainer *self, int64_t k, const float *row, int64_t columns)
{
    explain_reading *read = &self->read;
    int64_t foils = bp_explain_foils(self->settings.info);
    int32_t first = find_first(row, columns, -1);

    if (self->settings.best)
        read->targets[k] = first;
    for (int32_t j = 0; j < foils; j++)
        read->foils[k * foils + j] = foils > 1                   ? j + (j >= read->targets[k])
                                     : read->targets[k] != first ? first
                                                                 : find_first(row, columns, first);
}

/* Choices for targets [first, first + count), whose places rise. */
static bp_err choose_some(explainer *self, int64_t first, int64_t count)
{
    const bp_explained *document = &self->read.document;
    bp_explain_batch batch;
    int64_t length = bp_explain_length(&self->settings, document, first + count - 1),
            columns = bp_model_columns(self->settings.info, length), row = -1;
    bp_err err = bp_agree(self->settings.group, bp_explain_batch_new(&batch, &self->settings));

    if (err == BP_OK) {
        bp_explain_batch_set(&batch, document, 0, first, length);
        for (int64_t k = first; k < first + count; k++)
            batch.targets[document->places[k]] = 0;
        err = bp_model_distribution(self->job->lm, &batch.batch, self->log_p, NULL);
    }
    for (int64_t k = first; k < first + count && err == BP_OK; k++) {
        row += k == first || document->places[k] != document->places[k - 1];
        choose(self, k, self->log_p + row * columns, columns);
    }
    bp_explain_batch_free(&batch);
    return err;
}

static bp_err find_choices(explainer *self)
{
    const bp_explained *document = &self->read.document;
    int64_t K = document->K, together = document->hides >= 0 ? 1 : LOG_P_PLACES;
    bp_err err = BP_OK;

    for (int64_t first = 0, count; first < K && err == BP_OK; first += count) {
        count = K - first < together ? K - first : together;
        err = bp_explain_step(&self->settings);
        if (err == BP_OK)
            err = choose_some(self, first, count);
    }
    return err;
}

/* What all methods have of the document by one model: at[floats]. */
static bp_err run_methods(explainer *self, bp_model *lm, float *at)
{
    const bp_explain_form form = explain_form(self, &self->read.document);
    bp_explain_settings settings = self->settings;
    bp_err err = BP_OK;

    settings.info = &lm->info;
    for (int k = 0; k < self->count && err == BP_OK; k++) {
        if (self->methods[k]->run) {
            err = self->methods[k]->run(lm, &settings, &self->read.document, at);
            explain_setup_rank(self, self->methods[k], &form, at);
        }
        at += bp_explain_floats(self->methods[k], &form);
    }
    return err;
}

/* The mean of the members' results, which follow it. */
static void average(float *mean, int64_t members, int64_t floats)
{
    for (int64_t i = 0; i < floats; i++) {
        double sum = 0;

        for (int64_t m = 1; m <= members; m++)
            sum += (double)mean[m * floats + i];
        mean[i] = (float)(sum / (double)members);
    }
}

/* The document at hand, which the lead has read, by its group. */
static bp_err explain_document(explainer *self, bool example)
{
    bp_err err = BP_OK;
    bp_explain_form form;
    int64_t floats;

    explain_share_document(self, &example);
    form = explain_form(self, &self->read.document);
    floats = explain_floats(self, &form);
    if (self->read.document.K == 0)
        return BP_OK;
    memset(self->results, 0,
           (size_t)explain_unit_floats(self, &form, example) * sizeof *self->results);
    if (self->prefers && !bp_task_kind_of(&self->settings.info->task)->is_value)
        err = find_choices(self);
    if (err == BP_OK && self->members == 0)
        err = run_methods(self, self->job->lm, self->results);
    for (int64_t m = 0; m < self->members && err == BP_OK; m++)
        err = run_methods(self, model_of(self, m), self->results + (1 + m) * floats);
    if (err == BP_OK && self->members > 0)
        average(self->results, self->members, floats);
    if (err == BP_OK && example && self->examples.weights)
        err = explain_weights_of(self->results + (1 + self->members) * floats, model_of(self, 0),
                                 &self->settings, &self->read.document);
    return err == BP_OK ? explain_collect(self, &self->read.document) : err;
}

static bp_err run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    explainer *self = context;
    const bp_explained *document = &self->read.document;
    bool example = explain_examples_find(&self->examples, unit) >= 0;
    bp_err err = BP_OK, given;

    self->read.document = (bp_explained){0};
    self->settings.unit = unit;
    if (self->job->leads) {
        err = explain_texts_read(&self->texts, unit, &self->read);
        if (err != BP_OK)
            self->read.document = (bp_explained){0};
        self->read.document.number = unit;
        bp_work_ask_next(self->job);
    }
    given = explain_document(self, example);
    if (given == BP_ERR_STOPPED) {
        *stopped = true;
        return err;
    }
    if (err == BP_OK && given == BP_OK && self->job->leads && document->K > 0) {
        const bp_explain_form form = explain_form(self, document);

        bp_buffer_add(out, document->targets, (size_t)document->K * sizeof *document->targets);
        bp_buffer_add(out, self->results,
                      (size_t)explain_unit_floats(self, &form, example) * sizeof(float));
        if (self->shares.bytes > 0)
            bp_buffer_add(out, self->shares.data, self->shares.bytes);
    }
    return err == BP_OK ? given : err;
}

static int64_t count_targets(const void *context, int64_t unit)
{
    return ((const explainer *)context)->texts.sizes[unit].K;
}

static bp_err open_job(void *context)
{
    explainer *self = context;
    bp_err err = open(self);

    self->job->units = (bp_work_units){.key = self->key,
                                       .count = self->texts.documents,
                                       .mesh_keys = "mesh.tensor",
                                       .amount = (double)self->texts.targets,
                                       .noun = "tokens",
                                       .speed = "tokens/s",
                                       .speed_digits = 1,
                                       .prepare = prepare,
                                       .run = run_unit,
                                       .amount_of = count_targets,
                                       .release = release,
                                       .merge = explain_merge};
    explain_choice_units(self);
    return err;
}

/* How hard documents are, if examples are chosen so, comes before; --plan measures what follows. */
static const bp_work_units *units_at(void *context, int index)
{
    explainer *self = context;

    if (self->choice.run && self->job->run && index-- == 0)
        return &self->choice;
    return explain_units(self, index);
}

/* ---- what is said ---- */

/* Of methods of the whole corpus: what their parts and the last step take. */
static void say_sizes(const explainer *self)
{
    const bp_explain_settings *settings = &self->settings;
    int64_t most = 0;
    bool states = false;

    for (int k = 0; k < self->count; k++) {
        const bp_explain_method *method = self->methods[k];
        int64_t own = method->merge_bytes ? method->merge_bytes(settings, self->texts.targets) : 0;

        most = own > most ? own : most;
        states = states || method->collect == bp_explain_collect_states;
    }
    if (states)
        bp_log("states of %" PRId64 " layers take %s in the run's folder until they are put "
               "together; explain.layers chooses fewer",
               settings->layer_count,
               bp_size_text((double)(self->texts.targets * settings->layer_count *
                                     settings->info->layer_width) *
                            sizeof(float))
                   .text);
    if (most > 0)
        bp_log("putting results together takes one rank about %s of memory",
               bp_size_text((double)most).text);
}

static void say(const void *context)
{
    const explainer *self = context;

    bp_log("explaining %" PRId64 " predictions in %" PRId64 " documents by %s", self->texts.targets,
           self->texts.documents, bp_explain_keys_of(self->job->config)->methods);
    say_sizes(self);
}

static json_t *started(const void *context)
{
    const explainer *self = context;

    return json_pack("{sI sI}", "documents", (json_int_t)self->texts.documents, "targets",
                     (json_int_t)self->texts.targets);
}

static void report(const void *context)
{
    const explainer *self = context;
    const json_t *integrated =
        json_object_get(json_object_get(self->summary, "methods"), bp_explain_integrated.name);
    int64_t flagged = json_integer_value(json_object_get(integrated, "flagged"));

    explain_setup_report(self);
    if (flagged > 0)
        BP_WARN("explain.incomplete",
                "the integrated gradients of %" PRId64 " of %" PRId64
                " targets miss what the baseline changes by more than 1 %%: at explain.steps = "
                "%" PRId64 "; use more, or another explain.baseline",
                flagged, self->texts.targets, self->settings.steps);
}

/* ---- the table ---- */

static bool writes(const void *context, const char *file)
{
    const explainer *self = context;

    for (int k = 0; k < self->count; k++)
        if (strncmp(file, self->methods[k]->name, strcspn(file, ".")) == 0 &&
            strlen(self->methods[k]->name) == strcspn(file, "."))
            return true;
    if (strcmp(file, EXPLAIN_EXAMPLES_FILE) == 0)
        return self->examples.weights;
    return strcmp(file, "summary.json") == 0 || strcmp(file, "index.html") == 0;
}

const bp_work bp_explain = {.name = "explain",
                            .self_bytes = sizeof(explainer),
                            .model_key = "explain.model",
                            .results = "explanations",
                            .files = bp_explain_files,
                            .writes = writes,
                            .page = "explain",
                            .describe = describe,
                            .open_model = open_model,
                            .open = open_job,
                            .identify = identify,
                            .say = say,
                            .started = started,
                            .units = units_at,
                            .report = report,
                            .close = close};
