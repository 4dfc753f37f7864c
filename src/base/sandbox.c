/* The sandbox: the child, its one message, and the parent that waits for it. */
#include "base/sandbox.h"

#include "sandbox_priv.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned bp_sandbox_shields = BP_SHIELD_ALL;

#define WALL  10 /* a busy machine, a slow disk */
#define MAGIC UINT64_C(0xba6b1be5a9db0c5e)

/* One write, which a pipe takes whole (PIPE_BUF is 4096). */
typedef struct verdict {
    uint64_t magic;
    int32_t err;
    uint32_t shields;
    char message[BP_ERR_LINE_BYTES + 8];
    unsigned char reply[BP_SANDBOX_REPLY_BYTES];
} verdict;
_Static_assert(sizeof(verdict) <= 4096, "a verdict is written at once");

/* ---- the child ---- */

/* A bug of ours that a file brings out is a refusal, not the end of the job. */
static void give_up(int status)
{
    _exit(status);
}

static bool close_others(void)
{
    if (syscall(SYS_close_range, SANDBOX_PIPE + 1, ~0u, 0) == 0)
        return true;
    for (int fd = SANDBOX_PIPE + 1; fd < (int)sysconf(_SC_OPEN_MAX); fd++)
        (void)close(fd); /* a kernel before 5.9; most of them are not open */
    return true;
}

/* The file as 3, the pipe as 4, nothing for 0 to 2, and no other. */
static bool arrange_descriptors(int file, int pipe)
{
    int null = open("/dev/null", O_RDWR), high_file = fcntl(file, F_DUPFD, 16),
        high_pipe = fcntl(pipe, F_DUPFD, 16);

    return null >= 0 && high_file >= 0 && high_pipe >= 0 && dup2(null, 0) >= 0 &&
           dup2(null, 1) >= 0 && dup2(null, 2) >= 0 && dup2(high_file, SANDBOX_FILE) >= 0 &&
           dup2(high_pipe, SANDBOX_PIPE) >= 0 && close_others();
}

/* To all processes of a job, or of a terminal: they are the parent's to answer, and no fault of the
 * file's. */
static bool is_for_the_job(int number)
{
    return number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM ||
           number == SIGUSR1 || number == SIGUSR2;
}

/* Handlers that print stacks or set flags are the job's. */
static void reset_signals(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++) /* KILL and STOP can't be, and need not */
        (void)signal(number, is_for_the_job(number) ? SIG_IGN : SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool shut_in(const bp_sandbox *sandbox, int pipe, unsigned *shields)
{
    reset_signals();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || !arrange_descriptors(sandbox->fd, pipe) ||
        !sandbox_leave_shared_memory() || !sandbox_limit(sandbox))
        return false;
    if ((bp_sandbox_shields & BP_SHIELD_LANDLOCK) != 0 && sandbox_landlock(SANDBOX_FILE))
        *shields |= BP_SHIELD_LANDLOCK;
    if ((bp_sandbox_shields & BP_SHIELD_SECCOMP) != 0 && sandbox_seccomp())
        *shields |= BP_SHIELD_SECCOMP;
    return true;
}

static void be_child(const bp_sandbox *sandbox, int pipe) __attribute__((noreturn));
static void be_child(const bp_sandbox *sandbox, int pipe)
{
    static verdict said;
    unsigned shields = 0;

    bp_assert_set_handler(give_up, 0);
    said.magic = MAGIC;
    if (!shut_in(sandbox, pipe, &shields))
        said.err = BP_FAIL(BP_ERR_SYSTEM, "the sandbox can't be set up (%s): at %s",
                           strerror(errno), sandbox->path);
    else
        said.err = sandbox->work(sandbox->context, SANDBOX_FILE, said.reply);
    said.shields = shields;
    if (said.err != BP_OK)
        (void)snprintf(said.message, sizeof said.message, "%s", bp_err_message());
    _exit(write(SANDBOX_PIPE, &said, sizeof said) == (ssize_t)sizeof said ? 0 : 1);
}

/* ---- the parent ---- */

