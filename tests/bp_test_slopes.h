/* A stage's gradients against slopes of its loss, along each tensor's gradient and along signs, by
 * central differences. */
#pragma once

#include "bp_test.h"

#include "base/mem.h"
#include "models/network/network.h"
#include "train/engine/stage.h"

#include <math.h>
#include <string.h>

typedef struct bp_test_slopes {
    bp_network *network;
    bp_stage *stage;               /* has the gradient of the loss */
    double (*loss)(void *context); /* of the network's values as they are now */
    void *context;
    /* Is the loss constant along it, so that its gradient is only rounding? NULL: all gradients are
     * above 1e-4. */
    bool (*is_constant)(const void *context, const bp_param *param);
    double relative, absolute; /* tolerance */
} bp_test_slopes;

/* Of the loss along a direction of this length. */
static inline double bp_test_slope(const bp_test_slopes *of, bp_param *param, const float *along,
                                   double length, double step)
{
    int64_t n = bp_param_floats(param);
    float *kept = bp_alloc("test", n, sizeof *kept);
    double loss[2];

    memcpy(kept, param->value, (size_t)n * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            param->value[i] = kept[i] + (float)((side ? step : -step) * (double)along[i] / length);
        loss[side] = of->loss(of->context);
    }
    memcpy(param->value, kept, (size_t)n * sizeof *kept);
    bp_free(kept);
    return (loss[1] - loss[0]) / (2 * step);
}

/* norm: of the gradient. A loss may be curved, or bend within a step: then a smaller one shows its
 * slope. */
static inline void bp_test_check_slope(const bp_test_slopes *of, bp_param *param,
                                       const float *gradient, const float *along, double norm)
{
    static const double STEPS[] = {2e-3, 5e-4, 1e-4};
    double slope = 0, expected = 0, length = 0;

    for (int64_t i = 0; i < bp_param_floats(param); i++) {
        expected += (double)gradient[i] * (double)along[i];
        length += (double)along[i] * (double)along[i];
    }
    length = sqrt(length);
    expected /= length;
    for (size_t k = 0; k < sizeof STEPS / sizeof *STEPS; k++) {
        slope = bp_test_slope(of, param, along, length, STEPS[k]);
        if (fabs(slope - expected) <= of->relative * norm + of->absolute)
            return;
    }
    fail_msg("%s: the slope along %s is %g, the gradient says %g", param->name,
             along == gradient ? "the gradient" : "signs", slope, expected);
}

/* Along signs that depend on nothing: a gradient that lacks some of its values, or all, is right
 * along itself. */
static inline void bp_test_check_signs(const bp_test_slopes *of, bp_param *param,
                                       const float *gradient, double norm)
{
    int64_t n = bp_param_floats(param);
    float *signs = bp_alloc("test", n, sizeof *signs);

    for (int64_t i = 0; i < n; i++)
        signs[i] = ((uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15)) >> 63 ? 1 : -1;
    bp_test_check_slope(of, param, gradient, signs, norm);
    bp_free(signs);
}

/** Check each tensor that is trained; returns how many had a slope. */
static inline int bp_test_check_slopes(const bp_test_slopes *of)
{
    int64_t floats = of->network->trained_floats;
    float *gradients = bp_alloc("test", floats, sizeof *gradients);
    int checked = 0;

    memcpy(gradients, of->stage->gradient, (size_t)floats * sizeof *gradients);
    for (int g = 0; g < of->network->group_count; g++)
        for (int k = 0; k < of->network->groups[g].count && !of->network->groups[g].frozen; k++) {
            bp_group *group = &of->network->groups[g];
            bp_param *param = &group->params[k];
            const float *gradient = gradients + group->place + param->place;
            double norm = 0;

            for (int64_t i = 0; i < bp_param_floats(param); i++)
                norm += (double)gradient[i] * (double)gradient[i];
            norm = sqrt(norm);
            bp_test_check_signs(of, param, gradient, norm);
            if (of->is_constant && (of->is_constant(of->context, param) || norm < 1e-3)) {
                assert_true(norm < 1e-2);
                continue;
            }
            assert_true(norm > 1e-4);
            bp_test_check_slope(of, param, gradient, gradient, norm);
            checked++;
        }
    bp_free(gradients);
    return checked;
}

/** bp_test_slopes.is_constant: biases of keys, a constant in all of a query's scores. */
static inline bool bp_test_is_key_bias(const void *context, const bp_param *param)
{
    (void)context;
    return strstr(param->name, ".k.bias") != NULL;
}
