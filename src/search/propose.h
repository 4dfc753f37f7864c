/* What methods that propose shapes have in common. */
#ifndef BP_SEARCH_PROPOSE_H
#define BP_SEARCH_PROPOSE_H

#include "search/search_priv.h"

/** Propose trials until there are `count`: points of the space drawn uniformly, by a key of
 * (run.seed, trial, attempt), that are admitted and are no trial yet. Fewer, with a line of the
 * log, where the space has no more.
 *
 * Collective: over the mesh's world.
 * Errors:     BP_ERR_CONFIG no point is admitted; those of nas_admit and nas_propose. */
bp_err nas_propose_drawn(nas *self, int64_t count);
/** nas_admit of a point, and nas_propose unless it is a trial already. *proposed: it is a new one.
 * Collective, Errors: of both. */
bp_err nas_propose_point(nas *self, const nas_point *point, bool *proposed);
/** Score all trials that have no score: by trainings of their own. Collective, Errors: of
 * nas_score. */
bp_err nas_score_all(nas *self);

#endif
