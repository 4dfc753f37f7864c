/* The state of a running uncertainty job. */
#pragma once

#include "infer/ensemble/ensemble.h"
#include "infer/score/each.h"
#include "run/run_folder.h"
#include "uncertainty/results/results.h"
#include "uncertainty/uncertainty.h"

typedef struct comparison_job {
    MPI_Comm world;
    bp_config *config;                    /* borrowed */
    const bp_option *const *score_tables; /* borrowed */
    bp_mesh_shape mesh_shape;
    bp_mesh *mesh;
    bp_run *run;
    comparison_results
        results; /* lists, metadata and members on all ranks; the rest on the coordinator */
    comparison_corpora corpora; /* on the coordinator; the list on all ranks */
    char corpora_hash[BP_SHA256_HEX], valid_hash[BP_SHA256_HEX], train_hash[BP_SHA256_HEX];
    int64_t train_tokens;            /* of corpus.train; on the coordinator */
    char models_hash[BP_SHA256_HEX]; /* of the methods' manifests; on the coordinator */
    bp_member_sampler **samplers;    /* [methods] how members are made; NULL: stored members */
    char **fitted;                   /* [methods] RUN/uncertainty/WORD/NAME.h5 */
    char *record_path;               /* RUN/uncertainty/record.json */
    json_t *record;                  /* on the coordinator: completed work, and its cost */
} comparison_job;

/** Open the mesh and lists, and make all checks possible before any compute. `alone`: one rank acts
 * for any mesh. Collective over `world`. Close after an error too. */
bp_err comparison_job_open(comparison_job *self, MPI_Comm world, bp_config *config,
                           const bp_option *const *score_tables, bool alone);
void comparison_job_close(comparison_job *self);

/** Refuse text in the domain that is in corpus.valid too: the same file, or one of the same
 * content. On the coordinator. Errors: those of bp_corpus_open; BP_ERR_CONFIG. */
bp_err comparison_job_check_calibration(const comparison_job *self);
/** Warn if corpus.valid or the domain is text of a model's training, or chose its checkpoint: a
 * file of that text, or all of it. On the coordinator. */
void comparison_job_warn_of_texts(const comparison_job *self);
/** Run the missing steps of each method: fit, sets, temperature, score. Collective over world.
 * Errors: the same on all ranks. */
bp_err comparison_job_compute(comparison_job *self);
/** A method's model, as input of the method. Borrowed from the job. */
bp_method_case comparison_case(const comparison_job *self, int64_t method);
/** Fit a method, unless already fitted. Progress goes to the log. Collective over world; `config`
 * is that of the method's score run. Errors: those of bp_uncertainty_method.fit, the same on all
 * ranks. */
bp_err comparison_job_fit(comparison_job *self, int64_t method, const bp_config *config);
/** Open the method's model into *model, and call each's callbacks for the batches of corpus.valid
 * (at most uncertainty.temper_tokens of them); the caller sets mesh, configuration and callbacks of
 * `each`, the function sets the rest.
 *
 * Collective: over each->mesh->compute.
 * Owns:       *model is the caller's, bp_model_free(), after an error too (it may be NULL then).
 * Errors:     those of bp_ensemble_open and bp_score_each_batch; the same on all ranks. */
bp_err comparison_job_each(const comparison_job *self, const bp_ensemble_spec *spec,
                           bp_score_each *each, bp_model **model);
/** Add the sums for the temperature (bp_ensemble_add_scaled) over corpus.valid. Collective over
 * mesh->compute. Errors: those of comparison_job_each; the same on all ranks. */
bp_err comparison_job_sum_temperatures(const comparison_job *self, const bp_mesh *mesh,
                                       const bp_config *config, const bp_ensemble_spec *spec,
                                       bp_scaled_sums *sums);
/** For a regression: the variance of its noise, and the number of documents of corpus.valid used
 * for the fit. */
typedef struct comparison_noise {
    double variance;
    int64_t documents;
} comparison_noise;
/** Fit it. Collective over mesh->compute. Errors: those of bp_ensemble_open and
 * bp_score_each_batch; the same on all ranks. */
