/* A line of metrics.jsonl. */
#pragma once

#include "train/loop/trainer.h"
#include "train/loop/validation.h"

/** Adds what all ranks have counted to progress.filled, of examples with padding, and to
 * progress.positions, with corpus.bucket. Collective over mesh->data. */
void report_gather_positions(trainer *self);
/** Reports progress.step, and starts the clock of the next line. valid: of this step; NULL without
 * a validation. Collective over mesh->data; compute's root writes the line. */
void report_step(trainer *self, const bp_step_result *result, const validation *valid);
