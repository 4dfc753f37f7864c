/* bagpipe doctor. */
#pragma once

#include "base/config/config.h"

/** Run on the words after "doctor": starts MPI, prints the report, and returns the exit status, the
 * same on all ranks. tables: all keys of a configuration, NULL-ended. Collective over
 * MPI_COMM_WORLD. */
int bp_doctor_command(int argc, char **argv, const bp_option *const *tables);
