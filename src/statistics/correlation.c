/* Correlation of two lists. */
#include "statistics/correlation.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

double bp_pearson_counted(const double *x, const double *y, const int32_t *counts, int64_t n)
{
    double total = 0, mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;

    for (int64_t k = 0; k < n; k++)
        total += counts != NULL ? counts[k] : 1;
    for (int64_t k = 0; k < n; k++) {
        double times = counts != NULL ? counts[k] : 1;

        mean_x += times * x[k] / total;
        mean_y += times * y[k] / total;
    }
    for (int64_t k = 0; k < n; k++) {
        double times = counts != NULL ? counts[k] : 1;

        xx += times * (x[k] - mean_x) * (x[k] - mean_x);
        yy += times * (y[k] - mean_y) * (y[k] - mean_y);
        xy += times * (x[k] - mean_x) * (y[k] - mean_y);
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

static int by_value(const void *a, const void *b)
{
    double x = ((const placed *)a)->value, y = ((const placed *)b)->value;

    return (x > y) - (x < y);
}

void bp_order_of(int64_t *order, const double *values, int64_t n)
{
    placed *list = bp_alloc("statistics.order", n, sizeof *list);

    for (int64_t k = 0; k < n; k++)
        list[k] = (placed){values[k], k};
    qsort(list, (size_t)n, sizeof *list, by_value);
    for (int64_t k = 0; k < n; k++)
        order[k] = list[k].at;
    bp_free(list);
}

/* Ranks from 0; equal values have the mean of theirs. */
static double *ranks_of(const double *x, const int64_t *order, const int32_t *counts, int64_t n)
{
    double *ranks = bp_alloc("statistics.ranks", n, sizeof *ranks), before = 0;

    for (int64_t first = 0, end; first < n; first = end) {
        double here = 0;

        for (end = first; end < n && x[order[end]] == x[order[first]]; end++)
            here += counts != NULL ? counts[order[end]] : 1;
        for (int64_t k = first; k < end; k++)
            ranks[order[k]] = before + (here - 1) / 2;
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
