/* Gradients over ranks: summed over data ranks, over tensor ranks that share out rows and over the
 * holders of tied parameters; and their norm. */
#pragma once

#include "mesh/async.h"
#include "mesh/mesh.h"
#include "models/network/network.h"

/** Floats of scratch that the sums and, after them, the norm need. */
int64_t bp_gradient_scratch(const bp_mesh *mesh, const bp_network *network);

/** The sums of one step, each started as soon as its group's gradient is whole, while backward goes
 * on with other blocks. All is borrowed. */
typedef struct bp_reduction {
    const bp_mesh *mesh;
    const bp_network *network;
    bp_async *async; /* of mesh->data; its part is mesh->expert_data */
    float *gradients, *scratch;
    float *squares; /* laid out like gradients, and summed with them; NULL if not wanted */
    int64_t job;    /* the last job that was started; -1: none to wait for */
    int started;    /* groups */
} bp_reduction;

/** Start the reduce-scatter of group `g`, whose gradient is complete on this rank: each data rank
 * gets its shard (bp_optimizer_shard). All ranks start groups in the same order. Collective over
 * mesh->data. */
void bp_gradient_start(bp_reduction *reduction, int g);
/** Wait for the sums of all groups, which were all started. Then sum the tied group over the first
 * and last stage, and over tensor ranks the replicated groups of which each rank has only a part
 * (sequence parallelism). Collective over mesh->data, mesh->pipeline and mesh->tensor. */
void bp_gradient_finish(bp_reduction *reduction);

/** The norm of the whole gradient from its shards: sums of squares over blocks of 4,096 floats,
 * added in index order, so that the bits are the same at any number of data ranks. Collective over
 * mesh->member; equal on all its ranks. */
double bp_gradient_norm(const bp_mesh *mesh, const bp_network *network, const float *gradients,
                        float *scratch);
