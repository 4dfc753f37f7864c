/* Checkpoints: logical tensors in pieces, one writer a file through serial HDF5, hashed, committed
 * by rename. docs/formats.md has the layout; reference: reliability design, section 2. */
#ifndef BP_IO_CHECKPOINT_CHECKPOINT_H
#define BP_IO_CHECKPOINT_CHECKPOINT_H

#include "base/config/json.h"
#include "base/err.h"
#include "base/files/hash.h"
#include "mesh/mesh.h"
#include "tensor/slice.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** What a model that is not a list of tensors keeps in its checkpoint: a file of its own. */
#define BP_CHECKPOINT_ATTACHMENT "model.bin"
#define BP_STEP_NAME             32 /* "step-000000001200" and its end */

/* ---- saving ---- */

typedef struct bp_checkpoint_commit {
    const char *parent; /* RUN/checkpoints, there already */
    const char *name;   /* bp_checkpoint_step_name(), or any name for an import */
    int writers;        /* 0: one a node, as it has to be with a snapshot */
    int64_t file_bytes; /* about the size of each of a writer's files, which are written side
                           by side, 8 of them at most; 0: 512 MiB */
    /* Data of a slice whose `data` is NULL, valid until the next call; asked more than once. NULL:
     * there is no such slice. */
    bp_err (*fetch)(void *context, const bp_slice *slice, int64_t index, const float **data);
    void *context;
    const char *tokenizer; /* root: tokenizer.json to keep beside the manifest; NULL: none */
    /* root: a sealed file (io/h5/user_block.h) on the file system of `parent`, which becomes the
     * checkpoint's BP_CHECKPOINT_ATTACHMENT: it is moved there. Only without slices; NULL: none */
    const char *attachment;
    /* bp_checkpoint_begin: what all slices' data are in, and are written from; NULL: nothing is
     * written before bp_checkpoint_finish. */
    const struct bp_snapshot *snapshot;
    /* Set by bp_checkpoint_finish: busy time of the slowest helper of all ranks in seconds, without
     * the sleeps of its pace. NULL, on all ranks: not measured. */
    double *busy_seconds;
    const bp_digest *digests; /* with a snapshot: of each slice, as bp_snapshot_take set them */
} bp_checkpoint_commit;

/** Write and commit `parent`/`name`.
 *
 * The slices of all ranks together must tile every tensor exactly.
 *
 * Collective: over `comm`; parent, name and writers are equal on all ranks.
 * state:      on root, what else belongs to the checkpoint (model, step, tokenizer_hash...):
 *             "state" in the manifest.
 * Errors:     BP_ERR_SOFTWARE slices that don't tile, or a value that is not finite;
 *             BP_ERR_CREATE `name` is there already, or no folder can be made;
 *             BP_ERR_DENIED; BP_ERR_IO (disk full); what the fence says
 *             (base/files/fence.h), asked on root just before the rename; BP_ERR_SYSTEM: the same
 * on all ranks. Nothing but a hidden folder was made then, and that is removed; only where the last
 * fsync of `parent` failed, a whole checkpoint stays, which a power cut may take away.
 */
bp_err bp_checkpoint_save(MPI_Comm comm, const bp_checkpoint_commit *commit, const bp_slice *slices,
                          int64_t count, const json_t *state);

/** Would a checkpoint of these slices have a manifest that can be read? Before the first step, so
 * that none is lost. Collective: over `comm`; slices' data are not looked at. Errors:
 * BP_ERR_CONFIG it would be too long; BP_ERR_SOFTWARE slices that don't tile: the same on all
 * ranks. */
bp_err bp_checkpoint_check_size(MPI_Comm comm, const bp_checkpoint_commit *commit,
                                const bp_slice *slices, int64_t count);

/** What a rank that writes `bytes` of all ranks' slices takes for it, besides them. */
size_t bp_checkpoint_writer_bytes(int64_t bytes);

/** A checkpoint that is written while the caller goes on. */
typedef struct bp_async_checkpoint bp_async_checkpoint;

/** The same in two halves: between them helper threads write, from a snapshot, without MPI and at
 * low priority. Nothing is in place before the second half is over.
 *
 * Collective: over `comm`, as bp_checkpoint_save.
 * Owns:       *out is the caller's, bp_checkpoint_finish(); NULL on failure. commit's tokenizer,
 *             context and snapshot, and the values in it, are borrowed until then; `slices`
 *             for the call, or, without a snapshot, until then; digests for the call.
 * Errors:     those of bp_checkpoint_save; what fails in a helper is found by
 *             bp_checkpoint_finish.
 */
bp_err bp_checkpoint_begin(bp_async_checkpoint **out, MPI_Comm comm,
                           const bp_checkpoint_commit *commit, const bp_slice *slices,
                           int64_t count, const json_t *state);

