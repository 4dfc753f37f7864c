/* Scoring: the log-probability of every token of corpora by a model, and the figures made of
 * them. */
#ifndef BP_INFER_SCORE_SCORE_H
#define BP_INFER_SCORE_SCORE_H

#include "infer/ensemble/ensemble.h"
#include "infer/score/keys.h"

/** Faults of the configuration that need neither files nor ranks: added to the configuration's.
 * Local. */
void bp_score_check(bp_config *config);

/** Score `score.corpus` with `score.model`, a model or an ensemble, into RUN/score, going on where
 * an earlier start was stopped. Leaves RUN/score/index.html; a page that can't be written is a
 * warning. `plan`: as of bp_work_run, measured with one batch.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 * Errors:     the same on all ranks. BP_ERR_CONFIG a context beyond the model's, a mesh that does
 *             not fit, more mesh.members than members, two corpora of one name, another run's
 *             folder; BP_ERR_FORMAT a tokenizer that is not the corpus's, a vocabulary that is too
 *             large, damaged inputs; BP_ERR_INPUT; BP_ERR_BUSY another job holds the folder;
 *             BP_ERR_SOFTWARE a log-probability that is not finite; BP_ERR_IO disk full;
 *             BP_ERR_STOPPED stopped in time: the same command goes on. */
bp_err bp_score(MPI_Comm world, bp_config *config, const bp_planned_world *plan);

/** The same without the page, under a method: an ensemble that is not made from a list (a
 * CHECKPOINT as an ensemble of one, passes with dropout, sampled last layers), or a list too. All
 * statistics of an ensemble are returned. The run folder is one of this method: another one in it
 * is BP_ERR_CONFIG.
 *
 * method: borrowed for the call, equal on all ranks; its memory_bytes 0: score.memory. NULL: by
 * score.model, as bp_score. score.model gets the method's path.
 *
 * Collective: over `world`. Errors: those of bp_score and bp_ensemble_open. */
bp_err bp_score_as(MPI_Comm world, bp_config *config, const bp_ensemble_spec *method);

#endif
