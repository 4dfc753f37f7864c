/* Fine-tuning for texts. */
#pragma once

#include "train/loop/trainer.h"

/** Is it task.kind=text? Its examples are pairs; a checkpoint is a language model's. Local. */
bool text_is_asked(const bp_config *config);
/** Writes its task.json. On the coordinator. Errors: those of writing a file. */
bp_err text_save(const trainer *self);
