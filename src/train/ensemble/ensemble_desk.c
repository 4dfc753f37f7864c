/* The desk that hands members out: the lead of each group of ranks asks the coordinator for a
 * member, trains it with its group, and sends news of it. A coordinator that trains itself looks at
 * its desk whenever its own loops ask whether to stop (bp_signals_watch), that is once a step. */
#include "train/ensemble/ensemble_priv.h"

#include "base/beat.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "coordinator/work_queue.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"
#include "run/drain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TAG_NEWS         1
#define TAG_ORDER        2
#define PROGRESS_SECONDS 5.0
#define LOGGING_SECONDS  30.0 /* where standard output is no terminal */
#define WAIT_SECONDS     0.002
#define SHOWN            6 /* members by name in a progress line */

/* What a lead tells the coordinator. Plain data: it travels as bytes. */
typedef enum news_kind {
    NEWS_STARTED, /* from `step` on */
    NEWS_STEP,    /* with its loss */
    NEWS_TRAINED, /* value: the out-of-bag perplexity */
    NEWS_DIVERGED,
    NEWS_STOPPED, /* its group was asked to stop */
    NEWS_LEFT     /* the last one of a group */
} news_kind;

typedef struct news {
    int64_t kind, member, step;
    double value;
    char text[BP_ERR_LINE_BYTES + 1]; /* why it diverged */
} news_item;

/* What the coordinator tells a lead. */
enum { ORDER_STOP, ORDER_LEAVE };

typedef enum member_phase { WAITS, TRAINS, TRAINED, DIVERGED } member_phase;

/* The coordinator's view of a member. */
typedef struct member_state {
    member_phase phase;
    int64_t first_step, step; /* where it went on from, and is */
    double loss, oob_perplexity;
    char *text; /* why it diverged */
} member_state;

struct ensemble_desk {
    ensemble *self;
    MPI_Comm comm;
    bp_work_queue *queue;
    bool leads;     /* this rank leads a group */
    int64_t member; /* a lead's: at work */
    /* the coordinator's: */
    member_state *states;
    uint8_t *done; /* [members], zero: a member that is whole says so itself */
    ensemble_metrics *metrics;
    bool *left; /* [groups] */
    int groups_left;
    bool stop_ordered;
    double began, printed;
    bp_err err; /* of the ensemble's own files */
    char *err_text;
};

static bp_err out_of_memory(void)
{
    return BP_FAIL(BP_ERR_SYSTEM, "no memory for the ensemble's desk");
}

static bp_err prepare(ensemble_desk *desk)
{
    ensemble *self = desk->self;

    desk->states = bp_alloc("ensemble.desk", self->members, sizeof *desk->states);
    desk->done = bp_alloc("ensemble.desk", self->members, sizeof *desk->done);
    desk->left = bp_alloc("ensemble.desk", self->shape.members, sizeof *desk->left);
    if (!desk->states || !desk->done || !desk->left)
        return out_of_memory();
    for (int64_t k = 0; k < self->members; k++)
        desk->states[k].oob_perplexity = NAN;
    return ensemble_metrics_new(&desk->metrics, self);
}

static bool tick(void *context, int64_t amount);

bp_err ensemble_desk_new(ensemble_desk **out, ensemble *self)
{
    const bp_mesh *mesh = self->mesh;
    ensemble_desk *desk = bp_alloc("ensemble.desk", 1, sizeof *desk);
    bp_work_spec spec = {.mesh = mesh, .units = self->members, .tick = tick, .context = desk};
    bp_err err = bp_agree(mesh->world, desk ? BP_OK : out_of_memory());

    *out = NULL;
    if (err != BP_OK) {
        bp_free(desk);
        return err;
    }
    desk->self = self;
    desk->comm = MPI_COMM_NULL;
    desk->leads = mesh->computes && bp_comm_is_root(mesh->tensor);
    err = bp_agree(mesh->world, mesh->coordinates ? prepare(desk) : BP_OK);
    spec.done = desk->done;
    if (err == BP_OK)
        err = bp_work_queue_new(&desk->queue, &spec);
    if (err == BP_OK)
        BP_MPI(MPI_Comm_dup(mesh->world, &desk->comm));
    else
        ensemble_desk_free(&desk);
    if (desk)
        desk->began = desk->printed = bp_clock_now();
    *out = desk;
    return err;
}

