/* Writing the model's file: all ranks write, each its own n-grams. */
#pragma once

#include "models/ngram/ngram_estimate_priv.h"

/** Write the file `path`, and seal it; an old one is overwritten.
 *
 * detail:     of the user block (equal on all ranks).
 * Collective: over `comm`. Errors: BP_ERR_IO (disk full), BP_ERR_CREATE, BP_ERR_DENIED;
 *             BP_ERR_CONFIG more n-grams of an order than a file holds; BP_ERR_STOPPED a stop was
 *             requested: the same on all ranks. Injected faults: count.write. */
bp_err ngram_write(const char *path, MPI_Comm comm, const ngram_spec *spec,
                   const ngram_levels *levels, const char *detail);
