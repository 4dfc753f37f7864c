/* Are there enough rows in a micro-batch for matrix products to be fast? */
#pragma once

#include "train/loop/memory/memory.h"

/** Warns if micro-batches have too few rows for fast matrix products, and train.batch and memory
 * allow larger ones. Not to be called for a run that resumes: other micro-batches would change its
 * bits. Local, on the coordinator. */
void bp_trainer_warn_of_rows(const trainer *self, const memory_case *one);
