/* The fit of a Laplace approximation within a comparison: what the coordinator tells of it, and how
 * a stop that it hears of reaches the ranks that compute. */
#include "analysis/uncertainty/job_priv.h"

#include "analysis/uncertainty/laplace/laplace.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "data/corpus.h"
#include "mesh/collective.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_SECONDS 5.0
#define LOGGING_SECONDS  30.0 /* where standard output is no terminal */
#define ASK_SECONDS      0.25 /* between two messages to a dedicated coordinator */
#define LOOK_SECONDS     0.01 /* of a dedicated coordinator, for messages */
#define TAG_PROGRESS     1
#define TAG_STOP         2

/* On rank 0 of mesh->compute and on the coordinator: often the same rank. */
typedef struct fit_course {
    const comparison_job *self;
    const char *method;
    double logged, asked;
    int step; /* of the last line */
    bool stopped;
} fit_course;

/* ---- on the coordinator ---- */

/* `bagpipe status` shows the last line of the log. */
static void tell(fit_course *course, const bp_laplace_progress *progress)
{
    double interval = isatty(STDOUT_FILENO) ? PROGRESS_SECONDS : LOGGING_SECONDS;
    char left[96] = "", duration[64];

    if (progress->step == course->step && bp_clock_now() - course->logged < interval)
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

static bool hear(void *context, const bp_laplace_progress *progress)
{
    tell(context, progress);
    return bp_signals_stop_asked();
}

/* ---- to a dedicated coordinator, which has nothing else to do ---- */

typedef struct fit_message {
    bp_laplace_progress progress; /* its name does not travel */
    char name[64];
    bool ends;
} fit_message;

static bool report(void *context, const bp_laplace_progress *progress)
{
    fit_course *course = context;
    fit_message message = {.progress = *progress};
    double now = bp_clock_now();

    if (now - course->asked < ASK_SECONDS && progress->step == course->step)
        return course->stopped;
    course->asked = now;
    course->step = progress->step;
    (void)snprintf(message.name, sizeof message.name, "%s", progress->name);
    bp_send(&message, sizeof message, 0, TAG_PROGRESS, course->self->mesh->world);
    bp_recv(&course->stopped, sizeof course->stopped, 0, TAG_STOP, course->self->mesh->world);
    return course->stopped;
}

/* Until the fit has ended. Errors: BP_ERR_STOPPED this rank was asked to stop. */
static bp_err serve(fit_course *course)
{
    MPI_Comm world = course->self->mesh->world;
    fit_message message = {.ends = false};

    bp_heartbeat_enter("recv");
    while (!message.ends) {
        int there;

        BP_MPI(MPI_Iprobe(1, TAG_PROGRESS, world, &there, MPI_STATUS_IGNORE));
        if (!there) {
            bp_clock_sleep(LOOK_SECONDS);
            continue;
        }
        bp_recv(&message, sizeof message, 1, TAG_PROGRESS, world);
        message.progress.name = message.name;
        if (message.ends)
            continue;
        tell(course, &message.progress);
        course->stopped = bp_signals_stop_asked();
        bp_send(&course->stopped, sizeof course->stopped, 1, TAG_STOP, world);
    }
    bp_heartbeat_leave();
    return course->stopped ? bp_stop_request_stopped("while a Laplace approximation was fitted")
                           : BP_OK;
}

/* ---- the fit ---- */

/* A file that an earlier start left tells what it took, should that start not have said so. */
static bp_err keep_fit(const comparison_job *self, int64_t m, const bp_laplace_report *found,
                       double seconds)
{
    json_t *entry = comparison_record_of(self, m);

    if (found->reused && !isnan(comparison_record_real(entry, "fit_seconds")))
        return BP_OK;
    if (found->reused)
        seconds = found->factor_seconds + found->eigen_seconds + found->prior_seconds;
    bp_log("%s: prior precision %.4g, %.0f effective parameters, log evidence %.6g, from %" PRId64
           " tokens",
           self->results.methods.items[m].name, found->tau, found->effective_parameters,
           found->log_evidence, found->tokens);
    (void)json_object_set_new(entry, "prior_precision", bp_json_real(found->tau));
    (void)json_object_set_new(entry, "effective_parameters",
                              bp_json_real(found->effective_parameters));
    (void)json_object_set_new(entry, "log_evidence", bp_json_real(found->log_evidence));
    return comparison_record_add(self, m, "fit_seconds", seconds);
}

/* Of one rank. */
static bp_err run(comparison_job *self, int64_t m, const bp_config *config, const char *path,
                  bp_laplace_report *found)
{
    const bp_mesh *mesh = self->mesh;
    const comparison_method *method = &self->results.methods.items[m];
    bp_laplace_spec spec = bp_laplace_spec_of(self->config);
    fit_course course = {.self = self, .method = method->name, .asked = -ASK_SECONDS};
    bp_laplace_listener listener = {.hear = mesh->dedicated ? report : hear, .context = &course};
    bp_err err;

    if (!mesh->computes)
        return serve(&course);
    err = bp_laplace_fit(mesh, config, method->path, bp_corpus_keys_of(self->config)->train, &spec,
                         path, &listener, found);
    if (mesh->dedicated && bp_comm_is_root(mesh->compute))
        bp_send(&(fit_message){.ends = true}, sizeof(fit_message), 0, TAG_PROGRESS, mesh->world);
    return err;
}

bp_err comparison_job_fit(comparison_job *self, int64_t method, const bp_config *config)
{
    bp_laplace_report found = {0};
    char *path = comparison_samples_path(self, method);
    double began = bp_clock_now();
    bp_err err = bp_agree(self->world, run(self, method, config, path, &found));

    if (err == BP_ERR_STOPPED)
        bp_signals_ask_stop(BP_STOP_RANK); /* unless this rank was asked too */
    bp_bcast_bytes(&found, sizeof(found), self->mesh->dedicated ? 1 : 0, self->world);
    if (err == BP_OK && self->mesh->coordinates)
        err = keep_fit(self, method, &found, bp_clock_now() - began);
    bp_free(path);
    return bp_agree(self->world, err);
}
