/* Silent data corruption: bits that changed without a cause in training. */
#pragma once

#include "train/loop/trainer.h"

/** Checks the bits of weights and moments now, on all ranks (bp_engine_check). Collective over
 * compute. Errors: those of trainer_say_corruption; of a learner those of trainer_learner_check. */
bp_err trainer_check_bits(trainer *self);
/** Reports corruption that some rank has found (bp_engine_corruption): an event, and an error that
 * names tensor, step, rank and host. Collective over compute. Errors: BP_ERR_STOPPED, always, the
 * same on all ranks: the last checkpoint is good. */
bp_err trainer_say_corruption(trainer *self);
