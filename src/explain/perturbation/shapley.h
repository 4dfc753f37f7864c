/* Shapley values of what a set of features is worth: exact, and by a regression on sets that are
 * drawn. Local: no MPI. Source: Lundberg and Lee 2017, "A unified approach to interpreting model
 * predictions", section 4.1. */
#ifndef BP_EXPLAIN_SHAPLEY_H
#define BP_EXPLAIN_SHAPLEY_H

#include "explain/perturbation/surrogate.h"

/** Features of which all sets are looked at. */
#define EXPLAIN_SHAPLEY_ALL 12

/** phi[M] of value[2^M]: bit f of a set's number says that it has feature f. */
void explain_shapley_exact(double *phi, int64_t M, const double *value);

/** Text 0 has all features, text 1 none. Of the others the number k of features is drawn with
 * chances in proportion to (M - 1) / (k (M - k)), then the set is uniform: the chances are what
 * Shapley's kernel weighs sets by. Row r depends on the key and r alone. */
void explain_shapley_draw(explain_masks *out, const bp_rng_key *key);

/** phi[M] by least squares over the texts from 2 on, with value[0] - value[1] as the sum of all:
 * held exactly, by what the last feature takes. weights[samples - 2]; NULL: 1 each. error[M]: the
 * standard errors that come of drawing texts (White's, for regressors that are drawn), NAN where
 * the texts do not determine the values; NULL: not asked.
 * Source: Lundberg and Lee 2017, theorem 2; White 1980, "A heteroskedasticity-consistent
 * covariance matrix estimator", Econometrica 48. */
void explain_shapley_fit(double *phi, double *error, const explain_masks *masks,
                         const double *value, const double *weights);

/** Shapley's kernel of a set of k of M features, 0 < k < M. */
double explain_shapley_kernel(int64_t M, int64_t k);

#endif
