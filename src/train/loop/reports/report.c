/* What compute's root reports to the coordinator: metrics, events, lines for people. A shared
 * coordinator is the same rank; a dedicated one receives messages. */
#include "train/loop/reports/report.h"

#include "base/config/json.h"
#include "base/log.h"
#include "base/process/clock.h"
#include "base/process/signals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TERMS_BYTES 96
#define WORSE_LEAST 1.0 /* nats: initial values may be a little worse than a guess */

/* " (masked 4.9530, next_sentence 0.6246)", or "" if there is one term. */
static const char *list_terms(const json_t *line, const char *prefix, char out[TERMS_BYTES])
{
    size_t used = 0;
    const char *key;
    json_t *value;

    out[0] = '\0';
    json_object_foreach((json_t *)line, key, value)
    {
        if (strncmp(key, prefix, strlen(prefix)) == 0 && used < TERMS_BYTES - 1)
            used += (size_t)snprintf(out + used, TERMS_BYTES - used, "%s%s %.4f",
                                     used > 0 ? ", " : " (", key + strlen(prefix),
                                     bp_json_number(line, key));
    }
    if (used > 0 && used < TERMS_BYTES - 1)
        (void)snprintf(out + used, TERMS_BYTES - used, ")");
    return out;
}

/* Takes the last commit that the screen has not shown yet; 0 if there is none. */
static int64_t take_commit(trainer *self, bool *best)
{
    int64_t step = self->reports.unreported;

    *best = step > 0 && self->reports.unreported_best == step;
    self->reports.unreported = self->reports.unreported_best = 0;
    return step;
}

void report_last_commit(trainer *self)
{
    bool best;
    int64_t step = take_commit(self, &best);

    if (step > 0)
        bp_log_screen_only("committed step %lld%s", (long long)step,
                           best ? " (the best so far)" : "");
}

void report_committed(trainer *self, int64_t step, bool best)
{
    bp_log_file_only("committed step %lld%s", (long long)step, best ? " (the best so far)" : "");
    self->reports.unreported = step; /* shown on the screen by the next line of a step */
    self->reports.unreported_best = best ? step : self->reports.unreported_best;
}

/* Warns if the last line of a language model has a loss far above that of a guess among its tokens:
 * it diverged and stays finite. */
