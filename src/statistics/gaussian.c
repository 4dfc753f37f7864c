/* Gaussian predictions of values, for regressions. */
#include "statistics/gaussian.h"

#include <math.h>

#define PI     3.14159265358979323846
#define SPAN   40.0 /* range of ln noise that is searched, below its upper bound */
#define COARSE 400
#define STEPS  200

double bp_gaussian_nll(double error, double variance)
{
    return 0.5 * (log(2 * PI * variance) + error * error / variance);
}

double bp_gaussian_within(double error, double variance)
{
    return erf(fabs(error) / sqrt(2 * variance));
}

static double mean_nll(const double *errors, const double *variances, int64_t n, double noise)
{
    double sum = 0;

    for (int64_t k = 0; k < n; k++)
        sum += bp_gaussian_nll(errors[k], variances[k] + noise);
    return sum / (double)n;
}

/* The likelihood may have several maxima: a grid finds the highest, golden section refines it. More
 * noise than the largest squared error only decreases it. */
double bp_gaussian_noise(const double *errors, const double *variances, int64_t n)
{
    const double golden = 0.5 * (sqrt(5) - 1);
    double most = 0, best = INFINITY, top = 0, low, high, a, b, at_a, at_b;

    for (int64_t k = 0; k < n; k++)
        most = fmax(most, errors[k] * errors[k]);
    if (!(most > 0))
        return 0;
    for (int k = 0; k <= COARSE; k++) {
        double u = log(most) - SPAN * k / COARSE, nll = mean_nll(errors, variances, n, exp(u));

        if (nll < best) {
            best = nll;
            top = u;
        }
    }
    low = top - SPAN / COARSE;
    high = top + SPAN / COARSE;
    a = high - golden * (high - low);
    b = low + golden * (high - low);
    at_a = mean_nll(errors, variances, n, exp(a));
    at_b = mean_nll(errors, variances, n, exp(b));
    for (int k = 0; k < STEPS && high - low > 1e-11; k++)
        if (at_a < at_b) {
            high = b;
            b = a;
            at_b = at_a;
            a = high - golden * (high - low);
            at_a = mean_nll(errors, variances, n, exp(a));
        } else {
            low = a;
            a = b;
            at_a = at_b;
            b = low + golden * (high - low);
            at_b = mean_nll(errors, variances, n, exp(b));
        }
    return exp(0.5 * (low + high));
}
