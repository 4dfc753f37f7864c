/* Foreign HDF5 files are read in a separate process: a file that makes the library crash, or loop,
 * ends only that process, and is refused. */
#pragma once

#include "base/err.h"
#include <stddef.h>

#define BP_H5_APART_RESULT 512

/** Work on a foreign file. */
typedef struct bp_h5_apart {
    const char *path;   /* of the file, for messages; borrowed */
    const char *doing;  /* "converted": the operation, for messages */
    double cpu_seconds; /* limit of processor time; ten times as long by the clock */
    /** In the child. Its changes to memory are lost, except for shared mappings and `result`. */
    bp_err (*work)(void *context, void *result);
    void *context;
    void *result; /* result_bytes, at most BP_H5_APART_RESULT, returned to the parent */
    size_t result_bytes;
} bp_h5_apart;

/** Time limit in seconds for a file of `file_bytes` bytes, at least `least`. */
double bp_h5_apart_seconds(double least, long long file_bytes);

/** Do the work in a child process and wait for it.
 *
 * Errors: those of the work, with its message; BP_ERR_FORMAT it crashed or took too long;
 * BP_ERR_SYSTEM no process, or it was killed; BP_ERR_STOPPED a stop was requested. */
bp_err bp_h5_run_apart(const bp_h5_apart *job);
