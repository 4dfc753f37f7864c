/* The computations of each method, in order: its fit if it has one, sets, temperature, the scores.
 * Each result is kept, so that the next start resumes after it. Called by job.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "data/corpus.h"
#include "infer/score/score.h"
#include "io/h5/h5.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- a score run within this one ---- */

bp_err comparison_job_set_mesh(const comparison_job *self, int64_t members, bp_config *config)
{
    const bp_mesh_shape *shape = &self->mesh_shape;
    bool dedicated = shape->coordinator == BP_COORDINATOR_DEDICATED;
    bool fits = members >= shape->members;
    bp_err err = bp_config_set_int(config, "mesh.members", fits ? shape->members : 1);

    if (err == BP_OK && shape->data > 0)
        err = bp_config_set_int(config, "mesh.data",
                                fits ? shape->data : shape->data * shape->members);
    if (err == BP_OK && shape->coordinator != BP_COORDINATOR_AUTO)
        err = bp_config_set(config, "mesh.coordinator", dedicated ? "dedicated" : "shared");
    return err;
}

bp_err comparison_job_derive(const comparison_job *self, int64_t method, bp_config **out)
{
    const comparison_method *item = &self->results.methods.items[method];
    char *folder = bp_sprintf("%s/scores/%s", self->results.folder, item->name);
    bp_err err = bp_config_derive(out, self->config, self->score_tables, self->score_tables);

    if (err == BP_OK)
        err = bp_config_set(*out, "run.dir", folder);
    if (err == BP_OK)
        err = bp_config_set(*out, "score.model", item->path);
    if (err == BP_OK)
        err = bp_config_set(*out, "score.corpus", self->corpora.list);
    if (err == BP_OK)
        err = bp_config_set(*out, "score.tokens", "yes");
    if (err == BP_OK)
        err = comparison_job_set_mesh(self, self->results.members[method], *out);
    bp_free(folder);
    return err;
}

static bp_ensemble_spec spec_of(const comparison_job *self, int64_t m)
{
    return (bp_ensemble_spec){.path = self->results.methods.items[m].path,
                              .sampler = self->samplers[m],
                              .memory_bytes = (size_t)bp_score_rule_keys_of(self->config)->memory};
}

/* Was the score run of a method finished by an earlier start? On the coordinator. */
static bool is_scored(const comparison_job *self, int64_t m)
{
    char *path = bp_sprintf("%s/scores/%s/run.json", self->results.folder,
                            self->results.methods.items[m].name);
    json_t *record = NULL;
    const char *state = NULL;
    bool scored;

    if (bp_path_exists(path) && bp_json_load_plain(&record, path, (int64_t)1 << 24) == BP_OK)
        state = json_string_value(json_object_get(json_object_get(record, "exit"), "state"));
    scored = state && strcmp(state, "finished") == 0;
    json_decref(record);
    bp_free(path);
    return scored;
}

#define VERSION 1 /* of score-outcomes and score-tokens */

/* Do the scores of a method, finished by an earlier start, have this column? On the coordinator. */
static bool scores_have(const comparison_job *self, int64_t m, const char *column)
{
    bool classes = self->results.classes, has = false;
    char *path =
        bp_sprintf("%s/scores/%s/score/%s", self->results.folder,
                   self->results.methods.items[m].name, classes ? "outcomes.h5" : "tokens.h5");
    bp_h5 *file = NULL;

    if (bp_path_exists(path) &&
        bp_h5_open_kind(&file, path, classes ? "score-outcomes" : "score-tokens", VERSION) == BP_OK)
        has = bp_h5_has(file, column);
    (void)bp_h5_close(&file); /* opened for reading only */
    bp_free(path);
    return has;
}

/* ---- costs, on the coordinator ---- */

/* A pending failure is kept while the record is written. */
static bp_err keep_costs(const comparison_job *self, bp_err err, int64_t m, double seconds,
                         int64_t bytes)
{
    json_t *entry = comparison_record_of(self, m);
    double before = bp_json_number(entry, "memory_mib"), now = (double)bytes / 1048576;
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    (void)json_object_set_new(entry, "memory_mib",
                              json_real(isnan(before) ? now : fmax(before, now)));
    bp_err kept = comparison_record_add(self, m, "score_seconds", seconds);
    if (err != BP_OK)
        bp_err_set_message(message);
    return err != BP_OK ? err : kept;
}

/* ---- steps ---- */

