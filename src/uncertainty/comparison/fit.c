/* The fit of a method within a comparison: the coordinator's report of it, and the path of a stop
 * request from the coordinator to the computing ranks. Called by steps.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "mesh/collective.h"
#include "mesh/mailbox.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ASK_SECONDS 0.25 /* between two messages to a dedicated coordinator */

/* The message to a dedicated coordinator, which answers whether to stop. */
enum { MAIL_PROGRESS, MAIL_ENDS };

/* On rank 0 of mesh->compute and on the coordinator: often the same rank. */
typedef struct fit_course {
    const comparison_job *self;
    const char *method;
    bp_mailbox *box; /* of a dedicated coordinator; NULL if there is none */
    double logged, asked;
    int step; /* of the last line */
    bool stopped;
} fit_course;

/* ---- on the coordinator ---- */

/* `bagpipe status` shows the last line of the log. */
static void log_progress(fit_course *course, const bp_fit_progress *progress)
{
    char left[96] = "", duration[64];

    if (progress->step == course->step && !bp_log_progress_due(course->logged))
        return;
    course->step = progress->step;
    course->logged = bp_clock_now();
    if (isfinite(progress->left)) {
        bp_clock_duration(duration, sizeof duration, progress->left);
        (void)snprintf(left, sizeof left, ", %s left%s", duration,
                       progress->step == 1 ? " in this step" : "");
    }
    bp_log_progress("%s: fit, step %d of %d, %s: %.0f %%%s", course->method, progress->step,
                    progress->steps, progress->name, 100 * progress->share, left);
}

static bool update(void *context, const bp_fit_progress *progress)
{
    log_progress(context, progress);
    return bp_signals_stop_asked();
}

/* ---- to a dedicated coordinator, which has nothing else to do ---- */

typedef struct fit_message {
    bp_fit_progress progress; /* its name is not sent */
    char name[64];
} fit_message;

static bool report(void *context, const bp_fit_progress *progress)
{
    fit_course *course = context;
    fit_message message = {.progress = *progress};
    double now = bp_clock_now();

    if (now - course->asked < ASK_SECONDS && progress->step == course->step)
        return course->stopped;
    course->asked = now;
    course->step = progress->step;
    (void)snprintf(message.name, sizeof message.name, "%s", progress->name);
    bp_mailbox_send(course->box, 0, MAIL_PROGRESS, &message, sizeof message);
    bp_mailbox_receive(course->box, "recv", MAIL_PROGRESS, &course->stopped,
                       sizeof course->stopped);
    return course->stopped;
}

static bool has_ended(void *context)
{
    fit_course *course = context;
    fit_message *message;
    bp_mail mail;

    if (!bp_mailbox_take(course->box, BP_MAIL_ANY, &mail))
        return false;
    if (mail.kind == MAIL_ENDS)
        return true;
    message = mail.data;
    message->progress.name = message->name;
    log_progress(course, &message->progress);
    bp_free(mail.data);
    course->stopped = bp_signals_stop_asked();
    bp_mailbox_send(course->box, mail.from, MAIL_PROGRESS, &course->stopped,
                    sizeof course->stopped);
    return false;
}

/* Until the fit has ended. Errors: BP_ERR_STOPPED this rank was asked to stop. */
static bp_err serve(fit_course *course)
{
    bp_poll("recv", has_ended, course);
    return course->stopped ? bp_stop_request_stopped("while method %s was fitted", course->method)
                           : BP_OK;
}

/* ---- the fit ---- */

/* The file of an earlier start has the seconds, if that start did not report them. */
static bp_err keep_fit(const comparison_job *self, int64_t m, const bp_fit_report *found,
                       double seconds)
{
    json_t *entry = comparison_record_of(self, m);

    if (found->reused && !isnan(bp_json_number(entry, "fit_seconds")))
        return BP_OK;
    bp_log("%s: %s", self->results.methods.items[m].name, found->summary);
    for (int k = 0; k < found->count; k++)
        (void)json_object_set_new(entry, found->figures[k].key,
                                  bp_json_real(found->figures[k].value));
    return comparison_record_add(self, m, "fit_seconds", found->reused ? found->seconds : seconds);
}

/* A rank's part of the fit. */
static bp_err run(const comparison_job *self, int64_t m, const bp_config *config,
                  bp_fit_report *found)
{
    const bp_mesh *mesh = self->mesh;
    const comparison_method *method = &self->results.methods.items[m];
    bp_method_case at = comparison_case(self, m);
    fit_course course = {.self = self, .method = method->name, .asked = -ASK_SECONDS};
    bp_fit_listener listener = {.update = mesh->dedicated ? report : update, .context = &course};
    bp_method_fit fit = {.mesh = mesh, .config = config, .listener = &listener};
    bp_err err;

    if (mesh->dedicated)
        course.box = bp_mailbox_new(mesh->world);
    err = mesh->computes ? method->way->fit(&at, &fit, found) : serve(&course);
    if (mesh->dedicated && mesh->rank == 1)
        bp_mailbox_send(course.box, 0, MAIL_ENDS, NULL, 0);
    bp_mailbox_free(&course.box);
    return err;
}

bp_err comparison_job_fit(comparison_job *self, int64_t method, const bp_config *config)
{
    bp_fit_report found = {0};
    double began = bp_clock_now();
    bp_err err = bp_agree(self->world, run(self, method, config, &found));

    if (err == BP_ERR_STOPPED)
        bp_signals_ask_stop(BP_STOP_RANK); /* unless this rank was asked too */
    bp_bcast_bytes(&found, sizeof(found), self->mesh->dedicated ? 1 : 0, self->world);
    if (err == BP_OK && self->mesh->coordinates)
        err = keep_fit(self, method, &found, bp_clock_now() - began);
    return bp_agree(self->world, err);
}
