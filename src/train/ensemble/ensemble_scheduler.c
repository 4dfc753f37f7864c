/* The scheduler that hands members out: the lead of each group of ranks asks the coordinator for a
 * member, trains it with its group, and sends messages about it. A coordinator that trains itself
 * looks at its scheduler whenever its own loops ask whether to stop (bp_signals_watch), that is
 * once a step. Called by ensemble.c. */
#include "train/ensemble/ensemble_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "job/work_queue.h"
#include "mesh/collective.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 6 /* members by name in a progress line */

/* Reports of a lead to the coordinator, and last the coordinator's command to a lead. */
typedef enum message_kind {
    MESSAGE_STARTED = BP_WORK_OWN_MESSAGES, /* from `step` on */
    MESSAGE_STEP,                           /* with its loss */
    MESSAGE_TRAINED,                        /* value: the out-of-bag perplexity */
    MESSAGE_DIVERGED,
    MESSAGE_STOPPED, /* its group was asked to stop */
    COMMAND_STOP
} message_kind;

/* Plain data: sent as bytes. */
typedef struct message {
    int64_t member, step;
    double value;
    char text[BP_ERR_LINE_BYTES + 1]; /* why it diverged */
} ensemble_message;

typedef enum member_phase { WAITS, TRAINS, TRAINED, DIVERGED } member_phase;

/* The coordinator's view of a member. */
typedef struct member_state {
    member_phase phase;
    char name[ENSEMBLE_NAME_BYTES];
    int64_t first_step, step; /* where it went on from, and is */
    double loss, valid_loss, oob_perplexity;
    char *text; /* why it diverged */
} member_state;

struct ensemble_scheduler {
    ensemble *self;
    bp_work_queue *queue;
    bool leads;     /* this rank leads a group */
    int64_t member; /* a lead's: at work */
    /* on the coordinator: */
    member_state *states;
    uint8_t *done; /* [members], zero: a member that is whole says so itself */
    ensemble_metrics *metrics;
    bool stop_ordered;
    double began, printed;
    bp_err err; /* of the ensemble's own files */
    char *err_text;
};

static bool report_progress(void *context, int64_t amount);
static void take_message(void *context, const bp_mail *mail);

bp_err ensemble_scheduler_new(ensemble_scheduler **out, ensemble *self)
{
    const bp_mesh *mesh = self->mesh;
    ensemble_scheduler *scheduler = bp_alloc("ensemble.scheduler", 1, sizeof *scheduler);
    bp_work_spec spec = {.mesh = mesh,
                         .units = self->members,
                         .report_progress = report_progress,
                         .receive = take_message,
                         .context = scheduler};
    bp_err err = BP_OK;

    *out = scheduler;
    scheduler->self = self;
    scheduler->leads = mesh->computes && bp_comm_is_root(mesh->tensor);
    scheduler->began = scheduler->printed = bp_clock_now();
    if (mesh->coordinates) {
        scheduler->states = bp_alloc("ensemble.scheduler", self->members, sizeof(member_state));
        scheduler->done = bp_alloc("ensemble.scheduler", self->members, sizeof(uint8_t));
        for (int64_t k = 0; k < self->members; k++) {
            scheduler->states[k].oob_perplexity = NAN;
            ensemble_name(self, k, scheduler->states[k].name);
        }
        err = ensemble_metrics_new(&scheduler->metrics, self);
    }
    spec.done = scheduler->done;
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        bp_work_queue_new(&scheduler->queue, &spec);
    else
        ensemble_scheduler_free(out);
    return err;
}

void ensemble_scheduler_free(ensemble_scheduler **out)
{
    ensemble_scheduler *scheduler = *out;

    if (!scheduler)
        return;
    for (int64_t k = 0; scheduler->states && k < scheduler->self->members; k++)
        bp_free(scheduler->states[k].text);
    bp_work_queue_free(&scheduler->queue);
    ensemble_metrics_free(&scheduler->metrics);
    bp_free(scheduler->err_text);
    bp_free(scheduler->done);
    bp_free(scheduler->states);
    bp_free(scheduler);
    *out = NULL;
}

/* ---- the coordinator ---- */

