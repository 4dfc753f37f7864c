/* The sandbox: the child, its one message, and the parent that waits for it. */
#include "base/sandbox.h"

#include "sandbox_priv.h"

#include "base/beat.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/signals.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned bp_sandbox_shields = BP_SHIELD_ALL;

#define WALL         10 /* a busy machine, a slow disk */
#define LOOK_SECONDS 0.5
#define GAP_SECONDS  2.0 /* between two looks: this process was stopped, and counts no time */
#define END_SECONDS  2.0 /* a child whose pipe has ended is about to end */
#define MAGIC        UINT64_C(0xba6b1be5a9db0c5e)

/* One write, which a pipe takes whole (PIPE_BUF is 4096). */
typedef struct verdict {
    uint64_t magic;
    int32_t err;
    uint32_t shields;
    uint32_t is_shut_in; /* else the sandbox, and not the file, is what failed */
    uint32_t padding;
    char message[BP_ERR_LINE_BYTES + 8];
    unsigned char reply[BP_SANDBOX_REPLY_BYTES];
} verdict;
_Static_assert(sizeof(verdict) <= 4096, "a verdict is written at once");

#define MOST_DESCRIPTORS 65536

/* ---- the child ---- */

/* A bug of ours that a file brings out is a refusal, not the end of the job. */
static void give_up(int status)
{
    _exit(status);
}

static bool close_others(void)
{
    DIR *open_ones = opendir("/proc/self/fd");
    const struct dirent *entry;

    long most = sysconf(_SC_OPEN_MAX); /* of a thousand million, some systems say */

    if (open_ones == NULL) /* no /proc: all numbers, most of which are not open */
        for (int fd = SANDBOX_PIPE + 1; fd < (most < MOST_DESCRIPTORS ? most : MOST_DESCRIPTORS);
             fd++)
            (void)close(fd);
    while (open_ones != NULL && (entry = readdir(open_ones)) != NULL) {
        int fd = (int)strtol(entry->d_name, NULL, 10); /* "." and ".." give 0 */
        if (fd > SANDBOX_PIPE && fd != dirfd(open_ones))
            (void)close(fd);
    }
    return open_ones == NULL || closedir(open_ones) == 0;
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
    said.is_shut_in = shut_in(sandbox, pipe, &shields);
    if (!said.is_shut_in)
        said.err = BP_FAIL(BP_ERR_SYSTEM,
                           "the sandbox can't be set up (%s): at %s; see whether memory, /proc and "
                           "limits (ulimit -a) there are those of an ordinary process",
                           strerror(errno), sandbox->path);
    else
        said.err = sandbox->work(sandbox->context, SANDBOX_FILE, said.reply);
    said.shields = shields;
    if (said.err != BP_OK)
        (void)snprintf(said.message, sizeof said.message, "%s", bp_err_message());
    _exit(write(SANDBOX_PIPE, &said, sizeof said) == (ssize_t)sizeof said ? 0 : 1);
}

/* ---- the parent ---- */

typedef enum wait_end { HEARD, TIME_IS_UP, STOP_IS_ASKED } wait_end;

/* Seconds since *seen, which becomes now; none where this process was stopped meanwhile (SIGSTOP,
 * gang scheduling, a machine that slept), and the child perhaps with it. */
static double passed(double *seen)
{
    double now = bp_clock_now(), gap = now - *seen;

    *seen = now;
    return gap > GAP_SECONDS ? 0 : gap;
}

/* Up to `room` bytes, until the pipe ends. A wait within its limits is no hang, and a request to
 * stop need not wait for its end. */
static wait_end hear(int pipe, void *data, size_t room, size_t *used, double seconds)
{
    double seen = bp_clock_now(), left = seconds;
    struct pollfd wait = {.fd = pipe, .events = POLLIN};

    for (*used = 0; *used < room;) {
        int ready = poll(&wait, 1, (int)(1000 * (left < LOOK_SECONDS ? left : LOOK_SECONDS)) + 1);
        ssize_t got;

        left -= passed(&seen);
        bp_beat_progress();
        if (ready > 0) {
            got = read(pipe, (char *)data + *used, room - *used);
            if (got == 0 || (got < 0 && errno != EINTR))
                return HEARD;
            *used += got > 0 ? (size_t)got : 0;
        } else if (bp_signals_stop_asked()) {
            return STOP_IS_ASKED;
        } else if (left <= 0) {
            return TIME_IS_UP;
        }
    }
    return HEARD;
}

