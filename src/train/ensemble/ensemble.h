/* Training the members of an ensemble, side by side on parts of the mesh or one after another. */
#pragma once

#include "base/config/config.h"
#include "mesh/mesh.h"

extern const bp_option bp_ensemble_options[]; /* ensemble.* */

/** Values of bp_ensemble_options (docs: --help). */
typedef struct bp_ensemble_keys {
    int64_t members;
    const char *kind;
    const char *cluster;
    int64_t parallel;
    int64_t only;
    const char *checkpoint;
} bp_ensemble_keys;

static inline const bp_ensemble_keys *bp_ensemble_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_ensemble_options);
}

/* The tables of the jobs that an ensemble is made of, NULL-ended lists. */
typedef struct bp_ensemble_jobs {
    const bp_option *const *pretrain, *const *score;
} bp_ensemble_jobs;

/** Faults of the configuration that need neither files nor ranks: added to the configuration's.
 * Also resolves ensemble.parallel, ensemble.cluster and corpus.resample. Local. */
void bp_ensemble_check(bp_config *config);

/** Print memory and time estimated of a member, how many train at a time, and the memory of all
 * that do. Collective over `world`; one rank plans for any mesh, of the job `asked`. Errors: those
 * of bp_pretrain_plan. */
bp_err bp_ensemble_plan(MPI_Comm world, bp_config *config, const bp_ensemble_jobs *jobs,
                        const bp_planned_world *asked);

/** Train all members into RUN/members, or with ensemble.only just that one, each as a separate
 * `pretrain` run that resumes by itself. Bagged members then score the documents outside their
 * bags. Writes ensemble.json.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 * Errors:     the same on all ranks: those of bp_pretrain and bp_score, with the member's name;
 *             BP_ERR_CONFIG a mesh that does not fit, another ensemble's folder; BP_ERR_FORMAT
 *             fewer than 2 documents to draw bags from; BP_ERR_SOFTWARE members diverged (the
 *             others are whole, and in ensemble.json); BP_ERR_STOPPED stopped in time: the same
 *             command goes on. */
bp_err bp_ensemble(MPI_Comm world, bp_config *config, const bp_ensemble_jobs *jobs);

/** The run folder that this job holds: with ensemble.only the member's, else run.dir. Free with
 * bp_free(). Local. */
char *bp_ensemble_folder(const bp_config *config);
