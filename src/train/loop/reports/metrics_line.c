/* A line of metrics.jsonl: the figures of a step, and of the time since the line before. Called by
 * steps.c. */
#include "train/loop/reports/metrics_line.h"

#include "base/process/clock.h"
#include "mesh/collective.h"
#include "train/loop/reports/report.h"

#include <math.h>
#include <stdio.h>

void report_gather_positions(trainer *self)
{
    progress *p = &self->progress;

    for (int k = 0; k < 2 && self->examples.fits; k++) {
        int64_t sum = bp_all_sum_int(self->examples.positions[k], self->mesh->data);

        if (p->positions[0] >= 0)
            p->positions[k] += sum;
        self->examples.positions[k] = 0;
    }
    if (trainer_pads(self)) {
        int64_t sum = bp_all_sum_int(self->examples.filled, self->mesh->data);

        if (p->filled >= 0)
            p->filled += sum;
        self->examples.filled = 0;
    }
}

/* Over the positions of batches since the last line: how many this start computed, and *padding of
 * those of all starts. */
static double share_computed(trainer *self, double *padding)
{
    const bp_batch_form *form = &self->examples.maker.form;
    progress *p = &self->progress;
    double all = (double)((p->step - self->reports.clock_step) * self->spec.batch *
                          (form->stream[0].T + form->stream[1].T)),
           computed;

    computed = (double)(p->positions[0] - self->reports.earlier_positions);
    *padding = p->positions[0] > 0 ? 1 - (double)p->positions[1] / (double)p->positions[0] : NAN;
    computed = p->positions[0] < 0 ? all : computed; /* not known: a bound */
    p->positions[0] = p->positions[1] = self->reports.earlier_positions = 0;
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

static void set_validation(const trainer *self, json_t *line, const validation *valid)
{
    json_object_set_new(line, "valid_loss", bp_json_real(valid->loss));
    set_terms(self, line, "valid_loss_", valid->term, valid->asked);
    if (isfinite(valid->accuracy))
        json_object_set_new(line, "valid_accuracy", bp_json_real(valid->accuracy));
    if (isfinite(valid->f1))
        json_object_set_new(line, "valid_f1", bp_json_real(valid->f1));
}

/* For all layers, and for each: null of those without experts. */
static void set_experts(const trainer *self, json_t *line, const bp_step_result *result)
{
    json_t *largest = json_array(), *entropy = json_array();

    for (int64_t k = 0; k < self->shape.layers; k++) {
        (void)json_array_append_new(largest, bp_json_real(result->layer_experts[k].largest));
        (void)json_array_append_new(entropy, bp_json_real(result->layer_experts[k].entropy));
    }
    (void)json_object_set_new(line, "experts_largest", bp_json_real(result->experts.largest));
    (void)json_object_set_new(line, "experts_entropy", bp_json_real(result->experts.entropy));
    (void)json_object_set_new(line, "experts_largest_layers", largest);
    (void)json_object_set_new(line, "experts_entropy_layers", entropy);
}

void report_step(trainer *self, const bp_step_result *result, const validation *valid)
{
    int64_t step = self->progress.step, T = self->shape.context, batch = self->spec.batch;
    double seconds = bp_clock_now() - self->reports.clock;
    double speed =
        (double)((step - self->reports.clock_step) * batch * T) / (seconds > 1e-9 ? seconds : 1e-9);
    double flops = bp_model_train_flops(&self->shape) * speed, padding = NAN;

    report_gather_positions(self);
    if (self->examples.fits) /* shortened batches compute less than model.context says */
        flops *= share_computed(self, &padding);
    /* where products are slower than the model made of them, something else had the cores while
     * they were measured: there is no share to show */
    double mfu =
        self->estimate.peak > 0 && flops <= self->estimate.peak ? flops / self->estimate.peak : NAN;
    json_t *line = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)step, "tokens",
        (json_int_t)(step * batch * T), "loss", bp_json_real(result->loss), "lr",
        bp_json_real(result->rate), "grad_norm", bp_json_real(result->grad_norm), "seconds",
        bp_json_real(seconds), "tokens_per_second", bp_json_real(speed), "mfu", bp_json_real(mfu));
    set_terms(self, line, "loss_", result->term, result->asked);
    if (result->states_asked)
        (void)json_object_set_new(line, "loss_states", bp_json_real(result->states));
    if (result->experts.largest > 0)
        set_experts(self, line, result);
    if (result->balance_asked)
        (void)json_object_set_new(line, "loss_balance", bp_json_real(result->balance));
    if (trainer_pads(self) && self->progress.filled >= 0)
        json_object_set_new(line, "tokens_without_padding", json_integer(self->progress.filled));
    if (self->examples.fits)
        json_object_set_new(line, "padding", bp_json_real(padding));
    if (valid)
        set_validation(self, line, valid);
    report_send(self, REPORT_METRIC, line);
    self->reports.clock = bp_clock_now();
    self->reports.clock_step = step;
}
