/* The walk over all of a stranger's HDF5 file, whatever it holds: done in a sandbox
 * (base/sandbox.h), before the job opens it. bp_h5_walk (h5.h) looks closer at the datasets that
 * are read. Local: no MPI. */
#ifndef BP_STORE_H5_INSPECT_H
#define BP_STORE_H5_INSPECT_H

#include "store/h5.h"

/** Links that a file may hold, 10^6; tests set it. */
extern int64_t bp_h5_link_limit;

/** Refuse a file with, anywhere in it: a user block; external or user-defined links; a group inside
 * itself, groups deeper than 8, or more than 10^6 links; datasets of more than 2^40 values, in
 * external files, virtual, or with chunks beyond 256 MiB; more than 4,096 attributes on an object,
 * or one of more than 2^20 values. A soft link where our readers look for something.
 *
 * What no reader of ours reads may otherwise be of any type and dimension and have any filter (the
 * scales of netCDF, the tables of pandas), since it is looked at and not decoded; soft links may
 * stand there, since nothing follows them. bp_h5_walk has the rules for what is read.
 * Errors: BP_ERR_FORMAT says which, and of what object. */
bp_err bp_h5_inspect(bp_h5 *file);

#endif
