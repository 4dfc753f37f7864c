/* Checks of inputs and outputs of commands. */
#pragma once

#include "base/err.h"

/** Refuse an output that is one of the files the command reads, under any name: writing it would
 * destroy the input. NULL and missing files are ignored. Errors: BP_ERR_USAGE. Local: no MPI.
 */
bp_err bp_output_is_not(const char *out, const char *input);

/** Refuse standard input ("-") among the files of text if it is named twice, or if there are
 * several ranks: a launcher passes it to only one of them. Errors: BP_ERR_USAGE. Local, the same on
 * all ranks. */
bp_err bp_stdin_check(char *const *files, int count);
