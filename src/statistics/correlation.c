/* Correlation of two lists: for regressions and word vectors. */
#include "statistics/correlation.h"

#include "base/mem.h"
#include "base/sort.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Powers of two that scale the largest value to near 1, in two steps, as one factor may exceed the
 * range of double: squares of numbers near 1e-300 or 1e300 do. Scaling rounds nothing. */
typedef struct scale {
    double first, second;
} scale;

static scale scale_of(const double *x, int64_t n)
{
    double most = 0;
    int exponent = 0;

    for (int64_t k = 0; k < n; k++)
        most = fmax(most, fabs(x[k]));
    if (most > 0 && isfinite(most))
        (void)frexp(most, &exponent);
    return (scale){ldexp(1, -exponent / 2), ldexp(1, -exponent - -exponent / 2)};
}

static double scaled(double value, scale by)
{
    return value * by.first * by.second;
}

/* A mean of equal values is rounded, so the sums of squares may show a spread of constant lists. */
static bool is_constant(const double *x, const int32_t *counts, int64_t n)
{
    const double *first = NULL;

    for (int64_t k = 0; k < n; k++) {
        if (counts && counts[k] == 0)
            continue;
        if (first && x[k] != *first)
            return false;
        first = &x[k];
    }
    return true;
}

double bp_pearson_counted(const double *x, const double *y, const int32_t *counts, int64_t n)
{
    double total = 0, mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;
    scale by_x = scale_of(x, n), by_y = scale_of(y, n);

    if (is_constant(x, counts, n) || is_constant(y, counts, n))
        return NAN;
    for (int64_t k = 0; k < n; k++)
        total += counts != NULL ? counts[k] : 1;
    for (int64_t k = 0; k < n; k++) {
        double times = counts ? counts[k] : 1;

        mean_x += times * scaled(x[k], by_x) / total;
        mean_y += times * scaled(y[k], by_y) / total;
    }
    for (int64_t k = 0; k < n; k++) {
        double times = counts ? counts[k] : 1, dx = scaled(x[k], by_x) - mean_x,
               dy = scaled(y[k], by_y) - mean_y;

        xx += times * dx * dx;
        yy += times * dy * dy;
        xy += times * dx * dy;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

double bp_pearson(const double *x, const double *y, int64_t n)
{
    return bp_pearson_counted(x, y, NULL, n);
}

typedef struct placed {
    double value;
    int64_t at;
} placed;

void bp_order_of(int64_t *order, const double *values, int64_t n)
{
    placed *list = bp_alloc("statistics.order", n, sizeof *list);

    for (int64_t k = 0; k < n; k++)
        list[k] = (placed){values[k], k};
    qsort(list, (size_t)n, sizeof *list, bp_by_real);
    for (int64_t k = 0; k < n; k++)
        order[k] = list[k].at;
    bp_free(list);
}

/* Ranks from 0; equal values get their mean rank; the rank of NaN is NaN. */
static double *ranks_of(const double *x, const int64_t *order, const int32_t *counts, int64_t n)
{
    double *ranks = bp_alloc("statistics.ranks", n, sizeof *ranks), before = 0;

    for (int64_t first = 0, end; first < n; first = end) {
        double value = x[order[first]], here = 0;

        for (end = first; end < n && (end == first || x[order[end]] == value); end++)
            here += counts != NULL ? counts[order[end]] : 1;
        for (int64_t k = first; k < end; k++)
            ranks[order[k]] = isnan(value) ? value : before + (here - 1) / 2;
        before += here;
    }
    return ranks;
}

double bp_spearman_counted(const double *x, const double *y, const int64_t *order_x,
                           const int64_t *order_y, const int32_t *counts, int64_t n)
{
    double *a = ranks_of(x, order_x, counts, n), *b = ranks_of(y, order_y, counts, n);
    double r = bp_pearson_counted(a, b, counts, n);

    bp_free(a);
    bp_free(b);
    return r;
}

double bp_spearman(const double *x, const double *y, int64_t n)
{
    int64_t *order_x = bp_alloc("statistics.order", n, sizeof *order_x);
    int64_t *order_y = bp_alloc("statistics.order", n, sizeof *order_y);
    double r;

    bp_order_of(order_x, x, n);
    bp_order_of(order_y, y, n);
    r = bp_spearman_counted(x, y, order_x, order_y, NULL, n);
    bp_free(order_x);
    bp_free(order_y);
    return r;
}

static int sign_of(double value)
{
    return (value > 0) - (value < 0);
}

double bp_kendall(const double *x, const double *y, int64_t n)
{
    int64_t both = 0, of_x = 0, of_y = 0;

    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < a; b++) {
            int in_x = sign_of(x[a] - x[b]), in_y = sign_of(y[a] - y[b]);

            both += in_x * in_y;
            of_x += in_x != 0;
            of_y += in_y != 0;
        }
    return of_x > 0 && of_y > 0 ? (double)both / sqrt((double)of_x * (double)of_y) : NAN;
}

bp_interval bp_kendall_interval(double tau, int64_t n)
{
    double most = 1 - 2.0 / ((double)n * (double)(n - 1)), z, half;

    if (n < 5 || isnan(tau))
        return (bp_interval){NAN, NAN};
    z = atanh(fmax(-most, fmin(most, tau)));
    half = 1.959963984540054 * sqrt(0.437 / (double)(n - 4));
    return (bp_interval){tau <= -1 ? -1 : tanh(z - half), tau >= 1 ? 1 : tanh(z + half)};
}
