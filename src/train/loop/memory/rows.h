/* Are there enough rows in a micro-batch for matrix products to be fast? */
#ifndef BP_TRAIN_LOOP_MEMORY_ROWS_H
#define BP_TRAIN_LOOP_MEMORY_ROWS_H

#include "train/loop/memory/memory.h"

/** A warning where the micro-batches of a training have so few rows that matrix products are slow,
 * and train.batch and memory allow larger ones. Not for a run that goes on: it would get other
 * bits. Local, on the coordinator. */
void bp_trainer_warn_of_rows(const trainer *self, const memory_case *one);

#endif
