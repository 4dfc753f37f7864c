/* What a stage keeps of a micro-batch, shared by memory layout (stage_memory.c) and use (stage.c).
 * Private to src/train/engine. */
#pragma once

#include "train/engine/stage.h"

/** Floats of block k's input in training. */
int64_t stage_given_floats(const bp_stage_spec *spec, const bp_network *network, int k);
/** What block k saves for its backward pass. */
size_t stage_saved_bytes(const bp_stage_spec *spec, const bp_network *network, int k);
/** What is kept until the backward pass. With recomputation a block that saves something keeps its
 * input instead, and runs forward again before backward. */
size_t stage_kept_bytes(const bp_stage_spec *spec, const bp_network *network, int k);
/** Floats between two blocks in an evaluation if training has only a share of them; else 0. */
int64_t stage_evaluation_floats(const bp_stage_spec *spec, const bp_network *network);

/** A run of groups that the last block does not add to, in floats of the gradients. */
typedef struct stage_lent {
    int64_t first, floats;
    int64_t lent; /* of them: equal on all tensor ranks, as the number of rows in them must be */
} stage_lent;

/** The run that lends most, if a leaf of gradients always begins before the last block goes
 * backward, and the head's table is in that block's chunk; else an empty run. */
stage_lent stage_find_lent(const bp_stage_spec *spec, const bp_network *network);
