/* What compute's root reports to the coordinator: metrics, events, lines for people. A shared
 * coordinator is the same rank; a dedicated one receives messages. */
#include "train/loop/trainer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "mesh/collective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A member that is null was not finite. */
static double number_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

#define TERMS_BYTES 96

/* " (masked 4.9530, next_sentence 0.6246)", or "" where terms are not told apart. */
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
                                     number_of(line, key));
    }
    if (used > 0 && used < TERMS_BYTES - 1)
        (void)snprintf(out + used, TERMS_BYTES - used, ")");
    return out;
}

static void log_metric(trainer *self, const json_t *line)
{
    int64_t step = json_integer_value(json_object_get(line, "step")), steps = self->spec.rate.steps;
    double speed = number_of(line, "tokens_per_second");
    double left =
        (double)((steps - step) * self->spec.batch * self->shape.context) / (speed > 0 ? speed : 1);
    char time_left[64], validated[160] = "", committed[64] = "", padded[32] = "";
    char terms[TERMS_BYTES], valid_terms[TERMS_BYTES];

    bp_clock_duration(time_left, sizeof time_left, left);
    if (json_object_get(line, "valid_loss"))
        snprintf(validated, sizeof validated, "  valid %.4f%s", number_of(line, "valid_loss"),
                 list_terms(line, "valid_loss_", valid_terms));
    if (json_object_get(line, "valid_accuracy"))
        snprintf(validated, sizeof validated, "  valid %.4f%s (%.1f %% right)",
                 number_of(line, "valid_loss"), valid_terms,
                 100 * number_of(line, "valid_accuracy"));
    if (json_object_get(line, "valid_f1"))
        snprintf(validated, sizeof validated, "  valid %.4f%s (F1 %.3f)",
                 number_of(line, "valid_loss"), valid_terms, number_of(line, "valid_f1"));
    if (self->unreported_commit > 0) /* since the line before */
        snprintf(committed, sizeof committed, "  committed %lld%s",
                 (long long)self->unreported_commit,
                 self->unreported_best == self->unreported_commit ? " (best)" : "");
    self->unreported_commit = self->unreported_best = 0;
    if (json_object_get(line, "padding"))
        snprintf(padded, sizeof padded, "  padding %.1f %%", 100 * number_of(line, "padding"));
    bp_log_progress("step %lld/%lld  loss %.4f%s%s%s%s  %.0f tokens/s  %s left  lr %.2e",
                    (long long)step, (long long)steps, number_of(line, "loss"),
                    list_terms(line, "loss_", terms), validated, committed, padded, speed,
                    time_left, number_of(line, "lr"));
    if (speed > 0) /* a stop takes the step at work, one more at most, and a checkpoint */
        bp_run_needs(self->run, 2.0 * (double)(self->spec.batch * self->shape.context) / speed +
                                    self->commit_seconds);
}

static bool receives_commands(const trainer *self)
{
    return self->mesh->dedicated && self->mesh->rank == 1;
}

static void note_written(trainer *self, int state)
{
    self->behind.coordinator = (bp_async_checkpoint_state)state;
    self->behind.reported = true;
}

bp_async_checkpoint_state report_written(trainer *self)
{
    bp_async_checkpoint_state own;
    bp_mail mail;

    if (!self->behind.saving)
        return BP_ASYNC_CHECKPOINT_DONE;
    own = bp_checkpoint_poll(self->behind.saving);
    if (!receives_commands(self))
        return own;
    if (!self->behind.reported && bp_mailbox_take(self->box, MAIL_WRITTEN, &mail)) {
        note_written(self, *(int *)mail.data);
        bp_free(mail.data);
    }
    return own > self->behind.coordinator ? own : self->behind.coordinator;
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
    if (kind == REPORT_EVENT)
        return bp_run_event(self->run, json_string_value(json_object_get(value, "event")), value);
    return self->parts[part]->receive(self, self->own[part], value);
}

/* A lost metrics line ends the job before its next commit; a lost event is worth a warning. */
void report_note_failure(trainer *self, report_kind kind, bp_err err)
{
    if (err == BP_OK)
        return;
    if (kind != REPORT_METRIC || self->mesh->dedicated) /* which can end it at a commit alone */
        bp_warn_failure("%s", bp_err_text());
    if (kind == REPORT_METRIC && self->report_err == BP_OK) {
        self->report_err = err;
        snprintf(self->report_message, sizeof self->report_message, "%s", bp_err_message());
    }
}

bp_err report_lost(const trainer *self)
{
    if (self->report_err == BP_OK)
        return BP_OK;
    bp_err_set_message(self->report_message);
    return bp_err_wrap(self->report_err,
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

        bp_mailbox_send(self->box, 0, (int)kind, text, (int64_t)strlen(text));
        bp_free(text);
        if (kind == REPORT_FINISH && !self->behind.reported) {
            bp_mailbox_receive(self->box, "recv", MAIL_WRITTEN, &state, sizeof state);
            note_written(self, state);
        }
    }
    json_decref(value);
}

