/* States of a network's layers, for bp_model. */
#pragma once

#include "models/network/network_inside_priv.h"

/** Zeros for a model without states. */
bp_state_form network_state_form(const bp_model_shape *shape);

/** bp_model_ops.states. */
bp_err network_states(bp_model *model, const bp_model_text *text, float *states);

/** bp_model_ops.layers. */
bp_err network_layers(bp_model *model, const bp_model_batch *batch, float *states);

/** bp_model_ops.keys. */
bp_err network_keys(bp_model *model, const bp_model_batch *batch, float *values, float *keys);
