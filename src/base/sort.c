/* Order of numbers. */
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

int bp_by_real(const void *a, const void *b)
{
    return BP_ORDER(*(const double *)a, *(const double *)b);
}

int bp_by_int64(const void *a, const void *b)
{
    return BP_ORDER(*(const int64_t *)a, *(const int64_t *)b);
}

int bp_by_uint64(const void *a, const void *b)
{
    return BP_ORDER(*(const uint64_t *)a, *(const uint64_t *)b);
}

int bp_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void bp_sort_reals(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof *values, bp_by_real);
}

int64_t bp_stretch_of(const int64_t *firsts, int64_t n, int64_t at)
{
    int64_t low = 0, high = n;

    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (firsts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}
