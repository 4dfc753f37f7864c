/* How many steps a training has, and when it ends early. Called by pretrain.c, and by steps.c after
 * a validation. */
#include "train/loop/start/duration.h"

#include "base/log.h"
#include "mesh/collective.h"
#include "train/engine/engine.h"
#include "train/loop/examples.h"

#include <inttypes.h>

#define WEIGHTS_SHOWN 20

void trainer_find_steps(trainer *self)
{
    if (self->mesh->coordinates && self->examples.maker.feed == BP_FEED_WINDOWS)
        self->facts.epoch_windows =
            bp_stream_corpus_windows(self->data.stream, trainer_stride(self));
    bp_bcast_bytes(&self->facts.epoch_windows, sizeof self->facts.epoch_windows, 0,
                   self->mesh->world);
    bp_bcast_bytes(&self->facts, sizeof self->facts, 0, self->mesh->world);
    if (bp_config_is_set(self->config, "train.epochs"))
        self->spec.rate.steps = bp_epoch_steps(bp_train_keys_of(self->config)->epochs,
                                               self->facts.epoch_windows, self->spec.batch);
}

/* How often the run goes through each corpus. */
static void say_weights(const trainer *self)
{
    const double *weights = bp_stream_weights(self->data.stream);
    double sum = 0, entries = (double)self->spec.rate.steps * (double)self->spec.batch;
    int64_t files = bp_stream_files(self->data.stream);

    for (int64_t k = 0; k < files; k++)
        sum += weights[k];
    for (int64_t k = 0; k < files && k < WEIGHTS_SHOWN; k++) {
        int64_t first, tokens, windows;

        bp_stream_file(self->data.stream, k, &first, &tokens);
        windows = self->examples.maker.feed == BP_FEED_DOCUMENTS
                      ? bp_stream_documents(self->data.stream, k)
                      : (tokens - 1) / trainer_stride(self);
        bp_log("corpus.weights: %5.1f %% of the %s are of %s, in %" PRId64
               " steps %.3g times all of it",
               100 * weights[k] / sum, trainer_examples_name(self),
               bp_stream_path(self->data.stream, k), self->spec.rate.steps,
               weights[k] / sum * entries / (double)(windows > 0 ? windows : 1));
    }
    if (files > WEIGHTS_SHOWN)
        bp_log("corpus.weights: and %" PRId64 " more corpora", files - WEIGHTS_SHOWN);
}

void trainer_say_steps(const trainer *self)
{
    const bp_config *config = self->config;

    if (bp_config_is_set(config, "train.epochs"))
        bp_log("train.epochs = %g: %" PRId64 " steps, an epoch has %" PRId64
               " %s in batches of %" PRId64,
               bp_train_keys_of(config)->epochs, self->spec.rate.steps, self->facts.epoch_windows,
               trainer_examples_name(self), self->spec.batch);
    if (self->mesh->coordinates && bp_stream_weights(self->data.stream))
        say_weights(self);
}

void bp_trainer_say_stretch(const bp_rate *rate, int64_t step, int64_t steps_before)
{
    bp_rate before = *rate;
    int64_t next = step + 1;

    if (step == 0 || steps_before == 0 || rate->steps <= steps_before ||
        rate->decay == BP_DECAY_CONSTANT)
        return;
    before.steps = steps_before;
    bp_log("the schedule of the learning rate is stretched from %" PRId64 " to %" PRId64
           " steps: the rate of step %" PRId64 " is %.3g and was %.3g%s",
           steps_before, rate->steps, next, bp_rate_at(rate, next),
           bp_rate_at(&before, next < steps_before ? next : steps_before),
           next > steps_before ? " in the last step" : "");
}

static bool has_lost_patience(const trainer *self)
{
    int64_t patience = bp_train_keys_of(self->config)->patience;

    return patience > 0 && self->progress.stale >= patience;
}

bool bp_trainer_is_done(const trainer *self)
{
    return self->progress.step >= self->spec.rate.steps || has_lost_patience(self);
}

bool trainer_take_validation(trainer *self, double loss)
{
    progress *p = &self->progress;

    if (!(loss < p->best_valid_loss)) {
        p->stale++;
        return false;
    }
    p->best_valid_loss = loss;
    p->best_step = p->step;
    p->stale = 0;
    return true;
}

bp_err trainer_end(trainer *self)
{
    const progress *p = &self->progress;
    bp_err err = BP_OK;

    if (p->step >= self->spec.rate.steps || !has_lost_patience(self))
        return BP_OK;
    bp_run_end_reason(self->run, "patience");
    bp_log("the training ended at step %" PRId64 " of %" PRId64 ", after %" PRId64
           " validation%s without a new best (train.patience): the best loss is %.4f, at step "
           "%" PRId64,
           p->step, self->spec.rate.steps, p->stale, p->stale == 1 ? "" : "s", p->best_valid_loss,
           p->best_step);
    if (!bp_run_is_finished(self->run)) {
        json_t *event =
            json_pack("{s:I, s:I, s:o, s:I}", "step", (json_int_t)p->step, "validations",
                      (json_int_t)p->stale, "best_valid_loss", bp_json_real(p->best_valid_loss),
                      "best_step", (json_int_t)p->best_step);
        err = bp_run_event(self->run, "patience", event);
        json_decref(event);
    }
    return bp_agree(self->mesh->world, err);
}
