/* A network behind the face of models: forward only, over the pipeline and tensor ranks of one
 * model group. */
#ifndef BP_MODELS_NETWORK_MODEL_PRIV_H
#define BP_MODELS_NETWORK_MODEL_PRIV_H

#include "io/checkpoint/checkpoint.h"
#include "models/network_model.h"

/** Collective over mesh->member. info: kind, statistics, width, context and the
 * vocabulary are filled. keeps_head: for bp_model_ops.head_weights.
 */
bp_err bp_network_model_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                             bp_checkpoint *checkpoint, bool keeps_head);

/** As bp_model_new. */
bp_err bp_network_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model_shape *shape, uint64_t seed);

#endif
