/* A soft cap of scores and logits. */
#include "base/trace.h"
#include "math/loops/loops.h"

#include <omp.h>

/* Slopes of capped x. */
static void slopes_of(float *slopes, const float *x, float cap, int64_t n)
{
    float share = 1 / cap;

    for (int64_t i = 0; i < n; i++)
        slopes[i] = 1 - (x[i] * share) * (x[i] * share);
}

void bp_cap(const bp_loops *loops, float *x, float *slopes, float cap, int64_t n)
{
    loops->scale(x, 1 / cap, n);
    loops->tanh(x, x, n);
    loops->scale(x, cap, n);
    if (slopes)
        slopes_of(slopes, x, cap, n);
}

void bp_cap_all(float *x, float cap, int64_t n)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, 8.0 * (double)n);
#pragma omp parallel if (n > 8192)
    {
        int64_t first, last;

        bp_share(n, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        for (; first < last; first += 4096) /* stays in the cache */
            bp_cap(loops, x + first, NULL, cap, last - first < 4096 ? last - first : 4096);
    }
}

void bp_cap_slopes(float *slopes, const float *x, float cap, int64_t n)
{
    BP_TRACE(BP_TRACE_ELEMENTWISE, 0, 8.0 * (double)n);
#pragma omp parallel if (n > 8192)
    {
        int64_t first, last;

        bp_share(n, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        slopes_of(slopes + first, x + first, cap, last - first);
    }
}
