/* The launcher of this rank. A rank whose launcher was killed would compute in vain (kill -9 of
 * mpirun leaves ranks running); and a launcher that lost a node waits for it for minutes. Called by
 * watchdog.c and watchdog_thread.c. */
#include "run/lock/process.h"
#include "run/watchdog/watchdog_priv.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_LOOKS 30 /* of half a second: what a launcher has to end its other ranks */
#define TERM_LOOKS     10
#define FDS_MAX        1024

void watchdog_launcher_find(watchdog_launcher *out)
{
    static const char *const MPIRUNS[] = {"mpirun",  "mpiexec", "orterun", "orted",
                                          "prterun", "prted",   "prte",    "hydra_pmi_proxy"};
    char path[64], state;
    bool seen;

    *out = (watchdog_launcher){.pid = getppid()};
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)out->pid);
    process_read(out->name, sizeof out->name, path);
    out->name[strcspn(out->name, "\n")] = '\0';
    seen = process_read_stat(out->pid, &state, &out->start_ticks);
    for (size_t k = 0; k < sizeof MPIRUNS / sizeof MPIRUNS[0]; k++)
        out->may_be_killed = out->may_be_killed || strcmp(out->name, MPIRUNS[k]) == 0;
    out->may_be_killed = out->may_be_killed && seen; /* else whom? */
    if (!out->may_be_killed && strcmp(out->name, "slurmstepd") != 0)
        out->pid = 0; /* a shell may go, and leave a job behind that was meant to stay */
}

bool watchdog_launcher_is_gone(const watchdog_launcher *launcher)
{
    return launcher->pid > 0 && getppid() != launcher->pid;
}

/* Is it still there after this many polls? */
static bool still_there(const watchdog_launcher *launcher, int looks)
{
    const struct timespec half = {.tv_nsec = 500000000};
    int64_t start_ticks;
    char state;

    while (process_read_stat(launcher->pid, &state, &start_ticks) &&
           start_ticks == launcher->start_ticks) {
        if (looks-- == 0)
            return true;
        (void)nanosleep(&half, NULL);
    }
    return false;
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
