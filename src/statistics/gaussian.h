/* Gaussian predictions of values: a mean and a variance each. Local: no MPI. */
#pragma once

#include <stdint.h>

/** Minus the log density of a value that differs from the mean by `error`, in nats. */
double bp_gaussian_nll(double error, double variance);
/** The probability mass nearer to the mean than that value: the value is in the central interval of
 * a level if this is at most the level. */
double bp_gaussian_within(double error, double variance);
/** The variance of additional noise that minimises the mean of bp_gaussian_nll(errors[k],
 * variances[k] + noise): 0 or more; n > 0. Relative accuracy 1e-10. */
double bp_gaussian_noise(const double *errors, const double *variances, int64_t n);
