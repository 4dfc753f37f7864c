/* What started this rank. A rank whose launcher was killed would compute on for nobody (kill -9 of
 * mpirun leaves ranks running); and a launcher that lost another node waits for it for minutes. */
#include "coordinator/watchdog_priv.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_LOOKS 30 /* of half a second: what a launcher has to end its other ranks */
#define TERM_LOOKS     10
#define FDS_MAX        1024

static void read_text(char *out, size_t out_bytes, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, out, out_bytes - 1);

    out[bytes < 0 ? 0 : bytes] = '\0';
    if (fd >= 0)
        (void)close(fd);
}

/* When a process began, in ticks since the boot; -1: there is none (any more). */
static int64_t start_of(pid_t pid)
{
    char path[64], text[1024];
    const char *at;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    read_text(text, sizeof text, path);
    at = strrchr(text, ')'); /* its name may hold anything */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? -1 : strtoll(at, NULL, 10);
}

void watchdog_launcher_find(watchdog_launcher *out)
{
    static const char *const MPIRUNS[] = {"mpirun",  "mpiexec", "orterun", "orted",
                                          "prterun", "prted",   "prte"};
    char path[64];

    *out = (watchdog_launcher){.pid = getppid()};
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)out->pid);
    read_text(out->name, sizeof out->name, path);
    out->name[strcspn(out->name, "\n")] = '\0';
    out->start_ticks = start_of(out->pid);
    for (size_t k = 0; k < sizeof MPIRUNS / sizeof MPIRUNS[0]; k++)
        out->may_be_killed = out->may_be_killed || strcmp(out->name, MPIRUNS[k]) == 0;
    if (!out->may_be_killed && strcmp(out->name, "slurmstepd") != 0)
        out->pid = 0; /* a shell may go, and leave a job behind that was meant to stay */
}

bool watchdog_launcher_is_gone(const watchdog_launcher *launcher)
{
    return launcher->pid > 0 && getppid() != launcher->pid;
}

static bool still_there(const watchdog_launcher *launcher, int looks)
{
    const struct timespec half = {.tv_nsec = 500000000};

    for (int k = 0; k < looks; k++) {
        if (start_of(launcher->pid) != launcher->start_ticks)
            return false;
        (void)nanosleep(&half, NULL);
    }
    return start_of(launcher->pid) == launcher->start_ticks;
}

/* The child has one thread, and no lock that another may have held when it was made is touched:
 * snprintf of a number takes none. It holds no file of its parent's open, or the launcher would
 * wait for it. */
static void guard(const watchdog_launcher *launcher)
{
    (void)setsid();
    for (int fd = 0; fd < FDS_MAX; fd++)
        (void)close(fd);
    if (still_there(launcher, PATIENCE_LOOKS))
        (void)kill(launcher->pid, SIGTERM);
    if (still_there(launcher, TERM_LOOKS))
        (void)kill(launcher->pid, SIGKILL);
    _exit(0);
}

void watchdog_launcher_guard(const watchdog_launcher *launcher)
{
    /* not fork(): MPI's and other libraries' handlers of it have no business here */
    if (launcher->pid > 0 && launcher->may_be_killed &&
        syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) == 0)
        guard(launcher);
}
