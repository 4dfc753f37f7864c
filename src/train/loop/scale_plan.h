/* The meshes of a planned job, best first: step time, memory, messages, files. */
#pragma once

#include "train/loop/memory/memory.h"
#include "train/scale/step_time.h"

/** The known error of an estimated step (docs/measurements/scale.md): against runs of 1 to 4 ranks,
 * and of a simulated network at 64 to 1,024. */
#define BP_SCALE_ERROR_RUNS      10 /* % */
#define BP_SCALE_ERROR_SIMULATED 5  /* % */

/** A mesh, and how its step would be. */
typedef struct bp_scale_row {
    memory_case one;
    bp_step_time time;
    double busy; /* the share of a step that the model's FLOPs take, on ranks that only compute */
    double of_node; /* for rows that are shown: its speed over (one node's speed times the nodes) */
    int64_t node_bytes; /* memory of the fullest node */
    bool configured;    /* it is the configuration's own */
} bp_scale_row;

#define BP_SCALE_ROWS_SHOWN 12

typedef struct bp_scale_plan {
    bp_scale_row *rows; /* those that fit, and the configuration's own; best first */
    int count;
    bp_network_rates rates;
    const char *flops_from; /* the source of rates.flops */
    int ranks, nodes;
    /* The fastest mesh of fewer ranks a node, each with `threads` times the threads, memory and
     * speed; threads 0: none fits, or a node has one rank. */
    bp_scale_row fewer;
    int threads;
    /* files and bytes of a checkpoint; files opened and bytes read by a restart */
    double checkpoint_files, checkpoint_bytes, restart_opens, restart_bytes;
} bp_scale_plan;

/** Search. Needs self->estimate.node and .peak (of all ranks). Local. Owns: plan->rows is the
 * caller's (bp_free). Errors: those of bp_network_rates_read; BP_ERR_SYSTEM. */
bp_err bp_scale_plan_find(bp_scale_plan *plan, const trainer *self, const bp_planned_world *asked);
/** As a table for people, through bp_log. Local. */
void bp_scale_plan_print(const trainer *self, const bp_scale_plan *plan);
/** Write the configured mesh's step as JSON (train/scale/step_json.h). Local. Errors: BP_ERR_IO,
 * BP_ERR_CREATE. */
bp_err bp_scale_plan_write(const trainer *self, const bp_scale_plan *plan, const char *path);
