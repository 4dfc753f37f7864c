/* Softmax cross-entropy over a vocabulary split over tensor ranks, by its parts: a row is one
 * thread's work. */
#include "base/trace.h"
#include "math/kernels.h"
#include "math/loops_priv.h"

void bp_softmax_row_max(float *row_max, const float *logits, int64_t rows, int64_t V_here)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, 4.0 * (double)(rows * V_here));
#pragma omp parallel for schedule(static) if (rows * V_here > 8192)
    for (int64_t r = 0; r < rows; r++)
        row_max[r] = loops->row_max(logits + r * V_here, V_here);
}

void bp_softmax_row_sum(double *row_sum, double *target_logit, const float *logits,
                        const float *row_max, const int32_t *targets, int64_t rows, int64_t V_here,
                        int64_t first)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, 4.0 * (double)(rows * V_here));
#pragma omp parallel for schedule(static) if (rows * V_here > 8192)
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = targets[r] - first;
        row_sum[r] = loops->exp_sum(logits + r * V_here, V_here, row_max[r]);
        target_logit[r] =
            target >= 0 && target < V_here ? (double)logits[r * V_here + target] : 0.0;
    }
}

void bp_softmax_gradient(float *logits, const float *row_max, const double *row_sum,
                         const int32_t *targets, const float *weight, int64_t rows, int64_t V_here,
                         int64_t first)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, 8.0 * (double)(rows * V_here));
#pragma omp parallel for schedule(static) if (rows * V_here > 8192)
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = targets[r] - first;
        loops->exp_scale(logits + r * V_here, V_here, row_max[r],
                         (float)((double)weight[r] / row_sum[r]));
        if (target >= 0 && target < V_here)
            logits[r * V_here + target] -= weight[r];
    }
}
