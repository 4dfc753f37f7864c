/* A network with the interface of models: forward only, over the pipeline and tensor ranks of one
 * model group. */
#ifndef BP_MODELS_NETWORK_MODEL_PRIV_H
#define BP_MODELS_NETWORK_MODEL_PRIV_H

#include "io/checkpoint/checkpoint.h"
#include "models/network_model.h"

/** Collective over mesh->member. info: kind, statistics, width, context and the
 * vocabulary are filled. */
bp_err bp_network_model_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                             bp_checkpoint *checkpoint, bp_model_wish wish);

/** Inputs that a window may have where `wish` are wanted (0: none are): more than the shape's only
 * where no parameter is of a position. */
int64_t network_model_context(const bp_model_shape *shape, int64_t wish);

/** As bp_model_new. */
bp_err bp_network_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model_shape *shape, uint64_t seed);

#endif
