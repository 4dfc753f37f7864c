/* Checkpoints of a training: what is saved, at once or while training goes on. */
#ifndef BP_TRAIN_LOOP_COMMIT_H
#define BP_TRAIN_LOOP_COMMIT_H

#include "train/loop/trainer.h"

/* A checkpoint, besides what the trainer knows. */
typedef struct commit_of {
    bool best;              /* the link points at it afterwards */
    const char *attachment; /* of a model that is counted: its file; NULL: none */
    json_t *state;          /* and what its state has besides; NULL: nothing */
} commit_of;

/** Memory for a copy of the state, with checkpoint.async. Collective over world. Errors:
 * BP_ERR_SYSTEM: the same on all ranks. */
bp_err trainer_open_commits(trainer *self);

/** Commits the state of progress.step, if that is not done yet. None is on its way.
 *
 * Collective: over world.
 * Errors:     those of bp_checkpoint_save; BP_ERR_SOFTWARE the state is not finite; BP_ERR_IO a
 *             metrics line before could not be written: the same on all ranks. */
bp_err trainer_commit(trainer *self, const commit_of *what);
/** The same, but it is written while training goes on: commits.pending is on its way then. */
bp_err trainer_commit_begin(trainer *self, bool best);
/** Waits for the one on its way, and puts it in place; cancel: do not wait. Collective over world.
 * Errors: those of bp_checkpoint_finish. */
bp_err trainer_commit_finish(trainer *self, bool cancel);
/** The same on the ranks that compute, if one is on its way: a dedicated coordinator is told.
 * Collective over mesh->compute. */
bp_err trainer_commit_end(trainer *self, bool cancel);
/** The same after an error that ends the training, whose message stays: a failure is a warning. */
void trainer_save_leftover(trainer *self, bool cancel);

/** The slices that this rank saves: (*count), none where it does not compute. Local. Owns: the list
 * is the caller's, bp_free(); their data are the engine's or the learner's. */
bp_slice *trainer_slices_to_save(trainer *self, int64_t *count);
/** Old checkpoints that were being removed are gone, or a warning says why not. Local. */
void trainer_end_removal(trainer *self);
/** The error of a training that diverged at `step`, where `what` says why. It names the newest
 * checkpoint from whose parameters a later step has gone on. Local: reads the folder. Returns
 * BP_ERR_SOFTWARE. */
bp_err trainer_fail_diverged(const trainer *self, int64_t step, const char *what);
/** The same of all ranks, once the checkpoint on its way is in place; only one reads the folder.
 * Collective over mesh->compute. */
bp_err trainer_diverged(trainer *self, int64_t step, const char *what);
/** RUN/checkpoints. Owns: the caller's, bp_free(). */
char *trainer_checkpoints_folder(const trainer *self);

#endif
