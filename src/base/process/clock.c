/* Time: monotonic for measurements and waits, wall time only for people. */
#include "base/process/clock.h"
#include "base/err.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    int status = clock_gettime(clock, &now);

    BP_ASSERT(status == 0);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bp_clock_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double bp_clock_process(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double bp_clock_thread(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

void bp_clock_sleep(double seconds)
{
    if (!(seconds > 0))
        return;
    struct timespec left = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

bp_stamp bp_clock_stamp(void)
{
    time_t now = time(NULL);
    struct tm parts;
    bp_stamp out;

    if (!gmtime_r(&now, &parts) ||
        strftime(out.text, sizeof out.text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        out.text[0] = '\0';
    return out;
}

void bp_clock_duration(char *out, size_t out_bytes, double seconds)
{
    if (!isfinite(seconds) || seconds > 1e9)
        (void)snprintf(out, out_bytes, "?");
    else if (seconds < 9.95)
        (void)snprintf(out, out_bytes, "%.1f s", seconds < 0 ? 0 : seconds);
    else if (seconds < 59.5)
        (void)snprintf(out, out_bytes, "%.0f s", seconds);
    else if (seconds < 3599.5)
        (void)snprintf(out, out_bytes, "%d min %02d s", (int)(seconds + 0.5) / 60,
                       (int)(seconds + 0.5) % 60);
    else
        (void)snprintf(out, out_bytes, "%d h %02d min", (int)((seconds + 30) / 60) / 60,
                       (int)((seconds + 30) / 60) % 60);
}
