/* The order in which a pipeline stage runs its micro-batches forward and backward.
 * Sources: GPipe, Huang et al. 2019; 1F1B (PipeDream-Flush) and the interleaved schedule, Narayanan
 * et al. 2021, "Efficient large-scale language model training on GPU clusters", section 2.2. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_schedule { BP_GPIPE, BP_1F1B, BP_INTERLEAVED } bp_schedule;

/** A pipeline: each of `stages` ranks has `chunks` runs of blocks; chunk c of stage s is run
 * c stages + s of the model. `micro_batches` of a step go through it. */
typedef struct bp_pipeline {
    bp_schedule schedule;
    int stages,
        chunks; /* chunks > 1 only if interleaved; micro_batches is then a multiple of `stages` */
    int64_t micro_batches;
} bp_pipeline;

typedef struct bp_action {
    bool backward;
    int chunk;
    int64_t micro_batch;
} bp_action;

/** The share of a step that stages of equal cost compute; the rest is the pipeline bubble. v G / (v
 * G + P - 1) for P stages, v chunks, G micro-batches. */
double bp_schedule_busy(const bp_pipeline *pipeline);
/** Actions of a stage in a step: each micro-batch goes both ways through each chunk. */
int64_t bp_schedule_actions(const bp_pipeline *pipeline);
/** Fill actions[bp_schedule_actions] for stage `stage`. In each chunk backward goes in slot order,
 * in all schedules, so that gradients are summed by the same tree. */
void bp_schedule_fill(bp_action *actions, const bp_pipeline *pipeline, int stage);
/** Micro-batches of a chunk whose activations are kept at once. */
int64_t bp_schedule_slots(const bp_pipeline *pipeline, int stage, int chunk);

/** Does an action need its neighbour's activation, or gradient; does a neighbour need its result?
 * Activations come from stage - 1 and go to stage + 1, gradients the other way, in a ring. */
bool bp_action_receives(const bp_pipeline *pipeline, int stage, const bp_action *action);
bool bp_action_sends(const bp_pipeline *pipeline, int stage, const bp_action *action);

/** Messages of one direction that a stage buffers: receives posted ahead of their action, and sends
 * that no rank has received yet. Enough for every schedule to end when a send ends only with its
 * receive. */
#define BP_RECEIVES_AHEAD  1
#define BP_SENDS_IN_FLIGHT 2
