#include "base/signals.h"
#include "base/err.h"
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t stop_asked, terminating;
static void (*watch)(void *context);
static void *watch_context;

static void on_signal(int number)
{
    if (number == SIGTERM)
        terminating = 1;
    stop_asked = 1;
}

static void install(int number, void (*handler)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART; /* no read or write of a library is to see EINTR */
    int status = sigaction(number, &action, NULL);
    BP_ASSERT(status == 0);
}

void bp_signals_init(void)
{
    install(SIGUSR1, on_signal);
    install(SIGINT, on_signal);
    install(SIGTERM, on_signal);
    install(SIGPIPE, SIG_IGN); /* a write then fails with EPIPE, and past a file limit with EFBIG */
    install(SIGXFSZ, SIG_IGN);
}

void bp_signals_ask_stop(void)
{
    stop_asked = 1;
}

void bp_signals_watch(void (*look)(void *context), void *context)
{
    watch = look;
    watch_context = context;
}

bool bp_signals_stop_asked(void)
{
    void (*look)(void *context) = watch;

    if (look != NULL) {
        watch = NULL; /* it asks this function itself */
        look(watch_context);
        watch = look;
    }
    return stop_asked != 0;
}

bool bp_signals_terminating(void)
{
    return terminating != 0;
}
