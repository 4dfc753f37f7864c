/* Writes a file past the page cache (O_DIRECT), hashes it on the way, and reads it back. The
 * second half of writing a shard. */
#include "io/checkpoint/direct_writer.h"

#include "base/fault.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/xxh.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIGN ((size_t)4096) /* what all disks and file systems are content with */

struct bp_direct_writer {
    char *path;
    int plain;  /* through the page cache: for what is there already, and for the user block */
    int blocks; /* for whole blocks; may go through the page cache too */
    void *room;
    unsigned char *block; /* in `room`: bytes [at, at + filled) of the file */
    int64_t at, bytes;    /* bytes: of the file */
    size_t filled;
    XXH3_state_t *hash;             /* of what follows the user block */
    char text[BP_USER_BLOCK_BYTES]; /* the user block, and its hash, once sealed */
    char written[BP_USER_BLOCK_HASH];
    bool reads; /* back */
};

/* ---- descriptors ---- */

static int open_blocks(const char *path, int mode)
{
    int fd = open(path, mode | O_DIRECT | O_CLOEXEC);

    return fd < 0 && errno == EINVAL ? open(path, mode | O_CLOEXEC) : fd;
}

/* From now on through the page cache: the file system takes no such block, or it is the last one,
 * which is none. False: it was so already. */
static bool go_plain(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DIRECT) != 0 && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static bp_err close_both(bp_direct_writer *file)
{
    int failed = 0;

    if (file->plain >= 0)
        failed |= close(file->plain);
    if (file->blocks >= 0)
        failed |= close(file->blocks);
    file->plain = file->blocks = -1;
    return failed == 0 ? BP_OK : bp_fail_errno(BP_ERR_IO, "can't close", file->path);
}

static bp_err begin_hash(bp_direct_writer *file)
{
    if (XXH3_128bits_reset(file->hash) != XXH_OK)
        return BP_FAIL(BP_ERR_SYSTEM, "the hash failed: at %s", file->path);
    return BP_OK;
}

/* ---- writing ---- */

static bp_err write_block(bp_direct_writer *file)
{
    int status;

    if (file->filled % ALIGN != 0)
        (void)go_plain(file->blocks);
    status = bp_pwrite_all(file->blocks, file->block, file->filled, file->at);
    if (status != 0 && errno == EINVAL && go_plain(file->blocks))
        status = bp_pwrite_all(file->blocks, file->block, file->filled, file->at);
    if (status != 0)
        return bp_fail_errno(BP_ERR_IO, "can't write", file->path);
    file->at += (int64_t)file->filled;
    file->filled = 0;
    return BP_OK;
}

/* data: NULL, what the file holds there already. */
static bp_err append(bp_direct_writer *file, const unsigned char *data, size_t bytes)
{
    bp_err err = BP_OK;

    while (bytes > 0 && err == BP_OK) {
        unsigned char *to = file->block + file->filled;
        size_t now =
            bytes < BP_DIRECT_BYTES - file->filled ? bytes : BP_DIRECT_BYTES - file->filled;

        if (data != NULL)
            memcpy(to, data, now);
        else if (bp_pread_all(file->plain, to, now, file->at + (int64_t)file->filled) != 0)
            return bp_fail_errno(BP_ERR_IO, "can't read", file->path);
        if (XXH3_128bits_update(file->hash, to, now) != XXH_OK)
            return BP_FAIL(BP_ERR_SYSTEM, "the hash failed: at %s", file->path);
        data = data != NULL ? data + now : NULL;
        bytes -= now;
        file->filled += now;
        if (file->filled == BP_DIRECT_BYTES)
            err = write_block(file);
    }
    return err;
}

/* The file keeps what it has up to `offset`. */
static bp_err keep_until(bp_direct_writer *file, int64_t offset)
{
    int64_t place = file->at + (int64_t)file->filled;

    BP_ASSERT(offset >= place);
    return append(file, NULL, (size_t)(offset - place));
}

bp_err bp_direct_writer_put(bp_direct_writer *file, int64_t offset, const void *data, size_t bytes)
{
    bp_err err = keep_until(file, offset);

    return err == BP_OK ? append(file, data, bytes) : err;
}

