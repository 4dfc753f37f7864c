/* A dedicated coordinator while the others train. */
#pragma once

#include "train/loop/trainer.h"

/** Its loop, until report_end on compute's root: writes lines, does its part of checkpoints, and
 * forwards a stop request. Collective over world wherever the ranks that compute commit. Errors:
 * those of trainer_commit. */
bp_err report_serve(trainer *self);
