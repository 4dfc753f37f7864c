/* The internals of a network as a bp_model, for the files that implement it. */
#pragma once

#include "mesh/lockstep.h"
#include "models/family.h"
#include "models/model.h"

/* Another matrix for the logits; empty on other stages, and where a rank has no vocabulary. */
typedef struct added_head {
    float *values;
    bp_weight *map;
} added_head;

/* The last states of sequences that come in pieces: [windows][columns] for each carry of the
 * network. Passes with dropout have their own. */
typedef struct kept_states {
    int64_t windows;
    float **rows; /* [carries] */
} kept_states;

typedef struct network_model {
    bp_model face;
    const bp_mesh *mesh; /* borrowed */
    bp_gemm *gemm;
    bp_network *network;
    bool views;    /* network and gemm are another's */
    int lockstep;  /* its number in mesh->lockstep, if there is one (network_shares_passes) */
    float *values; /* those that stay in float32 */
    bp_model_shape shape;
    int64_t C;
    int32_t *window; /* [window_capacity] from which an example is made */
    int64_t window_capacity;
    int32_t *lengths; /* [length_capacity] of windows, where the network depends on them */
    int64_t length_capacity;
    char *memory; /* of one piece: hidden and scratch */
    size_t memory_bytes;
    char *gradient_memory; /* the same for one with a backward pass */
    size_t gradient_memory_bytes;
    float *mirrored; /* [mirrored_capacity] the word vectors of a decoder that reads its source
                        again (network_mirrors), then their gradients; stage 0 */
    int64_t mirrored_capacity;
    bool repeats;      /* the data that blocks keep for one window can be copied for others
                          (bp_block_repeat) */
    bp_probe *probe;   /* borrowed; NULL: no probe */
    int first_block;   /* index of this stage's first block in the whole model */
    added_head *heads; /* [head_count] */
    int64_t head_count;
    kept_states *kept; /* [kept_count] without dropout, then of each pass with it */
    int64_t kept_count;
} network_model;

static inline bool network_is_first(const network_model *self)
{
    return self->mesh->pipeline_rank == 0;
}

static inline bool network_is_last(const network_model *self)
{
    return self->mesh->pipeline_rank == self->mesh->pipeline_ranks - 1;
}

/** On the last stage. */
static inline const bp_block *network_head(const network_model *self)
{
    return self->network->blocks[self->network->block_count - 1];
}

/** Do all ranks of mesh->expert run its passes together? */
static inline bool network_shares_passes(const network_model *self)
{
    return self->mesh->lockstep && bp_nn_experts(&self->network->nn) > 1;
}
/** Begins a pass of `rows` (bp_lockstep_begin). Returns the largest row count of any rank. */
static inline int64_t network_begin_pass(const network_model *self, bool few, int64_t rows)
{
    return network_shares_passes(self)
               ? bp_lockstep_begin(self->mesh->lockstep, self->lockstep, few, rows)
               : rows;
}

/* ---- network_batch.c ---- */

/* Take part in passes of other ranks (bp_lockstep_model). */
void network_join_lockstep(network_model *self);

/* The requested results of a batch: on the last stage, one of the two. */
typedef struct network_question {
    float *logprob; /* [windows][length], and */
    float *log_p;   /* [rows][columns]; */
    int64_t columns;
    float *hidden; /* [windows * length][C] */
    int64_t pass;  /* of dropout; BP_MODEL_NO_DROPOUT */
} network_question;

/** A batch through the pipeline, piece by piece. Collective over mesh->model. Errors:
 * BP_ERR_SYSTEM: the same on all its ranks. */
bp_err network_run_batch(network_model *self, const bp_model_batch *batch,
                         const network_question *asked);
/** How windows of a batch become examples. `maker` points into the struct: it is not copied. */
typedef struct network_pieces {
    bp_example_maker maker; /* its rules point to this struct where its examples need `given` */
    struct {
        const int32_t *segments;   /* segments of the batch's windows; NULL if it has none */
        const int32_t *targets;    /* [windows][length] of the batch */
        int64_t first_slot, start; /* a decoder begins with this token */
    } given;
    bool trains; /* targets of a task are laid out as in training: its head goes backward */
} network_pieces;
/** And the memory for them: a window's buffer, the lengths of windows where the network depends on
 * them, and a decoder's word vectors. Errors: BP_ERR_SYSTEM. Local. */
bp_err network_pieces_begin(network_pieces *pieces, network_model *self,
                            const bp_model_batch *batch);
/** Does a decoder read the text again, after its start token (bp_task_mirror)? */
bool network_mirrors(const network_pieces *pieces);
/** Memory for the word vectors of such a decoder: 0 on stages that have none. */
size_t network_mirrored_bytes(const bp_network *network, const bp_example_maker *maker,
                              int64_t windows);
/** Memory of the examples of some windows. */
size_t network_example_bytes(const bp_example_maker *maker, int64_t windows);
/** A pass over windows [first, first + windows) of a batch; `bytes` has the examples. Collective
 * over mesh->tensor. */
bp_pass network_piece_pass(network_model *self, const network_pieces *pieces,
                           const bp_model_batch *batch, int64_t first, int64_t windows,
                           char *bytes);
/** The stage's blocks [first, end), without the head, on a batch of one window that has just been
 * scored: they read item 0, hidden[length][columns of the first one's input], which then holds
 * their output, of its own width. */
void network_run_blocks(network_model *self, const bp_model_batch *batch, int first, int end,
                        float *hidden);
/** Makes examples of windows of `length` inputs; with their sources they are examples already. */
bp_example_maker network_maker_of(const bp_model_shape *shape, int64_t length,
                                  int64_t source_length);
/** Windows of a batch that go through the pipeline at once. */
int64_t network_piece_windows(int64_t windows, int stages);
/** Memory for examples, activations and scratch of some windows. */
size_t network_piece_bytes(const bp_network *network, const bp_example_maker *maker,
                           int64_t windows);

/* ---- network_gradient.c ---- */

/** bp_model_ops.differentiate and look_up; info.vector_width and `repeats` (collective over
 * mesh->pipeline). */
bp_err network_differentiate(bp_model *model, const bp_model_batch *batch, float *gradients,
                             float *source_gradients);
void network_look_up(bp_model *model, bool of_source, const int32_t *tokens, int64_t count,
                     float *rows, float *scratch);
void network_find_vectors(network_model *self);
/** Memory of some windows forward and backward. */
size_t network_gradient_bytes(const bp_network *network, const bp_example_maker *maker,
                              int64_t windows);

/* ---- network_memories.c ---- */

/** bp_model_ops.coefficients and values, and info.keys (collective over mesh->model). */
bp_err network_coefficients(bp_model *model, const bp_model_batch *batch, float *coefficients);
void network_values(bp_model *model, int64_t layer, int64_t first, int64_t count, float *rows,
                    float *scratch);
void network_find_keys(network_model *self);
