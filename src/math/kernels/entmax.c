/* 1.5-entmax of rows: thresholds, probabilities, gradients. A row is one thread's work. */
#include "math/kernels/entmax.h"

#include "math/gemm/operand_pass.h"

#include <math.h>

double bp_entmax_begin(float max)
{
    return 0.5 * (double)max - 1;
}

/* A step towards the root of f = sqrt(square) - 1, whose slope is -sum / sqrt(square). */
bool bp_entmax_step(double *tau, double sum, double square)
{
    double norm = sqrt(square), step = (norm - 1) * norm / sum;

    if (step > 0)
        *tau += step;
    else if (isnan(step))
        *tau = NAN;
    return !(step > 1e-14 * (1 + fabs(*tau)));
}

double bp_entmax_tau(const float *z, int64_t n)
{
    const bp_loops *loops = bp_loops_best();
    double tau = bp_entmax_begin(loops->row_max(z, n)), sums[3];

    for (int k = 0; k < BP_ENTMAX_STEPS; k++) {
        loops->threshold_sums(sums, z, n, tau);
        if (bp_entmax_step(&tau, sums[0], sums[1]))
            break;
    }
    return tau;
}

void bp_entmax_sums(double *sums, const float *z, int64_t rows, int64_t n, const double *tau,
                    const bool *done)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(dynamic, 8) if (rows * n > 8192)
    for (int64_t r = 0; r < rows; r++)
        if (!done[r])
            loops->threshold_sums(sums + 3 * r, z + r * n, n, tau[r]);
}

void bp_entmax_max(float *max, const float *z, int64_t rows, int64_t n)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (rows * n > 8192)
    for (int64_t r = 0; r < rows; r++)
        max[r] = loops->row_max(z + r * n, n);
}

void bp_entmax_gradient(const bp_operand *gradient, const float *logits, const double *tau,
                        const int32_t *targets, const float *weight, int64_t first)
{
    const bp_loops *loops = bp_loops_best();
    int64_t V = gradient->columns;

#pragma omp parallel for schedule(static) if (gradient->rows * V > 8192)
    for (int64_t r = 0; r < gradient->rows; r++) {
        float workspace[BP_PASS_COLUMNS];
        int64_t target = targets[r] - first;

        for (int64_t c = 0; c < V; c += BP_PASS_COLUMNS) {
            int64_t n = bp_min(BP_PASS_COLUMNS, V - c);
            float *y = bp_operand_workspace(gradient, r, c, workspace);

            loops->threshold_square(y, logits + r * V + c, n, tau[r], weight[r]);
            if (targets[r] >= 0 && target >= c && target < c + n)
                y[target - c] -= weight[r];
            bp_operand_store(loops, gradient, r, c, y, n);
        }
    }
}

void bp_entmax_logs(float *y, const float *z, int64_t n, double tau, float zero)
{
    for (int64_t i = 0; i < n; i++) {
        double d = 0.5 * (double)z[i] - tau;

        y[i] = d > 0 ? (float)(2 * log(d)) : zero;
    }
}
