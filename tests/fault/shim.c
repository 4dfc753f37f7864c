/* Taken before the C library (LD_PRELOAD), in bagpipe's processes alone: the n-th call that changes
 * what is below a folder, or the n-th allocation, fails or kills; and a log of all such calls, from
 * which a lost power supply can be played.
 *
 *     BP_SHIM=ACTION:N[@RANK]     kill, enospc, eio, edquot, enomem, eintr (of write and open),
 *                                 short (half of a write is done)
 *     BP_SHIM_PREFIX=/a/run       only calls on what is below it
 *     BP_SHIM_CALLS=write,fsync   only these: write (and pwrite) fsync rename open link unlink
 *                                 mkdir ftruncate symlink, or malloc@NAME: allocations made by
 *                                 the library or program whose file name contains NAME
 *     BP_SHIM_FIRED=FILE          is created, with the call's name, when the call was hit
 *     BP_SHIM_COUNT=FILE          how many calls were counted, written at the end
 *     BP_SHIM_LOG=FILE            records (see put_record) of all calls below the prefix that came
 *                                 through
 *     BP_SHIM_CLOCK=1             the wall clock leaps by years, back and forth, at every look
 *
 * What the C library calls inside itself (stdio) is not seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef enum action { NONE, KILL, FAIL, EINTR_ONCE, SHORT } action;

static action what;
static int number;        /* errno of FAIL */
static atomic_long to_go; /* counted calls before the one that is hit */
static long first_to_go;
static char prefix[4096], calls[256], fired[4096], allocator[64];
static int log_fd = -1;
static pthread_mutex_t in_order = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool ready;

/* ---- what is asked ---- */

static void copy(char *out, size_t bytes, const char *value)
{
    (void)snprintf(out, bytes, "%s", value == NULL ? "" : value);
}

static void read_action(const char *text)
{
    static const struct {
        const char *word;
        action what;
        int number;
    } ACTIONS[] = {{"kill:", KILL, 0},        {"enospc:", FAIL, ENOSPC},     {"eio:", FAIL, EIO},
                   {"edquot:", FAIL, EDQUOT}, {"eintr:", EINTR_ONCE, EINTR}, {"short:", SHORT, 0},
                   {"enomem:", FAIL, ENOMEM}};
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *at = strchr(text, '@');

    if (at != NULL && atol(at + 1) != (rank == NULL ? 0 : atol(rank)))
        return;
    for (size_t k = 0; k < sizeof ACTIONS / sizeof ACTIONS[0]; k++)
        if (strncmp(text, ACTIONS[k].word, strlen(ACTIONS[k].word)) == 0) {
            what = ACTIONS[k].what;
            number = ACTIONS[k].number;
            first_to_go = atol(text + strlen(ACTIONS[k].word)) - 1;
            atomic_store(&to_go, first_to_go);
        }
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("BP_SHIM"), *log = getenv("BP_SHIM_LOG");
    const char *malloc_of;

    if (strncmp(program_invocation_short_name, "bagpipe", 7) != 0)
        return;
    copy(prefix, sizeof prefix, getenv("BP_SHIM_PREFIX"));
    copy(calls, sizeof calls, getenv("BP_SHIM_CALLS"));
    copy(fired, sizeof fired, getenv("BP_SHIM_FIRED"));
    malloc_of = strstr(calls, "malloc@");
    if (malloc_of != NULL)
        copy(allocator, sizeof allocator, malloc_of + 7);
    if (text != NULL)
        read_action(text);
    if (log != NULL)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                              0666);
    atomic_store(&ready, true);
}

static void put_file(const char *name, const char *text)
{
    int fd =
        (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0)
        return;
    (void)syscall(SYS_write, fd, text, strlen(text));
    (void)syscall(SYS_close, fd);
}

static void tell(const char *call, const char *path)
{
    char text[4400];

    (void)snprintf(text, sizeof text, "%s %s\n", call, path);
    if (fired[0] != 0)
        put_file(fired, text);
}

__attribute__((destructor)) static void count(void)
{
    const char *name = getenv("BP_SHIM_COUNT");
    char text[32];

    (void)snprintf(text, sizeof text, "%ld\n", first_to_go - atomic_load(&to_go));
    if (name != NULL && what != NONE)
        put_file(name, text);
}

static bool is_counted(const char *call)
{
    const char *at = strstr(calls, call);

    return calls[0] == 0 || (at != NULL && (at == calls || at[-1] == ','));
}

