/* The best temperature: the minimum of a convex function known, with two derivatives, at some
 * points. */
#include "statistics/temperature.h"

#include <math.h>

/* A quintic in t = (b - start) / width of [0, 1]. */
typedef struct quintic {
    double start, width;
    double c[6];
} quintic;

/* The coefficients that match value, slope and curvature at both ends (in units of t). */
static quintic quintic_of(const bp_temperature_sums *sums, int k)
{
    double h = sums->beta[k + 1] - sums->beta[k];
    double v0 = sums->value[k], d0 = h * sums->first[k], s0 = h * h * sums->second[k];
    double v1 = sums->value[k + 1], d1 = h * sums->first[k + 1], s1 = h * h * sums->second[k + 1];
    double v = v1 - v0 - d0 - s0 / 2, d = d1 - d0 - s0, s = s1 - s0;

    return (quintic){
        .start = sums->beta[k],
        .width = h,
        .c = {v0, d0, s0 / 2, 10 * v - 4 * d + s / 2, -15 * v + 7 * d - s, 6 * v - 3 * d + s / 2}};
}

static double quintic_value(const quintic *q, double t)
{
    double value = 0;

    for (int i = 5; i >= 0; i--)
        value = value * t + q->c[i];
    return value;
}

static double quintic_slope(const quintic *q, double t)
{
    double slope = 0;

    for (int i = 5; i >= 1; i--)
        slope = slope * t + i * q->c[i];
    return slope;
}

/* The slope is below 0 at one end and above at the other. */
static double quintic_minimum(const quintic *q)
{
    double low = 0, high = 1;

    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;

        if (quintic_slope(q, middle) < 0)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static bp_temperature at_point(const bp_temperature_sums *sums, int k, bool edge)
{
    return (bp_temperature){1 / sums->beta[k], sums->value[k] / (double)sums->tokens, edge};
}

bp_temperature bp_temperature_fit(const bp_temperature_sums *sums)
{
    int k = 0, last = sums->points - 1;

    if (sums->tokens == 0)
        return (bp_temperature){NAN, NAN, false};
    while (k <= last && sums->first[k] < 0)
        k++;
    if (k > last)
        return at_point(sums, last, true);
    if (sums->first[k] == 0 || k == 0)
        return at_point(sums, k, sums->first[k] != 0);
    quintic q = quintic_of(sums, k - 1);
    double t = quintic_minimum(&q);

    return (bp_temperature){1 / (q.start + t * q.width),
                            quintic_value(&q, t) / (double)sums->tokens, false};
}

double bp_temperature_nll(const bp_temperature_sums *sums, double temperature)
{
    double b = 1 / temperature;
    int k = 0, last = sums->points - 1;

    if (sums->tokens == 0 || !(b >= sums->beta[0] && b <= sums->beta[last]))
        return NAN;
    while (k < last - 1 && b > sums->beta[k + 1])
        k++;
    quintic q = quintic_of(sums, k);

    return quintic_value(&q, (b - q.start) / q.width) / (double)sums->tokens;
}
