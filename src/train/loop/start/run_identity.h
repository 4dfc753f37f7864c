/* What makes two starts of a training the same run, and what a later one may change. */
#pragma once

#include "train/loop/trainer.h"

#define TRAINER_MAY_CHANGE 64 /* keys at most, and NULL */

/** bp_run_spec.may_change of a training with these parts, and of an ensemble of such: NULL-ended;
 * its strings are borrowed. Local. */
void bp_trainer_may_change(const char *out[TRAINER_MAY_CHANGE],
                           const bp_training_part *const *parts);
/** bp_run_spec.keeps_bits of a training: the order of all sums stays the same (src/run/README.md,
 * on what a resume may change). Local. */
bool bp_trainer_keeps_bits(const bp_config *config, const char *key, const char *before,
                           const char *now);
/** Opens `run`. Collective over world. Owns: bp_run_close(). Errors: those of bp_run_open. */
bp_err trainer_open_run(trainer *self);