static void warn_of_guessing(const trainer *self, const json_t *line)
{
    const char *name = json_object_get(line, "valid_loss") ? "valid_loss" : "loss";
    double loss = bp_json_number(line, name), guess = log((double)self->shape.vocab_size);

    if (self->learner || self->shape.task.kind != 0 ||
        bp_model_objective(&self->shape)->terms != 1 || !(loss > guess + WORSE_LEAST))
        return;
    BP_WARN("training.worse_than_guessing",
            "%s is %.4g at the end, and a guess among %lld tokens has %.4g: the training diverged, "
            "or has hardly begun: at optimizer.lr = %.3g; start a new run with a smaller one, or a "
            "longer optimizer.warmup",
            name, loss, (long long)self->shape.vocab_size, guess, self->spec.rate.peak);
    json_t *event = json_pack("{s:O, s:f, s:f}", "step", json_object_get(line, "step"), name, loss,
                              "guess", guess);
    if (bp_run_event(self->run, "worse_than_guessing", event) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    json_decref(event);
}

static void log_metric(trainer *self, const json_t *line)
{
    int64_t step = json_integer_value(json_object_get(line, "step")), steps = self->spec.rate.steps;
    double speed = bp_json_number(line, "tokens_per_second");
    double left =
        (double)((steps - step) * self->spec.batch * self->shape.context) / (speed > 0 ? speed : 1);
    char time_left[64], validated[160] = "", committed[64] = "", padded[32] = "";
    char terms[TERMS_BYTES], valid_terms[TERMS_BYTES];
    int64_t commit;
    bool best;

    bp_clock_duration(time_left, sizeof time_left, left);
    if (json_object_get(line, "valid_loss"))
        snprintf(validated, sizeof validated, "  valid %.4f%s", bp_json_number(line, "valid_loss"),
                 list_terms(line, "valid_loss_", valid_terms));
    if (json_object_get(line, "valid_accuracy"))
        snprintf(validated, sizeof validated, "  valid %.4f%s (%.1f %% right)",
                 bp_json_number(line, "valid_loss"), valid_terms,
                 100 * bp_json_number(line, "valid_accuracy"));
    if (json_object_get(line, "valid_f1"))
        snprintf(validated, sizeof validated, "  valid %.4f%s (F1 %.3f)",
                 bp_json_number(line, "valid_loss"), valid_terms, bp_json_number(line, "valid_f1"));
    if ((commit = take_commit(self, &best)) > 0) /* since the line before */
        snprintf(committed, sizeof committed, "  committed %lld%s", (long long)commit,
                 best ? " (best)" : "");
    if (json_object_get(line, "padding"))
        snprintf(padded, sizeof padded, "  padding %.1f %%", 100 * bp_json_number(line, "padding"));
    bp_log_progress("step %lld/%lld  loss %.4f%s%s%s%s  %.0f tokens/s  %s left  lr %.2e",
                    (long long)step, (long long)steps, bp_json_number(line, "loss"),
                    list_terms(line, "loss_", terms), validated, committed, padded, speed,
                    time_left, bp_json_number(line, "lr"));
    if (speed > 0) /* a stop takes the step at work, one more at most, and a checkpoint */
        bp_run_needs(self->run, 2.0 * (double)(self->spec.batch * self->shape.context) / speed +
                                    self->commits.seconds);
    if (step == steps)
        warn_of_guessing(self, line);
}

static bool receives_commands(const trainer *self)
{
    return self->mesh->dedicated && self->mesh->rank == 1;
}

static void note_written(trainer *self, int state)
{
    self->commits.pending.coordinator = (bp_async_checkpoint_state)state;
    self->commits.pending.reported = true;
}

bp_async_checkpoint_state report_written(trainer *self)
{
    bp_async_checkpoint_state own;
    bp_mail mail;

    if (!self->commits.pending.writes)
        return BP_ASYNC_CHECKPOINT_DONE;
    own = bp_checkpoint_poll(self->commits.pending.writes);
    if (!receives_commands(self))
        return own;
    if (!self->commits.pending.reported &&
        bp_mailbox_take(self->reports.box, MAIL_WRITTEN, &mail)) {
        note_written(self, *(int *)mail.data);
        bp_free(mail.data);
    }
    return own > self->commits.pending.coordinator ? own : self->commits.pending.coordinator;
}

/* A dedicated coordinator learns here that checkpoints are not pruned for now. */
static bp_err note_skipped(trainer *self, const json_t *value)
{
    int64_t step = json_integer_value(json_object_get(value, "step"));
    int64_t in_row = json_integer_value(json_object_get(value, "in_row"));

    self->progress.skipped_in_row = in_row;
    BP_WARN("training.skipped",
            "step %lld was skipped, its gradient is not finite (loss %.4f): the parameters are as "
            "before it; %lld in a row",
            (long long)step, bp_json_number(value, "loss"), (long long)in_row);
    return bp_run_event(self->run, "skipped", value);
}

bp_err report_handle(trainer *self, report_kind kind, const json_t *value)
{
    int part = (int)kind - REPORT_PART;

    if (kind == REPORT_METRIC) {
        log_metric(self, value);
        if (self->hooks && self->hooks->metric)
            self->hooks->metric(self->hooks->context, value);
        return bp_run_metric(self->run, value);
    }
    if (kind == REPORT_SKIPPED)
        return note_skipped(self, value);
    if (kind == REPORT_EVENT)
        return bp_run_event(self->run, json_string_value(json_object_get(value, "event")), value);
    return self->parts[part]->receive(self, self->own[part], value);
}

/* A lost metrics line ends the job before its next commit; a lost event is a warning. */
void report_note_failure(trainer *self, report_kind kind, bp_err err)
{
    if (err == BP_OK)
        return;
    if (kind != REPORT_METRIC || self->mesh->dedicated) /* which can end it only at a commit */
        bp_warn_failure("%s", bp_err_text());
    if (kind == REPORT_METRIC && self->reports.err == BP_OK) {
        self->reports.err = err;
        snprintf(self->reports.message, sizeof self->reports.message, "%s", bp_err_message());
    }
}

bp_err report_lost(const trainer *self)
{
    if (self->reports.err == BP_OK)
        return BP_OK;
    bp_err_set_message(self->reports.message);
    return bp_err_wrap(self->reports.err,
                       "a line of metrics could not be written: %s; then the same command goes on",
                       bp_err_text());
}

void report_send(trainer *self, report_kind kind, json_t *value)
{
    int state;

    if (self->mesh->coordinates && (kind < REPORT_COMMIT || kind >= REPORT_PART)) {
        report_note_failure(self, kind, report_handle(self, kind, value));
    } else if (receives_commands(self)) {
        char *text = bp_json_line(value);

        bp_mailbox_send(self->reports.box, 0, (int)kind, text, (int64_t)strlen(text));
        bp_free(text);
        if (kind == REPORT_FINISH && !self->commits.pending.reported) {
            bp_mailbox_receive(self->reports.box, "recv", MAIL_WRITTEN, &state, sizeof state);
            note_written(self, state);
        }
    }
    json_decref(value);
}

/* ---- for a dedicated coordinator ---- */

static void receive_stop(void *context)
{
    const trainer *self = context;
    bp_mail mail;

    if (bp_mailbox_take(self->reports.box, MAIL_STOP, &mail)) {
        bp_signals_ask_stop(*(const bp_stop *)mail.data);
        bp_free(mail.data);
    }
}

void report_begin(trainer *self)
{
    if (self->mesh->dedicated)
        self->reports.box = bp_mailbox_new(self->mesh->world);
    if (receives_commands(self))
        bp_signals_watch(receive_stop, self);
}

void report_end(trainer *self)
{
    if (self->mesh->computes)
        report_send(self, REPORT_END, json_object());
    if (receives_commands(self))
        bp_signals_unwatch(receive_stop, self);
    bp_mailbox_free(&self->reports.box); /* a later stop has no effect */
}
