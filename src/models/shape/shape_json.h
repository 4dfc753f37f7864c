/* A model's shape as the "model" object of a checkpoint's state, for callers that know its family;
 * others use family.h. */
#pragma once

#include "models/family.h"

/** bp_model_shape_read for a model of this family. */
bp_err bp_model_shape_read_as(bp_model_shape *shape, const bp_model_family *family,
                              const json_t *state, const char *where);
