/* The walk over all of a stranger's HDF5 file, whatever it holds: done in a sandbox
 * (base/sandbox.h), before the job opens it. bp_h5_walk (h5.h) looks closer at the datasets that
 * are read. Local: no MPI. */
#ifndef BP_STORE_H5_INSPECT_H
#define BP_STORE_H5_INSPECT_H

#include "store/h5.h"

/** Links that a file may hold, 10^6; tests set it. */
extern int64_t bp_h5_link_limit;

/** Refuse a file with, anywhere in it: a user block; soft, external or user-defined links; a group
 * inside itself, groups deeper than 8, or more than 10^6 links; named types; datasets of more than
 * 4 dimensions, of more than 2^40 values, in external files, virtual, with filters other than gzip,
 * shuffle, Fletcher32, lzf and zstd, or with chunks beyond 256 MiB; values that are neither
 * integers, reals, enumerations nor text; attributes of other kinds, or more than 4,096 on an
 * object.
 *
 * Text of variable length may stand in attributes, and in datasets that no reader of ours opens.
 * Errors: BP_ERR_FORMAT says which, and of what object. */
bp_err bp_h5_inspect(bp_h5 *file);

#endif