bp_err comparison_job_fit_noise(const comparison_job *self, const bp_mesh *mesh,
                                const bp_config *config, const bp_ensemble_spec *spec,
                                comparison_noise *out);
/** Conformal sets: thresholds of a method, and the data used for the fit. */
/** Does this study have sets? True for models whose outcomes are a softmax, if corpus.valid is set.
 */
bool comparison_job_wants_sets(const comparison_job *self);
/** Fit the thresholds. Collective over mesh->compute. Errors: those of comparison_job_each; the
 * same on all ranks. */
bp_err comparison_job_fit_sets(const comparison_job *self, const bp_mesh *mesh,
                               const bp_config *config, const bp_ensemble_spec *spec,
                               comparison_set_fit *out);
/** Write to the record and read from it. On the coordinator. Returns false if the sets were not
 * fitted. Errors: those of comparison_record_save. */
bp_err comparison_job_keep_sets(const comparison_job *self, int64_t method,
                                const comparison_set_fit *fit);
bool comparison_job_recall_sets(const comparison_job *self, int64_t method,
                                comparison_set_fit *fit);
/** Fit the thresholds to these predictions, in the place of a model's. Local. */
void comparison_job_fit_targets(const comparison_job *self, const bp_conformal_target *targets,
                                int64_t count, comparison_set_fit *out);
/** The temperature of these sums, as the method's in the record. On the coordinator. Errors: those
 * of comparison_record_save. */
bp_err comparison_job_keep_temperature(const comparison_job *self, int64_t method,
                                       const bp_scaled_sums *sums);
/** Does a file of predictions have more rows than the corpora of the study, so that those of
 * corpus.valid may follow? After the first model is scored; on the coordinator. Errors: those of
 * reading its tables. */
bp_err comparison_job_has_more_rows(const comparison_job *self, bool *more);
/** Remove from the record what predictions under the method's name calibrated in an earlier start.
 * On the coordinator. Errors: those of comparison_record_save. */
bp_err comparison_job_forget_predictions(const comparison_job *self, int64_t method);
/** Remove all that the record has of the method. On the coordinator. Errors: those of
 * comparison_record_save. */
bp_err comparison_job_forget_fits(const comparison_job *self, int64_t method);
/** Write predictions as the score folder of a method, after the first model is scored. `valid`: the
 * folder of that model's score run of corpus.valid, whose predictions may follow in the file and
 * calibrate the method; NULL: there is none. On the coordinator.
 * Errors: those of bp_predictions_read and of reading and writing the tables; BP_ERR_FORMAT rows or
 *         outcomes that differ from the models'. */
bp_err comparison_job_import(const comparison_job *self, int64_t method, const char *valid);
/** The configuration of the score run of a method; NULL-ended tables of a score job. Owns: *out is
 * the caller's, bp_config_free(). */
bp_err comparison_job_derive(const comparison_job *self, int64_t method, bp_config **out);
/** Set the mesh of a model with this many members in its configuration. If the model can't be
 * spread over the ranks of mesh.members, they become data ranks. */
bp_err comparison_job_set_mesh(const comparison_job *self, int64_t members, bp_config *config);

/** Did a start begin the method's score run? On the coordinator. */
bool comparison_has_score_run(const comparison_job *self, int64_t method);

/* ---- record.json, on the coordinator ---- */

/** Read the record, or begin one. Errors: BP_ERR_FORMAT an unknown version; BP_ERR_IO. */
bp_err comparison_record_open(comparison_job *self);
bp_err comparison_record_save(const comparison_job *self);
/** The entry of a method, made if there is none. Borrowed. */
json_t *comparison_record_of(const comparison_job *self, int64_t method);
/** Add this many seconds to those of earlier starts, and save. Errors: those of
 * comparison_record_save.
 */
bp_err comparison_record_add(const comparison_job *self, int64_t method, const char *key,
                             double seconds);
