/* Vectors of texts: the linear map that may follow pooling, as sentence encoders have it. */
#pragma once

#include "models/family.h"
#include "nn/core/layers.h"

/** The tensors of a checkpoint whose state has "vectors": {"map": {"columns": D, "activation":
 * "tanh", "bias": true}}. */
#define BP_VECTOR_WEIGHT "vector.weight" /* [D][width] */
#define BP_VECTOR_BIAS   "vector.bias"   /* [D] */

/** The name of an activation after the map, by its number from 1; NULL: there are no more. */
const char *bp_task_vector_activation(int64_t number);
/** The same model without its head: bp_model_distribution returns the pooled state of a text (any
 * bp_pool but NONE), or what the map in "vectors" of the checkpoint's state makes of it. `where`:
 * the checkpoint, for messages. Errors: BP_ERR_CONFIG its family has no such state; BP_ERR_FORMAT
 * an unknown map. */
bp_err bp_task_give_vectors(bp_model_shape *shape, const json_t *state, int64_t pool,
                            const char *where);
/** Set the map of a pooling block from the shape's task. */
void bp_task_set_vector(bp_pooling_shape *out, const bp_model_shape *shape);
