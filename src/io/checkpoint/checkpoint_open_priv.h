/* An open checkpoint. Private to src/store. */
#ifndef BP_IO_CHECKPOINT_CHECKPOINT_OPEN_PRIV_H
#define BP_IO_CHECKPOINT_CHECKPOINT_OPEN_PRIV_H

#include "io/checkpoint/checkpoint_priv.h"

struct bp_checkpoint {
    MPI_Comm comm; /* borrowed: outlives the handle */
    char *folder;
    char *tokenizer; /* path, NULL: none */
    bp_manifest *manifest;
    char digest[BP_SHA256_HEX];
};

/** As bp_checkpoint_open; *foreign says, on all ranks, that only the format version is unknown. */
bp_err bp_checkpoint_open_folder(MPI_Comm comm, const char *folder, bp_checkpoint **out,
                                 bool *foreign);

/** What the files hold of every tensor has the manifest's digest; files are shared out over the
 * ranks. Collective: over the communicator of open. Errors: as bp_checkpoint_check_digests. */
bp_err bp_checkpoint_verify_digests(const bp_checkpoint *checkpoint);

/** The place of a file in the manifest; -1: not listed. */
int64_t bp_checkpoint_find_file(const bp_checkpoint *checkpoint, const char *name);

/** The tensor that a slice is of. Errors: BP_ERR_FORMAT it is missing, or has another shape. */
bp_err bp_checkpoint_find_tensor(const bp_checkpoint *checkpoint, const bp_slice *slice,
                                 const bp_manifest_tensor **out);

#endif
