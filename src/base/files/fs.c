/* Files read whole, reading and writing of all bytes, paths. */
#include "base/files/fs.h"
#include "base/fault.h"
#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* O_NONBLOCK: opening a FIFO that nobody writes to would wait forever; on regular files it does
 * nothing. */
bp_err bp_file_open(const char *path, int *out, int64_t *size_bytes)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bp_err err = BP_OK;

    *out = -1;
    if (fd < 0)
        return bp_fail_errno(BP_ERR_INPUT, "can't open", path);
    if (fstat(fd, &status) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't look at", path);
    else if (S_ISDIR(status.st_mode))
        err = bp_fail(BP_ERR_INPUT, "file.is_folder",
                      "a folder is where a file is needed: at %s; name a file", path);
    else if (!S_ISREG(status.st_mode))
        err = bp_fail(BP_ERR_INPUT, "file.not_regular",
                      "not a regular file (a pipe, socket or device): at %s; name a file", path);
    if (err != BP_OK) {
        (void)close(fd);
        return err;
    }
    if (size_bytes)
        *size_bytes = status.st_size;
    *out = fd;
    return BP_OK;
}

static bp_err fail_plain(const char *path)
{
    return bp_fail(BP_ERR_FORMAT, "file.not_plain",
                   "no plain file, but a folder, a link, a pipe or the like: at %s; remove it, or "
                   "put back the file that was there",
                   path);
}

/* ENXIO: a FIFO that nobody reads from, or a socket. */
bp_err bp_plain_open(const char *path, int flags, int *out)
{
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    struct stat status;
    bp_err err = BP_OK;

    *out = -1;
    if (fd < 0 && (errno == ELOOP || errno == EISDIR || errno == ENXIO))
        return fail_plain(path);
    if (fd < 0)
        return (flags & O_CREAT) != 0
                   ? bp_fail_create("can't open", path)
                   : bp_fail_errno(errno == ENAMETOOLONG ? BP_ERR_INPUT : BP_ERR_IO, "can't open",
                                   path);
    if (fstat(fd, &status) != 0)
        err = bp_fail_errno(BP_ERR_IO, "can't look at", path);
    else if (!S_ISREG(status.st_mode))
        err = fail_plain(path);
    if (err == BP_OK)
        *out = fd;
    else
        (void)close(fd);
    return err;
}

/* The size is only a guess (files in /proc say 0, others grow): read until the end or the limit.
 */
static bp_err read_to_end(int fd, const char *path, int64_t guess, int64_t limit, char **out,
                          size_t *bytes)
{
    int64_t capacity = (guess < limit ? guess : limit) + 1, used = 0;
    char *data = bp_try_alloc("base.file", capacity + 1, 1);

    while (data) {
        ssize_t got = read(fd, data + used, (size_t)(capacity - used));
        if (got < 0 && errno == EINTR)
            continue;
        if (bp_fault("base.read")) {
            errno = EIO;
            got = -1;
        }
        if (got < 0) {
            bp_free(data);
            return bp_fail_errno(BP_ERR_IO, "can't read", path);
        }
        used += got;
        if (used > limit) {
            bp_free(data);
            return bp_fail(
                BP_ERR_FORMAT, "file.too_long",
                "the file is longer than the %lld bytes allowed: at %s; is it the right one?",
                (long long)limit, path);
        }
        if (got == 0) {
            data[used] = 0;
            *out = data;
            *bytes = (size_t)used;
            return BP_OK;
        }
        if (used == capacity) {
            capacity = capacity < limit / 2 ? 2 * capacity : limit + 1;
            char *more = bp_try_realloc("base.file", data, capacity + 1, 1);
            if (!more)
                bp_free(data);
            data = more;
        }
    }
    return bp_err_prefix(bp_fail_memory("a file", capacity, 1), "%s", path);
}

/* opened: the result of the open, which has set fd. */
static bp_err read_whole(bp_err opened, int fd, const char *path, int64_t limit_bytes, char **data,
                         size_t *bytes)
{
    struct stat status;

    *data = NULL;
    *bytes = 0;
    BP_ASSERT(limit_bytes >= 0 && limit_bytes < INT64_MAX - 1);
    if (opened != BP_OK)
        return opened;
    bp_err err = fstat(fd, &status) != 0
                     ? bp_fail_errno(BP_ERR_IO, "can't look at", path)
                     : read_to_end(fd, path, status.st_size, limit_bytes, data, bytes);
    (void)close(fd); /* only read from */
    return err;
}

bool bp_is_lfs_pointer(const char *text, size_t bytes)
{
    static const char SIGN[] = "version https://git-lfs.github.com/spec/";

    return bytes >= sizeof SIGN - 1 && memcmp(text, SIGN, sizeof SIGN - 1) == 0;
}

bp_err bp_fail_lfs_pointer(const char *path)
{
    return BP_FAIL(BP_ERR_FORMAT, "file.lfs_pointer",
                   "this is a pointer of Git LFS, and not the file: at %s; fetch the file with git "
                   "lfs pull",
                   path);
}

size_t bp_mark_bytes(const char *text, size_t bytes)
{
    static const char MARK[] = "\xEF\xBB\xBF";

    return bytes >= sizeof MARK - 1 && memcmp(text, MARK, sizeof MARK - 1) == 0 ? sizeof MARK - 1
                                                                                : 0;
}

