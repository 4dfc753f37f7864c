/* Requests to stop: signals set one flag with its reason, which loops read once a step. */
#include "base/process/signals.h"
#include "base/err.h"
#include "base/process/launcher.h"
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#define WATCHES_MAX 8
#define STACK_BYTES 65536

/* Lock-free: a signal may arrive on any thread that does not block it (a library's, OpenMP's),
 * while the main thread sets a reason of its own. */
static atomic_int reason;
static struct {
    void (*poll)(void *context);
    void *context;
} watches[WATCHES_MAX];
static int watch_count;
static bool polling;

void bp_signals_ask_stop(bp_stop why)
{
    int none = BP_STOP_NONE;

    if (why == BP_STOP_TERM)
        atomic_store(&reason, BP_STOP_TERM);
    else
        (void)atomic_compare_exchange_strong(&reason, &none, (int)why);
}

static void on_signal(int number)
{
    bp_signals_ask_stop(number == SIGTERM  ? BP_STOP_TERM
                        : number == SIGINT ? BP_STOP_INT
                                           : BP_STOP_USR1);
}

static void install(int number, void (*handler)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags =
        SA_RESTART | SA_ONSTACK; /* reads and writes of libraries must not see EINTR */
    int status = sigaction(number, &action, NULL);
    BP_ASSERT(status == 0);
}

void bp_signals_stack(void)
{
    static char memory[STACK_BYTES];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, before;

    /* A sanitizer has one of its own. */
    if (sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE))
        (void)sigaltstack(&stack, NULL);
}

void bp_signals_keep(void)
{
    install(SIGUSR1, on_signal);
}

void bp_signals_default(void)
{
    install(SIGUSR1, SIG_DFL);
    if (atomic_load(&reason) == BP_STOP_USR1)
        (void)raise(SIGUSR1);
}

void bp_signals_init(void)
{
    bp_signals_stack();
    install(SIGUSR1, on_signal);
    install(SIGINT, on_signal);
    install(SIGTERM, on_signal);
    install(SIGPIPE, SIG_IGN); /* a write then fails with EPIPE, and past a file limit with EFBIG */
    install(SIGXFSZ, SIG_IGN);
}

void bp_signals_leave(void)
{
    sigset_t these;

    (void)sigemptyset(&these);
    (void)sigaddset(&these, SIGUSR1);
    (void)sigaddset(&these, SIGUSR2);
    (void)sigaddset(&these, SIGINT);
    (void)sigaddset(&these, SIGTERM);
    BP_CHECK(pthread_sigmask(SIG_BLOCK, &these, NULL) == 0);
}

bp_stop bp_signals_stop_reason(void)
{
    return (bp_stop)atomic_load(&reason);
}

const char *bp_stop_name(bp_stop why)
{
    static const char *const NAMES[] = {[BP_STOP_NONE] = "",
                                        [BP_STOP_USR1] = "USR1",
                                        [BP_STOP_INT] = "INT",
                                        [BP_STOP_TERM] = "TERM",
                                        [BP_STOP_HALT] = "halt",
                                        [BP_STOP_LIMIT] = "time limit",
                                        [BP_STOP_RANK] = "another rank",
                                        [BP_STOP_LOST] = "lost lock"};

    return NAMES[why];
}

void bp_signals_watch(void (*poll)(void *context), void *context)
{
    BP_ASSERT(watch_count < WATCHES_MAX);
    watches[watch_count].poll = poll;
    watches[watch_count++].context = context;
}

void bp_signals_unwatch(void (*poll)(void *context), void *context)
{
    int at = 0;

    while (at < watch_count && (watches[at].poll != poll || watches[at].context != context))
        at++;
    if (at == watch_count)
        return;
    watch_count--;
    memmove(&watches[at], &watches[at + 1], (size_t)(watch_count - at) * sizeof watches[0]);
}

bool bp_signals_stop_asked(void)
{
    if (!polling) { /* a watch asks this function itself */
        polling = true;
        for (int k = 0; k < watch_count; k++)
            watches[k].poll(watches[k].context);
        polling = false;
    }
    return atomic_load(&reason) != BP_STOP_NONE;
}

bool bp_signals_terminating(void)
{
    return atomic_load(&reason) == BP_STOP_TERM && bp_launcher_find().mpirun;
}
