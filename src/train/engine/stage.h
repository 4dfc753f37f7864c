/* The state of a pipeline stage: its memory, planned once, and one step's micro-batches forward and
 * backward through it. */
#ifndef BP_TRAIN_ENGINE_STAGE_H
#define BP_TRAIN_ENGINE_STAGE_H

#include "mesh/mesh.h"
#include "models/network/network.h"
#include "train/engine/options.h"
#include "train/engine/pipeline_comm.h"

typedef struct bp_stage_spec {
    bp_extent most;        /* of a micro-batch */
    int64_t micro_batches; /* of a step on this data rank */
    int stage, stages;
    bp_schedule schedule;
    bool tree;      /* gradients by the fixed tree, else one running sum */
    bool recompute; /* keep only the blocks' inputs */
    bool squares;   /* of each micro-batch's gradients too, summed by the tree */
} bp_stage_spec;

/** Bytes by kind, from the blocks' own answers. */
typedef struct bp_stage_bytes {
    size_t gradients, activations, scratch;
} bp_stage_bytes;

/** A run of blocks, and what it keeps. */
typedef struct bp_stage_chunk {
    int first, end;    /* of the network's blocks */
    int top;           /* of its stack of partial sums */
    int64_t slots;     /* micro-batches kept at once */
    size_t slot_bytes; /* what its blocks keep of one */
    char *kept;        /* [slots][slot_bytes] */
} bp_stage_chunk;

typedef struct bp_stage {
    bp_stage_spec spec;
    const bp_mesh *mesh; /* borrowed */
    bp_network *network; /* borrowed */
    float *gradient; /* [network->gradient_floats] the step's sum, after bp_stage_accumulate; the
                        bottom of the tree's stack */
    float **stack;   /* [depth] partial sums */
    float **squares; /* as many, of squares: [0] the step's sum; NULL: not wanted */
    int depth;
    bp_action *actions; /* of a step */
    bp_stage_schedule schedule;
    bp_stage_chunk *chunks;             /* [schedule.pipeline.chunks] */
    bp_chunk_messages *messages;        /* as many */
    char *memory;                       /* all of the activations and scratch */
    char *again;                        /* recompute: what one block keeps */
    bp_pipeline_comm forward, backward; /* this rank's rows of activations, and of their
                                     gradients */
    bp_arena scratch;
    const struct bp_teacher *teacher; /* of its passes; borrowed; NULL: none */
} bp_stage;

/** What stage `stage` does in a training with these settings on this many data ranks. */
bp_stage_spec bp_stage_spec_for(const bp_engine_spec *spec, const bp_model_shape *shape,
                                int data_ranks, int stage, int stages);
/** Floats that the blocks of a stage carry from a step to the next for this many batch slots. */
int64_t bp_engine_carried_floats(const bp_network *network, const bp_model_shape *shape,
                                 int64_t slots);
/** spec->most, and what memory the last block is lent. */
bp_extent bp_stage_most(const bp_stage_spec *spec, const bp_network *network);
bp_stage_bytes bp_stage_plan(const bp_stage_spec *spec, const bp_network *network);
/** What each of its chunks gets and passes on for a micro-batch. Shapes: messages[chunk_count]. */
void bp_stage_messages(bp_chunk_messages *messages, const bp_stage_spec *spec,
                       const bp_network *network);
/** Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_stage_new(bp_stage **out, const bp_mesh *mesh, bp_network *network,
                    const bp_stage_spec *spec);
void bp_stage_free(bp_stage **stage);

typedef struct bp_stage_step {
    const bp_batch *batch; /* of micro_batches * B examples */
    int64_t step, first_slot;
    bool second_text; /* bp_pass.second_text */
    float loss_weight[BP_TERMS];
    float states_weight;  /* of a place whose states are compared with a teacher's, */
    double *states_sums;  /* and the sums of their losses, one a micro-batch; NULL: none are */
    float balance_weight; /* of a place's balance loss, and its sums likewise */
    double *balance_sums;
    int64_t *expert_loads; /* [layers][E] the rows that chose each expert are added; NULL: not
                              asked */
    /* callbacks on the way, with `context`; NULL: none */
    void (*needs)(void *context, int block);    /* a block is about to run forward */
    void (*is_whole)(void *context, int group); /* the sum of a group's gradients, in `gradient` */
    void *context;
} bp_stage_step;

/** One step's micro-batches: stage->gradient holds the sum of their gradients; of each term t
 * loss_sums[t * stride + micro-batch] is filled on the stage of the term's head (elsewhere zero),
 * step->states_sums[micro-batch] on the stages of compared layers. Collective over mesh->pipeline
 * and mesh->tensor. */
void bp_stage_accumulate(bp_stage *stage, const bp_stage_step *step, double *loss_sums,
                         int64_t stride);

/** The input of an evaluation. If blocks carry a state, row r leaves its own in kept row
 * first_window + r (bp_carry.kept), and begins with what it finds there, or with zeros. */
typedef struct bp_evaluation {
    const bp_batch *batch;
    int64_t first_window;
    bool resumes;
    int64_t *right; /* targets of term 0 whose logit is the highest are added; NULL: not wanted */
    int32_t *predicted; /* [B][targets of term 0] of those that are scored the outcomes with the
                           highest logit, on the last stage; NULL: not wanted */
} bp_evaluation;

/** Forward only, without dropout, of B <= most.B examples of T <= most.T places: of each term sum
 * and count of the scored targets' losses, on the last stage (elsewhere zero). Collective over
 * mesh->pipeline and mesh->tensor. */
void bp_stage_evaluate(bp_stage *stage, const bp_evaluation *of, double loss_sum[BP_TERMS],
                       int64_t loss_count[BP_TERMS]);

#endif
