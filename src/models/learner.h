/* Learners: training of a family whose step touches only a few parameters (a table of word vectors)
 * and is not a pass through blocks. A learner divides its parameters over the ranks of `comm`,
 * which all see the whole batch. The loop around it (steps, metrics, checkpoints, resume) is that
 * of networks. */
#pragma once

#include "base/config/config.h"
#include "io/checkpoint/checkpoint.h"
#include "models/family.h"
#include "tensor/batch.h"

typedef struct bp_learner bp_learner;

typedef struct bp_learner_spec {
    MPI_Comm comm;               /* the ranks that compute; borrowed until bp_learner_ops.free */
    const bp_config *config;     /* borrowed for the call */
    const bp_model_shape *shape; /* its vocab_size is known */
    int64_t eod_id;              /* -1: none */
    uint64_t seed;
} bp_learner_spec;

/** The stream: each rank has its own. */
typedef struct bp_learner_stream {
    int64_t tokens;
    bp_err (*read)(void *context, int64_t first, int64_t count, int32_t *tokens);
    void *context;
    const char *where; /* for messages */
} bp_learner_stream;

/** What to do with the examples of a batch. */
typedef struct bp_learner_pass {
    int64_t step;       /* keys random numbers, as */
    int64_t first_slot; /* of the batch's examples */
    float rate;         /* 0: nothing is updated */
} bp_learner_pass;

typedef struct bp_learner_loss {
    double sum; /* nats */
    int64_t count;
} bp_learner_loss;

typedef struct bp_learner_ops {
    /** Bytes of a rank's parameters, with this many ranks. Local. */
    size_t (*bytes)(const bp_model_shape *shape, int ranks);
    /** And of its workspace. Local. */
    size_t (*work_bytes)(const bp_model_shape *shape, int ranks);
    /** Collective over spec->comm. Owns: *out is the caller's, `free`. Errors: BP_ERR_SYSTEM: the
     * same on all ranks. */
    bp_err (*new)(bp_learner **out, const bp_learner_spec *spec);
    void (*free)(bp_learner **learner);
    /** Read all of the stream, a share on each rank, before training begins. Collective. Errors:
     * BP_ERR_FORMAT the stream has nothing to learn from; BP_ERR_STOPPED; those of stream->read:
     * the same on all ranks. */
    bp_err (*survey)(bp_learner *learner, const bp_learner_stream *stream);
    /** Values to begin with, after `survey`: a function of the seed and an element's place.
     * Local. */
    void (*initialise)(bp_learner *learner);
    /** Slices for bp_checkpoint_save, over all ranks of comm; data are in the learner. Local. Owns:
     * the list is the caller's, bp_free(). */
    bp_slice *(*slices)(bp_learner *learner, int64_t *count);
    /** The slices that can be initialised from another training's checkpoint. Local. */
    bp_slice *(*slices_to_begin)(bp_learner *learner, const bp_checkpoint *from, int64_t *count);
    /** All slices have the values of a checkpoint of this training: there was no `survey`.
     * Collective. Errors: BP_ERR_FORMAT, BP_ERR_SYSTEM: the same on all ranks. */
    bp_err (*loaded)(bp_learner *learner);
    /** Go through a batch, the same on all ranks. Collective; an equal loss on all ranks. */
    void (*run)(bp_learner *learner, const bp_batch *batch, const bp_learner_pass *pass,
                bp_learner_loss *loss);
} bp_learner_ops;