/* Up to `room` bytes, until the pipe ends or the time is up; fewer than 0: the time was up. */
static ssize_t hear(int pipe, void *data, size_t room, double seconds)
{
    double end = bp_clock_now() + seconds;
    size_t used = 0;

    for (;;) {
        double left = end - bp_clock_now();
        struct pollfd wait = {.fd = pipe, .events = POLLIN};
        ssize_t got;

        if (left <= 0)
            return -1;
        if (poll(&wait, 1, left > 1000 ? 1000000 : (int)(left * 1000) + 1) <= 0)
            continue; /* a signal, or the time: the clock says which */
        got = read(pipe, (char *)data + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return (ssize_t)used;
        used += (size_t)got;
        if (used == room)
            return (ssize_t)used;
    }
}

static int reap(pid_t child)
{
    int status = -1;

    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static atomic_uint missing; /* shields that some child had to do without */

const char *bp_sandbox_missing(void)
{
    static const char *const names[] = {"", "Landlock", "seccomp", "Landlock and seccomp"};

    return names[atomic_load(&missing) & BP_SHIELD_ALL];
}

#define REMEDY "it is damaged or made to do harm: write it anew"

/* Only what a child may say is believed, and its text is escaped again. */
static bp_err believe(const bp_sandbox *sandbox, verdict *said, void *reply, unsigned *shields)
{
    said->message[sizeof said->message - 1] = '\0';
    *shields = said->shields & BP_SHIELD_ALL;
    (void)atomic_fetch_or(&missing, BP_SHIELD_ALL & ~*shields);
    if (said->err == BP_OK) {
        memcpy(reply, said->reply, sandbox->reply_bytes);
        return BP_OK;
    }
    if (said->err == BP_ERR_SYSTEM)
        return BP_FAIL(BP_ERR_FORMAT, "reading it in a sandbox fails (%s): at %s; " REMEDY,
                       said->message, sandbox->path);
    return BP_FAIL(said->err == BP_ERR_IO || said->err == BP_ERR_DENIED ? (bp_err)said->err
                                                                        : BP_ERR_FORMAT,
                   "%s", said->message);
}

static bp_err judge(const bp_sandbox *sandbox, ssize_t heard, int status)
{
    const char *path = sandbox->path;

    if (heard < 0)
        return BP_FAIL(BP_ERR_FORMAT, "reading it took longer than %.0f s: at %s; " REMEDY,
                       WALL * sandbox->seconds, path);
    if (status != -1 && WIFSIGNALED(status) &&
        (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL))
        return BP_FAIL(BP_ERR_FORMAT, "reading it ran out of time or memory: at %s; " REMEDY, path);
    if (status != -1 && WIFSIGNALED(status))
        return BP_FAIL(BP_ERR_FORMAT,
                       "reading it crashes a process (signal %d, %s): at %s; " REMEDY,
                       WTERMSIG(status), strsignal(WTERMSIG(status)), path);
    return BP_FAIL(BP_ERR_FORMAT, "reading it ends a process without a word: at %s; " REMEDY, path);
}

/* Its allocator's lock is not to be another thread's at the moment of the fork. */
static pid_t start_child(const bp_sandbox *sandbox, const int pipe[2])
{
    pid_t child;

    bp_mem_hold();
    child = fork();
    bp_mem_release();
    if (child == 0) {
        (void)close(pipe[0]);
        be_child(sandbox, pipe[1]);
    }
    return child;
}

bp_err bp_sandbox_run(const bp_sandbox *sandbox, void *reply, unsigned *shields)
{
    verdict said = {0};
    unsigned held = 0;
    int pipe[2], status;
    pid_t child;
    ssize_t heard;

    BP_ASSERT(sandbox->reply_bytes <= BP_SANDBOX_REPLY_BYTES);
    if (shields != NULL)
        *shields = 0;
    if (pipe2(pipe, O_CLOEXEC) != 0)
        return bp_fail_errno(BP_ERR_SYSTEM, "can't make a pipe to inspect", sandbox->path);
    child = start_child(sandbox, pipe);
    (void)close(pipe[1]);
    if (child < 0) {
        bp_err err =
            bp_fail_errno(BP_ERR_SYSTEM, "can't start a process to inspect", sandbox->path);
        (void)close(pipe[0]);
        return err;
    }
    heard = hear(pipe[0], &said, sizeof said, WALL * sandbox->seconds);
    (void)close(pipe[0]);
    (void)kill(child, SIGKILL); /* it has said its word, is ending, or has had its time */
    status = reap(child);
    if (heard != (ssize_t)sizeof said || said.magic != MAGIC)
        return judge(sandbox, heard, status);
    bp_err err = believe(sandbox, &said, reply, &held);
    if (shields != NULL)
        *shields = held;
    return err;
}
