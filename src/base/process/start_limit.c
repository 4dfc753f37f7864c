/* A thread that ends this process where MPI does not begin in time. It looks for the culprit among
 * the launcher's processes on this host, since ranks can't communicate yet. */
#include "base/process/start_limit.h"

#include "base/err.h"
#include "base/process/clock.h"
#include "base/process/launcher.h"
#include "base/process/thread.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATER         1.5  /* of ranks that are not the first */
#define TURN          2.0  /* more seconds for ranks from 2 on */
#define LOOK_SECONDS  0.25 /* between two looks at the clock, */
#define LEAP_SECONDS  1.0  /* of which no more than this counts */
#define ENVIRON_BYTES 65536
#define TEXT_BYTES    160

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    double seconds;
    bool runs, ends;
} limit = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- who is missing ---- */

/* State and parent of a process, from /proc/PID/stat: "PID (name) S PARENT ..."; the name may hold
 * anything. */
static bool read_stat(long pid, char *state, long *parent)
{
    char path[64], text[1024], *end;
    FILE *file;
    size_t length;

    (void)snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "r");
    if (!file)
        return false;
    length = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    end = strrchr(text, ')');
    return end && sscanf(end + 1, " %c %ld", state, parent) == 2;
}

/* The rank of another process of this job; -1 if unknown. */
static int rank_of(long pid)
{
    char path[64],
        *text =
            malloc(ENVIRON_BYTES); /* this thread ends the process: no memory balance is printed */
    FILE *file;
    size_t length;
    int rank = -1;

    (void)snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    file = !text ? NULL : fopen(path, "r");
    if (file) {
        length = fread(text, 1, ENVIRON_BYTES - 1, file);
        (void)fclose(file);
        text[length] = '\0';
        rank = bp_launcher_rank_in(text, length);
    }
    free(text);
    return rank;
}

static const char *state_name(char state)
{
    return state == 'T' || state == 't'   ? "is stopped"
           : state == 'D'                 ? "waits for a disk"
           : state == 'Z' || state == 'X' ? "has ended"
                                          : NULL;
}

/* The first other process under the same launcher that can't continue. */
static void find_culprit(char out[TEXT_BYTES])
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    bool found = false;

    (void)snprintf(out, TEXT_BYTES, "no other rank on this host is stopped, look for it on others");
    while (folder && !found && (entry = readdir(folder))) {
        long pid = strtol(entry->d_name, NULL, 10), parent;
        char state, name[32] = "a rank";
        int rank;

        if (pid <= 0 || pid == getpid() || !read_stat(pid, &state, &parent) ||
            parent != getppid() || !state_name(state))
            continue;
        found = true;
        rank = rank_of(pid);
        if (rank >= 0)
            (void)snprintf(name, sizeof name, "rank %d", rank);
        (void)snprintf(out, TEXT_BYTES, "%s (process %ld on this host) %s", name, pid,
                       state_name(state));
    }
    if (folder)
        (void)closedir(folder);
}

static _Noreturn void give_up(double waited)
{
    bp_launcher launcher = bp_launcher_find();
    char host[64] = "unknown", culprit[TEXT_BYTES], size[32] = "";

    (void)gethostname(host, sizeof host - 1);
    if (launcher.size > 0)
        (void)snprintf(size, sizeof size, " of %d", launcher.size);
    find_culprit(culprit);
    bp_err_last_words(BP_ERR_STOPPED, "mpi.not_met",
                      "the ranks have not met for %.0f s, rank %d%s on host %s waits for MPI to "
                      "begin: %s; the same command starts again (watchdog.seconds is a tenth of "
                      "this limit)",
                      waited, launcher.rank > 0 ? launcher.rank : 0, size, host, culprit);
    (void)fflush(NULL);
    _exit(BP_ERR_STOPPED);
}

/* ---- the thread ---- */

static void *watch(void *unused)
{
    double last = bp_clock_now(), waited = 0;

    (void)unused;
    BP_CHECK(pthread_mutex_lock(&limit.mutex) == 0);
    while (!limit.ends && waited < limit.seconds) {
        double now;

        (void)bp_cond_wait_until(&limit.changed, &limit.mutex, last + LOOK_SECONDS);
        now = bp_clock_now();
        waited += now - last < LEAP_SECONDS ? now - last : LEAP_SECONDS;
        last = now;
    }
    if (!limit.ends)
        give_up(waited);
    BP_CHECK(pthread_mutex_unlock(&limit.mutex) == 0);
    return NULL;
}

void bp_start_limit_begin(double seconds)
{
    int rank = bp_launcher_find().rank;

    if (seconds <= 0)
        return;
    limit.seconds = rank > 0 ? LATER * seconds + (rank > 1 ? TURN : 0) : seconds;
    limit.ends = false;
    bp_cond_init(&limit.changed);
    limit.runs = bp_thread_start(&limit.thread, "start limit", watch, NULL) == BP_OK;
}

void bp_start_limit_end(void)
{
    if (!limit.runs)
        return;
    BP_CHECK(pthread_mutex_lock(&limit.mutex) == 0);
    limit.ends = true;
    BP_CHECK(pthread_cond_signal(&limit.changed) == 0);
    BP_CHECK(pthread_mutex_unlock(&limit.mutex) == 0);
    BP_CHECK(pthread_join(limit.thread, NULL) == 0);
    limit.runs = false;
}
