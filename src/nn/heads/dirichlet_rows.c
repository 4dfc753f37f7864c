/* The loss of rows whose logits are the logarithms of a Dirichlet's parameters. Called by
 * lm_head_chunk.c and lm_head_backward.c. */
#include "nn/heads/dirichlet_rows_priv.h"

#include "mesh/collective.h"
#include "statistics/dirichlet.h"

#include <math.h>

/* The target of row r: for a class, its own share plus the smoothing's; outside the domain,
 * flat. */
static double beta_of(const bp_dirichlet_shape *shape, int32_t target, int64_t k)
{
    double least = shape->smoothing;

    if (target == shape->classes)
        return 1;
    return shape->precision * (k == target ? 1 - least * (double)(shape->classes - 1) : least);
}

static double beta0_of(const bp_dirichlet_shape *shape, int32_t target)
{
    return target == shape->classes ? (double)shape->classes : shape->precision;
}

void dirichlet_rows_forward(double *loss, const bp_dirichlet_shape *shape, const bp_logit_rows *in,
                            const float *max, const double *sums, MPI_Comm tensor)
{
    for (int64_t r = 0; r < in->rows; r++) {
        loss[r] = 0;
        for (int64_t v = 0; v < in->V && in->targets[r] >= 0; v++)
            loss[r] += bp_dirichlet_term(exp((double)in->logits[r * in->V + v]),
                                         beta_of(shape, in->targets[r], in->first + v),
                                         beta0_of(shape, in->targets[r]));
    }
    bp_all_sum_double(loss, in->rows, tensor);
    for (int64_t r = 0; r < in->rows; r++)
        if (in->targets[r] >= 0)
            loss[r] +=
                lgamma(beta0_of(shape, in->targets[r])) - lgamma(exp((double)max[r]) * sums[r]);
}

void dirichlet_rows_gradient(float *logits, const bp_dirichlet_shape *shape,
                             const bp_logit_rows *in, const float *max, const double *sums,
                             const float *weight)
{
    for (int64_t r = 0; r < in->rows; r++) {
        int32_t target = in->targets[r];
        double alpha0 = exp((double)max[r]) * sums[r];

        for (int64_t v = 0; v < in->V; v++) {
            double alpha = exp((double)in->logits[r * in->V + v]), slope = 0;

            if (target >= 0)
                slope =
                    alpha * bp_dirichlet_slope(alpha, alpha0, beta_of(shape, target, in->first + v),
                                               beta0_of(shape, target));
            logits[r * in->V + v] = (float)((double)weight[r] * slope);
        }
    }
}
