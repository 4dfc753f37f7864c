/* Searches for the shape of a model: trials, a ranking of them, and the best trained from
 * scratch. */
#pragma once

#include "mesh/mesh.h"
#include "search/options.h"

/** Faults of the configuration that need neither files nor ranks: added to the configuration's.
 * Local. */
void bp_nas_check(bp_config *config);
/** Warnings of keys that search.method does not use. Local. */
void bp_nas_warn(const bp_config *config);

/** Print the number and cost of trainings, and memory and time of the largest of them. Collective
 * over `world`; one rank plans for any mesh, of the job `asked`. Errors: those of
 * bp_pretrain_plan. */
bp_err bp_nas_plan(MPI_Comm world, bp_config *config, const bp_nas_jobs *jobs,
                   const bp_planned_world *asked);

/** Make all trials, train the best, and write RUN/search.
 *
 * Collective: over `world`; `config` is equal on all ranks and gets its resolved values.
 * Errors:     the same on all ranks: those of bp_pretrain, with the trial's name; BP_ERR_CONFIG no
 *             model of search.space is within search.limit, another search's folder; BP_ERR_FORMAT
 *             search/trials.json is damaged; BP_ERR_STOPPED stopped in time: the same command goes
 *             on. */
bp_err bp_nas(MPI_Comm world, bp_config *config, const bp_nas_jobs *jobs);
