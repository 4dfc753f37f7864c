/* Student's t, levels of percentiles, shares, multiple comparisons. Called by resample.c, metric.c
 * and calibration.c, and by figures of scoring. */
#include "statistics/inference.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define LEVEL      0.05
#define MANY       1000000 /* for more documents Student's t is the normal distribution */
#define NORMAL_95  1.959963984540054
#define FRACTIONS  10000
#define BISECTIONS 200

/* ---- Student's t ---- */

/* The continued fraction of the incomplete beta function, by Lentz's method.
 * Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8. */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1), value;

    d = 1 / (fabs(d) < tiny ? tiny : d);
    value = d;
    for (int m = 1; m < FRACTIONS; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), step = 1;

        for (int half = 0; half < 2; half++) {
            double term = half == 0 ? even : odd;

            d = 1 + term * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + term / c;
            c = fabs(c) < tiny ? tiny : c;
            step = d * c;
            value *= step;
        }
        if (fabs(step - 1) < 1e-15)
            break;
    }
    return value;
}

/* I_x(a, b), the regularised incomplete beta function. */
static double incomplete_beta(double a, double b, double x)
{
    double front;

    if (!(x > 0 && x < 1))
        return x;
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double bp_student_two_sided(double t, double freedom)
{
    return isinf(t) ? 0 : incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double bp_student_quantile(double freedom)
{
    double low = 0, high = 1;

    while (bp_student_two_sided(high, freedom) > LEVEL)
        high *= 2;
    for (int k = 0; k < BISECTIONS && low < high; k++) {
        double middle = low + (high - low) / 2;

        if (middle <= low || middle >= high)
            break;
        if (bp_student_two_sided(middle, freedom) > LEVEL)
            low = middle;
        else
            high = middle;
    }
    return high;
}

double bp_percentile_level(int64_t documents)
{
    double n = (double)documents;

    if (documents >= MANY)
        return LEVEL / 2;
    return 0.5 * erfc(sqrt(n / (n - 1)) * bp_student_quantile(n - 1) / sqrt(2));
}

/* ---- shares ---- */

bp_interval bp_wilson_interval(double share, int64_t documents)
{
    const double z = NORMAL_95;
    double n = (double)documents, middle, half;

    if (!isfinite(share) || documents < 1)
        return (bp_interval){NAN, NAN};
    middle = (share + z * z / (2 * n)) / (1 + z * z / n);
    half = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
    return (bp_interval){share <= 0 ? 0 : middle - half, share >= 1 ? 1 : middle + half};
}

/* ---- several comparisons ---- */

static int compare_values(const void *a, const void *b)
{
    const double x = **(double *const *)a, y = **(double *const *)b;

    return (x > y) - (x < y);
}

bp_err bp_holm_adjust(double *p, int64_t n)
{
    double **order = bp_try_alloc("statistics.holm", n, sizeof *order), least = 0;
    int64_t count = 0;

    if (!order)
        return bp_fail_memory("p-values", n, sizeof *order);
    for (int64_t k = 0; k < n; k++)
        if (!isnan(p[k]))
            order[count++] = &p[k];
    qsort(order, (size_t)count, sizeof *order, compare_values);
    for (int64_t k = 0; k < count; k++) {
        least = fmax(least, fmin(1, *order[k] * (double)(count - k)));
        *order[k] = least;
    }
    bp_free(order);
    return BP_OK;
}

double bp_paired_shares(bp_interval *interval, int64_t only_a, int64_t only_b, int64_t n)
{
    int64_t differ = only_a + only_b, fewer = only_a < only_b ? only_a : only_b;
    double a = (double)only_a + 0.5, b = (double)only_b + 0.5, all = (double)n + 2, p = 0;
    double difference = (b - a) / all;
    double half = NORMAL_95 * sqrt((a + b) / all - difference * difference) / sqrt(all);

    *interval = n < BP_FEW_DOCUMENTS
                    ? (bp_interval){NAN, NAN}
                    : (bp_interval){fmax(-1, difference - half), fmin(1, difference + half)};
    for (int64_t k = 0; k <= fewer; k++) /* P(k of `differ`) of a fair coin */
        p += exp(lgamma((double)differ + 1) - lgamma((double)k + 1) -
                 lgamma((double)(differ - k) + 1) - (double)differ * log(2));
    return fmin(1, 2 * p);
}
