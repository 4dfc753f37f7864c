/* Where a training starts: from the run's newest checkpoint, from another's weights, or from drawn
 * values. */
#pragma once

#include "train/loop/trainer.h"

/** Finds `shape` from the configuration, and from model.init, which stays open in start.source.
 * Collective over world. Errors: those of bp_checkpoint_open_any and bp_model_shape_read;
 * BP_ERR_FORMAT another tokenizer: the same on all ranks. */
bp_err trainer_find_shape(trainer *self);
/** The run's newest checkpoint, if there is one, takes the place of model.init in start.source;
 * fills `progress`. Collective over world, with the run folder held. Errors: those of
 * bp_checkpoint_newest: the same on all ranks. */
bp_err trainer_find_source(trainer *self);
/** Checks that the state's bag has this program's version, so that the run's stream is unchanged.
 * Local. Errors: BP_ERR_CONFIG. */
bp_err trainer_check_bag_version(const trainer *self);
/** Loads start.source, or draws initial values, and closes it. Collective over world. Errors: those
 * of bp_checkpoint_load and bp_checkpoint_check_digests, and of parts: the same on all ranks. */
bp_err trainer_load(trainer *self);
/** With adapter.alone: leaves the adapted model's parameters out of checkpoints. Local, after the
 * engine is made, before anything is loaded. */
void trainer_save_beside(trainer *self);
