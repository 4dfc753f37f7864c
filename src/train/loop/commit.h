/* Checkpoints of a training: what is saved, at once or while training goes on. */
#pragma once

#include "train/loop/trainer.h"

/* Properties of a checkpoint that are not in the trainer. */
typedef struct commit_of {
    bool best;              /* the link to the best will point at it */
    const char *attachment; /* the file of a counted model; NULL for others */
    json_t *state;          /* and additions to its state; may be NULL */
} commit_of;

/** Memory for a copy of the state, with checkpoint.async. Collective over world. Errors:
 * BP_ERR_SYSTEM: the same on all ranks. */
bp_err trainer_open_commits(trainer *self);

/** Commits the state of progress.step, unless that is done. No checkpoint may be pending.
 *
 * Collective: over world.
 * Errors:     those of bp_checkpoint_save; BP_ERR_SOFTWARE the state is not finite; BP_ERR_IO a
 *             metrics line before could not be written: the same on all ranks. */
bp_err trainer_commit(trainer *self, const commit_of *what);
/** Like trainer_commit, but writes while training goes on: commits.pending is set. */
bp_err trainer_commit_begin(trainer *self, bool best);
/** Waits for the pending checkpoint and publishes it; cancel: do not wait. Collective over world.
 * Errors: those of bp_checkpoint_finish. */
bp_err trainer_commit_finish(trainer *self, bool cancel);
/** trainer_commit_finish on the ranks that compute, if a checkpoint is pending; notifies a
 * dedicated coordinator. Collective over mesh->compute. */
bp_err trainer_commit_end(trainer *self, bool cancel);
/** trainer_commit_end after an error that ends the training. That error's message is kept: a
 * failure here is a warning. */
void trainer_save_leftover(trainer *self, bool cancel);

/** The *count slices that this rank saves; 0 if it does not compute. Local. Owns: the list is the
 * caller's, bp_free(); their data are the engine's or the learner's. */
bp_slice *trainer_slices_to_save(trainer *self, int64_t *count);
/** Waits until old checkpoints are removed, or warns why they are not. Local. */
void trainer_end_removal(trainer *self);
/** The error of a training that diverged at `step`, where `what` says why. The message names the
 * newest checkpoint after which a later step succeeded. Local: reads the folder. Returns
 * BP_ERR_SOFTWARE. */
bp_err trainer_fail_diverged(const trainer *self, int64_t step, const char *what);
/** trainer_fail_diverged on all ranks, after the pending checkpoint is published; one rank reads
 * the folder. Collective over mesh->compute. */
bp_err trainer_diverged(trainer *self, int64_t step, const char *what);
/** RUN/checkpoints. Owns: the caller's, bp_free(). */
char *trainer_checkpoints_folder(const trainer *self);
