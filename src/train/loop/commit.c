/* Checkpoints of a training: what they hold, and which is kept as the best. All functions are
 * collective over world, since a dedicated coordinator commits what the others write. Called by
 * steps.c when a checkpoint is due, by reports/serve.c on a dedicated coordinator, and by
 * counting.c. */
#include "train/loop/commit.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/fault.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/trace.h"
#include "mesh/collective.h"
#include "train/loop/parts.h"
#include "train/loop/reports/report.h"
#include "train/loop/start/corpora.h"

#include <stdio.h>

static json_t *state_of(const trainer *self, const commit_of *what)
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
    if (self->spec.restart > 0)
        (void)json_object_set_new(state, BP_STATE_RESTARTS, json_true());
    bp_roles_put(state, facts->roles, &facts->ends);
    if (self->start.forced)
        (void)json_object_set(state, "forced", self->start.forced);
    if (self->start.model_type)
        (void)json_object_set(state, "model_type", self->start.model_type);
    parts_put_state(self, what->best, state);
    if (self->start.base)
        (void)json_object_set(state, "base", self->start.base);
    if (bp_corpus_keys_of(self->config)->bucket > 0 && p->positions[0] >= 0) {
        (void)json_object_set_new(state, "places_computed", json_integer(p->positions[0]));
        (void)json_object_set_new(state, "places_filled", json_integer(p->positions[1]));
    }
    if (trainer_pads(self) && p->filled >= 0)
        (void)json_object_set_new(state, "tokens_without_padding", json_integer(p->filled));
    if (what->state)
        (void)json_object_update_missing(state, what->state);
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

bp_err trainer_open_commits(trainer *self)
{
    int64_t count;
    bp_slice *slices = trainer_slices_to_save(self, &count);
    bp_checkpoint_commit commit = {0};
    bp_err err = BP_OK;

    if (bp_checkpoint_keys_of(self->config)->async)
        err = bp_snapshot_new(&self->commits.snapshot, self->mesh->world,
                              bp_slices_floats(slices, count));
    commit.snapshot = self->commits.snapshot;
    if (err == BP_OK)
        err = bp_checkpoint_check_size(self->mesh->world, &commit, slices, count);
    bp_free(slices);
    return err;
}

