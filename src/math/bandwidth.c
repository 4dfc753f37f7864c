/* Memory bandwidth, as passes of this library use it. */
#include "base/mem.h"
#include "base/process/clock.h"
#include "math/kernels/kernels.h"
#include "math/math.h"

#define FLOATS (INT64_C(16) << 20) /* two arrays of 64 MiB: more than a rank's caches hold */

double bp_math_bandwidth(double seconds)
{
    float *x = bp_alloc("math.bandwidth", FLOATS, sizeof *x);
    float *y = bp_alloc("math.bandwidth", FLOATS, sizeof *y);
    double best = 0, end = bp_clock_now() + seconds;

    if (x && y) {
        bp_zero(x, FLOATS); /* separate pages, near the threads that read them */
        bp_zero(y, FLOATS);
        do {
            double start = bp_clock_now();
            bp_add(y, x, FLOATS);
            double speed = 3.0 * sizeof *x * (double)FLOATS / (bp_clock_now() - start);
            best = speed > best ? speed : best;
        } while (bp_clock_now() < end);
    }
    bp_free(x);
    bp_free(y);
    return best;
}
