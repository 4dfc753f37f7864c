/* The job of explanations (job/work.h runs it): a unit is a document, its part has the results of
 * each method, one after another. */
#include "explain/explain.h"
#include "explain/nearest/nearest.h"
#include "explain/pages/pages.h"

#include "explain/start/start.h"

#include "base/log.h"
#include "base/mem.h"
#include "infer/ensemble/ensemble.h"
#include "models/open.h"

#include <inttypes.h>
#include <string.h>

/* ---- before there is a mesh ---- */

static bp_err describe(void *context, MPI_Comm world, bp_work_memory *out)
{
    explainer *self = context;

    (void)world;
    explain_find_methods(self);
    out->model = bp_explain_keys_of(self->job->config)->model;
    out->remedy = "use a smaller explain.context, or a smaller model";
    out->rank = explain_estimate_rank;
    out->context = self;
    return BP_OK;
}

/* ---- the model ---- */

static bp_err open_model(void *context, bp_model **out)
{
    const explainer *self = context;
    const bp_config *config = self->job->config;
    const char *path = bp_explain_keys_of(config)->model;

    if (self->job->ensemble) {
        const bp_ensemble_spec spec = {.path = path,
                                       .context = bp_explain_keys_of(config)->context,
                                       .memory_bytes = EXPLAIN_ENSEMBLE_BYTES,
                                       .differentiates = explain_goes_backward(self)};
        bp_err err = explain_check_ensemble(self);

        return err == BP_OK ? bp_ensemble_open(out, self->job->mesh, config, &spec) : err;
    }
    return (explain_goes_backward(self) ? bp_model_open_differentiable : bp_model_open_wide)(
        out, self->job->mesh, config, path, bp_explain_keys_of(config)->context);
}

/* The model's kind, for a dedicated coordinator too. */
static void share_kind(explainer *self)
{
    bp_work_job *job = self->job;

    self->kind = job->model ? bp_strdup(job->model->info.kind) : NULL;
    bp_bcast_text(&self->kind, job->mesh->dedicated ? 1 : 0, job->mesh->world);
    job->info.kind = self->kind;
}

static bp_err open(void *context)
{
    explainer *self = context;
    bp_work_job *job = self->job;
    const bp_explain_keys *keys = bp_explain_keys_of(job->config);
    int64_t most = explain_most_positions(job->config, job->info.context), target;
    bp_err err;

    share_kind(self);

    self->members = job->ensemble ? job->info.members : 0;
    self->settings = (bp_explain_settings){
        .info = explain_model_of(self, 0) ? &explain_model_of(self, 0)->info : &job->info,
        .group = job->mesh->model,
        .job = job,
        .counts = job->mesh->tensor_rank == 0,
        .last = job->mesh->pipeline_rank == job->mesh->pipeline_ranks - 1,
        .most = most,
        .batch = explain_batch_positions(most),
        .steps = keys->steps,
        .baseline = -1,
        .roles = self->roles,
        .lead = -1,
        .eod = -1,
        .broken = &self->broken,
        .separators = keys->separators};
    explain_setup(self);
    err = explain_check(self);
    if (err == BP_OK)
        err = explain_find_layers(self);
    if (err == BP_OK && self->members > 0 && job->mesh->coordinates)
        err = bp_ensemble_list_load(&self->list, keys->model);
    err = bp_agree(job->mesh->world, err);
    target = bp_all_max_int(job->model ? (int64_t)self->target : 0, job->mesh->world);
    self->target = (explain_target)target;
    if (err == BP_OK)
        err = explain_load(self, job->leads || job->mesh->coordinates);
    if (err == BP_OK)
        err = explain_open_datastore(self);
    explain_setup_share(self);
    self->settings.best =
        self->texts.wish.target == EXPLAIN_BEST && !bp_task_kind_of(&job->info.task)->is_value;
    explain_make_key(self);
    self->examples.weights = bp_explain_position(keys->methods, &bp_explain_attention) != NULL;
    return err;
}

static void close(void *context)
{
    explainer *self = context;

    explain_nearest_close(&self->settings.nearest);
    bp_free(self->kind);
    bp_free(self->missing);
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
                                       .prepare = explain_prepare,
                                       .run = explain_run_unit,
                                       .amount_of = explain_count_targets,
                                       .release = explain_release,
                                       .merge = explain_merge};
    explain_choice_units(self);
    return err;
}

/* Units of hardness, if examples are chosen by it, come first; --plan measures the others. */
static const bp_work_units *units_at(void *context, int index)
{
    explainer *self = context;

    if (self->choice.run && self->job->run && index-- == 0)
        return &self->choice;
    return explain_units(self, index);
}

/* ---- messages ---- */

/* For methods of the whole corpus: the size of their parts and of the last step. */
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
    if (bp_explain_keys_of(self->job->config)->texts)
        bp_log("each line of explain.texts is a document; explain.corpus explains documents as "
               "they are scored");
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
                            .missing = explain_missing_page,
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
