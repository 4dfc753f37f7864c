/* Checkpoints: logical tensors in pieces, one writer per file through serial HDF5, hashed,
 * committed by rename. docs/formats.md has the layout; reference: reliability design, section 2. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "base/files/hash.h"
#include "mesh/mesh.h"
#include "tensor/slice.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** A file in the checkpoint of a model that is not a list of tensors. */
#define BP_CHECKPOINT_ATTACHMENT "model.bin"
#define BP_STEP_NAME             32 /* "step-000000001200" and its end */

/* ---- saving ---- */

typedef struct bp_checkpoint_commit {
    const char *parent; /* RUN/checkpoints, which exists */
    const char *name;   /* bp_checkpoint_step_name(), or any name for an import */
    int writers;        /* 0: one per node, required with a snapshot */
    int64_t file_bytes; /* approximate size of each of a writer's files, written in parallel, at
                           most 8; 0: 512 MiB */
    /* Returns data of a slice whose `data` is NULL, valid until the next call; called repeatedly.
     * NULL if there is no such slice. */
    bp_err (*fetch)(void *context, const bp_slice *slice, int64_t index, const float **data);
    void *context;
    const char *tokenizer; /* root: tokenizer.json to keep beside the manifest; NULL: none */
    /* root: a sealed file (io/h5/user_block.h) on the file system of `parent`, which becomes the
     * checkpoint's BP_CHECKPOINT_ATTACHMENT: it is moved there. Only without slices; NULL: none */
    const char *attachment;
    /* bp_checkpoint_begin: holds all slices' data, and is the source of writing; NULL: writing
     * waits for bp_checkpoint_finish. */
    const struct bp_snapshot *snapshot;
    /* Set by bp_checkpoint_finish: busy time of the slowest helper of all ranks in seconds, without
     * its throttling sleeps. NULL, on all ranks: not measured. */
    double *busy_seconds;
    const bp_digest *digests; /* with a snapshot: digest of each slice, set by bp_snapshot_take */
} bp_checkpoint_commit;

/** Write and commit `parent`/`name`.
 *
 * The slices of all ranks together must tile every tensor exactly.
 *
 * Collective: over `comm`; parent, name and writers are equal on all ranks.
 * state:      on root, the rest of the checkpoint (model, step, tokenizer_hash...): "state" in the
 *             manifest.
 * Errors:     BP_ERR_SOFTWARE slices that don't tile, or a value that is not finite; BP_ERR_CREATE
 *             `name` exists, or no folder can be created; BP_ERR_DENIED; BP_ERR_IO (disk full); the
 *             fence's errors (base/files/fence.h), checked on root just before the rename;
 *             BP_ERR_SYSTEM: the same on all ranks. Only a hidden folder was created then, and it
 *             is removed. If only the last fsync of `parent` failed, a complete checkpoint stays,
 *             but a power failure may remove it.
 */
bp_err bp_checkpoint_save(MPI_Comm comm, const bp_checkpoint_commit *commit, const bp_slice *slices,
                          int64_t count, const json_t *state);

/** Check that a checkpoint of these slices would have a readable manifest. Call before the first
 * step, so that no work is lost. Collective: over `comm`; slices' data are not read. Errors:
 * BP_ERR_CONFIG too long; BP_ERR_SOFTWARE slices that don't tile: the same on all ranks. */
bp_err bp_checkpoint_check_size(MPI_Comm comm, const bp_checkpoint_commit *commit,
                                const bp_slice *slices, int64_t count);

/** The extra memory of a rank that writes `bytes` of all ranks' slices. */
size_t bp_checkpoint_writer_bytes(int64_t bytes);

/** A checkpoint written asynchronously. */
typedef struct bp_async_checkpoint bp_async_checkpoint;

/** The same in two calls: between them, helper threads write from a snapshot, without MPI and at
 * low priority. Nothing is in place before the second call returns.
 *
 * Collective: over `comm`, as bp_checkpoint_save.
 * Owns:       *out is the caller's, bp_checkpoint_finish(); NULL on failure. commit's tokenizer,
 *             context and snapshot, and the values in it, are borrowed until then; `slices` for the
 *             call, or, without a snapshot, until then; digests for the call.
 * Errors:     those of bp_checkpoint_save; bp_checkpoint_finish reports failures of helpers.
 */
bp_err bp_checkpoint_begin(bp_async_checkpoint **out, MPI_Comm comm,
                           const bp_checkpoint_commit *commit, const bp_slice *slices,
                           int64_t count, const json_t *state);

/** The progress of this rank's helper. Ordered: of several ranks, the highest counts. Local. */
typedef enum bp_async_checkpoint_state {
    BP_ASYNC_CHECKPOINT_DONE,
    BP_ASYNC_CHECKPOINT_WRITES,
    BP_ASYNC_CHECKPOINT_FAILED
} bp_async_checkpoint_state;
bp_async_checkpoint_state bp_checkpoint_poll(const bp_async_checkpoint *pending);

