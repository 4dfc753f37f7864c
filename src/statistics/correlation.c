/* Correlation of two lists. */
#include "statistics/correlation.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

double bp_pearson(const double *x, const double *y, int64_t n)
{
    double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;

    for (int64_t k = 0; k < n; k++) {
        mean_x += x[k] / (double)n;
        mean_y += y[k] / (double)n;
    }
    for (int64_t k = 0; k < n; k++) {
        xx += (x[k] - mean_x) * (x[k] - mean_x);
        yy += (y[k] - mean_y) * (y[k] - mean_y);
        xy += (x[k] - mean_x) * (y[k] - mean_y);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

typedef struct ranked {
    double value;
    int64_t at;
} ranked;

static int by_value(const void *a, const void *b)
{
    double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;

    return (x > y) - (x < y);
}

static double *ranks_of(const double *x, int64_t n)
{
    ranked *list = bp_alloc("statistics.ranks", n, sizeof *list);
    double *ranks = bp_alloc("statistics.ranks", n, sizeof *ranks);

    for (int64_t k = 0; k < n; k++)
        list[k] = (ranked){x[k], k};
    qsort(list, (size_t)n, sizeof *list, by_value);
    for (int64_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && list[end].value == list[first].value; end++)
            ;
        for (int64_t k = first; k < end; k++)
            ranks[list[k].at] = (double)(first + end - 1) / 2;
    }
    bp_free(list);
    return ranks;
}

double bp_spearman(const double *x, const double *y, int64_t n)
{
    double *a = ranks_of(x, n), *b = ranks_of(y, n), r = bp_pearson(a, b, n);

    bp_free(a);
    bp_free(b);
    return r;
}
