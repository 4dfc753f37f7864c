/* Dirichlet distributions over class probabilities, with parameters alpha > 0, whose sum is the
 * precision. Local. */
#pragma once

#include <stdint.h>

/** The derivative of ln Gamma at x > 0. Source: Abramowitz and Stegun 6.3.5 and 6.3.18. */
double bp_digamma(double x);

/** KL(Dir(beta) || Dir(alpha)) is ln Gamma(beta0) - ln Gamma(alpha0) + the sum of this term over
 * classes; beta0 and alpha0 are the precisions. Its derivative in alpha_k is the slope.
 * Source: Malinin and Gales 2018, "Predictive uncertainty estimation via prior networks", eq. 12.
 */
double bp_dirichlet_term(double alpha, double beta, double beta0);
double bp_dirichlet_slope(double alpha, double alpha0, double beta, double beta0);
double bp_dirichlet_kl(const double *beta, const double *alpha, int64_t classes);

/** The term of a class: its sum over classes + ln alpha0 - digamma(alpha0 + 1) is the mutual
 * information between class and probabilities. Source: the same, eq. 16. */
double bp_dirichlet_information(double alpha, double alpha0);
/** The term of a class: its sum over classes - ln Gamma(alpha0) is the differential entropy.
 * Source: the same, eq. 17. */
double bp_dirichlet_entropy_term(double alpha, double alpha0);
double bp_dirichlet_entropy(const double *alpha, int64_t classes);
