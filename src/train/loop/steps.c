/* The training loop. Called by pretrain.c after start/setup.c. */
#include "train/loop/steps.h"

#include "base/fault.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "base/trace.h"
#include "mesh/collective.h"
#include "run/stop_request.h"
#include "train/loop/commit.h"
#include "train/loop/digest.h"
#include "train/loop/learning.h"
#include "train/loop/parts.h"
#include "train/loop/reports/metrics_line.h"
#include "train/loop/reports/report.h"
#include "train/loop/start/duration.h"
#include "train/loop/validation.h"

#include <math.h>
#include <stdio.h>

#define SKIPPED_IN_ROW_MAX 10 /* steps without a finite gradient that end a run */

/* The status of one rank before a step; the worst of all ranks counts. */
enum { GO_ON, WRITES, WRITE_FAILED, STOP_ASKED, STOP_AT_ONCE, READ_FAILED, BITS_CHANGED };

static int64_t own_status(trainer *self)
{
    static const int64_t WRITTEN[] = {[BP_ASYNC_CHECKPOINT_DONE] = GO_ON,
                                      [BP_ASYNC_CHECKPOINT_WRITES] = WRITES,
                                      [BP_ASYNC_CHECKPOINT_FAILED] = WRITE_FAILED};

    if (!bp_signals_stop_asked())
        return WRITTEN[report_written(self)];
    return bp_signals_terminating() ? STOP_AT_ONCE : STOP_ASKED;
}

/* The examples of the next step, on leads: in the loader's memory. */
static bp_err read_examples(trainer *self, const void **examples)
{
    bp_err err = BP_OK;

    if (self->data.leads)
        err = bp_loader_read(self->data.loader, self->progress.step + 1, examples);
    if (err == BP_OK && bp_fault("step.begin"))
        err = BP_FAIL(BP_ERR_IO, "fault.injected", "a fault was injected: at step %lld",
                      (long long)self->progress.step);
    if (bp_fault("train.diverge"))
        err = BP_FAIL(BP_ERR_SOFTWARE, "training.diverged",
                      "the training diverged, as a test asked for: at step %lld",
                      (long long)self->progress.step);
    return err == BP_OK ? report_lost(self) : err;
}

/* The worst status of all ranks; `err` is that of this rank. */
static bp_err share_status(trainer *self, bp_err err, int64_t *status)
{
    bool changed = self->engine && bp_engine_corruption(self->engine)->found;

    *status = bp_all_max_int(changed        ? BITS_CHANGED
                             : err != BP_OK ? READ_FAILED
                                            : own_status(self),
                             self->mesh->compute);
    if (*status == BITS_CHANGED)
        return trainer_say_corruption(self);
    return *status == READ_FAILED ? bp_agree(self->mesh->compute, err) : BP_OK;
}

/* A checkpoint that all have written, or that one rank failed to write. */
static bp_err end_written(trainer *self, int64_t status)
{
    double began = bp_clock_now();
    bp_err err = BP_OK;

    if (status == GO_ON || status == WRITE_FAILED)
        err = trainer_commit_end(self, status == WRITE_FAILED); /* the others' parts are useless */
    report_pause(self, bp_clock_now() - began);
    return err;
}

static bool stops(int64_t status)
{
    return status == STOP_ASKED || status == STOP_AT_ONCE;
}

/* Broadcasts examples to all ranks of the lead's copy of the model. */
static void share_examples(trainer *self, const void *examples, bp_batch *batch)
{
    training_examples *own = &self->examples;
    int64_t slots = bp_trainer_slots(self, &self->spec, self->mesh->data_ranks);

    bp_bcast_bytes((void *)examples, (int64_t)bp_batch_bytes(&own->maker.form, slots), 0,
                   self->mesh->model); /* the lead's are only read */
    *batch = bp_batch_over(&own->maker.form, slots, examples);
    if (trainer_pads(self))
        own->filled += bp_batch_filled(batch);
    if (own->fits)
        *batch = bp_batch_shorten(&own->maker.form, batch, self->spec.micro_batch, own->buffer,
                                  own->fits, own->positions);
}

