/* Explanations: why a model predicts what it predicts, for each token of a corpus. One work of the
 * spine (job/work.h) runs the methods that are asked for (method.h) on each document, which is a
 * unit; the merge writes a file for each method and the figures over the corpus.
 * docs/explanation.md has the definitions. */
#ifndef BP_EXPLAIN_EXPLAIN_H
#define BP_EXPLAIN_EXPLAIN_H

#include "explain/keys.h"
#include "job/work.h"

extern const bp_work bp_explain;

/** Faults of the configuration that need neither files nor ranks. Local. */
void bp_explain_check(bp_config *config);

#endif
