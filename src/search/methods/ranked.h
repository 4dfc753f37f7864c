/* Features of shapes, by which models are ranked. */
#pragma once

#include "search/nas.h"

/** x[d <= NAS_FEATURES]: the value and its logarithm for each axis, and the logarithms of
 * parameters and of training FLOPs a token. Returns d. Local. */
int64_t nas_features(const nas *self, const nas_point *point, const bp_model_shape *shape,
                     double *x);
void nas_feature_name(const nas *self, int64_t f, char *out, size_t bytes);