static bool is_below(const char *path)
{
    size_t bytes = strlen(prefix);

    return strncmp(path, prefix, bytes) == 0 &&
           (path[bytes] == '/' || path[bytes] == 0 || bytes == 0);
}

static void path_of(int fd, char out[4096])
{
    char link[40];
    ssize_t bytes;

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    bytes = readlink(link, out, 4095);
    out[bytes < 0 ? 0 : bytes] = 0;
}

/* Is this call the one? Dies, or says so. */
static bool hit(const char *call, const char *path)
{
    if (what == NONE || !atomic_load(&ready) || !is_counted(call) || !is_below(path))
        return false;
    if (what == EINTR_ONCE && strcmp(call, "write") != 0 && strcmp(call, "open") != 0)
        return false;
    if (what == SHORT && strcmp(call, "write") != 0)
        return false;
    if (atomic_fetch_sub(&to_go, 1) != 0)
        return false;
    tell(call, path);
    if (what == KILL)
        (void)raise(SIGKILL);
    errno = number;
    return true;
}

/* ---- the log ---- */

/* "OP INODE OFFSET BYTES PATH_BYTES MORE_BYTES\n", then so many bytes of data, path and second
 * path. */
static void put_record(const char *op, ino_t inode, int64_t offset, const void *data, size_t bytes,
                       const char *path, const char *more)
{
    char head[160];
    int length =
        snprintf(head, sizeof head, "%s %llu %lld %zu %zu %zu\n", op, (unsigned long long)inode,
                 (long long)offset, bytes, strlen(path), strlen(more));

    (void)syscall(SYS_write, log_fd, head, length);
    (void)syscall(SYS_write, log_fd, data, bytes);
    (void)syscall(SYS_write, log_fd, path, strlen(path));
    (void)syscall(SYS_write, log_fd, more, strlen(more));
}

static bool is_logged(const char *path)
{
    return log_fd >= 0 && is_below(path);
}

