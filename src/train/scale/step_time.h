/* The time of a step, from what its stages do and what the network reaches. Source: ours; the same
 * program runs under SimGrid's SMPI (tests/bench/scale). Assumes that all ranks of a stage are
 * alike, that messages of one kind share a node's link, and that messages of different kinds never
 * compete. */
#pragma once

#include "train/scale/node_links.h"
#include "train/scale/step_program.h"

/** Seconds of a step. The parts are those of the busiest stage, and sum to `step`. */
typedef struct bp_step_time {
    double step;
    double compute;    /* mean over stages: the time with a perfectly balanced cut */
    double cut;        /* what the busiest stage computes beyond that */
    bool of_head;      /* the busiest stage is the last one */
    double tensor;     /* sums and gathers of tensor ranks */
    double experts;    /* waiting for rows of experts on other ranks, and copies within a node */
    double sums;       /* waiting for sums of gradients, and what they take of compute */
    double gather;     /* the same of gathers */
    double bubble;     /* waiting for other stages; fill and drain */
    double link_bytes; /* that leave the busiest node in a step */
} bp_step_time;

/** The name of the largest part: "compute" if no other part exceeds 5 % of the step. */
const char *bp_step_bound(const bp_step_time *time);

/** The time of a step in a series of equal steps. rates->flops must be set. Local. */
void bp_step_time_of(bp_step_time *out, const bp_step_program *program,
                     const bp_network_rates *rates, int nodes);

/** The time of a reduce-scatter, or gather, of a group over data ranks, and the core time that it
 * takes; bytes: sent by a rank to other nodes. Pure. */
typedef struct bp_step_collective {
    double seconds, stolen, link_bytes;
    double pauses; /* of the seconds: those that the progress thread oversleeps beside compute */
    int crossing;  /* ranks of a node that send at once in the farthest round */
} bp_step_collective;
bp_step_collective bp_step_collective_of(const bp_step_program *program, const bp_step_group *group,
                                         bool gathers, const bp_network_rates *rates,
                                         const bp_node_layout *layout);
