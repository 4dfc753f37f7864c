/* Chunks of /tokens, decoded by helper threads ahead of use.
 *
 * A chunk is read with pread(2) at its place in /checksums, checked against its hash and
 * decompressed, without HDF5. For sequential reads, two helper threads decode the next chunks; the
 * caller decodes a needed chunk that no helper has begun. All functions are for one thread. Local:
 * no MPI. */
#pragma once

#include "extents.h"

typedef struct bp_chunks bp_chunks;

typedef struct bp_chunks_spec {
    int fd;                   /* borrowed */
    const char *path;         /* borrowed, for messages */
    const bp_extent *extents; /* [chunks of `tokens`]; borrowed */
    int64_t tokens;
    int64_t vocab_size;
    size_t token_bytes; /* 2 or 4 */
} bp_chunks_spec;

/** Errors: BP_ERR_FORMAT "damaged": an impossibly long chunk; BP_ERR_SYSTEM. */
bp_err bp_chunks_new(bp_chunks **out, const bp_chunks_spec *spec);
void bp_chunks_free(bp_chunks **chunks);

/** tokens[count] = tokens [first, first + count).
 *  Errors: BP_ERR_FORMAT a chunk is damaged, or an id is beyond the vocabulary; BP_ERR_IO;
 * BP_ERR_SYSTEM. */
bp_err bp_chunks_read(bp_chunks *chunks, int64_t first, int64_t count, int32_t *tokens);
