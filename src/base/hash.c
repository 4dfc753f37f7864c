/* SHA-256 and XXH3 of bytes and files, and random tokens. */
#include "base/hash.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "base/xxh.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES (1 << 20)

struct bp_sha256 {
    EVP_MD_CTX *context;
};

static bp_err fail_crypto(void)
{
    return bp_fail(BP_ERR_SYSTEM, "SHA-256 failed in libcrypto; check the OpenSSL installation");
}

bp_err bp_sha256_new(bp_sha256 **out)
{
    bp_sha256 *hash = bp_alloc("base.sha256", 1, sizeof(*hash));

    *out = NULL;
    hash->context = EVP_MD_CTX_new();
    if (hash->context == NULL || EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) != 1) {
        bp_sha256_free(&hash);
        return fail_crypto();
    }
    *out = hash;
    return BP_OK;
}

bp_err bp_sha256_update(bp_sha256 *hash, const void *data, size_t bytes)
{
    bp_heartbeat_progress(); /* long files take long */
    return EVP_DigestUpdate(hash->context, data, bytes) == 1 ? BP_OK : fail_crypto();
}

bp_err bp_sha256_finish(bp_sha256 *hash, char hex[BP_SHA256_HEX])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;

    if (EVP_DigestFinal_ex(hash->context, digest, &length) != 1 || 2 * length + 1 != BP_SHA256_HEX)
        return fail_crypto();
    for (unsigned int i = 0; i < length; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return BP_OK;
}

void bp_sha256_free(bp_sha256 **hash)
{
    if (*hash == NULL)
        return;
    EVP_MD_CTX_free((*hash)->context);
    bp_free(*hash);
    *hash = NULL;
}

bp_err bp_sha256_of(const void *data, size_t bytes, char hex[BP_SHA256_HEX])
{
    bp_sha256 *hash;
    bp_err err = bp_sha256_new(&hash);

    if (err == BP_OK)
        err = bp_sha256_update(hash, data, bytes);
    if (err == BP_OK)
        err = bp_sha256_finish(hash, hex);
    bp_sha256_free(&hash);
    return err;
}

static bp_err hash_descriptor(bp_sha256 *hash, int fd, const char *path, int64_t *size_bytes)
{
    char *buffer = bp_alloc("base.sha256", READ_BYTES, 1);
    bp_err err = BP_OK;
    int64_t total = 0;

    while (err == BP_OK) {
        ssize_t got = read(fd, buffer, READ_BYTES);
        if (got == 0)
            break;
        if (got > 0) {
            total += got;
            err = bp_sha256_update(hash, buffer, (size_t)got);
        } else if (errno != EINTR) {
            err = bp_fail_errno(BP_ERR_IO, "can't read", path);
        }
    }
    bp_free(buffer);
    if (size_bytes != NULL)
        *size_bytes = total;
    return err;
}

bp_err bp_sha256_of_file(const char *path, char hex[BP_SHA256_HEX], int64_t *size_bytes)
{
    bp_sha256 *hash = NULL;
    int fd;
    bp_err err = bp_file_open(path, &fd, NULL);

    if (err != BP_OK)
        return err;
    err = bp_sha256_new(&hash);
    if (err == BP_OK)
        err = hash_descriptor(hash, fd, path, size_bytes);
    if (err == BP_OK)
        err = bp_sha256_finish(hash, hex);
    bp_sha256_free(&hash);
    (void)close(fd); /* only read from */
    return err;
}

bp_err bp_xxh128_add_file(XXH3_state_t *state, int fd, int64_t from, int64_t to, const char *path)
{
    char *buffer = bp_alloc("base.xxh128", READ_BYTES, 1);
    bp_err err = BP_OK;

    while (err == BP_OK && from < to) {
        size_t now = to - from < READ_BYTES ? (size_t)(to - from) : READ_BYTES;

        bp_heartbeat_progress(); /* long files take long */
        if (bp_pread_all(fd, buffer, now, from) != 0)
            err = bp_fail_errno(BP_ERR_IO, "can't read", path);
        else
            bp_xxh128_add(state, buffer, now);
        from += (int64_t)now;
    }
    bp_free(buffer);
    return err;
}

uint64_t bp_xxh3(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

uint32_t bp_crc32c(const void *data, size_t bytes)
{
    /* of each half byte, by the polynomial 0x82f63b78 (lowest bit first) */
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *at = data;
    uint32_t crc = UINT32_MAX;

    for (size_t k = 0; k < bytes; k++) {
        crc ^= at[k];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

void bp_digest_merge(bp_digest *into, const bp_digest *from)
{
    into->lane[0] += from->lane[0];
    into->lane[1] += from->lane[1];
}
