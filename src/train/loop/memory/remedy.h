/* A training that does not fit into a node's memory: which keys would make it fit. */
#pragma once

#include "train/loop/memory/memory.h"

/** Checks that the node has the memory of its ranks. Local. Errors: BP_ERR_SYSTEM it lacks memory;
 * the message says what would fit. */
bp_err bp_training_memory_check(const bp_node_memory *node, const trainer *self,
                                const memory_case *one);
/** Checks that the ranks of each node fit into its memory; fills estimate.node. Collective over
 * world. Errors: BP_ERR_SYSTEM they do not, with keys that would make them fit: the same on all
 * ranks. */
bp_err trainer_check_memory(trainer *self);
