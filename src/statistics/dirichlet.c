/* Closed forms of Dirichlet distributions, for prior networks. */
#include "statistics/dirichlet.h"

#include <math.h>

/* From this x on the asymptotic series has all digits of a double. */
#define SERIES_FROM 12.0

double bp_digamma(double x)
{
    double below = 0, inverse;

    for (; x < SERIES_FROM; x += 1)
        below -= 1 / x;
    inverse = 1 / (x * x);
    return below + log(x) - 0.5 / x -
           inverse *
               (1.0 / 12 -
                inverse *
                    (1.0 / 120 -
                     inverse * (1.0 / 252 -
                                inverse * (1.0 / 240 -
                                           inverse * (1.0 / 132 - inverse * 691.0 / 32760)))));
}

double bp_dirichlet_term(double alpha, double beta, double beta0)
{
    return lgamma(alpha) - lgamma(beta) + (beta - alpha) * (bp_digamma(beta) - bp_digamma(beta0));
}

double bp_dirichlet_slope(double alpha, double alpha0, double beta, double beta0)
{
    return bp_digamma(alpha) - bp_digamma(alpha0) - bp_digamma(beta) + bp_digamma(beta0);
}

static double sum_of(const double *values, int64_t count)
{
    double sum = 0;

    for (int64_t k = 0; k < count; k++)
        sum += values[k];
    return sum;
}

double bp_dirichlet_kl(const double *beta, const double *alpha, int64_t classes)
{
    double beta0 = sum_of(beta, classes), alpha0 = sum_of(alpha, classes),
           kl = lgamma(beta0) - lgamma(alpha0);

    for (int64_t k = 0; k < classes; k++)
        kl += bp_dirichlet_term(alpha[k], beta[k], beta0);
    return kl;
}

double bp_dirichlet_information(double alpha, double alpha0)
{
    return alpha / alpha0 * (bp_digamma(alpha + 1) - log(alpha));
}

double bp_dirichlet_entropy_term(double alpha, double alpha0)
{
    return lgamma(alpha) - (alpha - 1) * (bp_digamma(alpha) - bp_digamma(alpha0));
}

double bp_dirichlet_entropy(const double *alpha, int64_t classes)
{
    double alpha0 = sum_of(alpha, classes), entropy = -lgamma(alpha0);

    for (int64_t k = 0; k < classes; k++)
        entropy += bp_dirichlet_entropy_term(alpha[k], alpha0);
    return entropy;
}
