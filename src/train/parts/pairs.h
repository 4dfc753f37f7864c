/* Trainings on pairs. */
#ifndef BP_TRAIN_PARTS_PAIRS_H
#define BP_TRAIN_PARTS_PAIRS_H

#include "train/loop/trainer.h"

/** rules.start, of an encoder-decoder. Errors: BP_ERR_CONFIG there is no such token. Local. */
bp_err pairs_find_start(trainer *self);

#endif
