/* From a configuration to a comparison with compatible models and corpora. All checks possible
 * before any compute are made here. Called by fit.c and job.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/model.h"
#include "text/tokenizer/tokenizer.h"
#include "uncertainty/uncertainty.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bp_err open_mesh(comparison_job *self, bool alone)
{
    static const bp_mesh_shape one = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_err err = BP_OK;

    self->mesh_shape = bp_mesh_shape_of(self->config);
    if (self->mesh_shape.expert > 1)
        return BP_FAIL(BP_ERR_CONFIG, "mesh.expert_trains",
                       "mesh.expert = %d, but a study has all experts on each data rank: at "
                       "mesh.expert; leave it at 1",
                       self->mesh_shape.expert);
    if (alone)
        err = bp_mesh_new(&self->mesh, self->world, &one);
    else
        err = bp_mesh_open(&self->mesh, &self->mesh_shape, self->config, self->world, NULL);
    if (err == BP_OK && !alone)
        bp_math_warn_of_threads(self->mesh->world, self->mesh->computes);
    return err;
}

/* ---- lists ---- */

static void begin_methods(comparison_job *self)
{
    const comparison_results *results = &self->results;

    self->samplers =
        bp_alloc("comparison.samplers", results->methods.count, sizeof *self->samplers);
    self->fitted = bp_alloc("comparison.fitted", results->methods.count, sizeof *self->fitted);
    for (int64_t m = 0; m < results->methods.count; m++)
        self->fitted[m] =
            bp_sprintf("%s/%s/%s.h5", results->folder, results->methods.items[m].way->word,
                       results->methods.items[m].name);
}

static bp_err parse_lists(comparison_job *self)
{
    comparison_results *results = &self->results;
    const bp_config *config = self->config;
    const char *shifted = bp_uncertainty_keys_of(config)->shifted;
    bp_err err =
        comparison_methods_parse(&results->methods, bp_uncertainty_keys_of(config)->models);

    if (err == BP_OK)
        err = comparison_groups_parse(&results->in_domain, "uncertainty.in_domain",
                                      bp_uncertainty_keys_of(config)->in_domain, "in_domain");
    if (err == BP_OK && shifted)
        err = comparison_groups_parse(&results->shifted, "uncertainty.shifted", shifted, NULL);
    results->seed = (uint64_t)bp_run_keys_of(config)->seed;
    results->resamples = bp_uncertainty_keys_of(config)->resamples;
    if (err == BP_OK)
        err = comparison_coverages_parse(&results->coverages,
                                         bp_uncertainty_keys_of(config)->coverages);
    results->scaled = bp_corpus_keys_of(config)->valid != NULL;
    results->folder = bp_path_join(bp_run_keys_of(config)->dir, "uncertainty");
    self->record_path = bp_path_join(results->folder, "record.json");
    comparison_results_init(results); /* not all shifts are known yet */
    if (err == BP_OK)
        begin_methods(self);
    return err;
}

bp_method_case comparison_case(const comparison_job *self, int64_t m)
{
    const comparison_method *method = &self->results.methods.items[m];
    const comparison_metadata *metadata = &self->results.metadata[m];

    return (bp_method_case){.config = self->config,
                            .name = method->name,
                            .path = method->path,
                            .passes = bp_uncertainty_keys_of(self->config)->passes,
                            .fitted = self->fitted[m],
                            .task = &metadata->task,
                            .outcomes = comparison_outcomes(metadata),
                            .width = metadata->width,
                            .trained_on = metadata->corpus_hash,
                            .train_tokens = self->train_tokens,
                            .train_hash = self->train_hash};
}

/* ---- on the coordinator: files ---- */

static bp_err hash_corpus(const char *list, char hash[BP_SHA256_HEX], int64_t *tokens,
                          const comparison_corpora *others)
{
    bp_corpus *corpus = NULL;
    const char *theirs;
    bp_err err;

    if (!list)
        return BP_OK;
    err = bp_corpus_open(&corpus, list);
    if (err == BP_OK) {
        memcpy(hash, bp_corpus_hash(corpus), BP_SHA256_HEX);
        *tokens = bp_corpus_tokens(corpus);
        theirs = bp_corpus_tokenizer_hash(corpus);
        if (theirs[0] && others->tokenizer_hash[0] &&
            !bp_tokenizer_same_hash(theirs, others->tokenizer_hash))
            err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                          "the tokenizer is %.12s..., but that of %s is %.12s...: at %s; make all "
                          "corpora with one tokenizer",
                          theirs, others->paths[0], others->tokenizer_hash, list);
    }
    bp_corpus_close(&corpus);
    return err;
}

