#include "base/signals.h"
#include "base/err.h"
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t stop_asked, terminating;

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

bool bp_signals_stop_asked(void)
{
    return stop_asked != 0;
}

bool bp_signals_terminating(void)
{
    return terminating != 0;
}
