/* How many steps a training has, and when it ends early. */
#ifndef BP_TRAIN_LOOP_START_DURATION_H
#define BP_TRAIN_LOOP_START_DURATION_H

#include "train/loop/trainer.h"

/** facts.epoch_windows of windows; where train.epochs is given spec.rate.steps. The coordinator's
 * facts go to all ranks. Collective over world. */
void trainer_find_steps(trainer *self);
/** Lines for people where train.epochs or corpus.weights is given. Local, on the coordinator. */
void trainer_say_steps(const trainer *self);
/** A line for people where a training that has done `step` steps of `steps_before` has more of them
 * now, and its rate decays: over all of them. Local. */
void bp_trainer_say_stretch(const bp_rate *rate, int64_t step, int64_t steps_before);
/** Is nothing left to do: all steps are done, or validations found no new best for train.patience
 * of them? Local. */
bool bp_trainer_is_done(const trainer *self);
/** Counts a validation; true: its loss (nats) is the least so far. Local. */
bool trainer_take_validation(trainer *self, double loss);
/** Before the run is closed, with nothing left to do: why it ended, where it did not do all steps;
 * with an event unless the run was reported as finished before. Collective over world. Errors:
 * those of bp_run_event: the same on all ranks. */
bp_err trainer_end(trainer *self);

#endif
