/* A file that is written from its begin to its end, and then read back, past the page cache where
 * the file system can do that: no copy in the kernel, and nothing that others read is put out of
 * memory for it. What is written is hashed as it passes. Private to src/store.
 *
 *     bp_direct_writer_open, bp_direct_writer_put..., bp_direct_writer_seal,
 * bp_direct_writer_read_back..., bp_direct_writer_free
 */
#ifndef BP_IO_CHECKPOINT_DIRECT_WRITER_H
#define BP_IO_CHECKPOINT_DIRECT_WRITER_H

#include "base/err.h"
#include "io/h5/user_block.h"

#include <stdbool.h>

/** Of memory, which such a file takes while it is open. */
#define BP_DIRECT_BYTES ((size_t)8 << 20)

typedef struct bp_direct_writer bp_direct_writer;

/** A closed file that has its user block's room, and its whole length; bytes that are never put
 * stay as they are.
 *
 * Owns:   *out is the caller's, bp_direct_writer_free(), which promises nothing of the file; `path`
 * is copied. NULL on failure. Errors: BP_ERR_IO can't be opened; BP_ERR_SYSTEM memory is short.
 */
bp_err bp_direct_writer_open(bp_direct_writer **out, const char *path);
void bp_direct_writer_free(bp_direct_writer **file);

/** Let `bytes` bytes stand at `offset`; offsets ascend. They may come to the file later, so that a
 * disk that is full is told of by a call that follows. Errors: BP_ERR_IO. */
bp_err bp_direct_writer_put(bp_direct_writer *file, int64_t offset, const void *data, size_t bytes);

/** All is put: write the user block, of which kind, version and detail are given, bring the file to
 * disk, close it. Errors: BP_ERR_IO. */
bp_err bp_direct_writer_seal(bp_direct_writer *file, bp_user_block *block);

/** Read the next part of a sealed file. *more is false with the last one, and then *bytes and
 * `hash`, that of its user block, are those of the file.
 *
 * Errors: BP_ERR_IO can't be read, or is not what was written; BP_ERR_SYSTEM.
 */
bp_err bp_direct_writer_read_back(bp_direct_writer *file, bool *more, char hash[BP_USER_BLOCK_HASH],
                                  int64_t *bytes);

#endif
