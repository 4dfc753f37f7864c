/* How many steps a training has, and when it ends early. */
#pragma once

#include "train/loop/trainer.h"

/** Finds facts.epoch_windows, for windows, and spec.rate.steps if train.epochs is given. Broadcasts
 * the coordinator's facts. Collective over world. */
void trainer_find_steps(trainer *self);
/** Lines for people where train.epochs or corpus.weights is given. Local, on the coordinator. */
void trainer_say_steps(const trainer *self);
/** Logs that a training which has done `step` of `steps_before` steps now has more steps, over all
 * of which its rate decays. Local. */
void bp_trainer_say_stretch(const bp_rate *rate, int64_t step, int64_t steps_before);
/** Is the training finished: all steps done, or train.patience validations without a new best?
 * Local. */
bool bp_trainer_is_done(const trainer *self);
/** Counts a validation. Returns true if its loss (nats) is the least so far. Local. */
bool trainer_take_validation(trainer *self, double loss);
/** Before the run is closed: reports why it ended early, if it did, with an event unless the run
 * was reported as finished before. Collective over world. Errors: those of bp_run_event: the same
 * on all ranks. */
bp_err trainer_end(trainer *self);
