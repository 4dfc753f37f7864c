/* Fresh networks have gains of 1 and biases of 0, which hide mistakes: fixtures of tests have
 * random ones. */
#pragma once

#include "base/rng.h"
#include "models/network/network.h"

#include <stdbool.h>

static inline bool bp_test_is_constant(const bp_param *param)
{
    return param->init == BP_INIT_ZERO || param->init == BP_INIT_ONE ||
           param->init == BP_INIT_CONSTANT ||
           (param->init == BP_INIT_NORMAL && param->init_std == 0);
}

/** Add noise of -by to by to what begins with one value: gains, biases, tables of zeros; but not to
 * adapters, which tests move themselves. A function of the seed, a tensor's name and the place in
 * the whole tensor: the same for every split. bp_network_refresh() comes after it. */
static inline void bp_test_perturb(bp_network *network, uint64_t seed, float by)
{
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count && !network->groups[g].added; k++) {
            bp_param *param = &network->groups[g].params[k];
            int64_t columns = param->dims == 2 ? param->extent[1] : 1,
                    all = param->dims == 2 ? param->shape[1] : 1,
                    first = param->dims == 2 ? param->offset[1] : 0, name = 0;

            for (const char *c = param->name; *c; c++)
                name = name * 31 % 1000003 + *c;
            bp_rng_key key = bp_rng_key_of(seed, BP_RNG_TEST, name, 0, 0);
            for (int64_t i = 0; i < bp_param_floats(param) && bp_test_is_constant(param); i++) {
                int64_t place = (param->offset[0] + i / columns) * all + first + i % columns;

                param->value[i] += by * (2 * (float)bp_rng_uniform(&key, (uint64_t)place) - 1);
            }
        }
}