void ensemble_desk_free(ensemble_desk **out)
{
    ensemble_desk *desk = *out;

    if (!desk)
        return;
    for (int64_t k = 0; desk->states && k < desk->self->members; k++)
        bp_free(desk->states[k].text);
    if (desk->comm != MPI_COMM_NULL)
        BP_MPI(MPI_Comm_free(&desk->comm));
    bp_work_queue_free(&desk->queue);
    ensemble_metrics_free(&desk->metrics);
    bp_free(desk->err_text);
    bp_free(desk->left);
    bp_free(desk->done);
    bp_free(desk->states);
    bp_free(desk);
    *out = NULL;
}

/* ---- the coordinator ---- */

static int lead_of(const ensemble_desk *desk, int group)
{
    const bp_mesh *mesh = desk->self->mesh;

    return mesh->dedicated + group * mesh->tensors;
}

static void order(const ensemble_desk *desk, int group, int what)
{
    BP_MPI_WAIT("send", MPI_Send(&what, 1, MPI_INT, lead_of(desk, group), TAG_ORDER, desk->comm));
}

static void note_failure(ensemble_desk *desk, bp_err err)
{
    if (err == BP_OK || desk->err != BP_OK)
        return;
    desk->err = err; /* nothing more is handed out */
    desk->err_text = bp_strdup(bp_err_message());
}

static void add_event(ensemble_desk *desk, const char *name, const news_item *news, const char *key,
                      json_t *value)
{
    char member[ENSEMBLE_NAME_BYTES];
    json_t *members = json_object();

    ensemble_name(desk->self, news->member, member);
    json_object_set_new(members, "member", json_string(member));
    json_object_set_new(members, key, value);
    if (bp_run_event(desk->self->run, name, members) != BP_OK)
        bp_warn("%s", bp_err_message());
    json_decref(members);
}

static int64_t count(const ensemble_desk *desk, member_phase phase)
{
    int64_t n = 0;

    for (int64_t k = 0; k < desk->self->members; k++)
        n += desk->states[k].phase == phase;
    return n;
}

static void on_started(ensemble_desk *desk, const news_item *news)
{
    member_state *state = &desk->states[news->member];

    note_failure(desk, ensemble_forget_list(desk->self));
    state->phase = TRAINS;
    state->first_step = state->step = news->step;
    state->loss = NAN;
    note_failure(desk, ensemble_metrics_started(desk->metrics, news->member, news->step));
    add_event(desk, "member_started", news, "step", json_integer(news->step));
}

static void on_trained(ensemble_desk *desk, const news_item *news)
{
    member_state *state = &desk->states[news->member];
    char name[ENSEMBLE_NAME_BYTES], oob[64] = "";

    bool early = ensemble_member_ended_early(desk->self, news->member);

    state->phase = TRAINED;
    state->step = early ? ensemble_member_step(desk->self, news->member) : desk->self->steps;
    state->oob_perplexity = news->value;
    ensemble_metrics_ended(desk->metrics, news->member,
                           early ? ENSEMBLE_ENDED_EARLY : ENSEMBLE_TRAINED);
    add_event(desk, "member_trained", news, "oob_perplexity", bp_json_real(news->value));
    ensemble_name(desk->self, news->member, name);
    if (isfinite(news->value))
        snprintf(oob, sizeof oob, ", out-of-bag perplexity %.4f", news->value);
    bp_log("%s is trained%s (%" PRId64 " of %" PRId64 ")", name, oob, count(desk, TRAINED),
           desk->self->members);
}

static void on_diverged(ensemble_desk *desk, const news_item *news)
{
    member_state *state = &desk->states[news->member];
    char name[ENSEMBLE_NAME_BYTES];

    state->phase = DIVERGED;
    bp_free(state->text);
    state->text = bp_strdup(news->text);
    ensemble_metrics_ended(desk->metrics, news->member, ENSEMBLE_DIVERGED);
    add_event(desk, "member_diverged", news, "message", json_string(news->text));
    ensemble_name(desk->self, news->member, name);
    bp_warn("%s: %s; the other members go on", name, news->text);
}

static void on_left(ensemble_desk *desk, int from)
{
    int group = (from - desk->self->mesh->dedicated) / desk->self->mesh->tensors;

    desk->left[group] = true;
    desk->groups_left++;
    if (from != 0 || desk->self->mesh->dedicated)
        order(desk, group, ORDER_LEAVE);
}

