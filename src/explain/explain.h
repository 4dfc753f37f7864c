/* Explanations: why a model makes its predictions, for each token of a corpus. One bp_work
 * (job/work.h) runs the requested methods (method.h) on each document, which is a unit. The merge
 * writes a file for each method and the figures over the corpus. docs/explanation.md has the
 * definitions. */
#pragma once

#include "explain/keys.h"
#include "job/work.h"

extern const bp_work bp_explain;

/** Faults of the configuration that need neither files nor ranks. Local. */
void bp_explain_check(bp_config *config);
/** Warnings of keys of methods that explain.methods does not name. Local. */
void bp_explain_warn(const bp_config *config);