/* The block is ours to write at the end, and is not hashed. */
static bp_err start(bp_direct_writer *file)
{
    struct stat status;

    file->plain = open(file->path, O_RDWR | O_CLOEXEC);
    if (file->plain >= 0)
        file->blocks = open_blocks(file->path, O_WRONLY);
    if (file->plain < 0 || file->blocks < 0)
        return bp_fail_errno(BP_ERR_IO, "can't open for writing", file->path);
    if (fstat(file->plain, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", file->path);
    file->bytes = (int64_t)status.st_size;
    BP_ASSERT(file->bytes >= BP_USER_BLOCK_BYTES);
    (void)posix_fadvise(file->plain, 0, 0, POSIX_FADV_RANDOM); /* advice: no failure matters */
    memset(file->block, 0, BP_USER_BLOCK_BYTES);
    file->filled = BP_USER_BLOCK_BYTES;
    return begin_hash(file);
}

bp_err bp_direct_writer_open(bp_direct_writer **out, const char *path)
{
    bp_direct_writer *file = bp_alloc("direct", 1, sizeof *file);
    bp_err err = BP_OK;

    *out = NULL;
    *file = (bp_direct_writer){.plain = -1, .blocks = -1};
    file->path = bp_strdup(path);
    file->hash = XXH3_createState();
    file->room = bp_alloc("direct.block", (int64_t)(BP_DIRECT_BYTES + ALIGN), 1);
    if (file->path == NULL || file->hash == NULL || file->room == NULL)
        err = bp_fail_memory("a file to write", (int64_t)BP_DIRECT_BYTES, 1);
    if (err == BP_OK) {
        uintptr_t place = (uintptr_t)file->room;

        file->block = (unsigned char *)file->room + (ALIGN - place % ALIGN) % ALIGN;
        err = start(file);
    }
    if (err != BP_OK)
        bp_direct_writer_free(&file);
    *out = file;
    return err;
}

void bp_direct_writer_free(bp_direct_writer **at)
{
    bp_direct_writer *file = *at;

    *at = NULL;
    if (file == NULL)
        return;
    (void)close_both(file); /* what was to be kept is sealed */
    XXH3_freeState(file->hash);
    bp_free(file->room);
    bp_free(file->path);
    bp_free(file);
}

/* So that reading back reads what the disk holds, of what went through the page cache. Advice: no
 * failure matters. */
static void forget_pages(int fd)
{
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

bp_err bp_direct_writer_seal(bp_direct_writer *file, bp_user_block *block)
{
    bp_err err = keep_until(file, file->bytes), closed;

    if (err == BP_OK && file->filled > 0)
        err = write_block(file);
    if (err == BP_OK) {
        bp_xxh128_hex(file->written, XXH3_128bits_digest(file->hash));
        block->bytes = file->bytes;
        memcpy(block->hash, file->written, sizeof block->hash);
        bp_user_block_text(block, file->text);
        if (bp_pwrite_all(file->plain, file->text, sizeof file->text, 0) != 0)
            err = bp_fail_errno(BP_ERR_IO, "can't write", file->path);
        else if (bp_fault("ckpt.fsync_file") || fsync(file->plain) != 0)
            err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", file->path);
    }
    if (err == BP_OK)
        forget_pages(file->plain);
    closed = close_both(file);
    return err == BP_OK ? closed : err;
}

/* ---- reading back ---- */

static bp_err start_again(bp_direct_writer *file)
{
    file->blocks = open_blocks(file->path, O_RDONLY);
    if (file->blocks < 0)
        return bp_fail_errno(BP_ERR_IO, "can't open", file->path);
    file->at = 0;
    file->reads = true;
    return begin_hash(file);
}

/* 0 at the end of the file, -1. */
static ssize_t read_block(const bp_direct_writer *file)
{
    for (;;) {
        ssize_t got = pread(file->blocks, file->block, BP_DIRECT_BYTES, (off_t)file->at);

        if (got >= 0 || (errno != EINTR && !(errno == EINVAL && go_plain(file->blocks))))
            return got;
    }
}

static bp_err hash_block(bp_direct_writer *file, size_t bytes)
{
    size_t skipped = 0;

    if (file->at == 0) {
        skipped = BP_USER_BLOCK_BYTES;
        if (bytes < skipped || memcmp(file->block, file->text, skipped) != 0)
            return BP_FAIL(BP_ERR_IO,
                           "the user block is read back otherwise than it was written: at %s",
                           file->path);
    }
    if (XXH3_128bits_update(file->hash, file->block + skipped, bytes - skipped) != XXH_OK)
        return BP_FAIL(BP_ERR_SYSTEM, "the hash failed: at %s", file->path);
    file->at += (int64_t)bytes;
    return BP_OK;
}

static bp_err compare(const bp_direct_writer *file)
{
    char hash[BP_USER_BLOCK_HASH];

    bp_xxh128_hex(hash, XXH3_128bits_digest(file->hash));
    if (file->at == file->bytes && strcmp(hash, file->written) == 0 && !bp_fault("ckpt.read_back"))
        return BP_OK;
    return BP_FAIL(BP_ERR_IO,
                   "what was written is read back otherwise (XXH3-128 %s of %lld bytes instead of "
                   "%s of %lld): at %s; the disk, its driver or memory erred",
                   hash, (long long)file->at, file->written, (long long)file->bytes, file->path);
}

bp_err bp_direct_writer_read_back(bp_direct_writer *file, bool *more, char hash[BP_USER_BLOCK_HASH],
                                  int64_t *bytes)
{
    bp_err err = file->reads ? BP_OK : start_again(file);
    ssize_t got = err == BP_OK ? read_block(file) : 0;

    *more = got > 0;
    if (got < 0)
        err = bp_fail_errno(BP_ERR_IO, "can't read", file->path);
    if (got > 0)
        err = hash_block(file, (size_t)got);
    if (err != BP_OK || *more)
        return err;
    *bytes = file->at;
    memcpy(hash, file->written, sizeof file->written);
    return compare(file);
}
