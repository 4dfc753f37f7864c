/* What a stage keeps of a micro-batch, for those who lay its memory out and who use it. Private to
 * src/train/engine. */
#ifndef BP_TRAIN_ENGINE_STAGE_PRIV_H
#define BP_TRAIN_ENGINE_STAGE_PRIV_H

#include "train/engine/stage.h"

/** Floats of what block k is given, in training. */
int64_t stage_given_floats(const bp_stage_spec *spec, const bp_network *network, int k);
/** What block k saves for its backward pass. */
size_t stage_saved_bytes(const bp_stage_spec *spec, const bp_network *network, int k);
/** What is kept of it until then. With recomputation a block that saves something keeps its input
 * instead, and runs forward again before it goes backward. */
size_t stage_kept_bytes(const bp_stage_spec *spec, const bp_network *network, int k);
/** Floats between two blocks in an evaluation, where training has only a share of them; else 0. */
int64_t stage_evaluation_floats(const bp_stage_spec *spec, const bp_network *network);

/** A run of the groups that the last block does not add to, in floats of the gradients. */
typedef struct stage_lent {
    int64_t first, floats;
    int64_t lent; /* of them: equal on all tensor ranks, as the rows in them have to be */
} stage_lent;

/** The longest run, where a leaf of gradients is always begun before that block goes backward, its
 * own table with it; else none. */
stage_lent stage_find_lent(const bp_stage_spec *spec, const bp_network *network);

#endif
