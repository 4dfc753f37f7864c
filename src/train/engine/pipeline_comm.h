/* Messages of one direction between a pipeline stage and its neighbours: activations forward, or
 * gradients backward. Receives are posted before their action is due, and sends leave from buffers
 * of their own, so that transfers overlap with the stage's compute. */
#pragma once

#include "base/mem.h"
#include "mesh/collective.h"
#include "train/engine/schedule.h"

/** What a chunk of a stage receives and sends, in floats. */
typedef struct bp_chunk_messages {
    int64_t input, output, input_gradient, output_gradient;
} bp_chunk_messages;

/** What both directions share; borrowed. */
typedef struct bp_stage_schedule {
    bp_pipeline pipeline;
    int stage;
    const bp_action *actions;          /* of the stage, in order */
    MPI_Comm comm;                     /* of the pipeline */
    int64_t floats;                    /* the most between two blocks, and so of any message */
    const bp_chunk_messages *messages; /* [pipeline.chunks] */
} bp_stage_schedule;

typedef struct bp_pipeline_comm {
    const bp_stage_schedule *schedule;
    bool backward;
    float *work; /* [floats] an action's input, then its result */
    float *coming[BP_RECEIVES_AHEAD], *leaving[BP_SENDS_IN_FLIGHT];
    bp_transfer receives[BP_RECEIVES_AHEAD], sends[BP_SENDS_IN_FLIGHT];
    int64_t looked_at; /* actions whose receives are posted */
    int64_t posted, taken, sent;
} bp_pipeline_comm;

/** Buffers of one direction. */
int64_t bp_pipeline_comm_buffers(const bp_pipeline *pipeline);
/** Allocate the buffers from the arena. */
void bp_pipeline_comm_init(bp_pipeline_comm *comm, const bp_stage_schedule *schedule, bool backward,
                           bp_arena *arena);

/** Begins a step: posts its first receives. */
void bp_pipeline_comm_begin(bp_pipeline_comm *comm);
/** Wait for the input of `action`, if it has one, which is then in `work`. Posts the next
 * receive. */
void bp_pipeline_comm_take(bp_pipeline_comm *comm, const bp_action *action);
/** Start to send `work` if a neighbour needs the result of `action`; `work` is then another
 * buffer. */
void bp_pipeline_comm_send(bp_pipeline_comm *comm, const bp_action *action);
/** Ends a step: waits for all sends. */
void bp_pipeline_comm_end(bp_pipeline_comm *comm);