/** How far this rank's helper is. Ordered: of several ranks' the highest counts. Local. */
typedef enum bp_async_checkpoint_state {
    BP_ASYNC_CHECKPOINT_DONE,
    BP_ASYNC_CHECKPOINT_WRITES,
    BP_ASYNC_CHECKPOINT_FAILED
} bp_async_checkpoint_state;
bp_async_checkpoint_state bp_checkpoint_poll(const bp_async_checkpoint *pending);

/** Have this rank's helper stop as soon as it can: bp_checkpoint_finish will be BP_ERR_STOPPED, if
 * it was not done. Local. */
void bp_checkpoint_cancel(bp_async_checkpoint *pending);

/** Wait for the helpers, then put the checkpoint in place. Collective: over the communicator of
 * begin. Errors: those of bp_checkpoint_save; BP_ERR_STOPPED given up. *pending is NULL then, too.
 */
bp_err bp_checkpoint_finish(bp_async_checkpoint **pending);

/** "step-000000001200". */
void bp_checkpoint_step_name(char out[BP_STEP_NAME], int64_t step);

/* ---- opening ---- */

typedef struct bp_checkpoint bp_checkpoint;

/** Open one checkpoint folder and verify every byte, and the digests of all tensors (files are
 * shared out over the ranks).
 *
 * Collective: over `comm`, which must outlive it; `folder` is equal on all ranks.
 * Owns:       *out is the caller's, bp_checkpoint_close(); NULL on failure.
 * Errors:     BP_ERR_INPUT no such folder;
 *             BP_ERR_FORMAT with the word "damaged" and the step or file;
 *             BP_ERR_FORMAT an unknown version (named);
 *             of one that holds only an adapter BP_ERR_INPUT its base is gone, BP_ERR_FORMAT it is
 *             another, and those of opening it;
 *             BP_ERR_DENIED, BP_ERR_IO: the same on all ranks.
 */
bp_err bp_checkpoint_open(MPI_Comm comm, const char *folder, bp_checkpoint **out);
void bp_checkpoint_close(bp_checkpoint **checkpoint);

/** Is this folder one checkpoint, whole or damaged? By its name (step-000000001200), or by any of
 * manifest.json, manifest.sha256 and shard-00000.h5 in it. Local. */
bool bp_checkpoint_is_folder(const char *path);

/** CHECKPOINT as users give it: a step folder, an imported folder, a run folder (its newest that
 * verifies), or RUN/checkpoints/best.
 *
 * A damaged one is skipped with a warning, and is BP_ERR_FORMAT where none older is left.
 *
 * Collective, Owns: as bp_checkpoint_open.
 * Errors:     those of bp_checkpoint_open; BP_ERR_INPUT a folder without any checkpoint.
 */
bp_err bp_checkpoint_open_any(MPI_Comm comm, const char *path, bp_checkpoint **out);

/** What the manifest of that checkpoint says, without a look at anything else: the newest of a run
 * whose manifest can be read, whatever else is damaged. For estimates, and for what can be refused
 * before all is read. Local.
 *
 * Owns:   *folder (bp_free) and *manifest (json_decref) are the caller's; *manifest is NULL where
 * none can be read. Errors: BP_ERR_INPUT no such folder, or no checkpoint in it; BP_ERR_SYSTEM.
 * Both are NULL then.
 */
bp_err bp_checkpoint_read_metadata(const char *path, char **folder, json_t **manifest);

/** For resume: the newest in `parent` (RUN/checkpoints) that verifies; *out is NULL, and BP_OK,
 * where there is none at all.
 *
 * Damaged ones that are newer are warned of and moved aside, to .bad-STEP-N, so that their steps
 * can be saved again. Only for the job that holds the run's lock: the fence is asked on root before
 * anything is moved.
 *
 * Collective, Owns: as bp_checkpoint_open.
 * Errors:     BP_ERR_FORMAT all that are there are damaged (nothing is moved then), or the newest
 *             has an unknown version; BP_ERR_DENIED, BP_ERR_IO.
 */
bp_err bp_checkpoint_newest(MPI_Comm comm, const char *parent, bp_checkpoint **out);

/** The newest step in `parent` (RUN/checkpoints), whole or damaged, judged only by the names; -1
 * where there is none, or no such folder. Local. */
int64_t bp_checkpoint_newest_step(const char *parent);

/* ---- what it holds: equal on all ranks; strings are borrowed ---- */

/** What has the tensors that a checkpoint of only an adapter lacks: it was opened with it, and all
 * below is of both. Named by {"path", "digest"}, "base" of the state. NULL: it is whole. */
const bp_checkpoint *bp_checkpoint_base(const bp_checkpoint *checkpoint);
const json_t *bp_checkpoint_state(const bp_checkpoint *checkpoint);
const char *bp_checkpoint_folder(const bp_checkpoint *checkpoint);
/** For all tensors without "/" in their name (the model, not the optimizer), whatever the pieces,
 * and of an attachment; hexadecimal. */
