/* Softmax cross-entropy over a vocabulary split over tensor ranks, part by part: one thread per
 * row. */
#include "base/trace.h"
#include "math/gemm/operand_pass.h"

/* For row r. */
static void find_statistics(const bp_loops *loops, float *max, double *sum, double *target_logit,
                            const bp_logit_rows *in, int64_t r)
{
    const float *logits = in->logits + r * in->stride;
    int64_t target = in->targets[r] - in->first;

    loops->softmax_statistics(max, sum, logits, in->V);
    *target_logit = target >= 0 && target < in->V ? (double)logits[target] : 0.0;
}

void bp_softmax_statistics(float *row_max, double *row_sum, double *target_logit,
                           const bp_logit_rows *in)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, 4.0 * (double)(in->rows * in->V));
#pragma omp parallel for schedule(static) if (in->rows * in->V > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        find_statistics(loops, &row_max[r], &row_sum[r], &target_logit[r], in, r);
}

void bp_softmax_entropies(float *row_max, double *row_sum, double *entropy, const bp_logit_rows *in)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, 4.0 * (double)(in->rows * in->V));
#pragma omp parallel for schedule(static) if (in->rows * in->V > 8192)
    for (int64_t r = 0; r < in->rows; r++)
        loops->softmax_entropy(&row_max[r], &row_sum[r], &entropy[r], in->logits + r * in->stride,
                               in->V);
}

void bp_logit_sums(double *sums, const bp_logit_rows *in)
{
#pragma omp parallel for schedule(static) if (in->rows * in->V > 8192)
    for (int64_t r = 0; r < in->rows; r++) {
        sums[r] = 0;
        for (int64_t v = 0; v < in->V; v++)
            sums[r] += (double)in->logits[r * in->stride + v];
    }
}

typedef struct gradient_row {
    const float *logits;
    float max, factor, weight;
    float each; /* taken from every outcome */
    int64_t target;
} gradient_row;

static gradient_row gradient_row_of(const bp_logit_rows *in, int64_t r, float max, double sum,
                                    float weight, const bp_smoothing *smoothing)
{
    float own = smoothing ? 1 - smoothing->share : 1,
          each = smoothing ? smoothing->share / (float)smoothing->V : 0;

    return (gradient_row){.logits = in->logits + r * in->stride,
                          .max = max,
                          .factor = (float)((double)weight / sum),
                          .weight = weight * own,
                          .each = weight * each,
                          .target = in->targets[r] - in->first};
}

static void write_row(const bp_loops *loops, const bp_operand *to, int64_t r,
                      const gradient_row *row)
{
    float workspace[BP_PASS_COLUMNS];

    for (int64_t c = 0; c < to->columns; c += BP_PASS_COLUMNS) {
        int64_t n = bp_min(BP_PASS_COLUMNS, to->columns - c);
        float *y = bp_operand_workspace(to, r, c, workspace);
        loops->exp_scale(y, row->logits + c, n, row->max, row->factor);
        for (int64_t k = 0; row->each != 0 && k < n; k++)
            y[k] -= row->each;
        if (row->target >= c && row->target < c + n)
            y[row->target - c] -= row->weight;
        bp_operand_store(loops, to, r, c, y, n);
    }
    bp_operand_end_row(to, r);
}

void bp_softmax_gradient(const bp_operand *gradient, const bp_logit_rows *in, const float *row_max,
                         const double *row_sum, const float *weight, const bp_smoothing *smoothing)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, bp_float_bytes(gradient, 1) + bp_operand_moved(gradient));
#pragma omp parallel for schedule(static) if (in->rows * in->V > 8192)
    for (int64_t r = 0; r < in->rows; r++) {
        gradient_row row = gradient_row_of(in, r, row_max[r], row_sum[r], weight[r], smoothing);
        write_row(loops, gradient, r, &row);
    }
}

void bp_softmax_statistics_gradient(const bp_operand *gradient, float *row_max, double *row_sum,
                                    double *target_logit, const bp_logit_rows *in,
                                    const float *weight, const bp_smoothing *smoothing)
{
    const bp_loops *loops = bp_loops_best();

    BP_TRACE(BP_TRACE_SOFTMAX, 0, bp_float_bytes(gradient, 1) + bp_operand_moved(gradient));
#pragma omp parallel for schedule(static) if (in->rows * in->V > 8192)
    for (int64_t r = 0; r < in->rows; r++) {
        find_statistics(loops, &row_max[r], &row_sum[r], &target_logit[r], in, r);
        gradient_row row = gradient_row_of(in, r, row_max[r], row_sum[r], weight[r], smoothing);
        write_row(loops, gradient, r, &row);
    }
}
