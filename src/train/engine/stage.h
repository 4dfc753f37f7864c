/* The state of a pipeline stage: its memory, planned once, and one step's micro-batches forward and
 * backward through it. */
#pragma once

#include "mesh/mesh.h"
#include "models/network/network.h"
#include "train/engine/options.h"
#include "train/engine/pipeline_comm.h"

typedef struct bp_stage_spec {
    bp_extent most;        /* the largest micro-batch */
    int64_t micro_batches; /* of a step on this data rank */
    int stage, stages;
    bp_schedule schedule;
    bool tree;       /* gradients by the fixed tree, else one running sum */
    bool recompute;  /* keep only the blocks' inputs */
    int64_t restart; /* bp_pass.restart */
    bool squares;    /* also sum the squares of each micro-batch's gradients, by the tree */
} bp_stage_spec;

/** Bytes by kind, as the blocks report them. */
typedef struct bp_stage_bytes {
    size_t gradients, activations, scratch;
} bp_stage_bytes;

/** A run of blocks, and what it keeps. */
typedef struct bp_stage_chunk {
    int first, end;    /* of the network's blocks */
    int top;           /* the top of its stack of partial sums */
    int64_t slots;     /* micro-batches kept at once */
    size_t slot_bytes; /* bytes that its blocks keep of one micro-batch */
    char *kept;        /* [slots][slot_bytes] */
} bp_stage_chunk;

typedef struct bp_stage {
    bp_stage_spec spec;
    const bp_mesh *mesh; /* borrowed */
    bp_network *network; /* borrowed */
    float *gradient; /* [network->gradient_floats] the step's sum, after bp_stage_accumulate; the
                        bottom of the tree's stack */
    float **stack;   /* [depth] partial sums */
    float **squares; /* [depth] the same for squares: [0] the step's sum; NULL: not wanted */
    int depth;
    bp_action *actions; /* of a step */
    bp_stage_schedule schedule;
    bp_stage_chunk *chunks;             /* [schedule.pipeline.chunks] */
    bp_chunk_messages *messages;        /* [schedule.pipeline.chunks] */
    char *memory;                       /* all activations and scratch */
    char *again;                        /* with recompute: what one block keeps */
    bp_pipeline_comm forward, backward; /* this rank's rows of activations, and of their
                                     gradients */
    bp_arena scratch;
    const struct bp_teacher *teacher; /* borrowed; NULL if there is no teacher */
} bp_stage;

/** What stage `stage` does in a training with these settings on this many data ranks. */
bp_stage_spec bp_stage_spec_for(const bp_engine_spec *spec, const bp_model_shape *shape,
                                int data_ranks, int stage, int stages);
/** Floats that the blocks of a stage carry from a step to the next for this many batch slots. */
int64_t bp_engine_carried_floats(const bp_network *network, const bp_model_shape *shape,
                                 int64_t slots);
/** spec->most, and the memory lent to the last block. */
bp_extent bp_stage_most(const bp_stage_spec *spec, const bp_network *network);
bp_stage_bytes bp_stage_plan(const bp_stage_spec *spec, const bp_network *network);
/** What each chunk receives and sends for a micro-batch. Shapes: messages[chunk_count]. */
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
    float states_weight;  /* weight of a position whose states are compared with a teacher's, */
    double *states_sums;  /* and the sums of their losses by micro-batch; NULL if no states are
                             compared */
    float balance_weight; /* weight of a position's balance loss, and its sums by micro-batch */
    double *balance_sums;
    int64_t *expert_loads; /* [layers][E] counts of rows by expert are added; may be NULL */
    /* callbacks during the pass, with `context`; may be NULL */
    void (*needs)(void *context, int block);    /* a block is about to run forward */
    void (*is_whole)(void *context, int group); /* the sum of a group's gradients, in `gradient` */
    void *context;
} bp_stage_step;

/** Run one step's micro-batches: stage->gradient gets the sum of their gradients. For each term t,
 * fills loss_sums[t * stride + micro-batch] on the stage of the term's head (zero elsewhere), and
 * step->states_sums[micro-batch] on the stages of compared layers. Collective over mesh->pipeline
 * and mesh->tensor. */
void bp_stage_accumulate(bp_stage *stage, const bp_stage_step *step, double *loss_sums,
                         int64_t stride);

/** The input of an evaluation. If blocks carry a state, row r starts from kept row first_window + r
 * (bp_carry.kept), or from zeros, and leaves its state there. */
typedef struct bp_evaluation {
    const bp_batch *batch;
    int64_t first_window;
    bool resumes;
    int64_t *right; /* the number of targets of term 0 with the highest logit is added; NULL: not
                       wanted */
    int32_t *predicted; /* [B][targets of term 0] the outcome with the highest logit for each scored
                           target, on the last stage; NULL: not wanted */
} bp_evaluation;

/** Forward only, without dropout, for B <= most.B examples of T <= most.T positions. Returns for
 * each term the sum and count of the scored targets' losses, on the last stage (zero elsewhere).
 * Collective over mesh->pipeline and mesh->tensor. */
void bp_stage_evaluate(bp_stage *stage, const bp_evaluation *of, double loss_sum[BP_TERMS],
                       int64_t loss_count[BP_TERMS]);
