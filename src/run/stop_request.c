/* When a job has to stop: the halt file, the end of the Slurm job's time, a signal. Asked once a
 * step. */
#include "run/stop_request.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_SECONDS    1.0
#define LONGEST_SECONDS (2.0 * 366 * 86400) /* a longer time limit is invalid */
#define MARGIN_SHARE    0.25                /* of the job's time, at most */

const bp_option bp_slurm_options[] = {
    {BP_INT_KEY("slurm.margin", "120", 0, 1e6), .unit = "seconds",
     .help = "a job stops this long before its time limit, and earlier by two steps and a "
             "checkpoint; at most a quarter of its time; 0: the limit is not regarded",
     .at = BP_AT(bp_slurm_keys, margin)},
    {0},
};

static char halted_by[4096]; /* the halt file found, for the last line of the job */
static bp_err lost_code;     /* why the run is no longer the job's; BP_OK if it is */
static char lost_message[BP_ERR_MESSAGE_BYTES];

struct bp_stop_request {
    char *path; /* of the halt file */
    bp_log_channel channel;
    double next;   /* when to check for the file again, which costs a server request */
    double limit;  /* when the job's time ends; INFINITY: not known, or not checked */
    double margin; /* seconds */
    double needs;
    bool reported;
    bp_err (*check)(void *context); /* is the run still this job's? */
    void *context;
};

/* ---- the job's time ---- */

/* SLURM_JOB_END_TIME on the monotonic clock; an invalid value is reported once. The wall clock may
 * be set at any time, so it is read once. */
static double job_end(void)
{
    static bool known;
    static double moment = INFINITY;
    const char *text = getenv("SLURM_JOB_END_TIME");
    struct timespec now;
    char *end;
    double left;

    if (known || !text || text[0] == '\0')
        return moment;
    known = true;
    BP_CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    errno = 0;
    left = (double)strtoll(text, &end, 10) - (double)now.tv_sec - (double)now.tv_nsec * 1e-9;
    if (errno == 0 && *end == '\0' && left > 0 && left < LONGEST_SECONDS)
        moment = bp_clock_now() + left;
    else
        BP_WARN("environment.bad_value",
                "SLURM_JOB_END_TIME = %.40s is not a time at which this job can end: in the "
                "environment; its time limit is not looked at, only signals stop it in time",
                text);
    return moment;
}

static void set_limit(bp_stop_request *self, const bp_config *config)
{
    double most;

    self->margin = (double)bp_slurm_keys_of(config)->margin;
    self->limit = self->margin > 0 ? job_end() : INFINITY;
    most = MARGIN_SHARE * (self->limit - bp_clock_now());
    if (isfinite(self->limit) && self->margin > most)
        self->margin = most > 0 ? most : 0;
}

/* ---- checking ---- */

static void stop(bp_stop_request *self, bp_stop reason, const char *format, const char *what)
{
    bp_log_channel before = bp_log_use(self->channel);

    self->reported = true;
    if (bp_signals_stop_reason() == BP_STOP_NONE)
        bp_log(format, what);
    bp_signals_ask_stop(reason);
    (void)bp_log_use(before);
}

static void check_owner(bp_stop_request *self)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    err = !self->check ? BP_OK : self->check(self->context);
    if (err != BP_OK) {
        lost_code = err;
        (void)snprintf(lost_message, sizeof lost_message, "%s", bp_err_message());
        stop(self, BP_STOP_LOST, "%s", lost_message);
    }
    bp_err_set_message(message);
}

static void look(void *context)
{
    bp_stop_request *self = context;
    double now = bp_clock_now();
    char left[64];

    if (self->reported)
        return;
    if (now >= self->limit - self->margin - self->needs) {
        bp_clock_duration(left, sizeof left, fmax(self->limit - now, 0));
        stop(self, BP_STOP_LIMIT, "the job's time ends in %s: stopping", left);
    } else if (now >= self->next) {
        self->next = now + LOOK_SECONDS;
        if (!bp_path_exists(self->path)) {
            check_owner(self);
            return;
        }
        (void)snprintf(halted_by, sizeof halted_by, "%s", self->path);
        stop(self, BP_STOP_HALT, "to be halted: there is a file %s", self->path);
    }
}

bp_err bp_stop_request_check(const char *folder)
{
    const bp_path path = bp_path_in(folder, "halt");
    bp_err err = BP_OK;

    if (bp_path_exists(path.text))
        err = bp_fail_stopped("halted by %s; remove that file, and the same command goes on",
                              path.text);
    return err;
}

bp_err bp_stop_request_stopped(const char *format, ...)
{
    char where[512];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(where, sizeof where, format, list);
    va_end(list);
    if (lost_code != BP_OK) {
        bp_err_set_message(lost_message);
        return lost_code;
    }
    if (bp_signals_stop_reason() != BP_STOP_HALT)
        return bp_fail_stopped("%s; the same command goes on", where);
    return bp_fail_stopped("halted by %s: %s; remove that file, and the same command goes on",
                           halted_by[0] != '\0' ? halted_by : "halt in the run folder", where);
}

bp_stop_request *bp_stop_request_new(const char *folder, const bp_config *config)
{
    bp_stop_request *self = bp_alloc("run.stop_request", 1, sizeof *self);

    self->path = bp_path_join(folder, "halt");
    self->channel = bp_log_use(BP_LOG_JOB);
    (void)bp_log_use(self->channel);
    set_limit(self, config);
    bp_signals_watch(look, self);
    return self;
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

    if (!stop_request)
        return;
    bp_signals_unwatch(look, stop_request);
    lost_code = BP_OK; /* of this run: a job within a job has one of its own */
    bp_free(stop_request->path);
    bp_free(stop_request);
    *out = NULL;
}
