/* Gradients over ranks: summed over data ranks and over the two holders of the tied embedding, and
 * their norm. */
#ifndef BP_ENGINE_GRADIENT_H
#define BP_ENGINE_GRADIENT_H

#include "mesh/mesh.h"
#include "nn/network.h"

/** Floats of scratch that both functions below need. */
int64_t bp_gradient_scratch(const bp_mesh *mesh, const bp_network *network);

/** Each data rank is left with the sum over data ranks of its shard of every group
 * (bp_optimizer_shard); the tied group is summed over the first and last stage too. Collective over
 * mesh->data and mesh->pipeline. */
void bp_gradient_reduce(const bp_mesh *mesh, const bp_network *network, float *gradients,
                        float *scratch);

/** The norm of the whole gradient from its shards: sums of squares over blocks of 4,096 floats,
 * added in index order, so that the bits are the same at any number of data ranks. Collective over
 * mesh->member; equal on all its ranks. */
double bp_gradient_norm(const bp_mesh *mesh, const bp_network *network, const float *gradients,
                        float *scratch);

#endif
