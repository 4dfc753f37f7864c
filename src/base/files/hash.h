/* Hashes: SHA-256 for identity (OpenSSL's libcrypto), XXH3 for speed (xxHash). */
#pragma once

#include "base/err.h"
#include <stdint.h>

#define BP_SHA256_HEX 65 /* 64 digits and the end */

/** A SHA-256 in parts; bp_sha256_finish frees it. A libcrypto without SHA-256 ends the program. */
typedef struct evp_md_ctx_st bp_sha256;
bp_sha256 *bp_sha256_new(void);
void bp_sha256_update(bp_sha256 *hash, const void *data, size_t bytes);
void bp_sha256_finish(bp_sha256 **hash, char hex[BP_SHA256_HEX]);

/** SHA-256 of a buffer, and of a whole file (its size too, if `size_bytes` is not NULL), as
 * lower-case hexadecimal. */
void bp_sha256_of(const void *data, size_t bytes, char hex[BP_SHA256_HEX]);
bp_err bp_sha256_of_file(const char *path, char hex[BP_SHA256_HEX], int64_t *size_bytes);

uint64_t bp_xxh3(const void *data, size_t bytes);

/** CRC-32C (Castagnoli), for formats that have it; half a byte at a time. Source: RFC 3720, 12.1.
 */
uint32_t bp_crc32c(const void *data, size_t bytes);

/** A digest of a tensor that does not depend on how it is split: sums of mix(key + index, bits),
 * mod 2^64, in two lanes. */
typedef struct bp_digest {
    uint64_t lane[2];
} bp_digest;

/** Add `count` float32 whose places in the whole tensor are first, first+1, ... */
void bp_digest_add(bp_digest *digest, const float *values, int64_t first, int64_t count);
void bp_digest_merge(bp_digest *into, const bp_digest *from);
