/* What tests of kernels share: a norm of float32 rows, and slopes by differences. */
#pragma once

#include "math/kernels/kernels.h"
#include "math_test.h"

static inline void norm(float *y, const float *x, const bp_norm *how, int64_t rows, int64_t C)
{
    bp_operand to = bp_operand_floats(y, rows, C);

    bp_layer_norm_forward(&to, NULL, how, &(bp_residual){.base = x});
}

/* The slope of sum(dy y) along x[i], by central differences of what `twin` computes. */
static inline double slope_at(double *x, int64_t i, const float *dy, double *y, int64_t n,
                              void (*twin)(double *y, const double *x, const void *context),
                              const void *context)
{
    double kept = x[i], step = 1e-5, loss[2] = {0, 0};

    for (int side = 0; side < 2; side++) {
        x[i] = kept + (side ? step : -step);
        twin(y, x, context);
        for (int64_t j = 0; j < n; j++)
            loss[side] += y[j] * (double)dy[j];
    }
    x[i] = kept;
    return (loss[1] - loss[0]) / (2 * step);
}