static bp_err score(comparison_job *self, int64_t m, bp_config *config,
                    const bp_ensemble_spec *spec)
{
    bool before = self->mesh->coordinates && is_scored(self, m);
    double began = bp_clock_now();
    bp_log_channel channel;
    int64_t bytes;
    bp_err err;

    bp_mem_resident_peak_reset();
    bp_log_set_member(self->results.methods.items[m].name, self->mesh->coordinates);
    channel = bp_log_use(BP_LOG_MEMBER); /* the lines of a method go to its own log */
    err = bp_score_as(self->world, config, spec);
    (void)bp_log_use(channel);
    bytes = bp_all_max_int((int64_t)bp_mem_resident_peak_bytes(), self->world);
    if (self->mesh->coordinates && !before && (err == BP_OK || err == BP_ERR_STOPPED))
        err = keep_costs(self, err, m, bp_clock_now() - began, bytes);
    return bp_agree(self->world, err);
}

/* ---- conformal sets: before the scores, which count them ---- */

static bp_err fit_sets(comparison_job *self, int64_t m, bp_config *config,
                       const bp_ensemble_spec *spec, comparison_set_fit *fit)
{
    bp_mesh_shape shape = bp_mesh_shape_of(config);
    bp_mesh *mesh = NULL;
    bp_err err = bp_agree(self->world, bp_mesh_shape_fit(&shape, bp_comm_size(self->world)));

    if (self->mesh->coordinates)
        bp_log("%s: calibrating its conformal sets on corpus.valid",
               self->results.methods.items[m].name);
    if (err == BP_OK)
        err = bp_mesh_new(&mesh, self->world, &shape);
    if (err == BP_OK)
        err = bp_agree(self->world, !mesh->computes
                                        ? BP_OK
                                        : comparison_job_fit_sets(self, mesh, config, spec, fit));
    if (err == BP_OK) {
        bp_bcast_bytes(fit, sizeof(*fit), mesh->dedicated ? 1 : 0, self->world);
        err = bp_agree(self->world,
                       mesh->coordinates ? comparison_job_keep_sets(self, m, fit) : BP_OK);
    }
    bp_mesh_free(&mesh);
    return err;
}

/* The method's sets, from the record or fitted now, also for scores that have them while the record
 * was lost. A finished or begun score run of an older program has none: fit->predictions is 0. */
static bp_err find_sets(comparison_job *self, int64_t m, bp_config *config,
                        const bp_ensemble_spec *spec, comparison_set_fit *fit)
{
    int64_t known = 0; /* 1: kept; 2: none required */

    *fit = (comparison_set_fit){.predictions = 0};
    if (!comparison_job_wants_sets(self))
        return BP_OK;
    if (self->mesh->coordinates)
        known = comparison_job_recall_sets(self, m, fit)                                     ? 1
                : comparison_has_score_run(self, m) && !scores_have(self, m, "set_size_lac") ? 2
                                                                                             : 0;
    known = bp_all_max_int(known, self->world);
    if (known == 0)
        return fit_sets(self, m, config, spec, fit);
    bp_bcast_bytes(fit, sizeof(*fit), 0, self->world);
    return BP_OK;
}

/* ---- temperature ---- */

static bp_err keep_noise(const comparison_job *self, int64_t m, const comparison_noise *noise)
{
    (void)json_object_set_new(comparison_record_of(self, m), "temper",
                              json_pack("{s:o, s:I}", "noise_variance",
                                        bp_json_real(noise->variance), "tokens",
                                        (json_int_t)noise->documents));
    return comparison_record_save(self);
}

static bp_err temperature(comparison_job *self, int64_t m, bp_config *config,
                          const bp_ensemble_spec *spec)
{
    bp_mesh_shape shape = bp_mesh_shape_of(config);
    bp_mesh *mesh = NULL;
    bp_scaled_sums sums = {0};
    comparison_noise noise = {0};
    bool values = self->results.task->is_value;

    if (self->mesh->coordinates)
        bp_log("%s: fitting its %s on corpus.valid", self->results.methods.items[m].name,
               values ? "noise" : "temperature");
    bp_err err = bp_agree(self->world, bp_mesh_shape_fit(&shape, bp_comm_size(self->world)));

    if (err == BP_OK)
        err = bp_mesh_new(&mesh, self->world, &shape);
    if (err == BP_OK)
        err = bp_agree(self->world,
                       !mesh->computes ? BP_OK
                       : values        ? comparison_job_fit_noise(self, mesh, config, spec, &noise)
                                : comparison_job_sum_temperatures(self, mesh, config, spec, &sums));
    if (err == BP_OK) {
        bp_bcast_bytes(&sums, sizeof(sums), mesh->dedicated ? 1 : 0, self->world);
        bp_bcast_bytes(&noise, sizeof(noise), mesh->dedicated ? 1 : 0, self->world);
        err = bp_agree(self->world, !mesh->coordinates ? BP_OK
                                    : values           ? keep_noise(self, m, &noise)
                                             : comparison_job_keep_temperature(self, m, &sums));
    }
    bp_mesh_free(&mesh);
    return err;
}