/* On the coordinator, which may be in the midst of training a member itself. */
static void hear(ensemble_desk *desk, const news_item *news, int from)
{
    bp_log_channel channel = bp_log_use(BP_LOG_JOB);

    switch ((news_kind)news->kind) {
    case NEWS_STARTED:
        on_started(desk, news);
        break;
    case NEWS_STEP:
        desk->states[news->member].step = news->step;
        desk->states[news->member].loss = news->value;
        break;
    case NEWS_TRAINED:
        on_trained(desk, news);
        break;
    case NEWS_DIVERGED:
        on_diverged(desk, news);
        break;
    case NEWS_STOPPED:
        bp_signals_ask_stop(BP_STOP_RANK);
        break;
    case NEWS_LEFT:
        on_left(desk, from);
        break;
    }
    (void)bp_log_use(channel);
}

/* Whoever was asked to stop, all groups stop. */
static void pass_stop_on(ensemble_desk *desk)
{
    if (desk->stop_ordered || !bp_signals_stop_asked())
        return;
    desk->stop_ordered = true;
    for (int g = 0; g < desk->self->shape.members; g++)
        if (!desk->left[g] && lead_of(desk, g) != 0)
            order(desk, g, ORDER_STOP);
}

static void hear_all(ensemble_desk *desk)
{
    for (;;) {
        MPI_Status status;
        news_item news;
        int there;

        BP_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_NEWS, desk->comm, &there, &status));
        if (!there)
            break;
        bp_recv(&news, sizeof news, status.MPI_SOURCE, TAG_NEWS, desk->comm);
        hear(desk, &news, status.MPI_SOURCE);
    }
    pass_stop_on(desk);
}

static void add_count(bp_buffer *line, const ensemble_desk *desk, member_phase phase,
                      const char *what)
{
    int64_t members = count(desk, phase);

    if (members > 0)
        bp_buffer_printf(line, ", %" PRId64 " %s", members, what);
}

/* "3 of 8 members trained, 2 at work, 3 waiting; m03 120/400 3.4210, m04 118/400 3.5121; 2 min 10 s
 * left" */
static void show_progress(ensemble_desk *desk, double now)
{
    const ensemble *self = desk->self;
    int64_t steps = self->steps, done = 0, left = 0;
    char name[ENSEMBLE_NAME_BYTES], time_left[64];
    bp_buffer line = {0};
    int shown = 0;

    bp_buffer_printf(&line, "%" PRId64 " of %" PRId64 " members trained", count(desk, TRAINED),
                     self->members);
    add_count(&line, desk, TRAINS, "at work");
    add_count(&line, desk, WAITS, "waiting");
    add_count(&line, desk, DIVERGED, "diverged");
    for (int64_t k = 0; k < self->members; k++) {
        const member_state *state = &desk->states[k];

        done += state->step - state->first_step;
        left += state->phase == TRAINS || state->phase == WAITS ? steps - state->step : 0;
        if (state->phase != TRAINS || ++shown > SHOWN)
            continue;
        ensemble_name(self, k, name);
        bp_buffer_printf(&line, "%s %s %" PRId64 "/%" PRId64, shown > 1 ? "," : ";", name,
                         state->step, steps);
        if (isfinite(state->loss)) /* it has one when its first line is there */
            bp_buffer_printf(&line, " %.4f", state->loss);
    }
    bp_clock_duration(time_left, sizeof time_left,
                      done > 0 ? (double)left * (now - desk->began) / (double)done : NAN);
    bp_buffer_printf(&line, "%s; %s left", shown > SHOWN ? ", ..." : "", time_left);
    bp_log_progress("%s", line.data);
    bp_buffer_clear(&line);
}

/* About once a second, on the coordinator. */
static bool tick(void *context, int64_t amount)
{
    ensemble_desk *desk = context;
    bp_log_channel channel = bp_log_use(BP_LOG_JOB);
    double now = bp_clock_now(), interval = isatty(1) ? PROGRESS_SECONDS : LOGGING_SECONDS;

    (void)amount; /* news tell more */
    hear_all(desk);
    if (now - desk->printed >= interval) {
        desk->printed = now;
        note_failure(desk, ensemble_metrics_flush(desk->metrics));
        show_progress(desk, now);
    }
    (void)bp_log_use(channel);
    return bp_signals_stop_asked() || desk->err != BP_OK;
}

