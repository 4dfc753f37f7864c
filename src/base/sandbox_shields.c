/* What holds a sandboxed child: limits and seccomp. */
#include "sandbox_priv.h"

#include "base/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif

/* ---- limits ---- */

static bool set_limit(__rlimit_resource_t which, rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {soft, hard}, now;

    if (getrlimit(which, &now) == 0 && now.rlim_max != RLIM_INFINITY) { /* it is held shorter */
        limit.rlim_max = now.rlim_max < hard ? now.rlim_max : hard;
        if (limit.rlim_cur >= limit.rlim_max) /* the soft one is to speak first */
            limit.rlim_cur = limit.rlim_max - (limit.rlim_max > 1 && hard > soft);
    }
    return setrlimit(which, &limit) == 0;
}

/* What this process has mapped: a job may have terabytes reserved. */
static int64_t mapped_bytes(void)
{
    unsigned long long pages = 0;
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    if (fd >= 0)
        (void)close(fd);
    return got > 0 && sscanf(text, "%llu", &pages) == 1 ? (int64_t)pages * sysconf(_SC_PAGESIZE)
                                                        : INT64_C(1) << 40;
}

/* A core of 1 byte is none, neither as a file nor through a pipe to a handler. Beyond its soft
 * limit of processor time a child gets XCPU: KILL, which the hard one gives, is left to others. */
bool sandbox_limit(const bp_sandbox *sandbox)
{
    rlim_t seconds = (rlim_t)ceil(sandbox->seconds);
    rlim_t memory = (rlim_t)(mapped_bytes() + sandbox->memory_bytes);

    return set_limit(RLIMIT_AS, memory, memory) && set_limit(RLIMIT_CPU, seconds, seconds + 5) &&
           set_limit(RLIMIT_FSIZE, 0, 0) && set_limit(RLIMIT_CORE, 1, 1) &&
           set_limit(RLIMIT_NPROC, 0, 0) &&
           set_limit(RLIMIT_NOFILE, SANDBOX_DESCRIPTORS, SANDBOX_DESCRIPTORS) &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

/* "FIRST-END RIGHTS ...": shared memory goes, whatever its rights: what is only read from may be
 * made writable where the file was opened for both. Not through munmap(), at which MPI's hooks for
 * registered memory listen. */
static bool leave_if_shared(const char *line)
{
    unsigned long long first, end;
    char rights[5] = "";

    return sscanf(line, "%llx-%llx %4s", &first, &end, rights) != 3 || rights[3] != 's' ||
           syscall(SYS_munmap, (void *)(uintptr_t)first, (size_t)(end - first)) == 0;
}

/* Memory that other processes see (MPI's, between the ranks of a node) goes from this one. */
bool sandbox_leave_shared_memory(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL; /* a name may be of any length, and hold what looks like another line */
    size_t room = 0;
    bool left = true;

    while (maps != NULL && left && getline(&line, &room, maps) > 0)
        left = leave_if_shared(line);
    free(line);
    return (maps == NULL || fclose(maps) == 0) && left;
}

/* ---- seccomp: what reading a file needs, and nothing else ---- */

#ifdef NATIVE_ARCH

#define WRITING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND)
#define ALLOW   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define DENY    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define UNLESS(number, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(number), 0, (skip))
#define ALWAYS(number)       UNLESS(number, 1), ALLOW
/* The low half of an argument is enough: both arguments that are looked at are ints. */
#define WITHOUT_BITS(number, argument, bits)                                                       \
    UNLESS(number, 4), LOAD(args[argument]),                                                       \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)(bits), 0, 1), DENY, ALLOW

/* What is denied gives EPERM: a library that asks for something it can do without goes on. */
bool sandbox_seccomp(void)
{
    static struct sock_filter filter[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        ALWAYS(__NR_read),
        ALWAYS(__NR_pread64),
        ALWAYS(__NR_lseek),
        ALWAYS(__NR_close),
        ALWAYS(__NR_fstat),
        ALWAYS(__NR_newfstatat),
        ALWAYS(__NR_statx),
        ALWAYS(__NR_readlinkat),
        ALWAYS(__NR_getcwd),
#ifdef __x86_64__
        ALWAYS(__NR_stat),
        ALWAYS(__NR_lstat),
        ALWAYS(__NR_readlink),
        WITHOUT_BITS(__NR_open, 1, WRITING),
#endif
        WITHOUT_BITS(__NR_openat, 2, WRITING),
        WITHOUT_BITS(__NR_mmap, 2, PROT_EXEC),
        WITHOUT_BITS(__NR_mprotect, 2, PROT_EXEC),
        ALWAYS(__NR_munmap),
        ALWAYS(__NR_mremap),
        ALWAYS(__NR_madvise),
        ALWAYS(__NR_brk),
        ALWAYS(__NR_futex),
        ALWAYS(__NR_getrandom),
        ALWAYS(__NR_clock_gettime),
        ALWAYS(__NR_gettimeofday),
        ALWAYS(__NR_getpid),
        ALWAYS(__NR_gettid),
        ALWAYS(__NR_rt_sigprocmask),
        ALWAYS(__NR_rt_sigreturn),
        ALWAYS(__NR_exit),
        ALWAYS(__NR_exit_group),
        UNLESS(__NR_write, 4),
        LOAD(args[0]),
        UNLESS(SANDBOX_PIPE, 1),
        ALLOW,
        DENY,
        DENY,
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

#else

bool sandbox_seccomp(void)
{
    return false;
}

#endif