/* Are the corpora's token ids those of the method? */
static bp_err check_tokenizer(const comparison_job *self, int64_t m)
{
    const comparison_method *method = &self->results.methods.items[m];
    const comparison_metadata *metadata = &self->results.metadata[m];
    const comparison_corpora *corpora = &self->corpora;

    if (metadata->tokenizer_hash[0] && corpora->tokenizer_hash[0] &&
        !bp_tokenizer_same_hash(metadata->tokenizer_hash, corpora->tokenizer_hash))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "the tokenizer of method %s (%.12s...) is not that of the corpora "
                       "(%.12s...): at %s and %s",
                       method->name, metadata->tokenizer_hash, corpora->tokenizer_hash,
                       method->path, corpora->paths[0]);
    if (metadata->vocab_size > 0 && metadata->vocab_size < corpora->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "method %s has vocab_size %" PRId64 ", the corpora %" PRId64
                       ": at %s and %s; make the corpora with the model's tokenizer",
                       method->name, metadata->vocab_size, corpora->vocab_size, method->path,
                       corpora->paths[0]);
    return BP_OK;
}

static bp_err check_same_vocabulary(const comparison_job *self, int64_t m)
{
    const comparison_method *methods = self->results.methods.items;
    const comparison_metadata *first = &self->results.metadata[0],
                              *metadata = &self->results.metadata[m];

    if (first->vocab_size > 0 && metadata->vocab_size > 0 &&
        first->vocab_size != metadata->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "methods %s and %s have vocab_size %" PRId64 " and %" PRId64
                       ": at %s and %s; only models of one tokenizer can be compared",
                       methods[0].name, methods[m].name, first->vocab_size, metadata->vocab_size,
                       methods[0].path, methods[m].path);
    if (bp_task_kind_of(&metadata->task)->is_value && !self->results.scaled)
        return BP_FAIL(BP_ERR_CONFIG, "comparison.no_noise",
                       "method %s predicts values, whose noise has to be fitted, and there is no "
                       "corpus.valid to fit it on: at %s; give corpus.valid",
                       methods[m].name, methods[m].path);
    if (!comparison_same_task(first, metadata))
        return BP_FAIL(BP_ERR_FORMAT, "comparison.unlike_tasks",
                       "methods %s and %s have different tasks or classes, %s and %s: at %s and "
                       "%s; compare models of one task",
                       methods[0].name, methods[m].name, bp_task_name(first->task.kind),
                       bp_task_name(metadata->task.kind), methods[0].path, methods[m].path);
    bp_method_case at = comparison_case(self, m);
    return methods[m].way->suits ? methods[m].way->suits(&at) : BP_OK;
}

/* A score run with this name would be overwritten, and later count as finished. */
static bp_err look_at_predictions(comparison_job *self, int64_t m)
{
    const comparison_results *results = &self->results;
    const comparison_method *method = &results->methods.items[m];

    if (comparison_has_score_run(self, m))
        return BP_FAIL(BP_ERR_CONFIG, "predictions.name_taken",
                       "a model was scored as method %s before, and now it is predictions: at "
                       "uncertainty.models; rename the method",
                       method->name);
    int64_t model = comparison_first_model(&results->methods);
    return comparison_read_predictions(&results->metadata[m], method, &results->metadata[model],
                                       results->methods.items[model].path);
}

static bp_err look_at_files(comparison_job *self)
{
    comparison_results *results = &self->results;
    const bp_config *config = self->config;
    bp_buffer models = {0};
    int64_t tokens;
    bp_err err = BP_OK;

    for (int64_t m = 0; err == BP_OK && m < results->methods.count; m++)
        if (!comparison_is_predictions(&results->methods.items[m]))
            err = comparison_read_metadata(&results->metadata[m], &results->methods.items[m]);
    for (int64_t m = 0; err == BP_OK && m < results->methods.count; m++)
        if (comparison_is_predictions(&results->methods.items[m]))
            err = look_at_predictions(self, m);
    for (int64_t m = 1; err == BP_OK && m < results->methods.count; m++)
        err = check_same_vocabulary(self, m);
    if (err == BP_OK)
        err = check_same_vocabulary(self, 0);
    if (err == BP_OK)
        err = comparison_corpora_open(&self->corpora, &results->in_domain, &results->shifted);
    results->cluster_label = bp_uncertainty_keys_of(config)->cluster;
    if (err == BP_OK && results->cluster_label)
        err = comparison_corpora_cluster(&results->cluster, &self->corpora,
                                         &results->in_domain.items[0], results->cluster_label);
    for (int64_t m = 0; err == BP_OK && m < results->methods.count; m++)
        err = check_tokenizer(self, m);
    if (err == BP_OK) {
        memcpy(self->corpora_hash, self->corpora.hash, BP_SHA256_HEX);
        err = hash_corpus(bp_corpus_keys_of(config)->valid, self->valid_hash, &tokens,
                          &self->corpora);
    }
    if (err == BP_OK)
        err = comparison_job_check_calibration(self);
    if (err == BP_OK)
        err = hash_corpus(bp_corpus_keys_of(config)->train, self->train_hash, &self->train_tokens,
                          &self->corpora);
    if (err != BP_OK)
        return err;
    for (int64_t m = 0; m < results->methods.count;
         m++) /* different weights have different manifests */
        bp_buffer_printf(&models, "%s %s %s\n", results->methods.items[m].name,
                         results->methods.items[m].way->word, results->metadata[m].digest);
    bp_sha256_of(models.data, models.bytes, self->models_hash);
    bp_buffer_clear(&models);
    return err;
}

