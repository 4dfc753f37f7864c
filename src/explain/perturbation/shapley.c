/* Shapley values: all sets, or a regression on some. Called by methods/shapley.c. */
#include "explain/perturbation/shapley.h"

#include "base/mem.h"
#include "explain/perturbation/regression.h"

#include <math.h>
#include <string.h>

#define BLOCKS_EACH ((uint64_t)1 << 24) /* draws that a sample may use */

static int count_bits(uint64_t set)
{
    int count = 0;

    for (; set; set &= set - 1)
        count++;
    return count;
}

/* n over k. */
static double choose(int64_t n, int64_t k)
{
    double ways = 1;

    for (int64_t j = 0; j < k; j++)
        ways = ways * (double)(n - j) / (double)(j + 1);
    return ways;
}

double explain_shapley_kernel(int64_t M, int64_t k)
{
    return (double)(M - 1) / (choose(M, k) * (double)k * (double)(M - k));
}

void explain_shapley_exact(double *phi, int64_t M, const double *value)
{
    uint64_t sets = (uint64_t)1 << M;

    for (int64_t f = 0; f < M; f++) {
        uint64_t own = (uint64_t)1 << f;

        phi[f] = 0;
        for (uint64_t set = 0; set < sets; set++)
            if (!(set & own)) /* |S|! (M - |S| - 1)! / M! */
                phi[f] +=
                    (value[set | own] - value[set]) / ((double)M * choose(M - 1, count_bits(set)));
    }
}

/* ---- drawn ---- */

static int64_t draw_size(const bp_rng_key *key, uint64_t at, int64_t M)
{
    double whole = 0, left;
    int64_t k = 1;

    for (int64_t j = 1; j < M; j++)
        whole += 1 / ((double)j * (double)(M - j));
    left = bp_rng_uniform(key, at) * whole;
    for (; k < M - 1; k++) {
        left -= 1 / ((double)k * (double)(M - k));
        if (left < 0)
            break;
    }
    return k;
}

void explain_shapley_draw(explain_masks *out, const bp_rng_key *key)
{
    int64_t M = out->features;

    memset(out->kept, 0, (size_t)(out->samples * M));
    memset(out->kept, 1, (size_t)M);
    for (int64_t s = 2; s < out->samples && M > 1; s++) {
        uint64_t at = (uint64_t)s * BLOCKS_EACH;
        int64_t size = draw_size(key, at++, M);
        uint8_t *kept = out->kept + s * M;

        for (int64_t j = M - size; j < M; j++) { /* Floyd's sample */
            int64_t f = bp_rng_below(key, at++, j + 1);

            kept[kept[f] ? j : f] = 1;
        }
    }
}

/* ---- the regression ---- */

/* x[M - 1] of text s, and its value minus that of no features and, if it has the last feature,
 * minus the sum of all phi. */
static double take(double *x, const explain_masks *masks, const double *value, int64_t s)
{
    int64_t M = masks->features;
    const uint8_t *kept = masks->kept + s * M;

    for (int64_t j = 0; j < M - 1; j++)
        x[j] = (double)kept[j] - (double)kept[M - 1];
    return value[s] - value[1] - (double)kept[M - 1] * (value[0] - value[1]);
}

static double weight_of(const double *weights, int64_t s)
{
    return weights ? weights[s - 2] : 1;
}

/* error[M] of phi, after the system is factored. */
static void find_errors(double *error, const double *phi, const explain_system *system,
                        const explain_masks *masks, const double *value, const double *weights)
{
    int64_t n = system->n, texts = masks->samples - 2;
    double *x = bp_alloc("explain.shapley", n, sizeof *x), last = 0,
           more = texts > n ? (double)texts / (double)(texts - n) : NAN;

    memset(error, 0, (size_t)(n + 1) * sizeof *error);
    for (int64_t s = 2; s < masks->samples; s++) {
        double left = take(x, masks, value, s), sum = 0;

        for (int64_t j = 0; j < n; j++)
            left -= phi[j] * x[j];
        explain_system_solve(system, x);
        left *= weight_of(weights, s);
        for (int64_t j = 0; j < n; j++) {
            error[j] += left * left * x[j] * x[j];
            sum += x[j];
        }
        last += left * left * sum * sum; /* the last one is the remainder */
    }
    error[n] = last;
    for (int64_t j = 0; j <= n; j++)
        error[j] = system->loose > 0 ? NAN : sqrt(more * error[j]);
    bp_free(x);
}

void explain_shapley_fit(double *phi, double *error, const explain_masks *masks,
                         const double *value, const double *weights)
{
    int64_t M = masks->features, n = M - 1;
    explain_system system;
    double *x;

    if (M == 0)
        return;
    explain_system_init(&system, n);
    x = bp_alloc("explain.shapley", n, sizeof *x);
    memset(phi, 0, (size_t)M * sizeof *phi);
    for (int64_t s = 2; s < masks->samples; s++) {
        double y = take(x, masks, value, s), weight = weight_of(weights, s);

        explain_system_add(&system, x, weight);
        for (int64_t j = 0; j < n; j++)
            phi[j] += weight * x[j] * y;
    }
    explain_system_factor(&system);
    explain_system_solve(&system, phi);
    phi[n] = value[0] - value[1];
    for (int64_t j = 0; j < n; j++)
        phi[n] -= phi[j];
    if (error && n > 0)
        find_errors(error, phi, &system, masks, value, weights);
    else if (error)
        error[0] = 0;
    bp_free(x);
    explain_system_clear(&system);
}
