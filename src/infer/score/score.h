/* Scoring: the log-probability of every token of corpora by a model, and figures computed from
 * them. */
#pragma once

#include "infer/ensemble/ensemble.h"
#include "infer/score/keys.h"

/** Add the faults of the configuration that need neither files nor ranks to the configuration's.
 * Local. */
void bp_score_check(bp_config *config);

/** Score `score.corpus` with `score.model`, a model or an ensemble, into RUN/score, resuming an
 * earlier stopped start. Writes RUN/score/index.html; failure to write this page is a warning.
 * `plan`: as for bp_work_run, measured with one batch.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 * Errors:     the same on all ranks. BP_ERR_CONFIG a context beyond the model's, a mesh that does
 *             not fit, more mesh.members than members, two corpora of one name, another run's
 *             folder; BP_ERR_FORMAT a tokenizer that is not the corpus's, a vocabulary that is too
 *             large, damaged inputs; BP_ERR_INPUT; BP_ERR_BUSY another job holds the folder;
 *             BP_ERR_SOFTWARE a log-probability that is not finite; BP_ERR_IO disk full;
 *             BP_ERR_STOPPED stopped in time: the same command resumes. */
bp_err bp_score(MPI_Comm world, bp_config *config, const bp_planned_world *plan);

/** As bp_score without the page, for a method's ensemble: a CHECKPOINT as an ensemble of one,
 * passes with dropout, sampled last layers, or a list. All statistics of an ensemble are returned.
 * The run folder must be this method's: another method in it is BP_ERR_CONFIG.
 *
 * method: borrowed for the call, equal on all ranks; its memory_bytes 0: score.memory. NULL: by
 * score.model, as bp_score. score.model gets the method's path.
 *
 * Collective: over `world`. Errors: those of bp_score and bp_ensemble_open. */
bp_err bp_score_as(MPI_Comm world, bp_config *config, const bp_ensemble_spec *method);