bp_err bp_file_read(const char *path, int64_t limit_bytes, char **data, size_t *bytes)
{
    int fd;
    bp_err err = bp_file_open(path, &fd, NULL);

    return read_whole(err, fd, path, limit_bytes, data, bytes);
}

bp_err bp_plain_read(const char *path, int64_t limit_bytes, char **data, size_t *bytes)
{
    int fd;
    bp_err err = bp_plain_open(path, O_RDONLY, &fd);

    return read_whole(err, fd, path, limit_bytes, data, bytes);
}

/* One system call: the bytes moved, 0 at the end of the file, -1. A write only reads `data`. */
typedef ssize_t (*mover)(int fd, char *data, size_t bytes, int64_t offset);

static ssize_t write_some(int fd, char *data, size_t bytes, int64_t offset)
{
    (void)offset; /* the descriptor's own */
    return write(fd, data, bytes);
}

static ssize_t pwrite_some(int fd, char *data, size_t bytes, int64_t offset)
{
    return pwrite(fd, data, bytes, (off_t)offset);
}

static ssize_t pread_some(int fd, char *data, size_t bytes, int64_t offset)
{
    return pread(fd, data, bytes, (off_t)offset);
}

/* at_end: errno for an end of file before all is moved. */
static int move_all(mover some, int at_end, int fd, char *data, size_t bytes, int64_t offset)
{
    while (bytes > 0) {
        ssize_t moved = some(fd, data, bytes, offset);

        if (moved < 0 && errno == EINTR)
            continue;
        if (moved == 0)
            errno = at_end;
        if (moved <= 0)
            return -1;
        data += moved;
        offset += moved;
        bytes -= (size_t)moved;
    }
    return 0;
}

int bp_write_all(int fd, const void *data, size_t bytes)
{
    if (bp_fault("base.write")) {
        errno = ENOSPC;
        return -1;
    }
    return move_all(write_some, ENOSPC, fd, (char *)data, bytes, 0);
}

int bp_pwrite_all(int fd, const void *data, size_t bytes, int64_t offset)
{
    return move_all(pwrite_some, ENOSPC, fd, (char *)data, bytes, offset);
}

int bp_pread_all(int fd, void *data, size_t bytes, int64_t offset)
{
    return move_all(pread_some, ENODATA, fd, data, bytes, offset);
}

void bp_token_new(char out[BP_TOKEN_BYTES])
{
    uint64_t bits;

    while (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        BP_CHECK(errno == EINTR); /* no kernel refuses this few bytes */
    (void)snprintf(out, BP_TOKEN_BYTES, "%016" PRIx64, bits);
}

bool bp_is_temporary_name(const char *name)
{
    size_t bytes = strlen(name);

    return bytes > 8 && strncmp(name, ".bp-", 4) == 0 && strcmp(name + bytes - 4, ".tmp") == 0;
}

char *bp_path_folder(const char *path)
{
    int bytes = (int)(bp_path_base(path) - path);

    return bytes == 0 ? bp_strdup(".") : bp_sprintf("%.*s", bytes, path);
}

int bp_path_try_names(const char *path, const char *before, const char *after,
                      int (*make)(const char *name, int *fd), char **name, int *fd)
{
    int folder_bytes = (int)(bp_path_base(path) - path), number = EEXIST;
    char token[BP_TOKEN_BYTES];

    for (int attempt = 0; attempt < 16 && number == EEXIST; attempt++) {
        bp_token_new(token);
        *name = bp_sprintf("%.*s%s%s%s", folder_bytes, path, before, token, after);
        if (make(*name, fd) == 0)
            return 0;
        number = errno;
        bp_free(*name);
    }
    *name = NULL;
    *fd = -1;
    errno = number;
    return -1;
}

void bp_file_begin_sync(int fd, int64_t first, int64_t bytes)
{
    (void)sync_file_range(fd, (off_t)first, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

bool bp_path_exists(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0;
}

bool bp_path_is_dir(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int64_t bp_file_size(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? (int64_t)status.st_size : -1;
}

bp_err bp_path_sync_parent(const char *path)
{
    char *parent = bp_path_folder(path);
    bp_err err = bp_path_sync(parent);

    bp_free(parent);
    return err;
}

bp_err bp_path_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bp_err err = BP_OK;

    if (fd < 0)
        return bp_fail_errno(BP_ERR_IO, "can't open", path);
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: a file system that can't sync folders */
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", path);
    (void)close(fd);
    return err;
}

char *bp_path_join(const char *folder, const char *name)
{
    size_t bytes = strlen(folder);

    if (name[0] == '/' || bytes == 0)
        return bp_strdup(name);
    return bp_sprintf("%s%s%s", folder, folder[bytes - 1] == '/' ? "" : "/", name);
}

bp_path bp_path_in(const char *folder, const char *name)
{
    char *path = bp_path_join(folder, name);
    bp_path out;

    (void)snprintf(out.text, sizeof out.text, "%s", path);
    bp_free(path);
    return out;
}

const char *bp_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return !slash ? path : slash + 1;
}

char *bp_path_insert(const char *path, const char *word)
{
    const char *dot = strrchr(bp_path_base(path), '.');
    int stem = (int)(dot ? dot - path : (ptrdiff_t)strlen(path));

    return bp_sprintf("%.*s.%s%s", stem, path, word, path + stem);
}
