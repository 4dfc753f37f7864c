/* Vectors of texts: the linear map that may follow pooling, as sentence encoders have it. */
#ifndef BP_MODELS_TASK_VECTORS_H
#define BP_MODELS_TASK_VECTORS_H

#include "models/family.h"
#include "nn/core/layers.h"

/** The tensors of a checkpoint whose state has "vectors": {"map": {"columns": D, "activation":
 * "tanh", "bias": true}}. */
#define BP_VECTOR_WEIGHT "vector.weight" /* [D][width] */
#define BP_VECTOR_BIAS   "vector.bias"   /* [D] */

/** The name of an activation after the map, by its number from 1; NULL: there are no more. */
const char *bp_task_vector_activation(int64_t number);
/** Set the map of a pooling block from the shape's task. */
void bp_task_set_vector(bp_pooling_shape *out, const bp_model_shape *shape);

#endif
