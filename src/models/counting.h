/* Counting: how a family whose models are counted, not trained by gradients, makes its model from a
 * stream of tokens. The job provides the stream, a folder and its ranks; the family writes one
 * file. */
#pragma once

#include "base/config/config.h"
#include "base/config/json.h"
#include "base/process/signals.h"
#include "io/checkpoint/checkpoint.h"
#include "mesh/mesh.h"
#include "models/family.h"

/** bp_counting.model, in `folder`. */
#define BP_COUNTING_FILE "model.bin"

/** The job's input to bp_counting_ops.count. Equal on all ranks of `comm`, except for `read` with
 * its context: each rank has a stream of its own. */
typedef struct bp_counting {
    MPI_Comm comm; /* the ranks that count; all of them see `folder` */
    const bp_config *config;
    const bp_model_shape *shape; /* its vocab_size is known */
    int64_t tokens;              /* of the stream; each document ends with `eod_id` */
    int64_t eod_id;
    bp_err (*read)(void *context, int64_t first, int64_t count, int32_t *tokens);
    int64_t valid_tokens; /* of the validation stream; 0 if there is none */
    bp_err (*read_valid)(void *context, int64_t first, int64_t count, int32_t *tokens);
    double valid_loss; /* the result, in nats a token; infinite if a token has probability 0 */
    /** Reports the progress of a part of the work, on this rank; `what` is a literal. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t of);
    void *context;
    const char *folder; /* for spilled data, existing; it may hold the spilled data of an earlier
                           start of the same work */
    const char *work;   /* hash of all that the counts depend on, except for the family's keys:
                           [0-9a-f] */
    json_t *state;      /* members for the checkpoint's state; on the root */
} bp_counting;

typedef struct bp_counting_ops {
    /** Write the model's file, BP_COUNTING_FILE, in counting->folder, sealed: the checkpoint's
     * attachment. Collective over counting->comm. Errors: BP_ERR_STOPPED a stop was requested;
     * BP_ERR_IO, BP_ERR_SYSTEM...: the same on all ranks. */
    bp_err (*count)(bp_counting *counting);
    /** Print the estimate of counting on this many ranks. Local, with only `read`. Errors: those of
     * counting->read; BP_ERR_SYSTEM. */
    bp_err (*plan)(const bp_counting *counting, int ranks);
    /** Open the model of a checkpoint; info's step, eod_id, hash and digest are filled in by the
     * caller, before anything is scored. Collective over mesh->member. Owns: *out is the caller's,
     * bp_model_free(). Errors: BP_ERR_FORMAT, BP_ERR_CONFIG, BP_ERR_SYSTEM: the same on all ranks.
     */
    bp_err (*open)(bp_model **out, const bp_mesh *mesh, const bp_checkpoint *checkpoint);
    /** The same for a file of `count` that no checkpoint holds yet. */
    bp_err (*open_file)(bp_model **out, const bp_mesh *mesh, const char *path);
    /** Bytes of that file, from the "state" of a manifest (0: unknown): ranks of a node share them,
     * but the ranks of one model group have a part each. */
    int64_t (*file_bytes)(const bp_model_shape *shape, const json_t *state);
} bp_counting_ops;

/** BP_ERR_STOPPED where a stop was requested; `what` is the work in progress ("merging"). Local:
 * ranks agree. */
static inline bp_err bp_counting_check_stop(const bp_counting *counting, const char *what)
{
    return bp_signals_stop_asked() ? bp_fail_stopped("while %s, at %s; the same command goes on",
                                                     what, counting->folder)
                                   : BP_OK;
}
