/* The steps of a learner (models/learner.h), in place of the engine's. */
#pragma once

#include "train/loop/trainer.h"

/** Make the learner. A new training reads the stream. Collective over compute, before the loader is
 * opened. Errors: those of bp_learner_ops.new and .survey. */
bp_err trainer_learner_open(trainer *self);
/** Loads start.source, or draws initial values. Collective over world. Errors: those of
 * bp_checkpoint_load, bp_checkpoint_check_digests and bp_learner_ops.loaded: the same on all
 * ranks. */
bp_err trainer_learner_load(trainer *self);
/** One step over all slots of the batch. A loss that is not finite ends the training: the vectors
 * are already updated with it. Collective over compute. Errors: BP_ERR_SOFTWARE: the same on all
 * ranks. */
bp_err trainer_learn(trainer *self, const bp_batch *batch, bp_step_result *result);
/** Is the state that a checkpoint would hold finite? The last update may have made values infinite
 * or NaN. Collective over compute. Errors: BP_ERR_SOFTWARE: the same on all ranks. */
bp_err trainer_learner_check(trainer *self);
/** Slots of the batch that one of `datas` data ranks reads: a learner's rank reads all. Local. */
int64_t bp_trainer_slots(const trainer *self, const bp_engine_spec *spec, int data_ranks);
