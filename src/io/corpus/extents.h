/* Extents: the table /checksums of a corpus file. Every row is a range of the file with its hash;
 * everything that no row covers has one hash, in the user block. So data can be checked piece by
 * piece as it is read, and HDF5's own structures before HDF5 reads them. */
#pragma once

#include "base/err.h"
#include "io/h5/user_block.h"
#include <stddef.h>
#include <stdint.h>

#define BP_EXTENT_PIECE_BYTES ((int64_t)1 << 20) /* columns are hashed in pieces of this length */

typedef struct bp_extent {
    uint64_t offset, bytes; /* in the file */
    uint64_t xxh3;          /* XXH3-64 of those bytes */
} bp_extent;                /* as in the file: three little-endian uint64 */

typedef struct bp_extents {
    bp_extent *rows; /* [count], in the file's order: the chunks of /tokens first */
    int64_t *order;  /* rows by ascending offset */
    int64_t count;
} bp_extents;

void bp_extents_clear(bp_extents *extents);

/** Sort `order`. Errors: BP_ERR_FORMAT "damaged": rows that overlap or reach beyond the file. */
bp_err bp_extents_sort(bp_extents *extents, int64_t file_bytes, const char *path);

/** Read `count` rows at `offset` of the file, and sort them. */
bp_err bp_extents_read(bp_extents *extents, int fd, int64_t offset, int64_t count,
                       int64_t file_bytes, const char *path);

/** XXH3-128 of all bytes after the user block that no row covers, in ascending order. */
bp_err bp_extents_outside(const bp_extents *extents, int fd, int64_t file_bytes, const char *path,
                          char hash[BP_USER_BLOCK_HASH]);

/** Read the bytes of one row to `data`, and compare the hash. `what` names it in the message.
 *  Errors: BP_ERR_FORMAT "damaged"; BP_ERR_IO. */
bp_err bp_extent_read(const bp_extent *extent, int fd, void *data, const char *what,
                      const char *path);

/** data[bytes] = the file's bytes from `offset` on, which whole rows cover; checks all of them. */
bp_err bp_extents_load(const bp_extents *extents, int fd, int64_t offset, void *data, int64_t bytes,
                       const char *what, const char *path);
