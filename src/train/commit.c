/* Checkpoints of a training: what they hold, and which is kept as the best.
 * All of it over the whole world, since a dedicated coordinator commits what the others write. */
#include "train/trainer_priv.h"

#include "base/beat.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

static json_t *state_of(const trainer *self)
{
    const progress *p = &self->progress;
    json_t *state = json_object();

    json_object_set_new(state, "step", json_integer(p->step));
    json_object_set_new(state, "model", bp_gpt_shape_json(&self->shape));
    json_object_set_new(state, "eod_id", json_integer(self->facts.eod_id));
    json_object_set_new(state, "tokenizer_hash", json_string(self->facts.tokenizer_hash));
    json_object_set_new(state, "corpus_hash", json_string(self->facts.hash));
    json_object_set_new(state, "seed", json_integer((json_int_t)self->spec.seed));
    json_object_set_new(state, "tokens",
                        json_integer(p->step * self->spec.batch * self->shape.context));
    json_object_set_new(state, "updates", json_integer(p->updates));
    json_object_set_new(state, "skipped", json_integer(p->skipped));
    json_object_set_new(state, "skipped_in_row", json_integer(p->skipped_in_row));
    json_object_set_new(state, "best_valid_loss", bp_json_real(p->best_valid_loss));
    json_object_set_new(state, "best_step", json_integer(p->best_step));
    json_object_set_new(state, "valid_hash", json_string(self->facts.valid_hash));
    return state;
}

char *trainer_checkpoints_folder(const trainer *self)
{
    char *folder = bp_path_join(bp_config_string(self->config, "run.dir"), "checkpoints");

    BP_NEED_MEMORY(folder);
    return folder;
}

/* After a commit, on the coordinator: the link to the best, and old ones removed. Neither undoes
 * the commit. */
static void tidy(trainer *self, const char *folder, bool best)
{
    bool ours =
        bp_run_still_owner(self->run); /* else others decide what is best, and what is old */
    json_t *event =
        json_pack("{s:I, s:b}", "step", (json_int_t)self->progress.step, "best", (int)best);

    if (ours && best && bp_checkpoints_link_best(folder, self->progress.step) != BP_OK)
        bp_warn("%s", bp_err_message());
    if (ours &&
        bp_checkpoints_prune(folder, bp_config_int(self->config, "checkpoint.keep")) != BP_OK)
        bp_warn("%s", bp_err_message());
    if (bp_run_event(self->run, "checkpoint", event) != BP_OK)
        bp_warn("%s", bp_err_message());
    json_decref(event);
    bp_log("committed step %lld%s", (long long)self->progress.step,
           best ? " (the best so far)" : "");
}

/* A state that is not finite is worth nothing, and would push a good one out. */
static bp_err check_finite(const trainer *self, const bp_box *boxes, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        int64_t n = 1;

        for (int d = 0; d < boxes[k].dims; d++)
            n *= boxes[k].extent[d];
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(boxes[k].data[i]))
                return BP_FAIL(BP_ERR_SOFTWARE,
                               "the training diverged, %s is not finite: at step %lld; start again "
                               "from an older checkpoint with a smaller optimizer.lr or a longer "
                               "optimizer.warmup",
                               boxes[k].name, (long long)self->progress.step);
    }
    return BP_OK;
}

static bp_err save(trainer *self, bool best)
{
    char name[32], *folder = trainer_checkpoints_folder(self);
    bp_checkpoint_commit commit = {.parent = folder,
                                   .name = name,
                                   .still_owner = bp_run_still_owner,
                                   .context = self->run,
                                   .tokenizer = self->tokenizer};
    json_t *state = state_of(self);
    bp_box *boxes = NULL;
    int64_t count = 0;
    bp_err err = BP_OK;

    snprintf(name, sizeof name, "step-%012lld", (long long)self->progress.step);
    if (self->engine)
        err = bp_engine_boxes_to_save(self->engine, &boxes, &count);
    if (err == BP_OK)
        err = check_finite(self, boxes, count);
    if (err == BP_OK && bp_fault("ckpt.snapshot"))
        err = bp_fail_errno(BP_ERR_IO, "can't take the state to save", name);
    if (err == BP_OK)
        err = bp_run_sync(self->run);
    if (err == BP_OK)
        err = report_lost(self); /* no checkpoint may outlive a lost line */
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK && self->progress.committed != self->progress.step)
        err = bp_checkpoint_save(self->mesh->world, &commit, boxes, count, state);
    if (err == BP_OK) {
        self->progress.committed = self->progress.step;
        if (self->mesh->coordinates)
            tidy(self, folder, best);
    }
    bp_free(boxes);
    json_decref(state);
    bp_free(folder);
    return err;
}

bp_err trainer_commit(trainer *self, bool best)
{
    bp_phase before = bp_beat_phase(BP_PHASE_CHECKPOINT);
    bp_err err = save(self, best);

    (void)bp_beat_phase(before);
    return err;
}