void trainer_end_removal(trainer *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (bp_remover_wait(&self->commits.remover) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_err_set_message(message);
    (void)bp_heartbeat_phase(before);
}

bp_err trainer_fail_diverged(const trainer *self, int64_t step, const char *what)
{
    const char *run_dir = bp_run_keys_of(self->config)->dir;
    char name[BP_STEP_NAME], *folder = trainer_checkpoints_folder(self);
    int64_t good = bp_checkpoints_before(folder, step - self->progress.skipped_in_row);
    const char *remedy = trainer_learner(self) ? "smaller optimizer.lr"
                                               : "smaller optimizer.lr or a longer "
                                                 "optimizer.warmup";

    bp_free(folder);
    if (good < 0)
        return BP_FAIL(BP_ERR_SOFTWARE, "training.diverged",
                       "the training diverged, %s: at step %lld; no checkpoint is from before "
                       "that, start again with a %s",
                       what, (long long)step, remedy);
    bp_checkpoint_step_name(name, good);
    return BP_FAIL(BP_ERR_SOFTWARE, "training.diverged",
                   "the training diverged, %s: at step %lld; the last good checkpoint is "
                   "%s/checkpoints/%s: start from it (model.init, and another run.dir) with a %s",
                   what, (long long)step, run_dir, name, remedy);
}

bp_err trainer_diverged(trainer *self, int64_t step, const char *what)
{
    MPI_Comm comm = self->mesh->compute;

    trainer_save_leftover(self, false);
    return bp_agree(comm, bp_comm_is_root(comm) ? trainer_fail_diverged(self, step, what) : BP_OK);
}

/* After a commit, on the coordinator: updates the link to the best, and removes old checkpoints.
 * Failures do not undo the commit. */
static void committed(trainer *self, int64_t step, bool best)
{
    self->progress.committed = step;
    if (!self->mesh->coordinates)
        return;

    bool ours =
        bp_run_still_owner(self->run); /* otherwise another job decides which are best and old */
    json_t *event = json_pack("{s:I, s:b}", "step", (json_int_t)step, "best", (int)best);
    char *folder = trainer_checkpoints_folder(self);

    if (ours && best && bp_checkpoints_link_best(folder, step) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    if (ours && self->progress.skipped_in_row == 0 && /* else an older one may be the last good */
        bp_checkpoints_prune(folder, bp_checkpoint_keys_of(self->config)->keep,
                             &self->commits.remover) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    if (bp_run_event(self->run, "checkpoint", event) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_free(folder);
    json_decref(event);
    report_committed(self, step, best);
}

/* What this rank saves. */
typedef struct own_state {
    bp_slice *slices;
    int64_t count;
    bp_digest *digests; /* of the slices, where they are copied */
} own_state;

/* A state that is not finite is useless, and would replace a good one. async: it is copied and
 * counted in one pass. */
static bp_err take_state(const trainer *self, bool async, own_state *own)
{
    bp_slice *slices = own->slices;
    int64_t count = own->count, bad;
    char what[BP_ERR_LINE_BYTES];
    BP_TRACE(BP_TRACE_SNAPSHOT, 0, (async ? 8.0 : 4.0) * (double)bp_slices_floats(slices, count));

    if (async)
        own->digests = bp_alloc("commit.digests", count, sizeof *own->digests);
    bad = async ? bp_snapshot_take(self->commits.snapshot, slices, count, own->digests)
                : bp_slices_not_finite(slices, count);
    if (bad < 0)
        return BP_OK;
    snprintf(what, sizeof what, "%s is not finite", slices[bad].name);
    return trainer_fail_diverged(self, self->progress.step, what);
}

/* Syncs the journals first: no checkpoint may be newer than a lost line. */
static bp_err prepare(trainer *self, bool async, own_state *own)
{
    bp_err err;

    own->slices = trainer_slices_to_save(self, &own->count);
    err = take_state(self, async, own);
    if (err == BP_OK && bp_fault("ckpt.snapshot"))
        err = bp_fail_errno(BP_ERR_IO, "can't take the state to save",
                            bp_run_keys_of(self->config)->dir);
    if (err == BP_OK)
        err = bp_run_sync(self->run);
    if (err == BP_OK)
        err = report_lost(self);
    return bp_agree(self->mesh->world, err);
}

static bp_err save(trainer *self, bool async, const commit_of *what)
{
    char name[BP_STEP_NAME], *folder = trainer_checkpoints_folder(self);
    bp_checkpoint_commit commit = {.parent = folder,
                                   .name = name,
                                   .tokenizer = self->data.tokenizer,
                                   .attachment = what->attachment,
                                   .snapshot = async ? self->commits.snapshot : NULL,
                                   .busy_seconds =
                                       async ? &self->commits.pending.busy_seconds : NULL};
    json_t *state = state_of(self, what);
    own_state own = {0};
    bp_err err = prepare(self, async, &own);

    commit.digests = own.digests;
    bp_checkpoint_step_name(name, self->progress.step);
    if (err == BP_OK && async)
        err = bp_checkpoint_begin(&self->commits.pending.writes, self->mesh->world, &commit,
                                  own.slices, own.count, state);
    else if (err == BP_OK)
        err = bp_checkpoint_save(self->mesh->world, &commit, own.slices, own.count, state);
    bp_free(own.digests);
    bp_free(own.slices);
    json_decref(state);
    bp_free(folder);
    return err;
}

bp_err trainer_commit(trainer *self, const commit_of *what)
{
    double began = bp_clock_now();
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    bp_err err = BP_OK;

    BP_ASSERT(!self->commits.pending.writes);
    if (self->progress.committed != self->progress.step) {
        err = save(self, false, what);
        if (err == BP_OK)
            committed(self, self->progress.step, what->best);
    }
    (void)bp_heartbeat_phase(before);
    self->commits.seconds = bp_clock_now() - began;
    return err;
}

bp_err trainer_commit_begin(trainer *self, bool best)
{
    double began = bp_clock_now();
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    bp_err err;

    BP_ASSERT(!self->commits.pending.writes && self->progress.committed != self->progress.step);
    self->commits.pending = (commit_async){
        .step = self->progress.step, .best = best, .coordinator = BP_ASYNC_CHECKPOINT_WRITES};
    err = save(self, true, &(commit_of){.best = best});
    self->commits.pending.stalled_seconds = bp_clock_now() - began;
    (void)bp_heartbeat_phase(before);
    bp_heartbeat_commit(self->commits.seconds); /* of the one before: this was the least of it */
    return err;
}

bp_err trainer_commit_finish(trainer *self, bool cancel)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_CHECKPOINT);
    double began = bp_clock_now();

    if (cancel)
        bp_checkpoint_cancel(self->commits.pending.writes);
    bp_err err = bp_checkpoint_finish(&self->commits.pending.writes);
    if (err == BP_OK)
        committed(self, self->commits.pending.step, self->commits.pending.best);
    (void)bp_heartbeat_phase(before);
    self->commits.seconds = self->commits.pending.stalled_seconds +
                            self->commits.pending.busy_seconds + bp_clock_now() - began;
    bp_heartbeat_commit(self->commits.seconds);
    return err;
}

/* leftover: the training has ended by an error, which that of the checkpoint does not change. */
static bp_err end_pending(trainer *self, bool cancel, bool leftover)
{
    if (!self->commits.pending.writes)
        return BP_OK;
    BP_TRACE(BP_TRACE_CHECKPOINT, 0, 0);
    report_send(self, REPORT_FINISH,
                json_pack("{s:b, s:b}", "cancel", (int)cancel, "leftover", (int)leftover));
    return trainer_commit_finish(self, cancel);
}

bp_err trainer_commit_end(trainer *self, bool cancel)
{
    return end_pending(self, cancel, false);
}

void trainer_save_leftover(trainer *self, bool cancel)
{
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (end_pending(self, cancel, true) != BP_OK && !cancel)
        bp_warn_failure("%s", bp_err_text());
    bp_err_set_message(message);
}
