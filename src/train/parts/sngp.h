/* What a Gaussian process asks of the head of a task. */
#ifndef BP_TRAIN_PARTS_SNGP_H
#define BP_TRAIN_PARTS_SNGP_H

#include "train/loop/trainer.h"

/** Set the part of a task's shape that sngp.* define; a no-op without sngp.features. Local. Errors:
 * BP_ERR_CONFIG a build without ScaLAPACK, fewer features than classes, more classes than the
 * width, a key of another method. */
bp_err sngp_shape(const trainer *self, bp_task_shape *task);

#endif