/** Tell this rank's helpers to stop as soon as possible, without waiting: bp_checkpoint_finish then
 * returns BP_ERR_STOPPED, unless they were done. Local. */
void bp_checkpoint_cancel(bp_async_checkpoint *pending);

/** Wait for the helpers, then put the checkpoint in place. Collective: over the communicator of
 * begin. Errors: those of bp_checkpoint_save; BP_ERR_STOPPED cancelled. *pending is NULL then, too.
 */
bp_err bp_checkpoint_finish(bp_async_checkpoint **pending);

/** "step-000000001200". */
void bp_checkpoint_step_name(char out[BP_STEP_NAME], int64_t step);

/* ---- opening ---- */

typedef struct bp_checkpoint bp_checkpoint;

/** Open one checkpoint folder and verify every byte, and the digests of all tensors (files are
 * divided over the ranks).
 *
 * Collective: over `comm`, which must outlive it; `folder` is equal on all ranks.
 * Owns:       *out is the caller's, bp_checkpoint_close(); NULL on failure.
 * Errors:     BP_ERR_INPUT no such folder; BP_ERR_FORMAT with the word "damaged" and the step or
 *             file; BP_ERR_FORMAT an unknown version (named); for one that holds only an adapter:
 *             BP_ERR_INPUT its base is missing, BP_ERR_FORMAT it is another, and those of opening
 *             it; BP_ERR_DENIED, BP_ERR_IO: the same on all ranks.
 */
bp_err bp_checkpoint_open(MPI_Comm comm, const char *folder, bp_checkpoint **out);
void bp_checkpoint_close(bp_checkpoint **checkpoint);

/** Is this folder a checkpoint, whole or damaged? By its name (step-000000001200), or by any of
 * manifest.json, manifest.sha256 and shard-00000.h5 in it. Local. */
bool bp_checkpoint_is_folder(const char *path);

/** CHECKPOINT as users give it: a step folder, an imported folder, a run folder (its newest that
 * verifies), or RUN/checkpoints/best.
 *
 * Skips a damaged one with a warning; BP_ERR_FORMAT if there is no older one.
 *
 * Collective, Owns: as bp_checkpoint_open.
 * Errors:     those of bp_checkpoint_open; BP_ERR_INPUT a folder without any checkpoint.
 */
bp_err bp_checkpoint_open_any(MPI_Comm comm, const char *path, bp_checkpoint **out);

/** Read only the manifest of that checkpoint: of a run, the newest readable one, whatever else is
 * damaged. For estimates, and for early checks. Local.
 *
 * Owns:   *folder (bp_free) and *manifest (json_decref) are the caller's; *manifest is NULL if none
 * is readable. Errors: BP_ERR_INPUT no such folder, or no checkpoint in it; BP_ERR_SYSTEM. Both are
 * NULL then.
 */
bp_err bp_checkpoint_read_metadata(const char *path, char **folder, json_t **manifest);

/** For resume: the newest in `parent` (RUN/checkpoints) that verifies; *out is NULL, with BP_OK, if
 * there is no checkpoint.
 *
 * Warns of newer damaged ones and moves them aside, to .bad-STEP-N, so that their steps can be
 * saved again. Only for the job that holds the run's lock: the fence is checked on root before
 * anything is moved.
 *
 * Collective, Owns: as bp_checkpoint_open.
 * Errors:     BP_ERR_FORMAT all are damaged (nothing is moved then), or the newest has an unknown
 *             version; BP_ERR_DENIED, BP_ERR_IO.
 */
bp_err bp_checkpoint_newest(MPI_Comm comm, const char *parent, bp_checkpoint **out);

/** The newest step in `parent` (RUN/checkpoints), whole or damaged, judged only by the names; -1 if
 * there is none, or no such folder. Local. */
int64_t bp_checkpoint_newest_step(const char *parent);

/* ---- its contents: equal on all ranks; strings are borrowed ---- */

/** The base checkpoint, which has the tensors missing from a checkpoint of only an adapter. It was
 * opened together with it, and everything below applies to both. Named by {"path", "digest"},
 * "base" of the state. NULL: no base. */
const bp_checkpoint *bp_checkpoint_base(const bp_checkpoint *checkpoint);
const json_t *bp_checkpoint_state(const bp_checkpoint *checkpoint);
const char *bp_checkpoint_folder(const bp_checkpoint *checkpoint);
/** Digest of an attachment and of all tensors without "/" in their name (the model, not the
 * optimizer), independent of the pieces; hexadecimal. */
