/* Rows of scores under 1.5-entmax: the part above a threshold. */
#include "math/loops/loops_names_priv.h"

#define SUMS 16 /* accumulators of doubles */

static inline double pairwise(double lanes[SUMS])
{
    for (int width = SUMS / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

/* sums of d, d^2 and d^3, d = max(x / 2 - tau, 0) */
void LOOP(threshold_sums)(double sums[3], const float *x, int64_t n, double tau)
{
    double one[SUMS] = {0}, two[SUMS] = {0}, three[SUMS] = {0};

    for (int64_t i = 0; i < n; i += SUMS) {
        int64_t count = n - i < SUMS ? n - i : SUMS;

        for (int l = 0; l < count; l++) {
            double d = 0.5 * (double)x[i + l] - tau;

            d = d < 0 ? 0 : d; /* a NaN stays */
            one[l] += d;
            two[l] += d * d;
            three[l] += d * d * d;
        }
    }
    sums[0] = pairwise(one);
    sums[1] = pairwise(two);
    sums[2] = pairwise(three);
}

void LOOP(threshold_square)(float *y, const float *x, int64_t n, double tau, float factor)
{
    for (int64_t i = 0; i < n; i++) {
        double d = 0.5 * (double)x[i] - tau;

        d = d < 0 ? 0 : d;
        y[i] = (float)(d * d) * factor;
    }
}