static ino_t inode_of(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

static ino_t inode_at(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 ? status.st_ino : 0;
}

/* ---- the calls ---- */

static ssize_t write_at(int fd, const void *data, size_t bytes, off_t offset, bool at)
{
    char path[4096] = "";
    bool log;
    ssize_t done;

    if (what != NONE || log_fd >= 0)
        path_of(fd, path);
    if (path[0] == '/' && hit("write", path)) {
        if (what != SHORT)
            return -1;
        bytes = bytes > 1 ? bytes / 2 : bytes;
    }
    log = is_logged(path);
    if (log) {
        (void)pthread_mutex_lock(&in_order);
        if (!at)
            offset =
                (fcntl(fd, F_GETFL) & O_APPEND) ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
    }
    done =
        at ? syscall(SYS_pwrite64, fd, data, bytes, offset) : syscall(SYS_write, fd, data, bytes);
    if (log) {
        if (done > 0)
            put_record("write", inode_of(fd), offset, data, (size_t)done, path, "");
        (void)pthread_mutex_unlock(&in_order);
    }
    return done;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return write_at(fd, data, bytes, 0, false);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_at(fd, data, bytes, offset, true);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_at(fd, data, bytes, offset, true);
}

/* A call on a descriptor that carries no data. */
static int on_fd(const char *call, int fd, long (*act)(int fd, off_t length), off_t length)
{
    char path[4096];
    bool log;
    long done;

    path_of(fd, path);
    if (hit(call, path))
        return -1;
    log = is_logged(path);
    if (log)
        (void)pthread_mutex_lock(&in_order);
    done = act(fd, length);
    if (log) {
        if (done == 0)
            put_record(call, inode_of(fd), length, "", 0, path, "");
        (void)pthread_mutex_unlock(&in_order);
    }
    return (int)done;
}

static long do_fsync(int fd, off_t length)
{
    (void)length;
    return syscall(SYS_fsync, fd);
}

static long do_ftruncate(int fd, off_t length)
{
    return syscall(SYS_ftruncate, fd, length);
}

int fsync(int fd)
{
    return on_fd("fsync", fd, do_fsync, 0);
}

int fdatasync(int fd)
{
    return on_fd("fsync", fd, do_fsync, 0);
}

int ftruncate(int fd, off_t length)
{
    return on_fd("ftruncate", fd, do_ftruncate, length);
}

int ftruncate64(int fd, off_t length)
{
    return on_fd("ftruncate", fd, do_ftruncate, length);
}

/* A call on one or two names: what it was called with in `path` and `more`; `on` is the one that is
 * below the prefix. */
static int on_names(const char *call, const char *path, const char *more, const char *on,
                    long (*act)(const char *, const char *, unsigned), unsigned flags)
{
    bool log;
    ino_t inode;
    long done;

    if (hit(call, on))
        return -1;
    log = is_logged(on);
    if (log)
        (void)pthread_mutex_lock(&in_order);
    inode = log ? inode_at(path) : 0;
    done = act(path, more, flags);
    if (log) {
        if (done == 0)
            put_record(call, inode == 0 ? inode_at(on) : inode, 0, "", 0, path, more);
        (void)pthread_mutex_unlock(&in_order);
    }
    return (int)done;
}

static long do_rename(const char *from, const char *to, unsigned flags)
{
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

static long do_link(const char *from, const char *to, unsigned flags)
{
    (void)flags;
    return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static long do_symlink(const char *to, const char *from, unsigned flags)
{
    (void)flags;
    return syscall(SYS_symlinkat, to, AT_FDCWD, from);
}

static long do_unlink(const char *path, const char *none, unsigned flags)
{
    (void)none;
    return syscall(SYS_unlinkat, AT_FDCWD, path, flags);
}

static long do_mkdir(const char *path, const char *none, unsigned mode)
{
    (void)none;
    return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to)
{
    return on_names("rename", from, to, to, do_rename, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (from_folder != AT_FDCWD || to_folder != AT_FDCWD)
        return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    return on_names("rename", from, to, to, do_rename, flags);
}

int link(const char *from, const char *to)
{
    return on_names("link", from, to, to, do_link, 0);
}

int symlink(const char *to, const char *from)
{
    return on_names("symlink", to, from, from, do_symlink, 0);
}

int unlink(const char *path)
{
    return on_names("unlink", path, "", path, do_unlink, 0);
}

int rmdir(const char *path)
{
    return on_names("unlink", path, "", path, do_unlink, AT_REMOVEDIR);
}

int mkdir(const char *path, mode_t mode)
{
    return on_names("mkdir", path, "", path, do_mkdir, mode);
}

/* Files that are opened for reading alone are not counted: nothing changes. */
static int open_any(const char *path, int flags, mode_t mode)
{
    bool changes = (flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR)) != 0,
         log = changes && is_logged(path);
    ino_t before;
    int fd;

    if (changes && hit("open", path))
        return -1;
    if (!log)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    (void)pthread_mutex_lock(&in_order);
    before = inode_at(path);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && before == 0)
        put_record("create", inode_of(fd), 0, "", 0, path, "");
    else if (fd >= 0 && (flags & O_TRUNC))
        put_record("ftruncate", before, 0, "", 0, path, "");
    (void)pthread_mutex_unlock(&in_order);
    return fd;
}

int open(const char *path, int flags, ...)
{
    va_list more;
    mode_t mode;

    va_start(more, flags);
    mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_any(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    mode_t mode;

    va_start(more, flags);
    mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_any(path, flags, mode);
}

/* ---- memory ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static __thread bool inside;

/* Is the allocation that `caller` makes the one that fails? */
static bool starves(const void *caller)
{
    Dl_info where;
    bool hits = false;

    if (what == NONE || allocator[0] == 0 || inside || !atomic_load(&ready))
        return false;
    inside = true; /* dladdr and what follows may allocate */
    if (dladdr(caller, &where) != 0 && where.dli_fname != NULL) {
        const char *base = strrchr(where.dli_fname, '/');

        if (strstr(base == NULL ? where.dli_fname : base, allocator) != NULL &&
            atomic_fetch_sub(&to_go, 1) == 0) {
            tell("malloc", where.dli_sname == NULL ? "" : where.dli_sname);
            hits = true;
        }
    }
    inside = false;
    if (hits)
        errno = ENOMEM;
    return hits;
}

void *malloc(size_t bytes)
{
    return starves(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t size)
{
    return starves(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t bytes)
{
    return bytes > 0 && starves(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *got = starves(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);

    if (got == NULL)
        return ENOMEM;
    *out = got;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return starves(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

/* ---- the wall clock ---- */

#define TEN_YEARS 315360000

static void leap(struct timespec *out)
{
    static atomic_int looks;
    static atomic_int leaps = -1;

    if (atomic_load(&leaps) < 0)
        atomic_store(&leaps, getenv("BP_SHIM_CLOCK") != NULL);
    if (atomic_load(&leaps) > 0)
        out->tv_sec += (atomic_fetch_add(&looks, 1) % 3 - 1) * (time_t)TEN_YEARS;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int status = (int)syscall(SYS_clock_gettime, clock, out);

    if (status == 0 && clock == CLOCK_REALTIME)
        leap(out);
    return status;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}
