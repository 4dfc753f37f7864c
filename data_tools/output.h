/* Outputs of commands. */
#ifndef BP_DATA_TOOLS_OUTPUT_H
#define BP_DATA_TOOLS_OUTPUT_H

#include "base/err.h"

/** Refuse an output that is one of the files the command reads, under whatever name: writing it
 * would destroy the input. NULL or missing files are none. Errors: BP_ERR_USAGE. Local: no MPI. */
bp_err bp_output_is_not(const char *out, const char *input);

#endif
