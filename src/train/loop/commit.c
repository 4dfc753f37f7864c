/* Checkpoints of a training: what they hold, and which is kept as the best.
 * All of it over the whole world, since a dedicated coordinator commits what the others write. */
#include "train/loop/parts.h"
#include "train/loop/trainer.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "base/trace.h"
#include "train/loop/pretrain.h"

#include <stdio.h>

static json_t *state_of(const trainer *self, bool best)
{
    const progress *p = &self->progress;
    const corpus_facts *facts = &self->facts;
    int64_t tokens =
        trainer_counts(self) ? facts->tokens : p->step * self->spec.batch * self->shape.context;
    json_t *state =
        json_pack("{s:I, s:o, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:s}", "step",
                  (json_int_t)p->step, "model", bp_model_shape_json(&self->shape), "eod_id",
                  (json_int_t)facts->eod_id, "tokenizer_hash", facts->tokenizer_hash, "corpus_hash",
                  facts->hash, "seed", (json_int_t)self->spec.seed, "tokens", (json_int_t)tokens,
                  "updates", (json_int_t)p->updates, "skipped", (json_int_t)p->skipped,
                  "skipped_in_row", (json_int_t)p->skipped_in_row, "best_valid_loss",
                  bp_json_real(p->best_valid_loss), "best_step", (json_int_t)p->best_step,
                  "validations_since_best", (json_int_t)p->stale, "valid_hash", facts->valid_hash);

    if (trainer_bags(self->config))
        json_object_set_new(state, "bag_version", json_integer(BP_BAG_VERSION));
    bp_roles_put(state, facts->roles, &facts->ends);
    parts_put_state(self, best, state);
    if (self->base)
        (void)json_object_set(state, "base", self->base);
    if (bp_corpus_keys_of(self->config)->bucket > 0 && p->places[0] >= 0) {
        (void)json_object_set_new(state, "places_computed", json_integer(p->places[0]));
        (void)json_object_set_new(state, "places_filled", json_integer(p->places[1]));
    }
    if (self->counted)
        (void)json_object_update_missing(state, self->counted);
    return state;
}

char *trainer_checkpoints_folder(const trainer *self)
{
    return bp_path_join(bp_run_keys_of(self->config)->dir, "checkpoints");
}

bp_slice *trainer_slices_to_save(trainer *self, int64_t *count)
{
    *count = 0;
    if (self->learner)
        return trainer_learner(self)->slices(self->learner, count);
    return self->engine ? bp_engine_slices_to_save(self->engine, count) : NULL;
}

void trainer_log_commit(trainer *self)
{
    if (self->unreported_commit > 0)
        bp_log_screen_only("committed step %lld%s", (long long)self->unreported_commit,
                           self->unreported_best == self->unreported_commit ? " (the best so far)"
                                                                            : "");
    self->unreported_commit = self->unreported_best = 0;
}