#define TEMPERS_SCORES "tempers_scores" /* in the record: the score run has statistics at it */

/* The temperature at which the method is scored too. 0: there is none, or the method was scored
 * without it by an older program. Collective over world. */
static bp_err choose_temperature(const comparison_job *self, int64_t m, double *out)
{
    bp_err err = BP_OK;

    *out = 0;
    if (self->mesh->coordinates && self->results.scaled) {
        json_t *entry = comparison_record_of(self, m);

        if (!comparison_has_score_run(self, m) ||
            (!json_object_get(entry, TEMPERS_SCORES) && scores_have(self, m, "tempered_logprob"))) {
            (void)json_object_set_new(entry, TEMPERS_SCORES, json_true());
            err = comparison_record_save(self);
        }
        if (json_is_true(json_object_get(entry, TEMPERS_SCORES)))
            *out = bp_json_number(json_object_get(entry, "temper"), "temperature");
        *out = *out > 0 ? *out : 0; /* of values: none */
    }
    bp_bcast_bytes(out, sizeof(*out), 0, self->world);
    return bp_agree(self->world, err);
}

/* A score run that an earlier start began before there was corpus.valid, or an older program, goes
 * on as it began. */
static void warn_of_scores(const comparison_job *self, int64_t m)
{
    const json_t *entry = comparison_record_of(self, m);
    bool tempered = json_is_true(json_object_get(entry, TEMPERS_SCORES)),
         sets = !comparison_job_wants_sets(self) || json_object_get(entry, "sets");

    if (self->results.scaled && !self->results.task->is_value && !(tempered && sets) &&
        comparison_has_score_run(self, m))
        BP_WARN("comparison.scored_before",
                "method %s was scored before corpus.valid was given, or by an older version, and "
                "has no %s: at %s/scores/%s; remove this folder, and start the study again, to "
                "have them",
                self->results.methods.items[m].name,
                tempered ? "conformal sets"
                : sets   ? "tempered figures"
                         : "tempered figures and conformal sets",
                self->results.folder, self->results.methods.items[m].name);
}

static bool is_fitted(const comparison_job *self, int64_t m)
{
    return json_object_get(comparison_record_of(self, m), "temper") != NULL;
}

/* All ranks learn whether it was done before. */
static bool has_temperature(const comparison_job *self, int64_t m)
{
    return bp_all_max_int(self->mesh->coordinates && is_fitted(self, m), self->world) != 0;
}

/* ---- a method ---- */

/* The progress of the comparison, for `bagpipe status`: a method without its temperature is not
 * done. */
static void log_done(const comparison_job *self)
{
    int64_t done = 0;
    json_t *members;

    for (int64_t m = 0; m < self->results.methods.count; m++)
        done += comparison_is_predictions(&self->results.methods.items[m]) ||
                (is_scored(self, m) && (!self->results.scaled || is_fitted(self, m)));
    members = json_pack("{s:I}", "methods_scored", (json_int_t)done);
    bp_run_progress(self->run, members);
    json_decref(members);
}

static bp_err compute_method(comparison_job *self, int64_t m)
{
    const comparison_method *method = &self->results.methods.items[m];
    bp_ensemble_spec spec = spec_of(self, m);
    comparison_set_fit sets = {.predictions = 0};
    bp_config *config = NULL;
    char duration[64];
    double began = bp_clock_now();
    bp_err err = comparison_job_derive(self, m, &config);

    if (err == BP_OK && self->mesh->coordinates)
        err = comparison_job_forget_predictions(self, m);
    err = bp_agree(self->world, err);
    if (err == BP_OK && self->mesh->coordinates)
        bp_log("%s (%" PRId64 " of %" PRId64 "): %s of %s", method->name, m + 1,
               self->results.methods.count, method->way->word, method->path);
    if (err == BP_OK && method->way->fit)
        err = comparison_job_fit(self, m, config);
    if (err == BP_OK)
        err = find_sets(self, m, config, &spec, &sets);
    if (err == BP_OK && self->results.scaled && !has_temperature(self, m))
        err = temperature(self, m, config, &spec);
    spec.sets = sets.predictions > 0 ? &sets.rule : NULL;
    if (err == BP_OK)
        err = choose_temperature(self, m, &spec.temperature);
    if (err == BP_OK && self->mesh->coordinates)
        warn_of_scores(self, m);
    if (err == BP_OK)
        err = score(self, m, config, &spec);
    if (err == BP_OK && self->mesh->coordinates) {
        bp_clock_duration(duration, sizeof duration, bp_clock_now() - began);
        bp_log("%s: done in %s", method->name, duration);
        log_done(self);
    }
    if (err == BP_ERR_CONFIG && strncmp(bp_err_id(bp_err_message()), "run.other_keys]", 15) == 0)
        err = bp_err_prefix(err,
                            "method %s was scored in this folder before, with another checkpoint "
                            "or other settings; give it another name in uncertainty.models, or use "
                            "another run.dir",
                            method->name);
    else if (err != BP_OK)
        err = bp_err_prefix(err, "method %s", method->name);
    bp_config_free(&config);
    return err;
}

