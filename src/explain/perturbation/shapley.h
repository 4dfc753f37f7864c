/* Shapley values of the features: exact, and by a regression on sampled sets. Local: no MPI.
 * Source: Lundberg and Lee 2017, "A unified approach to interpreting model predictions", section
 * 4.1. */
#pragma once

#include "explain/perturbation/surrogate.h"

/** The most features for which all sets are evaluated. */
#define EXPLAIN_SHAPLEY_ALL 12

/** phi[M] of value[2^M]: bit f of a set's number is 1 if it has feature f. */
void explain_shapley_exact(double *phi, int64_t M, const double *value);

/** Text 0 has all features, text 1 none. For the others, the number k of features is drawn with
 * probability proportional to (M - 1) / (k (M - k)), then the set uniformly: the weights of
 * Shapley's kernel. Row r depends only on the key and r. */
void explain_shapley_draw(explain_masks *out, const bp_rng_key *key);

/** phi[M] by least squares over the texts from 2 on, with value[0] - value[1] as the sum of all:
 * the last feature takes the rest, so the sum is exact. weights[samples - 2]; NULL: 1 each.
 * error[M]: the standard errors from sampling texts (White's, for random regressors), NAN if the
 * texts do not determine the values; may be NULL.
 * Source: Lundberg and Lee 2017, theorem 2; White 1980, "A heteroskedasticity-consistent
 * covariance matrix estimator", Econometrica 48. */
void explain_shapley_fit(double *phi, double *error, const explain_masks *masks,
                         const double *value, const double *weights);

/** Shapley's kernel of a set of k of M features, 0 < k < M. */
double explain_shapley_kernel(int64_t M, int64_t k);
