/* The feed-forward language model of Bengio et al. 2003. */
#ifndef BP_MODELS_FEEDFORWARD_FEEDFORWARD_H
#define BP_MODELS_FEEDFORWARD_FEEDFORWARD_H

#include "models/family.h"

/** Where its own sizes are in bp_model_shape. */
enum { BP_FEEDFORWARD_ORDER, BP_FEEDFORWARD_EMBEDDING, BP_FEEDFORWARD_DIRECT };

extern const bp_model_family bp_feedforward_family;

#endif
