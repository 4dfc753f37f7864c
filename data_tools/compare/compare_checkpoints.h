/* Two checkpoints, bit by bit. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

/** Is it a checkpoint, or a run folder that has checkpoints and no scores? */
bool names_checkpoint(const char *path);

/** Verify both, compare names, shapes and digests of all tensors (the optimizer's too), in the
 * order of their names, and print a line that they are equal. Local, except for MPI_COMM_SELF.
 * Errors: BP_ERR_FORMAT the first tensor that differs; those of bp_checkpoint_open_any. */
bp_err compare_checkpoints(const char *const paths[2]);
