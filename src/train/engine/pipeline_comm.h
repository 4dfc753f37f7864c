/* Messages of one direction between a pipeline stage and its neighbours: activations forward, or
 * gradients backward. Receives are posted before their action is due, and sends leave from buffers
 * of their own, so that transfers overlap with the stage's compute. */
#ifndef BP_TRAIN_ENGINE_PIPELINE_COMM_H
#define BP_TRAIN_ENGINE_PIPELINE_COMM_H

#include "base/mem.h"
#include "mesh/collective.h"
#include "train/engine/schedule.h"

/** What a chunk of a stage gets and passes on, in floats. */
typedef struct bp_chunk_messages {
    int64_t input, output, input_gradient, output_gradient;
} bp_chunk_messages;

/** What both directions share; borrowed. */
typedef struct bp_stage_schedule {
    bp_pipeline pipeline;
    int stage;
    const bp_action *actions; /* of the stage, in order */
    MPI_Comm comm;            /* of the pipeline */
    int64_t floats;           /* of the largest message, and of all that is between blocks */
    const bp_chunk_messages *messages; /* [pipeline.chunks] */
} bp_stage_schedule;

typedef struct bp_pipeline_comm {
    const bp_stage_schedule *schedule;
    bool backward;
    float *work; /* [floats] where an action finds its input, and leaves its result */
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

/** A step begins: its first receives are posted. */
void bp_pipeline_comm_begin(bp_pipeline_comm *comm);
/** Wait for the input of `action`, if it has one: it is in `work`. The next receive is posted. */
void bp_pipeline_comm_take(bp_pipeline_comm *comm, const bp_action *action);
/** Start to send what is in `work`, if a neighbour needs the result of `action`; `work` is another
 * buffer then. */
void bp_pipeline_comm_send(bp_pipeline_comm *comm, const bp_action *action);
/** A step ends: all sends are complete. */
void bp_pipeline_comm_end(bp_pipeline_comm *comm);

#endif
