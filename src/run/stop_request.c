/* When a job has to stop: the halt file, the end of the Slurm job's time, a signal. Asked once a
 * step. */
#include "run/stop_request.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_SECONDS    1.0
#define LONGEST_SECONDS (2.0 * 366 * 86400) /* no time limit is longer: then it is nonsense */
#define MARGIN_SHARE    0.25                /* of the job's time, at most */

const bp_option bp_slurm_options[] = {
    {"slurm.margin", BP_OPTION_INT, "120", 0, 1e6, NULL, "seconds",
     "a job stops so long ahead of its time limit, and earlier by two steps and a checkpoint; a "
     "quarter of its time at most; 0: it does not look at the limit",
     false, .at = BP_AT(bp_slurm_keys, margin)},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false},
};

static char halted_by[4096]; /* the file that was found, for the last line of the job */
static bp_err lost_code;     /* why the run is not the job's any more; BP_OK: it is */
static char lost_message[BP_ERR_MESSAGE_BYTES];

struct bp_stop_request {
    char *path; /* of the halt file */
    bp_log_channel channel;
    double next;   /* when to look for the file again: that costs a server's answer */
    double limit;  /* when the job's time ends; INFINITY: not known, or not to be looked at */
    double margin; /* seconds */
    double needs;
    bool told;
    bp_err (*check)(void *context); /* is the run still this job's? */
    void *context;
};

/* ---- the job's time ---- */

/* SLURM_JOB_END_TIME as a moment of the monotonic clock; what makes no sense is told once. */
static double read_job_end(void)
{
    const char *text = getenv("SLURM_JOB_END_TIME");
    struct timespec now;
    char *end;
    double left;

    if (text == NULL || text[0] == '\0')
        return INFINITY;
    BP_CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    errno = 0;
    left = (double)strtoll(text, &end, 10) - (double)now.tv_sec - (double)now.tv_nsec * 1e-9;
    if (errno == 0 && *end == '\0' && left > 0 && left < LONGEST_SECONDS)
        return bp_clock_now() + left;
    bp_warn("SLURM_JOB_END_TIME = %.40s is no time that this job can end at: in the environment; "
            "its time limit is not looked at, only signals stop it in time",
            text);
    return INFINITY;
}

/* The wall clock may be set at any time: it is asked once. */
static double job_end(void)
{
    static bool known;
    static double end;

    if (!known)
        end = read_job_end();
    known = true;
    return end;
}

static void find_margin(void *context, const bp_option *option, const char *value)
{
    if (value != NULL && strcmp(option->key, bp_slurm_options[0].key) == 0)
        *(double *)context = strtod(value, NULL);
}

static void set_limit(bp_stop_request *stop_request, const bp_config *config)
{
    double most;

    stop_request->margin = strtod(bp_slurm_options[0].value, NULL);
    bp_config_each(config, find_margin, &stop_request->margin); /* it may not know the key */
    stop_request->limit = stop_request->margin > 0 ? job_end() : INFINITY;
    most = MARGIN_SHARE * (stop_request->limit - bp_clock_now());
    if (isfinite(stop_request->limit) && stop_request->margin > most)
        stop_request->margin = most > 0 ? most : 0;
}

/* ---- looking ---- */

static void stop(bp_stop_request *stop_request, bp_stop reason, const char *format,
                 const char *what)
{
    bp_log_channel before = bp_log_use(stop_request->channel);

    stop_request->told = true;
    if (bp_signals_stop_reason() == BP_STOP_NONE)
        bp_log(format, what);
    bp_signals_ask_stop(reason);
    (void)bp_log_use(before);
}

static void look_at_owner(bp_stop_request *stop_request)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    err = stop_request->check == NULL ? BP_OK : stop_request->check(stop_request->context);
    if (err != BP_OK) {
        lost_code = err;
        (void)snprintf(lost_message, sizeof lost_message, "%s", bp_err_message());
        stop(stop_request, BP_STOP_LOST, "%s", lost_message);
    }
    bp_err_set_message(message);
}

static void look(void *context)
{
    bp_stop_request *stop_request = context;
    double now = bp_clock_now();
    char left[64];

    if (stop_request->told)
        return;
    if (now >= stop_request->limit - stop_request->margin - stop_request->needs) {
        bp_clock_duration(left, sizeof left,
                          stop_request->limit > now ? stop_request->limit - now : 0);
        stop(stop_request, BP_STOP_LIMIT, "the job's time ends in %s: stopping", left);
    } else if (now >= stop_request->next) {
        stop_request->next = now + LOOK_SECONDS;
        if (!bp_path_exists(stop_request->path)) {
            look_at_owner(stop_request);
            return;
        }
        (void)snprintf(halted_by, sizeof halted_by, "%s", stop_request->path);
        stop(stop_request, BP_STOP_HALT, "to be halted: there is a file %s", stop_request->path);
    }
}

static char *halt_path(const char *folder)
{
    return bp_path_join(folder, "halt");
}

bp_err bp_stop_request_check(const char *folder)
{
    char *path = halt_path(folder);
    bp_err err = BP_OK;

    if (path == NULL)
        err = bp_fail_memory("a file name", 1, strlen(folder));
    else if (bp_path_exists(path))
        err = bp_fail_stopped("halted by %s; remove that file, and the same command goes on", path);
    bp_free(path);
    return err;
}

bp_err bp_stop_request_stopped(const char *format, ...)
{
    char where[512];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(where, sizeof where, format, list);
    va_end(list);
    if (lost_code != BP_OK)
        return BP_FAIL(lost_code, "%s", lost_message);
    if (bp_signals_stop_reason() != BP_STOP_HALT)
        return bp_fail_stopped("%s; the same command goes on", where);
    return bp_fail_stopped("halted by %s: %s; remove that file, and the same command goes on",
                           halted_by[0] != '\0' ? halted_by : "halt in the run folder", where);
}

bp_err bp_stop_request_new(bp_stop_request **out, const char *folder, const bp_config *config)
{
    bp_stop_request *stop_request = bp_alloc("run.stop_request", 1, sizeof *stop_request);

    *out = NULL;
    if (stop_request == NULL || (stop_request->path = halt_path(folder)) == NULL) {
        bp_free(stop_request);
        return bp_fail_memory("what looks for a halt file", 1, sizeof *stop_request);
    }
    stop_request->channel = bp_log_use(BP_LOG_JOB);
    (void)bp_log_use(stop_request->channel);
    set_limit(stop_request, config);
    bp_signals_watch(look, stop_request);
    *out = stop_request;
    return BP_OK;
}

void bp_stop_request_owner(bp_stop_request *stop_request, bp_err (*check)(void *context),
                           void *context)
{
    stop_request->check = check;
    stop_request->context = context;
}

void bp_stop_request_needs(bp_stop_request *stop_request, double seconds)
{
    stop_request->needs = seconds;
}

void bp_stop_request_free(bp_stop_request **out)
{
    bp_stop_request *stop_request = *out;

    if (stop_request == NULL)
        return;
    bp_signals_unwatch(look, stop_request);
    lost_code = BP_OK; /* of this run: a job within a job has one of its own */
    bp_free(stop_request->path);
    bp_free(stop_request);
    *out = NULL;
}
