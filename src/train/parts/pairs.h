/* Trainings on pairs. */
#pragma once

#include "train/loop/trainer.h"

/** rules.start, of an encoder-decoder. Errors: BP_ERR_CONFIG there is no such token. Local. */
bp_err pairs_find_start(trainer *self);
