/* Units of prompts, continued one after another. */
#pragma once

#include "base/buffer.h"
#include "infer/generate/plan.h"

typedef struct bp_unit bp_unit;

/** Memory of units that follow each other. `spec` is copied; what it points to is borrowed.
 *
 * Collective: over mesh->replica. Owns: *out is the caller's, bp_unit_free().
 * Errors:     those of bp_model_decode_new, the same on all ranks of mesh->replica. */
bp_err bp_unit_new(bp_unit **out, const bp_unit_spec *spec);
void bp_unit_free(bp_unit **unit);

/** Continue the prompts of unit `number`. On the rank that leads mesh->replica `result` gets the
 * results (read by bp_result_prompt and bp_result_text, in results.h); elsewhere it is not changed.
 *
 * *stopped: `stop_asked` returned true, and `result` is empty; equal on all ranks.
 *
 * Collective: over mesh->replica.
 * Errors:     BP_ERR_SOFTWARE a log-probability that is not finite: the same on all its ranks. */
bp_err bp_unit_run(bp_unit *unit, int64_t number, bp_buffer *result, bool *stopped);
