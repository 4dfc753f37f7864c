/* One document of a running explanation: document.c, which explain.c names in its units. */
#pragma once

#include "explain/explainer.h"

#define EXPLAIN_LOG_P_POSITIONS 64 /* rows whose distributions are read together */

/** The model, or a member of the ensemble; NULL if it is not on this rank. */
bp_model *explain_model_of(const explainer *self, int64_t member);

/** bp_work_units.prepare. Errors: BP_ERR_SYSTEM memory; those of choosing examples. */
bp_err explain_prepare(void *context);
/** bp_work_units.run: the part has targets, results and shares. Collective over mesh->model.
 * Errors: those of reading and of methods. */
bp_err explain_run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped);
/** bp_work_units.amount_of. */
int64_t explain_count_targets(const void *context, int64_t unit);
/** bp_work_units.release. */
void explain_release(void *context);
