/* Backtraces of hanging ranks, requested by the watchdog, written to RUN/stacks. Called by
 * run/status/run_words.c, watchdog.c and watchdog_report.c. */
#include "run/watchdog/backtraces.h"

#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "run/lock/process.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Where the stack was when a signal came. */
#if defined(__x86_64__)
#define STACK_POINTER(context) ((const void *const *)(context)->uc_mcontext.gregs[REG_RSP])
#elif defined(__aarch64__)
#define STACK_POINTER(context) ((const void *const *)(context)->uc_mcontext.sp)
#else
#define STACK_POINTER(context) ((void)(context), (const void *const *)NULL)
#endif

#define PATH_BYTES    4096
#define FRAMES        64
#define SIGNAL_PREFIX "signal-rank-"

static const struct {
    int number;
    const char *text;
} FATAL[] = {{SIGSEGV, "SEGV, a wrong address"},
             {SIGBUS, "BUS, a mapped file that shrank or bad memory"},
             {SIGFPE, "FPE, a wrong division"},
             {SIGILL, "ILL, an instruction that this CPU does not have"},
             {SIGABRT, "ABRT, an abort"}};
#define FATALS (sizeof FATAL / sizeof FATAL[0])

static struct {
    atomic_bool runs; /* set last: then the watchdog's thread reads the members below */
    int rank;
    char host[64];
    char folder[PATH_BYTES], path[PATH_BYTES], signal_path[PATH_BYTES];
    pid_t process; /* a child of it crashes for itself */
    pthread_t main;
    pid_t main_thread;
    const void *const *stack_begin, *const *stack_end; /* of the main thread */
    struct sigaction usr2, fatal[FATALS];
} self;
static atomic_int written; /* backtraces by the handler */

extern const char __executable_start, etext; /* the linker's: this program's code */

/* ---- safe in a handler ---- */

typedef struct line {
    char text[512];
    size_t bytes;
} line;

static void add(line *out, const char *text)
{
    while (*text != '\0' && out->bytes < sizeof out->text)
        out->text[out->bytes++] = *text++;
}

static void add_number(line *out, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

    digits[--at] = '\0';
    do
        digits[--at] = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (number < 0)
        digits[--at] = '-';
    add(out, digits + at);
}

/* "rank 3 on host n2 (phase step, step 118, last collective all_sum)" */
static void add_place(line *out)
{
    bp_heartbeat heartbeat;

    bp_heartbeat_read(&heartbeat);
    add(out, "rank ");
    add_number(out, self.rank);
    add(out, " on host ");
    add(out, self.host);
    add(out, " (phase ");
    add(out, bp_phase_name(heartbeat.phase));
    add(out, ", step ");
    add_number(out, heartbeat.step);
    add(out, heartbeat.waits ? ", in collective " : ", last collective ");
    add(out, heartbeat.collective[0] == '\0' ? "none" : heartbeat.collective);
    add(out, ")");
}

static bool is_ours(const void *address)
{
    return (const char *)address >= &__executable_start && (const char *)address < &etext;
}

/* Code that a library generated at run time (matrix products) can't be unwound, and hides its
 * callers. So this prints values that look like return addresses into this program, from `from` to
 * the stack's end. Such code may have the stack pointer elsewhere (base/process/signals.h); then
 * there is nothing to print.
 */
static void put_guesses(int fd, const void *const *from)
{
    static const char HEAD[] = "and perhaps, guessed from what is on the stack:\n";
    void *found[FRAMES];
    int count = 0;

    if (!from || from < self.stack_begin || from >= self.stack_end)
        return;
    for (; from < self.stack_end && count < FRAMES; from++)
        if (is_ours(*from))
            found[count++] = (void *)*from;
    (void)!write(fd, HEAD, sizeof HEAD - 1);
    backtrace_symbols_fd(found, count, fd);
}

static int open_file(const char *path, int flags)
{
    if (path[0] == '\0')
        return -1;
    (void)mkdir(self.folder, 0777); /* there already, or open() fails */
    return open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0666);
}

/* Write failures are ignored: they can no longer be reported. */
static void put_stack(const char *path, int flags, const line *head, void *context)
{
    void *frames[FRAMES];
    int fd = open_file(path, flags), count;

    if (fd < 0)
        return;
    (void)!write(fd, head->text, head->bytes);
    count = backtrace(frames, FRAMES);
    backtrace_symbols_fd(frames, count, fd);
    if (pthread_equal(pthread_self(), self.main) && count > 0 &&
        !is_ours(frames[count - 1])) /* a complete one ends with _start */
        put_guesses(fd, STACK_POINTER((ucontext_t *)context));
    (void)close(fd);
}

