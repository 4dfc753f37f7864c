/* Setup: from a configuration to a training that is ready to run. */
#pragma once

#include "train/loop/trainer.h"

/** Fills *self: mesh, corpora, shape, settings, all checked. Its keys are set as resolved.
 *
 * Collective: over world. plan: nothing is to be trained, and one rank plans for the mesh that is
 *             asked for; NULL: a training.
 * Owns:       bp_trainer_close(), after a failure too; parts and config are borrowed until then.
 * Errors:     those of bp_pretrain before its first step: the same on all ranks.
 */
bp_err bp_trainer_open(trainer *self, const bp_training_part *const *parts, MPI_Comm world,
                       bp_config *config, const bp_planned_world *plan);

/** Engine or learner, loader, and memory for checkpoints; parameters have no values yet. The plan
 * is printed. Collective over world. Errors: BP_ERR_SYSTEM out of memory; BP_ERR_CONFIG this CPU
 * lacks the run's precision; those of trainer_open_examples and of the parts: the same on all
 * ranks. */
bp_err trainer_build(trainer *self);

/** Collective over the mesh where there is an engine. A trainer of zeros is accepted. */
void bp_trainer_close(trainer *self);
