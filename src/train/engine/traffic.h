/* Messages of one direction between a pipeline stage and its neighbours: activations forward, or
 * gradients backward. Receives are posted before their action comes up, and sends leave from
 * buffers of their own, so that both travel while the stage computes. */
#ifndef BP_TRAIN_ENGINE_TRAFFIC_H
#define BP_TRAIN_ENGINE_TRAFFIC_H

#include "base/mem.h"
#include "mesh/collective.h"
#include "train/engine/schedule.h"

/** What both directions go by; borrowed. */
typedef struct bp_route {
    bp_pipeline pipeline;
    int stage;
    const bp_action *actions; /* of the stage, in order */
    MPI_Comm comm;            /* of the pipeline */
    int64_t floats;           /* of a message */
} bp_route;

typedef struct bp_traffic {
    const bp_route *route;
    bool backward;
    float *work; /* [floats] where an action finds its input, and leaves its result */
    float *coming[BP_RECEIVES_AHEAD], *leaving[BP_SENDS_BEHIND];
    bp_transfer receives[BP_RECEIVES_AHEAD], sends[BP_SENDS_BEHIND];
    int64_t looked_at; /* actions whose receives are posted */
    int64_t posted, taken, sent;
} bp_traffic;

/** Buffers of one direction. */
int64_t bp_traffic_buffers(const bp_pipeline *pipeline);
/** Carve the buffers. */
void bp_traffic_init(bp_traffic *traffic, const bp_route *route, bool backward, bp_arena *arena);

/** A step begins: its first receives are posted. */
void bp_traffic_begin(bp_traffic *traffic);
/** Wait for the input of `action`, if it has one: it lies in `work`. The next receive is posted. */
void bp_traffic_take(bp_traffic *traffic, const bp_action *action);
/** Start to send what lies in `work`, if a neighbour needs the result of `action`; `work` is
 * another buffer then. */
void bp_traffic_send(bp_traffic *traffic, const bp_action *action);
/** A step ends: all has left. */
void bp_traffic_end(bp_traffic *traffic);

#endif
