/* An HDF5 file of ours that is there whole or not at all: written as PATH.tmp, sealed, renamed, on
 * the disk. For folders that one job holds alone (the run lock), so that one temporary name will
 * do: what a killed job left is overwritten. Local: no MPI. */
#ifndef BP_IO_H5_H5_DRAFT_H
#define BP_IO_H5_H5_DRAFT_H

#include "io/h5/h5.h"

typedef struct bp_h5_draft {
    bp_h5 *file; /* to write to, between begin and commit */
    char *path, *temporary;
} bp_h5_draft;

/** A new file with its root attribute format_version.
 *
 * Owns:       what is in *draft until bp_h5_draft_end(), after an error too.
 * Errors:     those of bp_h5_create; BP_ERR_SYSTEM.
 */
bp_err bp_h5_draft_begin(bp_h5_draft *draft, const char *path, int version);
/** Close, seal with the user block {kind, version}, rename, bring the name to the disk.
 *
 * Errors: BP_ERR_IO, BP_ERR_DENIED. */
bp_err bp_h5_draft_commit(bp_h5_draft *draft, const char *kind, int version);
/** Free; without a commit before it the temporary file is removed. A draft of zeros is accepted. */
void bp_h5_draft_end(bp_h5_draft *draft);

#endif
