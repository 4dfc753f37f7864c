/* Functions shared by methods that propose shapes. */
#pragma once

#include "search/nas.h"

/** Propose trials until there are `count`: points of the space drawn uniformly, by a key of
 * (run.seed, trial, attempt), that are admitted and not yet trials. Fewer, with a line in the log,
 * if the space has no more.
 *
 * Collective: over the mesh's world.
 * Errors:     BP_ERR_CONFIG no point is admitted; those of nas_admit and nas_propose. */
bp_err nas_propose_drawn(nas *self, int64_t count);
/** Is any point of the space a valid model within the size limits of search.limit? Local. Errors:
 * BP_ERR_CONFIG no point that was tried is. */
bp_err nas_check_models(const nas *self);
/** nas_admit of a point, and nas_propose unless it is already a trial. *proposed: it is a new
 * trial. Collective, Errors: of both. */
bp_err nas_propose_point(nas *self, const nas_point *point, bool *proposed);
/** A child of one point: by mutation, in which each key is redrawn with that probability, if
 * `other` is NULL; else by crossover with `other`, without mutation. Uses draws of the key from 4
 * on. Local. */
nas_point nas_child(const nas_space *space, const nas_point *one, const nas_point *other,
                    double mutation, const bp_rng_key *key);
/** Score all trials that have no score: by shared weights within nas_with_shared, else by separate
 * trainings. Collective, Errors: of nas_score_shared and nas_score. */
bp_err nas_score_all(nas *self);
/** Call `body`, with shared weights if search.shared asks for them. Collective, Errors: of
 * nas_with_shared and `body`. */
bp_err nas_run_by_key(nas *self, bp_err (*body)(nas *self));
