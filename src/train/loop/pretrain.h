/* Pretraining a language model on a corpus, over a mesh, in a run folder that resumes by itself. */
#pragma once

#include "mesh/mesh.h"
#include "train/loop/hooks.h"
#include "train/loop/options.h"
#include "train/loop/part.h"

/** Print memory by kind and time estimated of the mesh that the configuration asks for. Collective
 * over `world`; one rank plans for any mesh, of the job `asked`. Errors: those of bp_pretrain
 * before its first step; BP_ERR_SYSTEM the ranks of a node do not fit into its memory; the message
 * says what would fit. */
bp_err bp_pretrain_plan(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                        const bp_planned_world *asked);

/** Train until train.steps, or until stopped. `parts`: train/parts/list.h. Collective over `world`;
 * the error is the same on all ranks. `hooks` may be NULL.
 *
 * Errors: BP_ERR_CONFIG a shape, a mesh or a batch that does not fit, another run's folder;
 * BP_ERR_INPUT, BP_ERR_FORMAT the corpus or all checkpoints; BP_ERR_BUSY another job holds the
 * folder; BP_ERR_SOFTWARE the training diverged (steps.c); BP_ERR_STOPPED stopped in
 * time: the same command goes on. */
bp_err bp_pretrain(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                   const bp_pretrain_hooks *hooks);

/** Open a training that is finished, with the weights of its newest checkpoint in its engine, and
 * call `use`; nothing is trained, and no file is written. Its run folder belongs to the caller, who
 * holds the run around it.
 *
 * Collective: over `world`; `use` over the same ranks.
 * Errors:     those of bp_pretrain before its first step; BP_ERR_INPUT there is no checkpoint;
 * those of `use`: the same on all ranks. */
struct trainer;
bp_err bp_pretrain_use(MPI_Comm world, bp_config *config, const bp_training_part *const *parts,
                       bp_err (*use)(struct trainer *self, void *context), void *context);
