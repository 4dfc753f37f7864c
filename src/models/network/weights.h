/* The form in which models that are applied hold their weights: model.weights. */
#ifndef BP_MODELS_NETWORK_WEIGHTS_H
#define BP_MODELS_NETWORK_WEIGHTS_H

#include "base/config/config.h"
#include "math/gemm/linear.h"
#include "models/network/network.h"

#include <jansson.h>

extern const bp_option bp_weights_options[]; /* model.weights; of jobs that apply models */

/** Values of bp_weights_options (docs: --help). */
typedef struct bp_weights_keys {
    const char *weights; /* NULL: a job without the key */
} bp_weights_keys;

static inline const bp_weights_keys *bp_weights_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_weights_options);
}

bool bp_weights_are_q8(const bp_config *config);
/** The products of a model that is applied: math.precision is resolved. backward: not only forward.
 * Local. Errors: those of bp_gemm_new; BP_ERR_CONFIG weights in 8 bits have no backward products.
 */
bp_err bp_weights_gemm(bp_gemm **out, const bp_config *config, bool backward);
/** Tensor ranks cut rows of weights between blocks, so that each value is rounded as on one rank.
 * Local. Errors: BP_ERR_CONFIG they don't. */
bp_err bp_weights_check(const bp_network *network, const bp_config *config);
/** Adds "weights" to the "model" of a summary where it says what the digest does not. */
void bp_weights_record(json_t *summary, const bp_config *config);

#endif
