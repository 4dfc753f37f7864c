/* The form in which inference jobs hold models' weights: model.weights. */
#pragma once

#include "base/config/config.h"
#include "math/gemm/linear.h"
#include "models/network/network.h"

#include <jansson.h>

extern const bp_option bp_weights_options[]; /* model.weights; of jobs that apply models */

/** Values of bp_weights_options (docs: --help). */
typedef struct bp_weights_keys {
    const char *weights; /* NULL in a job without the key */
} bp_weights_keys;

static inline const bp_weights_keys *bp_weights_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_weights_options);
}

bool bp_weights_are_q8(const bp_config *config);
/** The matrix products of a model for inference: math.precision is resolved. backward: also for
 * backward passes. Local. Errors: those of bp_gemm_new; BP_ERR_CONFIG backward with 8-bit weights.
 */
bp_err bp_weights_gemm(bp_gemm **out, const bp_config *config, bool backward);
/** Tensor ranks cut rows of weights between blocks, so that each value is rounded as on one rank.
 * Local. Errors: BP_ERR_CONFIG if they do not. */
bp_err bp_weights_check(const bp_network *network, const bp_config *config);
/** Adds "weights" to the "model" of a summary where the digest does not determine the form. */
void bp_weights_record(json_t *summary, const bp_config *config);