/* ---- what a dedicated coordinator alone is asked ---- */

static void hear_stop(void *context)
{
    const trainer *self = context;
    bp_mail mail;

    if (bp_mailbox_take(self->box, MAIL_STOP, &mail)) {
        bp_signals_ask_stop(*(const bp_stop *)mail.data);
        bp_free(mail.data);
    }
}

void report_begin(trainer *self)
{
    if (self->mesh->dedicated)
        self->box = bp_mailbox_new(self->mesh->world);
    if (receives_commands(self))
        bp_signals_watch(hear_stop, self);
}

void report_end(trainer *self)
{
    if (self->mesh->computes)
        report_send(self, REPORT_END, json_object());
    if (receives_commands(self))
        bp_signals_unwatch(hear_stop, self);
    bp_mailbox_free(&self->box); /* a stop that still comes is too late */
}

void report_gather_places(trainer *self)
{
    progress *p = &self->progress;

    for (int k = 0; k < 2 && self->fits; k++) {
        int64_t sum = bp_all_sum_int(self->places[k], self->mesh->data);

        if (p->places[0] >= 0)
            p->places[k] += sum;
        self->places[k] = 0;
    }
}

/* Of the places that batches have, since the last line: how many this start computed, and *padding
 * of those of all starts. Collective over mesh->data. */
static double share_computed(trainer *self, double *padding)
{
    const bp_batch_form *form = &self->maker.form;
    progress *p = &self->progress;
    double all = (double)((p->step - self->clock_step) * self->spec.batch *
                          (form->stream[0].T + form->stream[1].T)),
           computed;

    report_gather_places(self);
    computed = (double)(p->places[0] - self->earlier_places);
    *padding = p->places[0] > 0 ? 1 - (double)p->places[1] / (double)p->places[0] : NAN;
    computed = p->places[0] < 0 ? all : computed; /* not known: a bound */
    p->places[0] = p->places[1] = self->earlier_places = 0;
    return all > 0 ? computed / all : 1;
}

/* The means of the objective's terms, where several are asked for. */
static void set_terms(const trainer *self, json_t *line, const char *prefix, const double *mean,
                      const bool *asked)
{
    const bp_objective *objective = bp_model_objective(&self->shape);
    char key[64];
    int count = 0;

    for (int t = 0; t < objective->terms; t++)
        count += objective->term[t] && asked[t];
    for (int t = 0; t < objective->terms && count > 1; t++)
        if (objective->term[t] && asked[t]) {
            (void)snprintf(key, sizeof key, "%s%s", prefix, objective->term[t]);
            json_object_set_new(line, key, bp_json_real(mean[t]));
        }
}

void report_step(trainer *self, const bp_step_result *result, const double *valid_loss)
{
    int64_t step = self->progress.step, T = self->shape.context, batch = self->spec.batch;
    double seconds = bp_clock_now() - self->clock;
    double speed =
        (double)((step - self->clock_step) * batch * T) / (seconds > 1e-9 ? seconds : 1e-9);
    double flops = bp_model_train_flops(&self->shape) * speed, padding = NAN;

    if (self->fits) /* shortened batches compute less than model.context says */
        flops *= share_computed(self, &padding);
    /* where products are slower than the model made of them, something else had the cores while
     * they were measured: there is no share to show */
    double mfu = self->gemm_peak > 0 && flops <= self->gemm_peak ? flops / self->gemm_peak : NAN;
    json_t *line = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)step, "tokens",
        (json_int_t)(step * batch * T), "loss", bp_json_real(result->loss), "lr",
        bp_json_real(result->rate), "grad_norm", bp_json_real(result->grad_norm), "seconds",
        bp_json_real(seconds), "tokens_per_second", bp_json_real(speed), "mfu", bp_json_real(mfu));
    set_terms(self, line, "loss_", result->term, result->asked);
    if (result->states_asked)
        (void)json_object_set_new(line, "loss_states", bp_json_real(result->states));
    if (self->fits)
        json_object_set_new(line, "padding", bp_json_real(padding));
    if (valid_loss) {
        json_object_set_new(line, "valid_loss", bp_json_real(*valid_loss));
        set_terms(self, line, "valid_loss_", self->valid_term, self->valid_asked);
    }
    if (valid_loss && isfinite(self->valid_accuracy))
        json_object_set_new(line, "valid_accuracy", bp_json_real(self->valid_accuracy));
    if (valid_loss && isfinite(self->valid_f1))
        json_object_set_new(line, "valid_f1", bp_json_real(self->valid_f1));
    report_send(self, REPORT_METRIC, line);
    self->clock = bp_clock_now();
    self->clock_step = step;
}