static void note_failure(ensemble_scheduler *scheduler, bp_err err)
{
    if (err == BP_OK || scheduler->err != BP_OK)
        return;
    scheduler->err = err; /* nothing more is handed out */
    scheduler->err_text = bp_strdup(bp_err_message());
}

static void add_event(ensemble_scheduler *scheduler, const char *name,
                      const ensemble_message *message, const char *key, json_t *value)
{
    json_t *members =
        json_pack("{s:s, s:o}", "member", scheduler->states[message->member].name, key, value);

    if (bp_run_event(scheduler->self->run, name, members) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    json_decref(members);
}

static int64_t count(const ensemble_scheduler *scheduler, member_phase phase)
{
    int64_t n = 0;

    for (int64_t k = 0; k < scheduler->self->members; k++)
        n += scheduler->states[k].phase == phase;
    return n;
}

static void on_started(ensemble_scheduler *scheduler, const ensemble_message *message)
{
    member_state *state = &scheduler->states[message->member];

    note_failure(scheduler, bp_ensemble_list_remove(bp_run_keys_of(scheduler->self->config)->dir));
    state->phase = TRAINS;
    state->first_step = state->step = message->step;
    state->loss = NAN;
    note_failure(scheduler,
                 ensemble_metrics_started(scheduler->metrics, message->member, message->step));
    add_event(scheduler, "member_started", message, "step", json_integer(message->step));
}

static void on_trained(ensemble_scheduler *scheduler, const ensemble_message *message)
{
    member_state *state = &scheduler->states[message->member];
    bool early = ensemble_member_ended_early(scheduler->self, message->member);
    const char *of = ensemble_lists_best(scheduler->self->config) ? " of its best checkpoint" : "";
    char oob[96] = "", valid[64] = "";

    state->step =
        early ? ensemble_member_step(scheduler->self, message->member) : scheduler->self->steps;
    if (state->phase != TRAINS) /* it was trained by an earlier start, which took no time of this */
        state->first_step = state->step;
    state->phase = TRAINED;
    state->oob_perplexity = message->value;
    ensemble_metrics_ended(scheduler->metrics, message->member,
                           early ? ENSEMBLE_ENDED_EARLY : ENSEMBLE_TRAINED);
    add_event(scheduler, "member_trained", message, "oob_perplexity", bp_json_real(message->value));
    if (isfinite(message->value) && ensemble_has_task(scheduler->self))
        snprintf(oob, sizeof oob, ", out-of-bag loss %.4f%s", log(message->value), of);
    else if (isfinite(message->value))
        snprintf(oob, sizeof oob, ", out-of-bag perplexity %.4f%s", message->value, of);
    state->valid_loss = ensemble_member_valid_loss(scheduler->self, message->member);
    if (isfinite(state->valid_loss))
        snprintf(valid, sizeof valid, ", best validation loss %.4f", state->valid_loss);
    bp_log("%s is trained%s%s (%" PRId64 " of %" PRId64 ")", state->name, valid, oob,
           count(scheduler, TRAINED), scheduler->self->members);
}

static void on_diverged(ensemble_scheduler *scheduler, const ensemble_message *message)
{
    member_state *state = &scheduler->states[message->member];

    state->phase = DIVERGED;
    bp_free(state->text);
    state->text = bp_strdup(message->text);
    ensemble_metrics_ended(scheduler->metrics, message->member, ENSEMBLE_DIVERGED);
    add_event(scheduler, "member_diverged", message, "message", bp_json_string(message->text));
    BP_WARN("training.diverged", "%s: %s; the other members go on", state->name, message->text);
}

/* On the coordinator, which may be in the midst of training a member itself. */
static void receive(ensemble_scheduler *scheduler, message_kind kind,
                    const ensemble_message *message)
{
    bp_log_channel previous = bp_log_use(BP_LOG_JOB);

    switch (kind) {
    case MESSAGE_STARTED:
        on_started(scheduler, message);
        break;
    case MESSAGE_STEP:
        scheduler->states[message->member].step = message->step;
        scheduler->states[message->member].loss = message->value;
        break;
    case MESSAGE_TRAINED:
        on_trained(scheduler, message);
        break;
    case MESSAGE_DIVERGED:
        on_diverged(scheduler, message);
        break;
    case MESSAGE_STOPPED:
        bp_signals_ask_stop(BP_STOP_RANK);
        break;
    case COMMAND_STOP:
        break;
    }
    (void)bp_log_use(previous);
}

static void take_message(void *context, const bp_mail *mail)
{
    receive(context, (message_kind)mail->kind, mail->data);
}

/* If any group is asked to stop, all groups stop. A group that has left does not receive the
 * request. */
static void pass_stop_on(ensemble_scheduler *scheduler)
{
    const bp_mesh *mesh = scheduler->self->mesh;

    if (scheduler->stop_ordered || !bp_signals_stop_asked())
        return;
    scheduler->stop_ordered = true;
    for (int lead = mesh->dedicated; lead < mesh->size; lead += mesh->tensor_ranks)
        if (lead != 0)
            bp_mailbox_send(bp_work_queue_mailbox(scheduler->queue), lead, COMMAND_STOP, NULL, 0);
}

/* "3 of 8 members trained, 2 at work, 3 waiting; m03 120/400 3.4210, m04 118/400 3.5121; 2 min 10 s
 * left" */
static void show_progress(ensemble_scheduler *scheduler, double now)
{
    static const member_phase PHASES[] = {TRAINS, WAITS, DIVERGED};
    static const char *const WORDS[] = {"at work", "waiting", "diverged"};
    const ensemble *self = scheduler->self;
    int64_t steps = self->steps, done = 0, left = 0;
    char time_left[64];
    bp_buffer line = {0};
    int shown = 0;

    bp_buffer_printf(&line, "%" PRId64 " of %" PRId64 " members trained", count(scheduler, TRAINED),
                     self->members);
    for (int p = 0; p < 3; p++)
        if (count(scheduler, PHASES[p]) > 0)
            bp_buffer_printf(&line, ", %" PRId64 " %s", count(scheduler, PHASES[p]), WORDS[p]);
    for (int64_t k = 0; k < self->members; k++) {
        const member_state *state = &scheduler->states[k];

        done += state->step - state->first_step;
        left += state->phase == TRAINS || state->phase == WAITS ? steps - state->step : 0;
        if (state->phase != TRAINS || ++shown > SHOWN)
            continue;
        bp_buffer_printf(&line, "%s %s %" PRId64 "/%" PRId64, shown > 1 ? "," : ";", state->name,
                         state->step, steps);
        if (isfinite(state->loss)) /* it has one when its first line is there */
            bp_buffer_printf(&line, " %.4f", state->loss);
    }
    bp_clock_duration(time_left, sizeof time_left,
                      done > 0 ? (double)left * (now - scheduler->began) / (double)done : NAN);
    bp_buffer_printf(&line, "%s; %s left", shown > SHOWN ? ", ..." : "", time_left);
    bp_log_progress("%s", line.data);
    bp_buffer_clear(&line);
}

/* About once a second, on the coordinator. */
static bool report_progress(void *context, int64_t amount)
{
    ensemble_scheduler *scheduler = context;
    bp_log_channel previous = bp_log_use(BP_LOG_JOB);

    (void)amount; /* messages say more */
    pass_stop_on(scheduler);
    if (bp_log_progress_due(scheduler->printed)) {
        double now = bp_clock_now();

        scheduler->printed = now;
        note_failure(scheduler, ensemble_metrics_flush(scheduler->metrics));
        show_progress(scheduler, now);
    }
    (void)bp_log_use(previous);
    return bp_signals_stop_asked() || scheduler->err != BP_OK;
}

/* ---- a lead ---- */

static void send(ensemble_scheduler *scheduler, message_kind kind, int64_t step, double value)
{
    ensemble_message message = {.member = scheduler->member, .step = step, .value = value};

    if (kind == MESSAGE_DIVERGED)
        snprintf(message.text, sizeof message.text, "%s", bp_err_text());
    if (scheduler->self->mesh->coordinates)
        receive(scheduler, kind, &message);
    else
        bp_mailbox_send(bp_work_queue_mailbox(scheduler->queue), 0, kind, &message, sizeof message);
}

/* Called where training and scoring ask whether to stop. */
static void look(void *context)
{
    ensemble_scheduler *scheduler = context;
    bp_mail order;

    if (scheduler->self->mesh->coordinates) {
        bp_work_queue_serve(scheduler->queue);
        pass_stop_on(scheduler);
    } else if (scheduler->leads &&
               bp_mailbox_take(bp_work_queue_mailbox(scheduler->queue), COMMAND_STOP, &order)) {
        bp_signals_ask_stop(BP_STOP_RANK);
    }
}

static bp_err on_training_started(void *context, int64_t step)
{
    ensemble_scheduler *scheduler = context;
    bp_err err = ensemble_member_forget_scores(scheduler->self, scheduler->member);

    if (err == BP_OK)
        send(scheduler, MESSAGE_STARTED, step, NAN);
    return err;
}

static void on_metric(void *context, const json_t *line)
{
    const json_t *loss = json_object_get(line, "loss");

    send(context, MESSAGE_STEP, json_integer_value(json_object_get(line, "step")),
         json_is_number(loss) ? json_number_value(loss) : NAN);
}

/* One member, by this rank's group. One that diverged is reported, and is not an error. */
static bp_err train(ensemble_scheduler *scheduler)
{
    ensemble *self = scheduler->self;
    bp_pretrain_hooks hooks = {
        .context = scheduler, .started = on_training_started, .metric = on_metric};
    char name[ENSEMBLE_NAME_BYTES];
    double oob;
    bp_err err;

    ensemble_name(self, scheduler->member, name);
    bp_log_set_member(name, scheduler->leads);
    (void)bp_log_use(BP_LOG_MEMBER);
    err = ensemble_member_run(self, self->mesh->tensor, scheduler->member, &hooks, &oob);
    (void)bp_log_use(BP_LOG_JOB);
    if (scheduler->leads && (err == BP_OK || err == BP_ERR_SOFTWARE || err == BP_ERR_STOPPED))
        send(scheduler,
             err == BP_OK             ? MESSAGE_TRAINED
             : err == BP_ERR_SOFTWARE ? MESSAGE_DIVERGED
                                      : MESSAGE_STOPPED,
             0, oob);
    if (err == BP_OK || err == BP_ERR_SOFTWARE)
        return BP_OK;
    if (bp_err_was_asked(err)) /* so are the others */
        return err;
    return bp_err_prefix(err, "%s", name);
}

static bp_err train_all(ensemble_scheduler *scheduler)
{
    bp_err err = BP_OK;

    while (err == BP_OK) {
        if (scheduler->leads) {
            bp_work_queue_ask(scheduler->queue, 0);
            scheduler->member = bp_work_queue_take(scheduler->queue);
        }
        bp_bcast_bytes(&scheduler->member, sizeof scheduler->member, 0,
                       scheduler->self->mesh->tensor);
        if (scheduler->member < 0)
            break;
        err = train(scheduler);
    }
    return err;
}

bp_err ensemble_scheduler_run(ensemble_scheduler *scheduler)
{
    const bp_mesh *mesh = scheduler->self->mesh;
    bp_err err = BP_OK;

    bp_signals_watch(look, scheduler);
    if (mesh->computes)
        err = train_all(scheduler);
    bp_work_queue_leave(scheduler->queue, err != BP_OK, 0);
    bp_signals_unwatch(look, scheduler);
    bp_barrier_asleep("barrier", mesh->world); /* the core is for ranks that still train */
    return bp_agree(mesh->world, err);
}

/* ---- the end ---- */

/* A member's checkpoint, and what is known of it. */
static bp_err list_member(bp_ensemble_member *out, const ensemble *self, int64_t member,
                          const member_state *state)
{
    char *parent = ensemble_member_path(self, member, "checkpoints");
    int64_t best = bp_checkpoints_best(parent);
    bool lists_best = ensemble_lists_best(self->config);
    bp_err err = BP_OK;

    *out = (bp_ensemble_member){
        .name = bp_strdup(state->name),
        .path = bp_sprintf("members/%s%s", state->name, lists_best ? "/checkpoints/best" : ""),
        .oob_perplexity = state->oob_perplexity};
    if (lists_best && best < 0)
        err = BP_FAIL(BP_ERR_CONFIG, "ensemble.no_best",
                      "ensemble.checkpoint = best, but member %s has no best checkpoint: at %s; "
                      "train it with corpus.valid, or leave the key out",
                      state->name, parent);
    bp_free(parent);
    return err;
}

static bp_err save_list(const ensemble_scheduler *scheduler)
{
    const ensemble *self = scheduler->self;
    bp_ensemble_list list = {0};
    bp_err err = BP_OK;

    list.members = bp_alloc("ensemble.list", self->members, sizeof *list.members);
    for (int64_t k = 0; k < self->members; k++) {
        const member_state *state = &scheduler->states[k];

        if (state->phase == TRAINED && err == BP_OK)
            err = list_member(&list.members[list.count++], self, k, state);
    }
    if (err == BP_OK)
        err = bp_ensemble_list_save(&list, bp_run_keys_of(self->config)->dir);
    bp_ensemble_list_clear(&list);
    return err;
}

static bp_err fail_diverged(const ensemble_scheduler *scheduler, int64_t diverged)
{
    const ensemble *self = scheduler->self;
    bp_buffer names = {0};
    const char *first = NULL;
    int64_t shown = 0;

    for (int64_t k = 0; k < self->members; k++) {
        const member_state *state = &scheduler->states[k];

        if (state->phase != DIVERGED || ++shown > SHOWN)
            continue;
        bp_buffer_printf(&names, "%s%s", shown > 1 ? ", " : "", state->name);
        first = first ? first : state->text;
    }
    bp_err err = BP_FAIL(BP_ERR_SOFTWARE, "ensemble.diverged",
                         "%" PRId64 " of %" PRId64 " members diverged (%s%s): %s", diverged,
                         self->members, names.data, shown > SHOWN ? ", ..." : "", first);
    bp_buffer_clear(&names);
    return err;
}

/* The members' losses, best and worst. A member that learned little spoils the mixture, and its
 * disagreement says nothing of texts. */
static void tell_losses(const ensemble_scheduler *scheduler)
{
    const member_state *worst = NULL, *best = NULL;

    if (!ensemble_losses_are_nats(scheduler->self))
        return;
    for (int64_t k = 0; k < scheduler->self->members; k++) {
        const member_state *state = &scheduler->states[k];

        if (state->phase != TRAINED || !isfinite(state->valid_loss))
            continue;
        worst = !worst || state->valid_loss > worst->valid_loss ? state : worst;
        best = !best || state->valid_loss < best->valid_loss ? state : best;
    }
    if (best && best != worst)
        bp_log("validation loss: best %s %.4f, worst %s %.4f (+%.4f)", best->name, best->valid_loss,
               worst->name, worst->valid_loss, worst->valid_loss - best->valid_loss);
    if (best && worst->valid_loss > best->valid_loss + BP_MEMBER_FAR_NATS)
        BP_WARN(
            "ensemble.unequal_members",
            "the best validation loss of %s is %.4g, and %s has %.4g: at %s; %s may have failed "
            "to learn, then the ensemble predicts worse and disagreement says nothing of texts: "
            "compare them, and train with another run.seed, a smaller optimizer.lr or a longer "
            "optimizer.warmup, or leave it out of a copy of ensemble.json",
            worst->name, worst->valid_loss, best->name, best->valid_loss,
            bp_run_keys_of(scheduler->self->config)->dir, worst->name);
}

bp_err ensemble_scheduler_conclude(ensemble_scheduler *scheduler, bp_err err)
{
    int64_t members = scheduler->self->members;
    int64_t trained = count(scheduler, TRAINED), diverged = count(scheduler, DIVERGED);
    char *message = bp_strdup(bp_err_message());

    note_failure(scheduler, ensemble_metrics_flush(scheduler->metrics));
    if (err != BP_OK) /* takes precedence over errors of the flush */
        bp_err_set_message(message);
    bp_free(message);
    if (err != BP_OK)
        return err;
    if (scheduler->err != BP_OK) {
        bp_err_set_message(scheduler->err_text);
        return scheduler->err;
    }
    if (trained + diverged < members)
        return bp_stop_request_stopped("%" PRId64 " of %" PRId64 " members are trained", trained,
                                       members);
    if (trained > 0)
        err = save_list(scheduler);
    if (err == BP_OK && trained > 0)
        bp_log("ensemble.json lists the %" PRId64 " members: %s", trained,
               bp_run_keys_of(scheduler->self->config)->dir);
    if (err == BP_OK)
        tell_losses(scheduler);
    return err == BP_OK && diverged > 0 ? fail_diverged(scheduler, diverged) : err;
}