/* Reads the step's batch, and learns whether any rank failed, was asked to stop, or found bits
 * changed in the step before; and puts a checkpoint in place that all have written. */
static bp_err next_batch(trainer *self, int64_t *status, bp_batch *batch)
{
    const void *examples = self->examples.buffer;
    bp_err err = share_status(self, read_examples(self, &examples), status);

    if (err == BP_OK)
        err = end_written(self, *status);
    if (err == BP_OK && !stops(*status)) /* else they belong to the next start, which counts them */
        share_examples(self, examples, batch);
    return err;
}

/* A checkpoint of the state as it is. */
typedef struct commit_now {
    bool best; /* the link points at it afterwards */
    bool wait; /* training waits, so no copy is needed */
} commit_now;

static bp_err commit(trainer *self, commit_now how)
{
    const progress *p = &self->progress;
    bool async = self->commits.snapshot && !how.wait;

    BP_TRACE(BP_TRACE_CHECKPOINT, 0, 0);
    bp_err err = trainer_check_bits(self); /* no checkpoint may hold values that memory or a
                                              processor has corrupted */

    if (err == BP_OK)
        err = trainer_commit_end(self, false);
    if (err == BP_OK)
        err = parts_before_commit(self, how.best);
    if (err != BP_OK)
        return err;
    report_gather_positions(self);
    report_send(self, REPORT_COMMIT,
                json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "step",
                          (json_int_t)p->step, "updates", (json_int_t)p->updates, "skipped",
                          (json_int_t)p->skipped, "skipped_in_row", (json_int_t)p->skipped_in_row,
                          "best_valid_loss", bp_json_real(p->best_valid_loss), "best_step",
                          (json_int_t)p->best_step, "stale", (json_int_t)p->stale,
                          "places_computed", (json_int_t)p->positions[0], "places_filled",
                          (json_int_t)p->positions[1], "filled", (json_int_t)p->filled, "best",
                          (int)how.best, "async", (int)async));
    err = async ? trainer_commit_begin(self, how.best)
                : trainer_commit(self, &(commit_of){.best = how.best});
    (void)parts_at(self, PART_COMMITTED);
    return err;
}

/* Ends a diverged training, after a check for corruption, which skipped steps do not check. */
static bp_err end_diverged(trainer *self, const char *what)
{
    bp_err err = trainer_check_bits(self);

    return err == BP_OK ? trainer_diverged(self, self->progress.step, what) : err;
}

static bp_err end_skipped(trainer *self)
{
    const progress *p = &self->progress;
    char what[128];

    snprintf(what, sizeof what,
             "its last %lld step%s had a gradient that is not finite and %s skipped",
             (long long)p->skipped_in_row, p->skipped_in_row == 1 ? "" : "s",
             p->skipped_in_row == 1 ? "was" : "were");
    return end_diverged(self, what);
}

static bp_err count_step(trainer *self, const bp_step_result *result)
{
    progress *p = &self->progress;

    p->step++;
    if (!result->skipped) {
        p->updates++;
        p->skipped_in_row = 0;
        return BP_OK;
    }
    p->skipped++;
    p->skipped_in_row++;
    report_send(self, REPORT_SKIPPED,
                json_pack("{s:I, s:I, s:o}", "step", (json_int_t)p->step, "in_row",
                          (json_int_t)p->skipped_in_row, "loss", bp_json_real(result->loss)));
    return p->skipped_in_row < SKIPPED_IN_ROW_MAX ? BP_OK : end_skipped(self);
}

/* After the last step: a training that ends with several skipped steps, or with a model whose
 * losses are not finite, has no result, and is not committed as a finished one. */
static bp_err check_end(trainer *self, const validation *valid)
{
    const progress *p = &self->progress;

    if (p->skipped_in_row > 1 || p->updates == 0)
        return end_skipped(self);
    for (int t = 0; valid && t < bp_model_objective(&self->shape)->terms; t++)
        if (valid->asked[t] && !isfinite(valid->term[t]))
            return end_diverged(self, "its validation loss is not finite");
    return BP_OK;
}

/* After a step: validation, the metrics line, a checkpoint. Their time does not count as
 * training. */
