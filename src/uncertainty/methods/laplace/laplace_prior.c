/* The prior precision with the largest marginal likelihood. Called by laplace.c. */
#include "uncertainty/methods/laplace/laplace_priv.h"

#include "base/mem.h"
#include "mesh/collective.h"

#include <math.h>

static int64_t first_row(const laplace_evidence *evidence, int rank)
{
    return evidence->V * rank / bp_comm_size(evidence->comm);
}

bp_err laplace_evidence_open(laplace_evidence *evidence)
{
    int rank = bp_comm_rank(evidence->comm);
    int64_t count = first_row(evidence, rank + 1) - first_row(evidence, rank);
    bp_err err = BP_OK;

    evidence->rows = bp_try_alloc("uncertainty.laplace", count + 1, sizeof *evidence->rows);
    if (!evidence->rows)
        err = BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                      "memory is short: at the sums over %lld eigenvalues; use more ranks",
                      (long long)count);
    err = bp_agree(evidence->comm, err);
    if (err != BP_OK)
        laplace_evidence_close(evidence);
    return err;
}

void laplace_evidence_close(laplace_evidence *evidence)
{
    bp_free(evidence->rows);
    evidence->rows = NULL;
}

/* The eigenvalues of G are divided into runs; each rank sums them in order. */
static double spectrum_sum(const laplace_evidence *evidence, double tau,
                           double (*term)(double curvature, double tau))
{
    int rank = bp_comm_rank(evidence->comm);
    int64_t first = first_row(evidence, rank), end = first_row(evidence, rank + 1);
    double sum = 0, *rows = evidence->rows;

#pragma omp parallel for schedule(static)
    for (int64_t i = first; i < end; i++) {
        rows[i - first] = 0;
        for (int64_t j = 0; j < evidence->C; j++)
            rows[i - first] +=
                term(evidence->data_tokens * evidence->output_values[i] * evidence->input_values[j],
                     tau);
    }
    for (int64_t i = 0; i < end - first; i++)
        sum += rows[i];
    bp_all_sum_double(&sum, 1, evidence->comm);
    return sum;
}

static double effective_term(double curvature, double tau)
{
    return curvature / (curvature + tau);
}

static double logdet_term(double curvature, double tau)
{
    return log1p(curvature / tau);
}

double laplace_effective_parameters(const laplace_evidence *evidence, double tau)
{
    return spectrum_sum(evidence, tau, effective_term);
}

/* VC/2 log tau and the logarithms of the sum cancel except for log(1 + N g a / tau). */
double laplace_log_evidence(const laplace_evidence *evidence, double tau)
{
    return -tau / 2 * evidence->weights_square - spectrum_sum(evidence, tau, logdet_term) / 2;
}

/* The evidence's derivative in log tau, twice: falls from above 0 to below. */
static double slope(const laplace_evidence *evidence, double tau)
{
    return laplace_effective_parameters(evidence, tau) - tau * evidence->weights_square;
}

bp_err laplace_best_tau(double *tau, const laplace_evidence *evidence)
{
    double parameters = (double)evidence->V * (double)evidence->C;
    double high = parameters / evidence->weights_square, low = high;

    *tau = 0;
    if (!(evidence->weights_square > 0) || !isfinite(high))
        return BP_FAIL(BP_ERR_CONFIG, "laplace.zero_matrix",
                       "the last matrix is zero, which every prior precision "
                       "explains: at laplace.prior = marginal; give a number");
    while (slope(evidence, low) <= 0 && low > high * 1e-60)
        low /= 1024;
    if (slope(evidence, low) <= 0)
        return BP_FAIL(BP_ERR_CONFIG, "laplace.no_curvature",
                       "the loss has no curvature in the last matrix, so no prior "
                       "precision is the best: at laplace.prior = marginal; give a "
                       "number");
    while (high / low > 1 + 1e-12) { /* bisection of log tau */
        double middle = sqrt(low) * sqrt(high);

        if (middle <= low || middle >= high)
            break;
        if (slope(evidence, middle) > 0)
            low = middle;
        else
            high = middle;
    }
    *tau = sqrt(low) * sqrt(high);
    return BP_OK;
}
