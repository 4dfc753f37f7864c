/* What repeats of one measurement say together. Pure functions. */
#ifndef BP_BENCH_SAMPLES_H
#define BP_BENCH_SAMPLES_H

#include <stdint.h>

/** The middle of repeats, and where eight in ten of them lie. */
typedef struct bp_spread {
    double median, low, high;
    int64_t repeats; /* 0: nothing was measured */
} bp_spread;

/** The p-quantile of sorted values, p from 0 to 1, n > 0: interpolated linearly between the order
 * statistics around (n - 1) p (numpy.quantile's default). */
double bp_quantile(const double *sorted, int64_t n, double p);

/** Median, and the quantiles 0.1 and 0.9, of n values, which are sorted for it; all 0 for n = 0. */
bp_spread bp_spread_of(double *values, int64_t n);

/** From seconds for `amount` to amount a second: what was slow is low. */
bp_spread bp_spread_rate(const bp_spread *seconds, double amount);

#endif
