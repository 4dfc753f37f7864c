/* A network behind the face of models: forward only, over the pipeline and tensor ranks of one
 * model group. */
#ifndef BP_MODELS_NETWORK_MODEL_PRIV_H
#define BP_MODELS_NETWORK_MODEL_PRIV_H

#include "io/checkpoint/checkpoint.h"
#include "models/family.h"
#include "models/model.h"

/* Another matrix for the logits; empty on other stages, and where a rank has no vocabulary. */
typedef struct added_head {
    float *values;
    bp_weight *map;
} added_head;

typedef struct network_model {
    bp_model face;
    const bp_mesh *mesh; /* borrowed */
    bp_gemm *gemm;
    bp_network *network;
    float *values;
    bp_model_shape shape;
    int64_t C;
    int32_t *window; /* [context + 1] that an example is made of */
    char *memory;    /* of one piece: hidden and scratch */
    size_t memory_bytes;
    added_head *heads; /* [head_count] */
    int64_t head_count;
} network_model;

bool network_is_last(const network_model *self);
/** On the last stage. */
const bp_block *network_head(const network_model *self);

/** Collective over mesh->member. info: kind, statistics, width, context and the vocabulary are
 * filled.
 */
bp_err bp_network_model_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                             bp_checkpoint *checkpoint);

/** As bp_model_new. */
bp_err bp_network_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model_shape *shape, uint64_t seed);

/** bp_model_estimate of a model of this shape. */
bp_err bp_network_model_estimate(bp_model_memory *out, const bp_model_shape *shape,
                                 const bp_config *config, const bp_model_task *task);

#endif
