/* bagpipe doctor. */
#ifndef BP_JOBS_DOCTOR_H
#define BP_JOBS_DOCTOR_H

#include "base/config/config.h"

/** The words after "doctor"; starts MPI, prints the report, and gives the exit status, the same on
 * all ranks. tables: all keys that a configuration may have, NULL-ended. Collective over
 * MPI_COMM_WORLD. */
int bp_doctor_command(int argc, char **argv, const bp_option *const *tables);

#endif
