/* What precedes the first document: checks.c, memory_plan.c and load.c, of explain.c. */
#pragma once

#include "explain/document.h"

#define EXPLAIN_ENSEMBLE_BYTES ((size_t)1 << 28) /* for distributions of all members */

/* checks.c */
/** The methods of explain.methods, in the order of the table. Local. */
void explain_find_methods(explainer *self);
/** Is the model opened for backward passes? Not with 8-bit weights, unless a method needs them:
 * opening then fails. Local. */
bool explain_goes_backward(const explainer *self);
/** Errors: BP_ERR_CONFIG members cannot be explained in turn, or a method has no mean over them.
 * Local. */
bp_err explain_check_ensemble(const explainer *self);
/** Sets the target, whether preferred outcomes are needed and the hashes of explain.masks and
 * explain.sets. Local. Errors: BP_ERR_CONFIG the methods do not support the model; those of
 * reading. */
bp_err explain_check(explainer *self);

/* memory_plan.c */
/** The most inputs of a document, for a model with this context. Local. */
int64_t explain_most_positions(const bp_config *config, int64_t context);
/** The positions of windows side by side, as many as fit at the longest length, so that the plan's
 * batch is the largest. Local. */
int64_t explain_batch_positions(int64_t most);
/** bp_work_memory.rank; the context is an explainer with its methods set. */
bp_err explain_estimate_rank(const void *context, const bp_work_models *models,
                             const bp_work_place *place, bp_rank_memory *out);

/* load.c */
/** Opens the texts; their hash, roles and tokens are then on all ranks. Collective over
 * mesh->world. `reads`: this rank reads them. Errors: BP_ERR_CONFIG a requested tokenizer or token
 * does not exist; those of reading. */
bp_err explain_load(explainer *self, bool reads);
/** Opens explain.datastore, and hashes it. Collective over mesh->world. Errors: those of
 * explain_nearest_open. */
bp_err explain_open_datastore(explainer *self);
/** The key of parts: everything that results depend on. Local, after all of it is shared. */
void explain_make_key(explainer *self);
