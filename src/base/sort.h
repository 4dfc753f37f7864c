/* Order of numbers. */
#ifndef BP_BASE_SORT_H
#define BP_BASE_SORT_H

#include <stdint.h>

/** Sort ascending; no NaN. */
void bp_sort_reals(double *values, int64_t count);

#endif
