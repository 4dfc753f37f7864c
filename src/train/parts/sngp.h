/* What a Gaussian process asks of the head of a task. */
#pragma once

#include "train/loop/trainer.h"

/** Set the part of a task's shape that sngp.* define; a no-op without sngp.features. Local. Errors:
 * BP_ERR_CONFIG a build without ScaLAPACK, fewer features than classes, more classes than the
 * width, a key of another method. */
bp_err sngp_shape(const trainer *self, bp_task_shape *task);