void trainer_sweep_end(trainer *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (bp_remover_wait(&self->remover) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_err_set_message(message);
    (void)bp_heartbeat_phase(before);
}

/* After a commit, on the coordinator: the link to the best, and old ones removed. Neither undoes
 * the commit. */
static void committed(trainer *self, int64_t step, bool best)
{
    self->progress.committed = step;
    if (!self->mesh->coordinates)
        return;

    bool ours =
        bp_run_still_owner(self->run); /* else others decide what is best, and what is old */
    json_t *event = json_pack("{s:I, s:b}", "step", (json_int_t)step, "best", (int)best);
    char *folder = trainer_checkpoints_folder(self);

    if (ours && best && bp_checkpoints_link_best(folder, step) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    if (ours && bp_checkpoints_prune(folder, bp_checkpoint_keys_of(self->config)->keep,
                                     &self->remover) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    if (bp_run_event(self->run, "checkpoint", event) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_free(folder);
    json_decref(event);
    bp_log_file_only("committed step %lld%s", (long long)step, best ? " (the best so far)" : "");
    self->unreported_commit = step; /* shown on the screen by the next line of a step */
    self->unreported_best = best ? step : self->unreported_best;
}

/* What this rank saves. */
typedef struct own_state {
    bp_slice *slices;
    int64_t count;
    bp_digest *digests; /* of the slices, where they are copied */
} own_state;

/* A state that is not finite is worth nothing, and would push a good one out. behind: it is copied
 * and counted in the same breath. */
static bp_err take_state(const trainer *self, bool behind, own_state *own)
{
    bp_slice *slices = own->slices;
    int64_t count = own->count, bad;
    BP_TRACE(BP_TRACE_SNAPSHOT, 0, (behind ? 8.0 : 4.0) * (double)bp_slices_floats(slices, count));

    if (behind)
        own->digests = bp_alloc("commit.digests", count, sizeof *own->digests);
    bad = behind ? bp_snapshot_take(self->snapshot, slices, count, own->digests)
                 : bp_slices_not_finite(slices, count);
    if (bad < 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_SOFTWARE, "training.diverged",
                   "the training diverged, %s is not finite: at step %lld; start again from an "
                   "older checkpoint with a smaller optimizer.lr or a longer optimizer.warmup",
                   slices[bad].name, (long long)self->progress.step);
}

/* Lines of the journals come to disk first: no checkpoint may outlive a lost one. */
static bp_err prepare(trainer *self, bool behind, own_state *own)
{
    bp_err err;

    own->slices = trainer_slices_to_save(self, &own->count);
    err = take_state(self, behind, own);
    if (err == BP_OK && bp_fault("ckpt.snapshot"))
        err = bp_fail_errno(BP_ERR_IO, "can't take the state to save",
                            bp_run_keys_of(self->config)->dir);
    if (err == BP_OK)
        err = bp_run_sync(self->run);
    if (err == BP_OK)
        err = report_lost(self);
    return bp_agree(self->mesh->world, err);
}

static bp_err save(trainer *self, bool behind, bool best)
{
    char name[BP_STEP_NAME], *folder = trainer_checkpoints_folder(self);
    bp_checkpoint_commit commit = {.parent = folder,
                                   .name = name,
                                   .check_owner = bp_run_check_owner,
                                   .context = self->run,
                                   .tokenizer = self->tokenizer,
                                   .attachment = self->attachment,
                                   .snapshot = behind ? self->snapshot : NULL,
                                   .busy_seconds = behind ? &self->behind.busy_seconds : NULL};
    json_t *state = state_of(self, best);
    own_state own = {0};
    bp_err err = prepare(self, behind, &own);

    commit.digests = own.digests;
    bp_checkpoint_step_name(name, self->progress.step);
    if (err == BP_OK && behind)
        err = bp_checkpoint_begin(&self->behind.saving, self->mesh->world, &commit, own.slices,
                                  own.count, state);
    else if (err == BP_OK)
        err = bp_checkpoint_save(self->mesh->world, &commit, own.slices, own.count, state);
    bp_free(own.digests);
    bp_free(own.slices);
    json_decref(state);
    bp_free(folder);
    return err;
}

bp_err trainer_commit(trainer *self, bool best)
{
    double began = bp_clock_now();
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    bp_err err = BP_OK;

    BP_ASSERT(!self->behind.saving);
    if (self->progress.committed != self->progress.step) {
        err = save(self, false, best);
        if (err == BP_OK)
            committed(self, self->progress.step, best);
    }
    (void)bp_heartbeat_phase(before);
    self->commit_seconds = bp_clock_now() - began;
    return err;
}

bp_err trainer_commit_begin(trainer *self, bool best)
{
    double began = bp_clock_now();
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    bp_err err;

    BP_ASSERT(!self->behind.saving && self->progress.committed != self->progress.step);
    self->behind = (commit_async){
        .step = self->progress.step, .best = best, .coordinator = BP_ASYNC_CHECKPOINT_WRITES};
    err = save(self, true, best);
    self->behind.stood = bp_clock_now() - began;
    (void)bp_heartbeat_phase(before);
    bp_heartbeat_commit(self->commit_seconds); /* of the one before: this was the least of it */
    return err;
}

bp_err trainer_commit_finish(trainer *self, bool give_up)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    double began = bp_clock_now();

    if (give_up)
        bp_checkpoint_cancel(self->behind.saving);
    bp_err err = bp_checkpoint_finish(&self->behind.saving);
    if (err == BP_OK)
        committed(self, self->behind.step, self->behind.best);
    (void)bp_heartbeat_phase(before);
    self->commit_seconds = self->behind.stood + self->behind.busy_seconds + bp_clock_now() - began;
    bp_heartbeat_commit(self->commit_seconds);
    return err;
}
