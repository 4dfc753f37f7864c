/* model.weights: weights held in 8 bits. */
#include "models/network/weights.h"

#include "math/kernels/q8.h"
#include "math/math.h"

#include <inttypes.h>
#include <string.h>

const bp_option bp_weights_options[] = {
    {BP_CHOICE_KEY("model.weights", "auto", "auto|q8"),
     .help = "how products hold the model's weights: auto: in math.precision; q8: in 8 bits, "
             "blocks of 32 values with one scale",
     .at = BP_AT(bp_weights_keys, weights)},
    {.key = NULL},
};

bool bp_weights_are_q8(const bp_config *config)
{
    const char *weights = bp_weights_keys_of(config)->weights;

    return weights && strcmp(weights, "q8") == 0;
}

bp_err bp_weights_gemm(bp_gemm **out, const bp_config *config, bool backward)
{
    bp_precision precision;
    bp_err err = bp_math_precision(config, &precision);

    if (err == BP_OK && backward && bp_weights_are_q8(config))
        err = BP_FAIL(BP_ERR_CONFIG, "model.q8_backward",
                      "gradients need weights as they are, not in 8 bits: at model.weights = q8; "
                      "leave it out");
    if (err == BP_OK)
        err = (backward ? bp_gemm_new : bp_gemm_new_forward)(out, precision);
    if (err == BP_OK && bp_weights_are_q8(config))
        bp_gemm_hold_q8(*out);
    return err;
}

static bool is_cut_within_a_block(const bp_param *param)
{
    int64_t end = param->offset[1] + param->extent[1];

    return param->dims == 2 && param->product_first &&
           (param->offset[1] % BP_Q8_BLOCK != 0 ||
            (end % BP_Q8_BLOCK != 0 && end != param->shape[1]));
}

bp_err bp_weights_check(const bp_network *network, const bp_config *config)
{
    if (!bp_weights_are_q8(config))
        return BP_OK;
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++) {
            const bp_param *param = &network->groups[g].params[k];

            if (is_cut_within_a_block(param))
                return BP_FAIL(BP_ERR_CONFIG, "model.q8_cut",
                               "model.weights = q8 scales blocks of %d values, but mesh.tensor "
                               "cuts the rows of %s, of %" PRId64 ", at %" PRId64
                               ": at mesh.tensor; use fewer tensor ranks, or model.weights=auto",
                               BP_Q8_BLOCK, param->name, param->shape[1],
                               param->offset[1] % BP_Q8_BLOCK != 0
                                   ? param->offset[1]
                                   : param->offset[1] + param->extent[1]);
        }
    return BP_OK;
}

void bp_weights_record(json_t *summary, const bp_config *config)
{
    if (bp_weights_are_q8(config))
        (void)json_object_set_new(json_object_get(summary, "model"), "weights", json_string("q8"));
}
