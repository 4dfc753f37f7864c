/* SHA-256 and XXH3 of bytes and files, and random tokens. */
#include "base/files/hash.h"
#include "base/files/fs.h"
#include "base/files/xxh.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES (1 << 20)

bp_sha256 *bp_sha256_new(void)
{
    bp_sha256 *hash = EVP_MD_CTX_new();

    BP_CHECK(hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1);
    return hash;
}

void bp_sha256_update(bp_sha256 *hash, const void *data, size_t bytes)
{
    bp_heartbeat_progress(); /* long files take long */
    BP_CHECK(EVP_DigestUpdate(hash, data, bytes) == 1);
}

void bp_sha256_finish(bp_sha256 **hash, char hex[BP_SHA256_HEX])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;

    BP_CHECK(EVP_DigestFinal_ex(*hash, digest, &length) == 1 && 2 * length + 1 == BP_SHA256_HEX);
    for (unsigned int i = 0; i < length; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    EVP_MD_CTX_free(*hash);
    *hash = NULL;
}

void bp_sha256_of(const void *data, size_t bytes, char hex[BP_SHA256_HEX])
{
    bp_sha256 *hash = bp_sha256_new();

    bp_sha256_update(hash, data, bytes);
    bp_sha256_finish(&hash, hex);
}

bp_err bp_sha256_of_file(const char *path, char hex[BP_SHA256_HEX], int64_t *size_bytes)
{
    bp_sha256 *hash;
    char *buffer;
    int64_t total = 0;
    ssize_t got;
    int fd;
    bp_err err = bp_file_open(path, &fd, NULL);

    if (err != BP_OK)
        return err;
    hash = bp_sha256_new();
    buffer = bp_alloc("base.sha256", READ_BYTES, 1);
    while ((got = read(fd, buffer, READ_BYTES)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0) {
            total += got;
            bp_sha256_update(hash, buffer, (size_t)got);
        }
    if (got < 0)
        err = bp_fail_errno(BP_ERR_IO, "can't read", path);
    bp_sha256_finish(&hash, hex);
    bp_free(buffer);
    (void)close(fd); /* only read from */
    if (size_bytes)
        *size_bytes = total;
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
    /* for each half byte; polynomial 0x82f63b78 (lowest bit first) */
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
