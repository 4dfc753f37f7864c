/* Sampled last-layer matrices (Laplace approximation): one HDF5 file of ours, read row by row.
 * docs/formats.md has the layout. Local, except for bp_head_samples_open. */
#pragma once

#include "base/err.h"
#include "base/files/hash.h"

#include <mpi.h>
#include <stdint.h>

typedef struct bp_head_samples bp_head_samples;

typedef struct bp_head_samples_info {
    int64_t samples, vocab_size, width;
    char model_digest[65];      /* of the model whose head they replace */
    char digest[BP_SHA256_HEX]; /* digest of their settings: equal digests mean equal samples */
    char notes[1024];           /* results of making them, as JSON; may be empty */
} bp_head_samples_info;

/** A new file under a temporary name. Errors: those of bp_h5_create. */
bp_err bp_head_samples_create(bp_head_samples **out, const char *path,
                              const bp_head_samples_info *info);
/** Rows [first, first + count) of sample s: weights[count][width]. Errors: BP_ERR_IO. */
bp_err bp_head_samples_write(bp_head_samples *file, int64_t sample, int64_t first, int64_t count,
                             const float *weights);
/** Put the file in place, sealed and fsynced; *file is NULL afterwards in any case. */
bp_err bp_head_samples_commit(bp_head_samples **file);

/** Open one on all ranks of `comm`, after one of them has hashed it.
 *
 * Collective: over `comm`. Errors: BP_ERR_INPUT, BP_ERR_FORMAT damaged, another kind or version;
 * BP_ERR_IO: the same on all ranks. */
bp_err bp_head_samples_open(bp_head_samples **out, MPI_Comm comm, const char *path);
const bp_head_samples_info *bp_head_samples_info_of(const bp_head_samples *file);
bp_err bp_head_samples_read(bp_head_samples *file, int64_t sample, int64_t first, int64_t count,
                            float *weights);
/** Close; a file that was not committed is removed. NULL is accepted. */
void bp_head_samples_close(bp_head_samples **file);
