/* math.precision of a run. */
#pragma once

#include "base/config/config.h"
#include "math/gemm/linear.h"

#include <mpi.h>

/** The precision that the run began with, else the best that all ranks' CPUs support. Sets the key.
 *
 * Collective: over `comm`.
 * Errors:     BP_ERR_CONFIG bf16, asked for by the user, on a CPU without it (one that is kept is
 *             refused by trainer_build: a finished run needs no CPU for it); those of
 *             bp_run_previous: the same on all ranks. */
bp_err bp_trainer_precision(MPI_Comm comm, bp_config *config, bp_precision *out);
