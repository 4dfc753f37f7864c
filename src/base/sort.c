/* Order of numbers. */
#include "base/sort.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void bp_sort_reals(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
}
