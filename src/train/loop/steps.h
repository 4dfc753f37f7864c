/* The training loop. */
#pragma once

#include "train/loop/trainer.h"

/** All steps to the last. Collective over compute (a dedicated coordinator is in report_serve).
 * Errors: those of bp_pretrain: the same on all ranks. */
bp_err trainer_run(trainer *self);
