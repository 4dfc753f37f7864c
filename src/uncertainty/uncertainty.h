/* The uncertainty of language models or classifiers, side by side: each method (a model, an
 * ensemble, or what uncertainty/methods makes of one model) scores the same documents. Documents in
 * the domain measure how well its uncertainty predicts its errors; shifted documents measure how
 * well it detects other texts. */
#pragma once

#include "base/config/config.h"
#include "mesh/mesh.h"

extern const bp_option bp_uncertainty_options[]; /* uncertainty.* */

/** Values of bp_uncertainty_options (docs: --help). */
typedef struct bp_uncertainty_keys {
    const char *models;
    const char *in_domain;
    const char *shifted;
    int64_t passes;
    int64_t resamples;
    const char *cluster;
    const char *coverages;
    int64_t temper_tokens;
    double coverage;
    double raps_penalty;
    int64_t raps_rank;
    const char *valid;
    const char *train;
} bp_uncertainty_keys;

static inline const bp_uncertainty_keys *bp_uncertainty_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_uncertainty_options);
}

/** Add the faults of the configuration that need neither files nor ranks to the configuration's.
 * Local. */
void bp_uncertainty_check(bp_config *config);

/** Compare the methods of uncertainty.models into RUN/uncertainty, resuming an earlier stopped
 * start. docs/formats.md describes its files.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 *             `score_tables` are those of a score job, which runs for each method.
 * Errors:     the same on all ranks. BP_ERR_CONFIG two methods or shifts of one name, a document
 *             that is both in the domain and shifted, a mesh that does not fit, another run's
 *             folder; BP_ERR_FORMAT models or corpora of different tokenizers, an unknown label or
 *             value, a group of fewer than 2 documents, a damaged input; BP_ERR_INPUT a missing
 *             model or corpus; BP_ERR_BUSY; BP_ERR_IO, BP_ERR_CREATE, BP_ERR_DENIED; BP_ERR_STOPPED
 *             stopped in time: the same command resumes.
 */
bp_err bp_uncertainty(MPI_Comm world, bp_config *config, const bp_option *const *score_tables);

/** Print the planned work, and the estimated memory and time of each method, for the job `asked`.
 *
 * Collective: over `world`. Errors: those of bp_uncertainty before its first window.
 */
bp_err bp_uncertainty_estimate(MPI_Comm world, bp_config *config,
                               const bp_option *const *score_tables, const bp_planned_world *asked);
