/* Order of numbers, and searches in what is ordered. */
#pragma once

#include <stdint.h>

/** -1, 0 or 1: the order of two numbers; 0 where one is NaN. */
#define BP_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/** For qsort() and bsearch(), of numbers, and of structs whose first member is such a number. */
int bp_by_real(const void *a, const void *b);
int bp_by_int64(const void *a, const void *b);
int bp_by_uint64(const void *a, const void *b);
/** For qsort() of (char *), by bytes. */
int bp_by_text(const void *a, const void *b);

/** Sort ascending; no NaN. */
void bp_sort_reals(double *values, int64_t count);

/** The last k < n with firsts[k] <= at, of ascending firsts [n]: the stretch that holds `at`; 0 if
 * there is none. */
int64_t bp_stretch_of(const int64_t *firsts, int64_t n, int64_t at);
