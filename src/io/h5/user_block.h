/* The user block: the first 512 bytes of every HDF5 file of ours, as text.
 *
 *     bagpipe corpus 1
 *     bytes 1234567
 *     xxh3-128 0123456789abcdef0123456789abcdef
 *     DETAIL, a line of the kind's own, may be empty
 *     HDF5 begins after these 512 bytes. bagpipe-data inspect FILE; bagpipe-data verify FILE
 *     block xxh3-64 0123456789abcdef
 *
 * and spaces up to the last byte, a newline. `bytes` is the length of the whole file; the first
 * hash is of all that follows the block (`tail -c +513 FILE | xxh128sum` prints it), the second
 * one of the block's lines before it. A block has one spelling: a block that differs from the
 * rendering of its fields is damaged, so no byte of a file is unchecked.
 *
 * To write a file: bp_h5_create, ..., bp_h5_close, bp_user_block_seal. To read one:
 * bp_user_block_verify, bp_user_block_expect, and only then bp_h5_open, which is bp_h5_open_kind:
 * HDF5 sees no byte that was not hashed.
 *
 * Kinds there are: "corpus", "checkpoint", "bilm-weights", "head-samples", "score-documents",
 * "score-outcomes", "score-states", "score-tokens". A new one is a kind and a version (from 1)
 * beside its writer; its reader refuses sizes that its attributes can't have.
 *
 * Local: no MPI. No HDF5 call is made here.
 */
#pragma once

#include "base/err.h"
#include <stdint.h>

#define BP_USER_BLOCK_BYTES  512
#define BP_USER_BLOCK_HASH   33 /* XXH3-128: BP_XXH128_HEX (base/files/xxh.h) */
#define BP_USER_BLOCK_KIND   32
#define BP_USER_BLOCK_DETAIL 160

typedef struct bp_user_block {
    char kind[BP_USER_BLOCK_KIND]; /* "corpus", "checkpoint", "score-documents"...: [a-z0-9-]; "": a
                                      foreign file */
    int version;                   /* of the kind's format, from 1 */
    int64_t bytes;                 /* of the file, this block included */
    char hash[BP_USER_BLOCK_HASH]; /* XXH3-128 of everything after the block */
    char detail[BP_USER_BLOCK_DETAIL]; /* printable ASCII, may be empty */
} bp_user_block;

/** Write the block of a closed file with 512 bytes reserved for it, and fsync the file.
 *
 * kind, version and detail are given; bytes and hash are filled in (the file is read once from end
 * to end). Errors: BP_ERR_IO, BP_ERR_DENIED, BP_ERR_INPUT no such file.
 */
bp_err bp_user_block_seal(bp_user_block *block, const char *path);
/** The same by a descriptor for reading and writing; `path` is for messages. */
bp_err bp_user_block_seal_fd(bp_user_block *block, int fd, const char *path);

/** The 512 bytes of `block`, as in a file. */
void bp_user_block_text(const bp_user_block *block, char text[BP_USER_BLOCK_BYTES]);

/** Read the block of the open file `fd` (`path` is for messages) and compare its length with the
 * file's.
 *
 * A file with the HDF5 signature at byte 0 is foreign: BP_OK, and kind is "".
 * Errors: BP_ERR_FORMAT with the word "damaged": empty, no block of ours, truncated or longer;
 * BP_ERR_IO.
 */
bp_err bp_user_block_read_fd(bp_user_block *out, int fd, const char *path);
bp_err bp_user_block_read(bp_user_block *out, const char *path);

/** The same, and verify the hash of everything after the block. A foreign file has none: BP_OK and
 * kind "". Errors: those above; BP_ERR_FORMAT "damaged" when the hash differs. */
bp_err bp_user_block_verify_fd(bp_user_block *out, int fd, const char *path);
bp_err bp_user_block_verify(bp_user_block *out, const char *path);

/** BP_ERR_FORMAT unless the block is of `kind` and of a version from 1 to `version` (the message
 * names both). */
bp_err bp_user_block_expect(const bp_user_block *block, const char *kind, int version,
                            const char *path);