/* Warn about settings that show little and are not refused. */
static void warn_of_methods(const comparison_job *self)
{
    for (int64_t m = 0; m < self->results.methods.count; m++) {
        const bp_uncertainty_method *way = self->results.methods.items[m].way;
        bp_method_case at = comparison_case(self, m);

        if (way->warn)
            way->warn(&at);
    }
}

/* ---- data on all ranks ---- */

static void share(comparison_job *self)
{
    comparison_results *results = &self->results;

    bp_bcast_text(&self->corpora.list, 0, self->world);
    bp_bcast_bytes(results->metadata, results->methods.count * (int64_t)sizeof *results->metadata,
                   0, self->world);
    bp_bcast_bytes(self->corpora_hash, BP_SHA256_HEX, 0, self->world);
    bp_bcast_bytes(self->valid_hash, BP_SHA256_HEX, 0, self->world);
    bp_bcast_bytes(self->train_hash, BP_SHA256_HEX, 0, self->world);
    results->task = bp_task_kind_of(&results->metadata[0].task);
    results->classes = bp_task_has_head(&results->metadata[0].task);
    for (int64_t m = 0; m < results->methods.count; m++) {
        const bp_uncertainty_method *way = results->methods.items[m].way;
        bp_method_case at = comparison_case(self, m);

        self->samplers[m] = way->sampler ? way->sampler(&at) : NULL;
        results->members[m] =
            self->samplers[m] ? self->samplers[m]->count : results->metadata[m].members;
    }
}

/* All methods see the same windows: those of the smallest context, if none was requested. A
 * classifier sees as much of a text as fits in its own context. */
static bp_err resolve_context(comparison_job *self)
{
    int64_t context = 0;

    for (int64_t m = 0; m < self->results.methods.count; m++) {
        int64_t one = self->results.metadata[m].context;

        if (one > 0 && (context == 0 || one < context))
            context = one;
    }
    if (self->results.classes || context == 0 || context == BP_MODEL_UNLIMITED ||
        bp_config_is_set(self->config, "score.context"))
        return BP_OK;
    return bp_config_set_int(self->config, "score.context", context);
}

bp_err comparison_job_open(comparison_job *self, MPI_Comm world, bp_config *config,
                           const bp_option *const *score_tables, bool alone)
{
    bp_err err;

    *self = (comparison_job){.world = world, .config = config, .score_tables = score_tables};
    bp_math_set_threads(bp_math_threads_for(world, (int)bp_math_keys_of(config)->threads));
    err = bp_agree(world, open_mesh(self, alone));
    if (err == BP_OK)
        err = bp_agree(world, parse_lists(self));
    if (err == BP_OK)
        err = bp_agree(world, self->mesh->coordinates ? look_at_files(self) : BP_OK);
    if (err == BP_OK)
        share(self);
    if (err == BP_OK)
        err = bp_agree(world, resolve_context(self));
    if (err == BP_OK && self->mesh->coordinates) {
        warn_of_methods(self);
        comparison_job_warn_of_texts(self);
    }
    return err;
}

void comparison_job_close(comparison_job *self)
{
    for (int64_t m = 0; self->samplers && m < self->results.methods.count; m++)
        if (self->samplers[m])
            self->samplers[m]->ops->free(self->samplers[m]);
    for (int64_t m = 0; self->fitted && m < self->results.methods.count; m++)
        bp_free(self->fitted[m]);
    bp_free(self->samplers);
    bp_free(self->fitted);
    json_decref(self->record);
    bp_free(self->record_path);
    comparison_corpora_clear(&self->corpora);
    comparison_results_clear(&self->results);
    bp_mesh_free(&self->mesh);
}