/* ---- a lead ---- */

static void tell(ensemble_desk *desk, news_kind kind, int64_t step, double value)
{
    news_item news = {.kind = kind, .member = desk->member, .step = step, .value = value};

    if (kind == NEWS_DIVERGED)
        snprintf(news.text, sizeof news.text, "%s", bp_err_message());
    if (desk->self->mesh->coordinates)
        hear(desk, &news, 0);
    else
        bp_send(&news, sizeof news, 0, TAG_NEWS, desk->comm);
}

/* The orders that have come; true: to leave. */
static bool obey(ensemble_desk *desk)
{
    int there, what = ORDER_STOP;

    while (what != ORDER_LEAVE) {
        BP_MPI(MPI_Iprobe(0, TAG_ORDER, desk->comm, &there, MPI_STATUS_IGNORE));
        if (!there)
            return false;
        BP_MPI_WAIT("recv",
                    MPI_Recv(&what, 1, MPI_INT, 0, TAG_ORDER, desk->comm, MPI_STATUS_IGNORE));
        if (what == ORDER_STOP)
            bp_signals_ask_stop(BP_STOP_RANK);
    }
    return true;
}

/* Called where training and scoring ask whether to stop. */
static void look(void *context)
{
    ensemble_desk *desk = context;

    if (desk->self->mesh->coordinates) {
        hear_all(desk);
        bp_work_queue_serve(desk->queue);
    } else if (desk->leads) {
        (void)obey(desk); /* to leave is ordered only to those that have */
    }
}

static bp_err on_training_started(void *context, int64_t step)
{
    ensemble_desk *desk = context;
    bp_err err = ensemble_member_forget_scores(desk->self, desk->member);

    if (err == BP_OK)
        tell(desk, NEWS_STARTED, step, NAN);
    return err;
}

static void on_metric(void *context, const json_t *line)
{
    const json_t *loss = json_object_get(line, "loss");

    tell(context, NEWS_STEP, json_integer_value(json_object_get(line, "step")),
         json_is_number(loss) ? json_number_value(loss) : NAN);
}

/* One member, by this rank's group. One that diverged is news, and no error. */
static bp_err train(ensemble_desk *desk)
{
    ensemble *self = desk->self;
    bp_pretrain_hooks hooks = {
        .context = desk, .started = on_training_started, .metric = on_metric};
    char name[ENSEMBLE_NAME_BYTES];
    double oob;
    bp_err err;

    ensemble_name(self, desk->member, name);
    bp_log_set_member(name, desk->leads);
    (void)bp_log_use(BP_LOG_MEMBER);
    err = ensemble_member_run(self, self->mesh->tensor, desk->member, &hooks, &oob);
    (void)bp_log_use(BP_LOG_JOB);
    if (err == BP_OK && desk->leads)
        tell(desk, NEWS_TRAINED, 0, oob);
    if (err == BP_ERR_SOFTWARE && desk->leads)
        tell(desk, NEWS_DIVERGED, 0, NAN);
    if (err == BP_ERR_STOPPED && desk->leads)
        tell(desk, NEWS_STOPPED, 0, NAN);
    if (err == BP_OK || err == BP_ERR_SOFTWARE)
        return BP_OK;
    if (bp_err_was_asked(err)) /* so are the others */
        return err;
    return bp_err_prefix(err, "%s", name);
}

static bp_err train_all(ensemble_desk *desk)
{
    bp_err err = BP_OK;

    while (err == BP_OK) {
        if (desk->leads) {
            bp_work_queue_ask(desk->queue, 0);
            desk->member = bp_work_queue_take(desk->queue);
        }
        bp_bcast_bytes(&desk->member, sizeof desk->member, 0, desk->self->mesh->tensor);
        if (desk->member < 0)
            break;
        err = train(desk);
    }
    if (desk->leads)
        tell(desk, NEWS_LEFT, 0, NAN);
    return err;
}