const char *bp_checkpoint_digest(const bp_checkpoint *checkpoint);
bool bp_checkpoint_has(const bp_checkpoint *checkpoint, const char *tensor);
/** Check that the tensor of a slice exists. Local. Errors: BP_ERR_FORMAT missing, or of another
 * shape. */
bp_err bp_checkpoint_check_tensor(const bp_checkpoint *checkpoint, const bp_slice *slice);
/** The communicator on which it was opened. Borrowed. */
MPI_Comm bp_checkpoint_comm(const bp_checkpoint *checkpoint);
/** Its tokenizer.json (verified with it); NULL if there is none. */
const char *bp_checkpoint_tokenizer(const bp_checkpoint *checkpoint);

/** The path of its attachment (verified with it); NULL if there is none. */
const char *bp_checkpoint_attachment(const bp_checkpoint *checkpoint);

/** Tensors, sorted by name. */
int64_t bp_checkpoint_tensors(const bp_checkpoint *checkpoint);
/** Tensor k as a slice of the whole tensor, with data NULL. */
bp_slice bp_checkpoint_tensor(const bp_checkpoint *checkpoint, int64_t k);

/* ---- loading ---- */

/** Fill slices from the pieces.
 *
 * Collective: over the communicator of open.
 * Errors:     BP_ERR_FORMAT a tensor is missing, has another shape, or differs in a file from the
 *             manifest; BP_ERR_SOFTWARE a slice beyond its tensor; BP_ERR_IO, BP_ERR_SYSTEM: the
 *             same on all ranks.
 */
bp_err bp_checkpoint_load(bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count);

/** Check that the tensors of the slices, which must tile them over all ranks, have the manifest's
 * digests.
 *
 * Collective: over the communicator of open.
 * Errors:     BP_ERR_FORMAT another digest, or no such tensor; BP_ERR_SOFTWARE slices that do not
 *             cover a tensor exactly.
 */
bp_err bp_checkpoint_check_digests(bp_checkpoint *checkpoint, const bp_slice *slices,
                                   int64_t count);

/* ---- the folder of checkpoints. Local: for the coordinator of the job that holds the lock ---- */

/** Remove leftovers of dead writers: .tmp-* and .del-*. The parent may be missing. Afterwards a
 * writer that has lost the run can no longer commit.
 *
 * Errors: the fence's; BP_ERR_IO, BP_ERR_DENIED. */
bp_err bp_checkpoints_clean(const char *parent);

/** Removes folders in the background: a file system may need a second per gigabyte. {0} before the
 * first use; from start to wait it belongs to its thread. */
typedef struct bp_remover {
    pthread_t thread;
    bool runs;
    char **paths;
    int64_t count;
    bp_err err;
    char message[BP_ERR_MESSAGE_BYTES];
} bp_remover;

/** Remove `count` folders, in a thread of low priority; if no thread can be created,
 * bp_remover_wait removes them. Waits for those of the previous call.
 *
 * Owns:   *paths, a list as bp_dir_list's, is the remover's; NULL and 0 afterwards.
 * Errors: of the previous call, those of bp_remover_wait.
 */
bp_err bp_remover_start(bp_remover *remover, char ***paths, int64_t *count);
/** Wait until all are removed. Errors: those of bp_dir_remove. */
bp_err bp_remover_wait(bp_remover *remover);

/** Keep the newest `keep` (at least 1), and also the one that `best` points at. Renames the others
 * to .del-, and then removes them: by `remover`, in the background; NULL: now.
 *
 * Errors: BP_ERR_INPUT no parent; BP_ERR_IO, BP_ERR_DENIED: some may remain. With a remover,
 *         bp_remover_wait or the next call returns its failure. */
bp_err bp_checkpoints_prune(const char *parent, int64_t keep, bp_remover *remover);

/** Let `parent`/best point at a step (a relative symbolic link, replaced in one go).
 *
 * Errors: BP_ERR_INPUT no checkpoint of that step; BP_ERR_FORMAT that of bp_checkpoints_check_best;
 *         BP_ERR_CREATE, BP_ERR_IO, BP_ERR_DENIED. */
bp_err bp_checkpoints_link_best(const char *parent, int64_t step);

/** Errors: BP_ERR_FORMAT `best` exists and is not a link: it is not replaced. */
bp_err bp_checkpoints_check_best(const char *parent);
/** The step that `best` points at; -1 if there is no such link, or it points at no step. */
int64_t bp_checkpoints_best(const char *parent);
/** The newest step before `step`; -1 if there is none, or the folder can't be read. */
int64_t bp_checkpoints_before(const char *parent, int64_t step);

/** Warns if `path` means the newest checkpoint of a run whose validation was better at an earlier
 * one, or an ensemble that lists such a checkpoint. Local. */
void bp_checkpoint_warn_not_best(const char *path);