static bp_err after_step(trainer *self, const bp_step_result *result)
{
    progress *p = &self->progress;
    bp_config *config = self->config;
    int64_t valid_every = bp_train_keys_of(config)->valid_every;
    bool last = p->step == self->spec.rate.steps, best = false, ends;
    bool validated =
        self->facts.has_valid && (last || (valid_every > 0 && p->step % valid_every == 0));
    double begin = bp_clock_now();
    validation valid;
    bp_err err = BP_OK;

    if (validated)
        err = bp_trainer_validate(self, &valid);
    if (err != BP_OK)
        return err;
    if (validated)
        best = trainer_take_validation(self, valid.loss);
    ends = bp_trainer_is_done(self);
    report_pause(self, bp_clock_now() - begin);
    if (validated || last || p->step % bp_train_keys_of(config)->log_every == 0)
        report_step(self, result, validated ? &valid : NULL);
    (void)parts_at(self, PART_STEPPED);
    begin = bp_clock_now();
    if (ends)
        err = check_end(self, validated ? &valid : NULL);
    if (err != BP_OK)
        return err;
    if (best || ends || p->step % bp_checkpoint_keys_of(config)->every == 0)
        err = commit(self, (commit_now){.best = best, .wait = ends});
    report_pause(self, bp_clock_now() - begin);
    return err;
}

/* at_once: mpirun has sent TERM, and kills before a commit could end. */
static bp_err stop(trainer *self, bool at_once)
{
    bp_err err = BP_OK;

    bp_fault_point("stop.flag");
    if (!at_once)
        err = trainer_commit_end(self, false);
    if (err != BP_OK)
        return err;
    if (at_once && self->progress.step > self->progress.committed)
        return bp_fail_stopped("by mpirun, which leaves no time for a checkpoint: at step %lld of "
                               "%lld; the same command goes on from step %lld",
                               (long long)self->progress.step, (long long)self->spec.rate.steps,
                               (long long)self->progress.committed);
    if (self->progress.step > self->progress.committed)
        err = commit(self, (commit_now){.wait = true});
    if (err == BP_OK)
        err = bp_stop_request_stopped("at step %lld of %lld", (long long)self->progress.step,
                                      (long long)self->spec.rate.steps);
    return err;
}

/* Starts the counts of the next metrics line. */
static void begin_line(trainer *self)
{
    self->reports.clock = bp_clock_now();
    self->reports.clock_step = self->progress.step;
    self->reports.earlier_positions = self->progress.positions[0];
}

static bp_err run_step(trainer *self, const bp_batch *batch)
{
    bp_step_result result;
    bp_err err = BP_OK;

    if (self->learner)
        err = trainer_learn(self, batch, &result);
    else
        err = parts_before_step(self, batch);
    if (err == BP_OK && !self->learner)
        bp_engine_step(self->engine, self->progress.step + 1, self->progress.updates + 1, batch,
                       &result);
    if (err == BP_OK)
        err = count_step(self, &result);
    return err == BP_OK ? after_step(self, &result) : err;
}

/* *at_once: it was stopped with no time for what is on its way to disk. */
static bp_err run_steps(trainer *self, bool *at_once)
{
    bp_err err = BP_OK;

    begin_line(self);
    while (err == BP_OK && !bp_trainer_is_done(self)) {
        int64_t status;
        bp_batch batch;

        (void)parts_at(self, PART_NEXT);
        BP_TRACE(BP_TRACE_STEP, 0, 0);
        bp_trace_number(self->progress.step + 1);
        bp_heartbeat_step(self->progress.step + 1);
        err = next_batch(self, &status, &batch);
        if (err != BP_OK)
            return err;
        *at_once = status == STOP_AT_ONCE;
        if (stops(status))
            return stop(self, *at_once);
        err = run_step(self, &batch);
        bp_fault_point("step.end");
    }
    return err;
}

bp_err trainer_run(trainer *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_STEP);
    bool at_once = false;
    bp_err err = run_steps(self, &at_once);

    if (err != BP_OK)
        trainer_save_leftover(self, at_once);
    (void)bp_heartbeat_phase(before);
    return err;
}
