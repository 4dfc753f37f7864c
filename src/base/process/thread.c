/* Helper threads: started with signals blocked and on all cores of the process. */
#include "base/process/thread.h"

#include "base/mem.h"
#include "base/process/cores.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

typedef struct thread_start {
    void *(*run)(void *);
    void *argument;
    char name[16];
} thread_start;

static void *begin(void *argument)
{
    thread_start start = *(thread_start *)argument;

    bp_free(argument);
    (void)pthread_setname_np(pthread_self(), start.name);
    bp_cores_widen();
    return start.run(start.argument);
}

bp_err bp_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument)
{
    thread_start *start = bp_alloc("base.thread", 1, sizeof *start);
    sigset_t all, before;
    int status;

    *start = (thread_start){.run = run, .argument = argument};
    strncpy(start->name, name, sizeof start->name - 1);
    (void)sigfillset(&all);
    BP_CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    status = pthread_create(thread, NULL, begin, start);
    BP_CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (status == 0)
        return BP_OK;
    bp_free(start);
    return BP_FAIL(BP_ERR_SYSTEM, "thread.not_started",
                   "no thread can be started (%s): at %s; allow more processes (ulimit -u)",
                   strerror(status), name);
}

void bp_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    BP_CHECK(pthread_condattr_init(&monotonic) == 0);
    BP_CHECK(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
    BP_CHECK(pthread_cond_init(condition, &monotonic) == 0);
    (void)pthread_condattr_destroy(&monotonic);
}

bool bp_cond_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double end)
{
    double whole = floor(end);
    const struct timespec until = {(time_t)whole, (long)(1e9 * (end - whole))};

    return pthread_cond_timedwait(condition, mutex, &until) == 0;
}
