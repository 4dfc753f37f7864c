/* Expectation maximisation of a mixture's weights. */
#include "statistics/mixture_weights.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

#define ITERATIONS 100000
#define BLOCK      4096 /* tokens of a partial sum */

static double most_of(const bp_mixture_text *text, int64_t t)
{
    double most = -INFINITY;

    for (int64_t m = 0; m < text->models; m++)
        most = fmax(most, (double)text->logprob[m][t]);
    return most;
}

double bp_mixture_logprob(const double *weights, const bp_mixture_text *text, int64_t token)
{
    double most = -INFINITY, sum = 0;

    for (int64_t m = 0; m < text->models; m++)
        if (weights[m] > 0)
            most = fmax(most, (double)text->logprob[m][token]);
    if (most == -INFINITY)
        return -INFINITY;
    for (int64_t m = 0; m < text->models; m++)
        if (weights[m] > 0)
            sum += weights[m] * exp((double)text->logprob[m][token] - most);
    return most + log(sum);
}

/* shares[token][models]: each probability over the largest of its token. */
static void make_shares(double *shares, const bp_mixture_text *text)
{
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < text->tokens; t++) {
        double most = most_of(text, t);

        for (int64_t m = 0; m < text->models; m++)
            shares[t * text->models + m] = exp((double)text->logprob[m][t] - most);
    }
}

/* sums[models] += p_m / p of tokens [first, end). */
static void sum_block(double *sums, const double *shares, const double *weights, int64_t models,
                      int64_t first, int64_t end)
{
    for (int64_t t = first; t < end; t++) {
        const double *own = shares + t * models;
        double p = 0;

        for (int64_t m = 0; m < models; m++)
            p += weights[m] * own[m];
        for (int64_t m = 0; m < models; m++)
            sums[m] += own[m] / p;
    }
}

/* ratios[models] = mean over tokens of p_m / p. blocks[blocks of tokens][models] is scratch. */
static void mean_ratios(double *ratios, double *blocks, const double *shares, const double *weights,
                        const bp_mixture_text *text)
{
    int64_t M = text->models, count = (text->tokens + BLOCK - 1) / BLOCK;

    memset(blocks, 0, (size_t)(count * M) * sizeof *blocks);
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < count; k++) {
        int64_t end = (k + 1) * BLOCK;

        sum_block(blocks + k * M, shares, weights, M, k * BLOCK,
                  end < text->tokens ? end : text->tokens);
    }
    for (int64_t m = 0; m < M; m++) {
        ratios[m] = 0;
        for (int64_t k = 0; k < count; k++)
            ratios[m] += blocks[k * M + m];
        ratios[m] /= (double)text->tokens;
    }
}

static double nll_of(const double *weights, const bp_mixture_text *text)
{
    double sum = 0;

    for (int64_t t = 0; t < text->tokens; t++)
        sum -= bp_mixture_logprob(weights, text, t);
    return sum;
}

/* The best single model gets all the weight if the mixture is not better. */
static void take_single(double *weights, bp_mixture_fit *fit, const bp_mixture_text *text)
{
    for (int64_t m = 0; m < text->models; m++) {
        double nll = 0;

        for (int64_t t = 0; t < text->tokens; t++)
            nll -= (double)text->logprob[m][t];
        if (!(nll <= fit->nll))
            continue;
        memset(weights, 0, (size_t)text->models * sizeof *weights);
        weights[m] = 1;
        fit->nll = nll;
    }
}

bp_err bp_mixture_weights(double *weights, bp_mixture_fit *fit, const bp_mixture_text *text)
{
    int64_t M = text->models, blocks = (text->tokens + BLOCK - 1) / BLOCK;
    double *shares = bp_try_alloc("statistics", text->tokens * M, sizeof *shares);
    double *sums = bp_try_alloc("statistics", (blocks + 1) * M, sizeof *sums), *ratios;
    bp_err err =
        shares && sums ? BP_OK : bp_fail_memory("shares", text->tokens * M, sizeof *shares);

    *fit = (bp_mixture_fit){.gap = INFINITY};
    if (err == BP_OK)
        make_shares(shares, text);
    for (int64_t m = 0; m < M; m++)
        weights[m] = 1 / (double)M;
    for (; err == BP_OK && fit->gap > BP_MIXTURE_GAP && fit->iterations < ITERATIONS;
         fit->iterations++) {
        double most = 0, total = 0;

        ratios = sums + blocks * M;
        mean_ratios(ratios, sums, shares, weights, text);
        for (int64_t m = 0; m < M; m++)
            most = fmax(most, ratios[m]);
        fit->gap = log(most);
        if (fit->gap <= BP_MIXTURE_GAP)
            break;
        for (int64_t m = 0; m < M; m++)
            total += weights[m] *= ratios[m];
        for (int64_t m = 0; m < M; m++)
            weights[m] /= total;
    }
    if (err == BP_OK) {
        fit->gap = fmax(fit->gap, 0);
        fit->nll = nll_of(weights, text);
        take_single(weights, fit, text);
    }
    bp_free(sums);
    bp_free(shares);
    return err;
}