/* Make a folder, and remove files of an earlier start that was killed. */
static bp_err make_clean(const char *folder)
{
    bp_err err = bp_dir_make(folder);

    bp_dir_sweep(folder);
    return err;
}

static bp_err make_fit_folders(const comparison_job *self)
{
    bp_err err = BP_OK;

    for (int64_t m = 0; m < self->results.methods.count && err == BP_OK; m++) {
        const bp_uncertainty_method *way = self->results.methods.items[m].way;

        if (way->fit)
            err = make_clean(bp_path_in(self->results.folder, way->word).text);
    }
    return err;
}

/* ---- predictions of others ---- */

/* A score run of corpus.valid by the first model, whose labels and order the predictions of others
 * are compared with. */
static bp_err score_valid(comparison_job *self, const char *folder)
{
    int64_t model = comparison_first_model(&self->results.methods);
    const char *name = self->results.methods.items[model].name;
    bp_ensemble_spec spec = spec_of(self, model);
    bp_config *config = NULL;
    bp_log_channel channel;
    bp_err err = comparison_job_derive(self, model, &config);

    if (err == BP_OK)
        err = bp_config_set(config, "run.dir", folder);
    if (err == BP_OK)
        err = bp_config_set(config, "score.corpus", bp_corpus_keys_of(self->config)->valid);
    err = bp_agree(self->world, err);
    if (err == BP_OK) {
        if (self->mesh->coordinates)
            bp_log("%s: scoring corpus.valid, for predictions of others", name);
        bp_log_set_member(name, self->mesh->coordinates);
        channel = bp_log_use(BP_LOG_MEMBER);
        err = bp_agree(self->world, bp_score_as(self->world, config, &spec));
        (void)bp_log_use(channel);
    }
    bp_config_free(&config);
    return err;
}

/* Is corpus.valid to be scored for predictions of others? Its folder is made then. All ranks learn
 * it. */
static bp_err wants_valid(const comparison_job *self, bool *wants)
{
    char *path = bp_path_join(self->results.folder, "calibration");
    bool more = false;
    bp_err err = BP_OK;

    if (self->mesh->coordinates && self->results.scaled)
        err = comparison_job_has_more_rows(self, &more);
    if (err == BP_OK && more)
        err = make_clean(path);
    bp_free(path);
    *wants = bp_all_max_int(more, self->world) != 0;
    return bp_agree(self->world, err);
}

/* As soon as a model has provided the labels, before hours of other models. */
static bp_err import_predictions(comparison_job *self)
{
    int64_t model = comparison_first_model(&self->results.methods);
    char *folder = bp_sprintf("%s/calibration/%s", self->results.folder,
                              self->results.methods.items[model].name);
    bool calibrates = false;
    bp_err err = wants_valid(self, &calibrates);

    if (err == BP_OK && calibrates)
        err = score_valid(self, folder);
    for (int64_t m = 0; self->mesh->coordinates && err == BP_OK && m < self->results.methods.count;
         m++)
        if (comparison_is_predictions(&self->results.methods.items[m]))
            err = comparison_job_import(self, m, calibrates ? folder : NULL);
    bp_free(folder);
    return bp_agree(self->world, err);
}

bp_err comparison_job_compute(comparison_job *self)
{
    char *scores = bp_path_join(self->results.folder, "scores");
    bp_err err = BP_OK;

    if (self->mesh->coordinates) {
        bp_dir_sweep(self->results.folder);
        err = make_clean(scores);
        if (err == BP_OK)
            err = make_fit_folders(self);
        if (err == BP_OK)
            err = comparison_record_open(self);
    }
    bp_free(scores);
    err = bp_agree(self->world, err);
    if (err == BP_OK && self->mesh->coordinates)
        log_done(self);
    for (int64_t m = 0; err == BP_OK && m < self->results.methods.count; m++) {
        if (!comparison_is_predictions(&self->results.methods.items[m]))
            err = compute_method(self, m);
        if (err == BP_OK && m == comparison_first_model(&self->results.methods))
            err = import_predictions(self);
    }
    return err;
}
