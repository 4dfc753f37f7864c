/* Softmax cross-entropy over a vocabulary split over tensor ranks, by its parts: a row is one
 * thread's work. */
#include "base/trace.h"
#include "math/gemm/operand_pass_priv.h"

void bp_softmax_statistics(float *row_max, double *row_sum, double *target_logit,
                           const float *logits, const int32_t *targets, int64_t rows,
                           int64_t V_here, int64_t first)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, 4.0 * (double)(rows * V_here));
#pragma omp parallel for schedule(static) if (rows * V_here > 8192)
    for (int64_t r = 0; r < rows; r++) {
        int64_t target = targets[r] - first;
        loops->softmax_statistics(&row_max[r], &row_sum[r], logits + r * V_here, V_here);
        target_logit[r] =
            target >= 0 && target < V_here ? (double)logits[r * V_here + target] : 0.0;
    }
}

void bp_logit_sums(double *sums, const float *logits, int64_t rows, int64_t V_here)
{
#pragma omp parallel for schedule(static) if (rows * V_here > 8192)
    for (int64_t r = 0; r < rows; r++) {
        sums[r] = 0;
        for (int64_t v = 0; v < V_here; v++)
            sums[r] += (double)logits[r * V_here + v];
    }
}

typedef struct gradient_row {
    const float *logits;
    float max, factor, weight;
    float each; /* taken from every outcome */
    int64_t target;
} gradient_row;

static void write_row(const bp_loops *loops, const bp_operand *to, int64_t r,
                      const gradient_row *row)
{
    float workspace[BP_PASS_COLUMNS];

    for (int64_t c = 0; c < to->columns; c += BP_PASS_COLUMNS) {
        int64_t n = bp_smaller(BP_PASS_COLUMNS, to->columns - c);
        float *y = bp_operand_workspace(to, r, c, workspace);
        loops->exp_scale(y, row->logits + c, n, row->max, row->factor);
        for (int64_t k = 0; row->each != 0 && k < n; k++)
            y[k] -= row->each;
        if (row->target >= c && row->target < c + n)
            y[row->target - c] -= row->weight;
        bp_operand_store(loops, to, r, c, y, n);
    }
}

void bp_softmax_gradient(const bp_operand *gradient, const float *logits, const float *row_max,
                         const double *row_sum, const int32_t *targets, const float *weight,
                         int64_t first, const bp_smoothing *smoothing)
{
    const bp_loops *loops = bp_loops_best();
    float own = smoothing ? 1 - smoothing->share : 1,
          each = smoothing ? smoothing->share / (float)smoothing->V : 0;

    BP_TRACE(BP_TRACE_SOFTMAX, 0, bp_float_bytes(gradient, 1) + bp_operand_moved(gradient));
#pragma omp parallel for schedule(static) if (gradient->rows * gradient->columns > 8192)
    for (int64_t r = 0; r < gradient->rows; r++) {
        gradient_row row = {.logits = logits + r * gradient->columns,
                            .max = row_max[r],
                            .factor = (float)((double)weight[r] / row_sum[r]),
                            .weight = weight[r] * own,
                            .each = weight[r] * each,
                            .target = targets[r] - first};
        write_row(loops, gradient, r, &row);
    }
}
