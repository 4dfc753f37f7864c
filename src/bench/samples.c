/* Repeats of a measurement: quantiles, as a time and as a rate. */
#include "bench/samples.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bp_quantile(const double *sorted, int64_t n, double p)
{
    double place = (double)(n - 1) * p, below = floor(place);
    int64_t k = (int64_t)below;

    if (k + 1 >= n)
        return sorted[n - 1];
    return sorted[k] + (place - below) * (sorted[k + 1] - sorted[k]);
}

bp_spread bp_spread_of(double *values, int64_t n)
{
    if (n <= 0)
        return (bp_spread){0};
    qsort(values, (size_t)n, sizeof *values, ascending);
    return (bp_spread){.median = bp_quantile(values, n, 0.5),
                       .low = bp_quantile(values, n, 0.1),
                       .high = bp_quantile(values, n, 0.9),
                       .repeats = n};
}

bp_spread bp_spread_rate(const bp_spread *seconds, double amount)
{
    if (seconds->repeats == 0)
        return (bp_spread){0};
    return (bp_spread){.median = amount / seconds->median,
                       .low = amount / seconds->high,
                       .high = amount / seconds->low,
                       .repeats = seconds->repeats};
}
