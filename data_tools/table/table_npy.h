/* A dataset of one of our files as NumPy's .npy. */
#pragma once

#include "base/err.h"

/** Write dataset `name` of the file to `out`, in its own type: reals and integers of one or two
 * dimensions, and text. Errors: BP_ERR_FORMAT a damaged file, or no such dataset; BP_ERR_INPUT, and
 * those of writing. */
bp_err table_write_npy(const char *path, const char *name, const char *out);