const char *bp_checkpoint_digest(const bp_checkpoint *checkpoint);
bool bp_checkpoint_has(const bp_checkpoint *checkpoint, const char *tensor);
/** The tensor of a slice is there. Local. Errors: BP_ERR_FORMAT it is missing, or has another
 * shape. */
bp_err bp_checkpoint_check_tensor(const bp_checkpoint *checkpoint, const bp_slice *slice);
/** The communicator that it was opened on. Borrowed. */
MPI_Comm bp_checkpoint_comm(const bp_checkpoint *checkpoint);
/** The tokenizer.json kept in it (verified with it), NULL: none. */
const char *bp_checkpoint_tokenizer(const bp_checkpoint *checkpoint);

/** The path of its attachment (verified with it), NULL: none. */
const char *bp_checkpoint_attachment(const bp_checkpoint *checkpoint);

/** Tensors, sorted by name. */
int64_t bp_checkpoint_tensors(const bp_checkpoint *checkpoint);
/** Tensor k as a slice that is all of it, with data NULL. */
bp_slice bp_checkpoint_tensor(const bp_checkpoint *checkpoint, int64_t k);

/* ---- loading ---- */

/** Fill slices from the pieces.
 *
 * Collective: over the communicator of open.
 * Errors:     BP_ERR_FORMAT a tensor is missing, has another shape, or is in a file otherwise
 *             than the manifest says; BP_ERR_SOFTWARE a slice that leaves its tensor;
 *             BP_ERR_IO, BP_ERR_SYSTEM: the same on all ranks.
 */
bp_err bp_checkpoint_load(bp_checkpoint *checkpoint, const bp_slice *slices, int64_t count);

/** The tensors of the slices, which must tile them over all ranks, have the manifest's digests.
 *
 * Collective: over the communicator of open.
 * Errors:     BP_ERR_FORMAT another digest, or no such tensor;
 *             BP_ERR_SOFTWARE slices that cover more or less than a tensor, or leave it.
 */
bp_err bp_checkpoint_check_digests(bp_checkpoint *checkpoint, const bp_slice *slices,
                                   int64_t count);

/* ---- the folder of checkpoints. Local: for the coordinator of the job that holds the lock ---- */

/** Remove what dead writers left: .tmp-* and .del-*. A parent that is missing is fine. From now on
 * no writer that has lost the run can put in place what it had begun.
 *
 * Errors: what the fence says; BP_ERR_IO, BP_ERR_DENIED. */
bp_err bp_checkpoints_clean(const char *parent);

/** Removes folders while the caller goes on: a file system may take a second for each gigabyte. {0}
 * before the first use; a thread's own from start to wait. */
typedef struct bp_remover {
    pthread_t thread;
    bool runs;
    char **paths;
    int64_t count;
    bp_err err;
    char message[BP_ERR_MESSAGE_BYTES];
} bp_remover;

/** Remove `count` folders, in a thread of low priority; at once where there can be none. Waits for
 * those of the call before.
 *
 * Owns:   *paths, a list as bp_dir_list's, is the remover's; NULL and 0 afterwards.
 * Errors: of the call before, those of bp_remover_wait.
 */
bp_err bp_remover_start(bp_remover *remover, char ***paths, int64_t *count);
/** All are removed. Errors: those of bp_dir_remove. */
bp_err bp_remover_wait(bp_remover *remover);

/** Keep the newest `keep` (at least 1), and besides the one that `best` points at. The others are
 * renamed to .del-, and then removed: by `remover`, while the caller goes on; NULL: now.
 *
 * Errors: BP_ERR_INPUT no parent; BP_ERR_IO, BP_ERR_DENIED: some may be left. With a remover,
 *         bp_remover_wait or the next call returns its failure. */
bp_err bp_checkpoints_prune(const char *parent, int64_t keep, bp_remover *remover);

/** Let `parent`/best point at a step (a relative symbolic link, replaced in one go).
 *
 * Errors: BP_ERR_INPUT no checkpoint of that step; BP_ERR_FORMAT that of bp_checkpoints_check_best;
 *         BP_ERR_CREATE, BP_ERR_IO, BP_ERR_DENIED. */
bp_err bp_checkpoints_link_best(const char *parent, int64_t step);

/** Errors: BP_ERR_FORMAT `best` is there, and no link: nothing is put over it. */
bp_err bp_checkpoints_check_best(const char *parent);
/** The step that `best` points at; -1: there is no such link, or it points at no step. */
int64_t bp_checkpoints_best(const char *parent);
/** The newest step before `step`; -1: there is none, or the folder can't be read. */
int64_t bp_checkpoints_before(const char *parent, int64_t step);

/** Warns where `path` means the newest checkpoint of a run in which an earlier one was better by
 * validation, or an ensemble that lists such. Local. */
void bp_checkpoint_warn_not_best(const char *path);

#endif
