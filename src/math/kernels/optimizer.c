/* Optimizer updates and the sums of squares for clipping. */
#include "base/trace.h"
#include "math/kernels/kernels.h"
#include "math/kernels/loops_priv.h"
#include <math.h>
#include <omp.h>
#include <string.h>

#define SERIAL_FLOATS 8192 /* fewer are not worth a team */
#define SHARE_FLOATS  1024 /* threads take whole multiples */

void bp_square_sums(double *sums, const float *x, int64_t n)
{
    const bp_loops *loops = bp_loops_best();
    int64_t blocks = (n + BP_NORM_BLOCK - 1) / BP_NORM_BLOCK;

    BP_TRACE(BP_TRACE_GRADIENT, 0, 4.0 * (double)n);
#pragma omp parallel for schedule(static) if (blocks > 2)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * BP_NORM_BLOCK;
        sums[block] =
            loops->square_sum(x + first, n - first < BP_NORM_BLOCK ? n - first : BP_NORM_BLOCK);
    }
}

/* Sums of integers have no order: threads may add them as they come. */
uint32_t bp_bit_sum(const float *x, int64_t n)
{
    const bp_loops *loops = bp_loops_best();
    uint32_t sum = 0;

#pragma omp parallel reduction(+ : sum) if (n > SERIAL_FLOATS)
    {
        int64_t first, last;
        bp_share(n, SHARE_FLOATS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        sum += loops->bit_sum(x + first, last - first);
    }
    return sum;
}

static void add_sums(uint32_t to[BP_SUMS], const uint32_t sums[BP_SUMS])
{
    for (int k = 0; k < BP_SUMS; k++)
        to[k] += sums[k];
}

bp_update_sums bp_adamw_update(float *w, float *m, float *v, const float *g, int64_t n,
                               const bp_adamw *rule)
{
    const bp_loops *loops = bp_loops_best();
    uint32_t before[BP_SUMS] = {0}, after[BP_SUMS] = {0};
    bp_update_sums all;
    bp_adamw_constants constants = {
        .rate = (float)rule->rate,
        .beta1 = (float)rule->beta1,
        .rest1 = (float)(1.0 - rule->beta1),
        .beta2 = (float)rule->beta2,
        .rest2 = (float)(1.0 - rule->beta2),
        .correction1 = (float)(1.0 / (1.0 - pow(rule->beta1, (double)rule->step))),
        .correction2 = (float)(1.0 / (1.0 - pow(rule->beta2, (double)rule->step))),
        .epsilon = (float)rule->epsilon,
        .decay = (float)rule->decay,
        .gradient_scale = (float)rule->gradient_scale,
    };

#pragma omp parallel reduction(+ : before[:BP_SUMS], after[:BP_SUMS]) if (n > SERIAL_FLOATS)
    {
        int64_t first, last;
        bp_share(n, SHARE_FLOATS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        bp_update_sums sums =
            loops->adamw(w + first, m + first, v + first, g + first, last - first, &constants);
        add_sums(before, sums.before);
        add_sums(after, sums.after);
    }
    memcpy(all.before, before, sizeof before);
    memcpy(all.after, after, sizeof after);
    return all;
}

bp_update_sums bp_sgd_update(float *w, float *m, const float *g, int64_t n, const bp_sgd *rule)
{
    const bp_loops *loops = bp_loops_best();
    float rate = (float)rule->rate, momentum = (float)rule->momentum, decay = (float)rule->decay;
    float gradient_scale = (float)rule->gradient_scale;
    uint32_t before[BP_SUMS] = {0}, after[BP_SUMS] = {0};
    bp_update_sums all;

#pragma omp parallel reduction(+ : before[:BP_SUMS], after[:BP_SUMS]) if (n > SERIAL_FLOATS)
    {
        int64_t first, last;
        bp_share(n, SHARE_FLOATS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        bp_update_sums sums = loops->sgd(w + first, m + first, g + first, last - first, rate,
                                         momentum, decay, gradient_scale);
        add_sums(before, sums.before);
        add_sums(after, sums.after);
    }
    memcpy(all.before, before, sizeof before);
    memcpy(all.after, after, sizeof after);
    return all;
}