static void on_usr2(int number, siginfo_t *info, void *context)
{
    int before = errno;
    line out = {.bytes = 0};

    (void)info;
    if (!pthread_equal(pthread_self(), self.main)) { /* the process got it: any thread may */
        (void)pthread_kill(self.main, number);
        errno = before;
        return;
    }
    add_place(&out);
    add(&out, "\n");
    put_stack(self.path, O_APPEND, &out, context);
    atomic_fetch_add(&written, 1);
    errno = before;
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    line out = {.bytes = 0};

    (void)info;
    if (getpid() != self.process) {
        (void)signal(number, SIG_DFL);
        (void)raise(number);
        return;
    }
    add(&out, "bagpipe: error[");
    add_number(&out, 128 + number); /* what a launcher gives as its status */
    add(&out, "]: killed by signal ");
    add_number(&out, number);
    add(&out, " (");
    for (size_t k = 0; k < FATALS; k++)
        add(&out, FATAL[k].number == number ? FATAL[k].text : "");
    add(&out, "): ");
    add_place(&out);
    add(&out, ": at ");
    add(&out, self.signal_path);
    add(&out, "; the same command goes on, please report it [program.crashed]\n");
    (void)!write(STDERR_FILENO, out.text, out.bytes);
    put_stack(self.signal_path, O_TRUNC, &out, context);
    (void)signal(number, SIG_DFL); /* and again, now for good */
    (void)raise(number);
}

/* ---- starting, ending ---- */

static void make_path(char out[PATH_BYTES], const char *folder, const char *prefix, int rank)
{
    int bytes = snprintf(out, PATH_BYTES, "%s/%srank-%d.txt", folder, prefix, rank);

    if (bytes < 0 || bytes >= PATH_BYTES)
        out[0] = '\0';
}

static void install(int number, void (*handler)(int, siginfo_t *, void *), int flags,
                    struct sigaction *before)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = flags | SA_SIGINFO;
    (void)sigaction(number, &action, before); /* the number is valid */
}

/* Finds the bounds of the main thread's stack; empty if they are unknown. */
static void find_stack(void)
{
    pthread_attr_t attributes;
    void *base = NULL;
    size_t bytes = 0;

    self.stack_begin = self.stack_end = NULL;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &base, &bytes) == 0) {
        self.stack_begin = (const void *const *)base;
        self.stack_end = (const void *const *)((char *)base + bytes);
    }
    (void)pthread_attr_destroy(&attributes);
}

void bp_backtraces_start(const char *run_dir, const char *host, int rank)
{
    void *frames[1];
    int bytes = snprintf(self.folder, sizeof self.folder, "%s/" BP_BACKTRACES_FOLDER, run_dir);

    self.rank = rank;
    (void)snprintf(self.host, sizeof self.host, "%.*s", (int)sizeof self.host - 1, host);
    make_path(self.path, self.folder, "", rank);
    make_path(self.signal_path, self.folder, "signal-", rank);
    if (bytes < 0 || (size_t)bytes >= sizeof self.folder)
        self.path[0] = self.signal_path[0] = '\0';
    self.process = getpid();
    self.main = pthread_self();
    find_stack();
    self.main_thread = gettid();
    (void)backtrace(frames, 1); /* loads what it needs now: in a handler it could not */
    bp_signals_stack();
    install(SIGUSR2, on_usr2, SA_RESTART | SA_ONSTACK, &self.usr2);
    for (size_t k = 0; k < FATALS && !SANITIZED; k++)
        install(FATAL[k].number, on_fatal, (int)(SA_ONSTACK | SA_RESETHAND), &self.fatal[k]);
    atomic_store(&self.runs, true);
}

void bp_backtraces_end(void)
{
    if (!atomic_load(&self.runs))
        return;
    (void)sigaction(SIGUSR2, &self.usr2, NULL);
    for (size_t k = 0; k < FATALS && !SANITIZED; k++)
        (void)sigaction(FATAL[k].number, &self.fatal[k], NULL);
    atomic_store(&self.runs, false);
}

/* ---- from a thread ---- */

/* "kernel: state S (sleeping), waits in poll_schedule_timeout" */
static void put_kernel_word(int fd, int pid, int thread)
{
    char path[64], text[2048];
    const char *state;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, thread);
    process_read(text, sizeof text, path);
    state = strstr(text, "\nState:\t");
    state = !state ? "unknown" : state + strlen("\nState:\t");
    (void)dprintf(fd, "kernel: state %.*s", (int)strcspn(state, "\n"), state);
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", pid, thread);
    process_read(text, sizeof text, path);
    (void)dprintf(fd, ", waits in %s\n", text[0] == '\0' || text[0] == '0' ? "nothing" : text);
}

void bp_backtraces_write(bool after)
{
    int fd, before = atomic_load(&written);

    if (!atomic_load(&self.runs))
        return;
    fd = open_file(self.path, after ? O_APPEND : O_TRUNC);
    if (fd >= 0) {
        (void)dprintf(fd, "%s, process %d\n", bp_clock_stamp().text, (int)getpid());
        put_kernel_word(fd, (int)getpid(), (int)self.main_thread);
        (void)close(fd);
    }
    if (pthread_kill(self.main, SIGUSR2) != 0)
        return;
    for (int k = 0; k < 100 && atomic_load(&written) == before; k++)
        bp_clock_sleep(0.01);
}

void bp_backtraces_write_of(int rank, const char *host, int pid)
{
    char path[PATH_BYTES];
    int fd;

    if (!atomic_load(&self.runs))
        return;
    make_path(path, self.folder, "", rank);
    fd = open_file(path, O_TRUNC);
    if (fd < 0)
        return;
    (void)dprintf(fd, "rank %d on host %s, process %d, by rank %d: it does not answer\n", rank,
                  host, pid, self.rank);
    put_kernel_word(fd, pid, pid);
    (void)close(fd);
}

bool bp_backtraces_is_signal_file(const char *name)
{
    return strncmp(name, SIGNAL_PREFIX, strlen(SIGNAL_PREFIX)) == 0;
}
