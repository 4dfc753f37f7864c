/* Do all nodes see the same run folder? */
#pragma once

#include "base/err.h"
#include "base/files/fs.h"
#include <mpi.h>

/** Make the file that all ranks are to see; `token` names it. On the coordinator; local.
 *
 * Errors: BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err run_shared_mark(const char *folder, char token[BP_TOKEN_BYTES]);

/** Look for that file, for some seconds, and remove it.
 *
 * Collective: over `world`; folder and token are equal on all ranks.
 * Errors:     BP_ERR_IO a rank does not see it, with its host: the same on all ranks. */
bp_err run_shared_check(MPI_Comm world, const char *folder, const char *token);