/* Does it end by itself? Then *status says how; -1: nobody knows. */
static bool ends(pid_t child, int *status)
{
    for (double end = bp_clock_now() + END_SECONDS; bp_clock_now() < end; bp_clock_sleep(0.005)) {
        pid_t got = waitpid(child, status, WNOHANG);
        if (got == child || (got < 0 && errno != EINTR))
            return true;
    }
    return false;
}

static void end_it(pid_t child)
{
    int status;

    (void)kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
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
    if (!said->is_shut_in)
        return BP_FAIL(BP_ERR_SYSTEM, "%s", said->message);
    if (said->err == BP_ERR_SYSTEM) /* within limits that are ample for a file that is well made */
        return BP_FAIL(BP_ERR_FORMAT,
                       "reading it takes more than a sandbox gives (%s): at %s; write it anew, "
                       "with chunks of a few MiB",
                       said->message, sandbox->path);
    return BP_FAIL(said->err == BP_ERR_IO || said->err == BP_ERR_DENIED ? (bp_err)said->err
                                                                        : BP_ERR_FORMAT,
                   "%s", said->message);
}

/* It said nothing that could be believed. */
static bp_err judge(const bp_sandbox *sandbox, pid_t child)
{
    const char *path = sandbox->path;
    int status = -1;

    if (!ends(child, &status)) {
        end_it(child);
        status = -1;
    }
    if (status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return BP_FAIL(BP_ERR_FORMAT,
                       "reading it took more than %.0f s of processor time: at %s; " REMEDY,
                       ceil(sandbox->seconds), path);
    if (status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "the process that inspects it was killed, as happens when memory ends: at "
                       "%s; give the job more memory",
                       path);
    if (status != -1 && WIFSIGNALED(status))
        return BP_FAIL(BP_ERR_FORMAT,
                       "reading it crashes a process (signal %d, %s): at %s; " REMEDY,
                       WTERMSIG(status), strsignal(WTERMSIG(status)), path);
    return BP_FAIL(BP_ERR_FORMAT, "reading it ends a process without a word: at %s; " REMEDY, path);
}

static bp_err fail_to_start(const char *path)
{
    if (errno == EAGAIN)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "can't start a process to inspect it: %s: at %s; allow more processes "
                       "(ulimit -u, or the limit of the job's cgroup)",
                       strerror(errno), path);
    return BP_FAIL(BP_ERR_SYSTEM,
                   "can't start a process to inspect it: %s: at %s; give the job more memory",
                   strerror(errno), path);
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
    double seconds = WALL * sandbox->seconds;
    unsigned held = 0;
    int pipe[2];
    pid_t child;
    size_t heard;
    wait_end how;

    BP_ASSERT(sandbox->reply_bytes <= BP_SANDBOX_REPLY_BYTES);
    if (shields != NULL)
        *shields = 0;
    if (pipe2(pipe, O_CLOEXEC) != 0)
        return bp_fail_errno(BP_ERR_SYSTEM, "can't make a pipe to inspect", sandbox->path);
    child = bp_fault("base.fork") ? -1 : start_child(sandbox, pipe);
    if (child < 0) {
        bp_err err = fail_to_start(sandbox->path);
        (void)close(pipe[1]);
        (void)close(pipe[0]);
        return err;
    }
    (void)close(pipe[1]);
    how = hear(pipe[0], &said, sizeof said, &heard, seconds);
    (void)close(pipe[0]);
    if (how == HEARD && (heard != sizeof said || said.magic != MAGIC))
        return judge(sandbox, child);
    end_it(child); /* it has said its word, or has had its time */
    if (how == STOP_IS_ASKED)
        return bp_fail_stopped("while %s was inspected; the same command goes on", sandbox->path);
    if (how == TIME_IS_UP)
        return BP_FAIL(BP_ERR_FORMAT, "reading it took longer than %.0f s: at %s; " REMEDY, seconds,
                       sandbox->path);
    bp_err err = believe(sandbox, &said, reply, &held);
    if (shields != NULL)
        *shields = held;
    return err;
}
