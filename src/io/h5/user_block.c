/* The user block of our HDF5 files: rendering, reading, hashing. */
#include "io/h5/user_block.h"

#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/files/xxh.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "bagpipe "
#define LAST_LINE                                                                                  \
    "HDF5 begins after these 512 bytes. bagpipe-data inspect FILE; bagpipe-data verify FILE\n"
#define NEWEST_VERSION 1 /* of any kind so far */

static const unsigned char HDF5_SIGNATURE[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

void bp_user_block_text(const bp_user_block *block, char text[BP_USER_BLOCK_BYTES])
{
    char lines[BP_USER_BLOCK_BYTES + 1];
    int n =
        snprintf(lines, sizeof lines, MAGIC "%s %d\nbytes %" PRId64 "\nxxh3-128 %s\n%s\n" LAST_LINE,
                 block->kind, block->version, block->bytes, block->hash, block->detail);

    BP_ASSERT(n > 0 && n < BP_USER_BLOCK_BYTES - 64);
    n += snprintf(lines + n, sizeof lines - (size_t)n, "block xxh3-64 %016" PRIx64 "\n",
                  bp_xxh3(lines, (size_t)n));
    memset(text, ' ', BP_USER_BLOCK_BYTES);
    memcpy(text, lines, (size_t)n);
    text[BP_USER_BLOCK_BYTES - 1] = '\n';
}

/* XXH3-128 of the bytes from the user block's end to the file's. */
static bp_err hash_rest(char hash[BP_USER_BLOCK_HASH], int fd, int64_t file_bytes, const char *path)
{
    XXH3_state_t *state = bp_xxh128_new();
    bp_err err = bp_xxh128_add_file(state, fd, BP_USER_BLOCK_BYTES, file_bytes, path);

    bp_xxh128_hex(hash, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    return err;
}

bp_err bp_user_block_seal_fd(bp_user_block *block, int fd, const char *path)
{
    char text[BP_USER_BLOCK_BYTES];
    struct stat status;
    bp_err err = BP_OK;

    if (fstat(fd, &status) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't look at", path);
    if (err == BP_OK) {
        block->bytes = (int64_t)status.st_size;
        err = hash_rest(block->hash, fd, block->bytes, path);
    }
    if (err == BP_OK) {
        bp_user_block_text(block, text);
        if (bp_pwrite_all(fd, text, sizeof text, 0) != 0 || fsync(fd) != 0)
            err = bp_fail_errno(BP_ERR_IO, "can't write", path);
    }
    return err;
}

bp_err bp_user_block_seal(bp_user_block *block, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bp_err err;

    if (fd < 0)
        return bp_fail_errno(BP_ERR_IO, "can't open for writing", path);
    err = bp_user_block_seal_fd(block, fd, path);
    if (close(fd) != 0 && err == BP_OK)
        err = bp_fail_errno(BP_ERR_IO, "can't close", path);
    return err;
}

/* Fields of a block that follows the grammar; rendering it again checks its exact spelling. */
static bool scan_block(bp_user_block *block, const char text[BP_USER_BLOCK_BYTES + 1])
{
    int detail_at = 0;
    const char *detail_end;
    size_t detail_bytes;

    memset(block, 0, sizeof *block);
    if (sscanf(text, MAGIC "%31[a-z0-9-] %9d\nbytes %18" SCNd64 "\nxxh3-128 %32[0-9a-f]%n",
               block->kind, &block->version, &block->bytes, block->hash, &detail_at) != 4)
        return false;
    if (text[detail_at] != '\n')
        return false;
    detail_at++;
    detail_end = strchr(text + detail_at, '\n');
    if (!detail_end)
        return false;
    detail_bytes = (size_t)(detail_end - (text + detail_at));
    if (detail_bytes >= sizeof block->detail)
        return false;
    memcpy(block->detail, text + detail_at, detail_bytes);
    return block->version >= 1 && block->bytes >= BP_USER_BLOCK_BYTES && strlen(block->hash) == 32;
}

static bp_err parse_block(bp_user_block *out, const char *text, int64_t file_bytes,
                          const char *path)
{
    char again[BP_USER_BLOCK_BYTES];
    char terminated[BP_USER_BLOCK_BYTES + 1];
    bool scanned;

    memcpy(terminated, text, BP_USER_BLOCK_BYTES);
    terminated[BP_USER_BLOCK_BYTES] = '\0';
    if (memcmp(text, MAGIC, strlen(MAGIC)) != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "h5.not_hdf5",
            "%s an HDF5 file: at %s, which begins with neither a user block of bagpipe nor HDF5's "
            "signature; give a file that bagpipe or h5py wrote%s",
            text[0] == '{' ? "JSON Lines, not" : "damaged, or not", path,
            text[0] == '{' ? " (texts of generate: bagpipe-data metrics --hypothesis)" : "");
    scanned = scan_block(out, terminated);
    if (scanned)
        bp_user_block_text(out, again);
    if (scanned && memcmp(again, text, BP_USER_BLOCK_BYTES) != 0 && out->version > NEWEST_VERSION)
        return BP_FAIL(BP_ERR_FORMAT, "h5.unknown_version",
                       "format_version %d is not known (the newest is %d), or the user block is "
                       "damaged: at %s; "
                       "use a newer bagpipe, or make the file anew",
                       out->version, NEWEST_VERSION, path);
    if (!scanned || memcmp(again, text, BP_USER_BLOCK_BYTES) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "h5.damaged",
                       "damaged: at %s, in the user block (bytes 0 to 511); make it anew", path);
    if (out->bytes != file_bytes)
        return BP_FAIL(BP_ERR_FORMAT, "h5.wrong_bytes",
                       "damaged (%s): at %s, which has %" PRId64 " bytes where %" PRId64
                       " were written; make it anew",
                       file_bytes < out->bytes ? "truncated" : "longer than it was", path,
                       file_bytes, out->bytes);
    return BP_OK;
}

bp_err bp_user_block_read_fd(bp_user_block *out, int fd, const char *path)
{
    char text[BP_USER_BLOCK_BYTES];
    struct stat status;

    memset(out, 0, sizeof *out);
    if (fstat(fd, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", path);
    if (status.st_size == 0)
        return BP_FAIL(BP_ERR_FORMAT, "h5.empty",
                       "damaged (empty): at %s, which has 0 bytes; make it anew", path);
    if (status.st_size >= (off_t)sizeof HDF5_SIGNATURE) {
        if (bp_pread_all(fd, text, sizeof HDF5_SIGNATURE, 0) != 0)
            return bp_fail_errno(BP_ERR_IO, "can't read", path);
        if (memcmp(text, HDF5_SIGNATURE, sizeof HDF5_SIGNATURE) == 0)
            return BP_OK;
    }
    if (status.st_size < BP_USER_BLOCK_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "h5.truncated",
                       "damaged (truncated), or not an HDF5 file: at %s, which has %" PRId64
                       " bytes; make it anew",
                       path, (int64_t)status.st_size);
    if (bp_pread_all(fd, text, sizeof text, 0) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", path);
    return parse_block(out, text, (int64_t)status.st_size, path);
}

bp_err bp_user_block_verify_fd(bp_user_block *out, int fd, const char *path)
{
    char hash[BP_USER_BLOCK_HASH];
    bp_err err = bp_user_block_read_fd(out, fd, path);

    if (err != BP_OK || out->kind[0] == '\0')
        return err;
    err = hash_rest(hash, fd, out->bytes, path);
    if (err == BP_OK && strcmp(hash, out->hash) != 0)
        err = BP_FAIL(
            BP_ERR_FORMAT, "h5.damaged",
            "damaged: at %s, whose content has the XXH3-128 %s where %s was written; make it anew",
            path, hash, out->hash);
    return err;
}

typedef bp_err (*reader)(bp_user_block *out, int fd, const char *path);

static bp_err with_file(bp_user_block *out, const char *path, reader read_block)
{
    int fd;
    bp_err err = bp_file_open(path, &fd, NULL);

    memset(out, 0, sizeof *out);
    if (err != BP_OK)
        return err;
    err = read_block(out, fd, path);
    (void)close(fd); /* only read from */
    return err;
}

bp_err bp_user_block_read(bp_user_block *out, const char *path)
{
    return with_file(out, path, bp_user_block_read_fd);
}

bp_err bp_user_block_verify(bp_user_block *out, const char *path)
{
    return with_file(out, path, bp_user_block_verify_fd);
}

bp_err bp_user_block_expect(const bp_user_block *block, const char *kind, int version,
                            const char *path)
{
    if (block->kind[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "h5.foreign",
                       "an HDF5 file that bagpipe did not write, not its '%s': at %s; give another",
                       kind, path);
    if (strcmp(block->kind, kind) != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "h5.wrong_kind",
            "a file of kind '%s', not '%s': at %s (or its user block is damaged); give another",
            block->kind, kind, path);
    if (block->version > version)
        return BP_FAIL(
            BP_ERR_FORMAT, "h5.unknown_version",
            "format_version %d is newer than %d, the newest that this bagpipe reads: at %s (or its "
            "user block is damaged); use a newer bagpipe",
            block->version, version, path);
    return BP_OK;
}
