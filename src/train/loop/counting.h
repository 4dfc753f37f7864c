/* Counted models: one step makes the model from the whole stream. */
#pragma once

#include "train/loop/trainer.h"

/** Counts the stream, and commits the model as step 1. Collective over world. Errors: those of
 * bp_counting_ops.count and trainer_commit; BP_ERR_FORMAT an empty corpus, or one whose documents
 * do not end; BP_ERR_CONFIG keys of other models: the same on all ranks. */
bp_err trainer_count(trainer *self);
/** Removes counting files left by a start that was killed after its commit. On the coordinator. */
void trainer_remove_counts(const trainer *self);
/** Prints the estimate of counting. Collective over world. Errors: those of bp_counting_ops.plan,
 * and of the corpus as for trainer_count: the same on all ranks. */
bp_err bp_trainer_count_plan(trainer *self);