/* A rank that only waits leaves its core to those that train. */
static void wait_for_all(const ensemble_desk *desk)
{
    MPI_Request request;
    int done = 0;

    bp_beat_enter("barrier");
    BP_MPI(MPI_Ibarrier(desk->comm, &request));
    while (!done) {
        BP_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (!done)
            bp_clock_sleep(WAIT_SECONDS);
    }
    bp_beat_leave();
}

bp_err ensemble_desk_run(ensemble_desk *desk)
{
    const bp_mesh *mesh = desk->self->mesh;
    bp_err err = BP_OK;

    bp_signals_watch(look, desk);
    if (mesh->computes)
        err = train_all(desk);
    bp_work_queue_leave(desk->queue, err != BP_OK, 0);
    bp_beat_enter("members");
    while (mesh->coordinates && desk->groups_left < desk->self->shape.members) {
        hear_all(desk);
        bp_clock_sleep(WAIT_SECONDS);
    }
    while (desk->leads && !mesh->coordinates && !obey(desk))
        bp_clock_sleep(WAIT_SECONDS);
    bp_beat_leave();
    bp_signals_unwatch(look, desk);
    wait_for_all(desk);
    return bp_agree(mesh->world, err);
}

/* ---- the end ---- */

static bp_err save_list(const ensemble_desk *desk)
{
    const ensemble *self = desk->self;
    bp_ensemble_list list = {0};
    bp_err err = BP_OK;

    list.members = bp_alloc("ensemble.list", self->members, sizeof *list.members);
    if (!list.members)
        return out_of_memory();
    for (int64_t k = 0; k < self->members && err == BP_OK; k++) {
        bp_ensemble_member *to = &list.members[list.count];
        char name[ENSEMBLE_NAME_BYTES];

        if (desk->states[k].phase != TRAINED)
            continue;
        list.count++;
        ensemble_name(self, k, name);
        to->name = bp_strdup(name);
        to->path = bp_sprintf("members/%s", name);
        to->oob_perplexity = desk->states[k].oob_perplexity;
        err = to->name && to->path ? BP_OK : out_of_memory();
    }
    if (err == BP_OK)
        err = bp_ensemble_list_save(&list, bp_config_string(self->config, "run.dir"));
    bp_ensemble_list_clear(&list);
    return err;
}

static bp_err fail_diverged(const ensemble_desk *desk, int64_t diverged)
{
    const ensemble *self = desk->self;
    bp_buffer names = {0};
    const char *first = NULL;
    int64_t shown = 0;

    for (int64_t k = 0; k < self->members; k++) {
        char name[ENSEMBLE_NAME_BYTES];

        if (desk->states[k].phase != DIVERGED || ++shown > SHOWN)
            continue;
        ensemble_name(self, k, name);
        bp_buffer_printf(&names, "%s%s", shown > 1 ? ", " : "", name);
        first = first ? first : desk->states[k].text;
    }
    char *text = bp_buffer_take(&names);
    bp_err err =
        BP_FAIL(BP_ERR_SOFTWARE, "%" PRId64 " of %" PRId64 " members diverged (%s%s): %s", diverged,
                self->members, text ? text : "", shown > SHOWN ? ", ..." : "", first ? first : "");
    bp_free(text);
    return err;
}

bp_err ensemble_desk_conclude(ensemble_desk *desk, bp_err err)
{
    int64_t members = desk->self->members;
    int64_t trained = count(desk, TRAINED), diverged = count(desk, DIVERGED);
    char *message = bp_strdup(bp_err_message());

    note_failure(desk, ensemble_metrics_flush(desk->metrics));
    if (err != BP_OK && message) /* it comes before what the flush may have met */
        bp_err_set_message(message);
    bp_free(message);
    if (err != BP_OK)
        return err;
    if (desk->err != BP_OK) {
        bp_err_set_message(desk->err_text ? desk->err_text : "metrics.jsonl can't be written");
        return desk->err;
    }
    if (trained + diverged < members)
        return bp_drain_stopped("%" PRId64 " of %" PRId64 " members are trained", trained, members);
    err = bp_run_check_owner(desk->self->run);
    if (err == BP_OK && trained > 0)
        err = save_list(desk);
    if (err == BP_OK && trained > 0)
        bp_log("ensemble.json lists the %" PRId64 " members: %s", trained,
               bp_config_string(desk->self->config, "run.dir"));
    return err == BP_OK && diverged > 0 ? fail_diverged(desk, diverged) : err;
}
