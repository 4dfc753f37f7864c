/* The ranking of models that is learned from pairs. Called by ranked.c. */
#include "search/methods/ranker.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

#define PENALTY   1e-3
#define STEPS     25 /* of Newton's method at most */
#define PAIRS_MAX 20000

/* The data of a fit: rows are standardised. */
typedef struct sample {
    double *x; /* [n][d] */
    const double *loss;
    int64_t n, d;
} sample;

/* ---- linear algebra of a few dozen rows ---- */

/* Solve A b = b in place; A [d][d] is symmetric and positive definite, and overwritten. */
static void solve(double *A, double *b, int64_t d)
{
    for (int64_t k = 0; k < d; k++) { /* A = L L^T */
        for (int64_t j = 0; j < k; j++)
            A[k * d + k] -= A[k * d + j] * A[k * d + j];
        A[k * d + k] = sqrt(A[k * d + k]);
        for (int64_t i = k + 1; i < d; i++) {
            for (int64_t j = 0; j < k; j++)
                A[i * d + k] -= A[i * d + j] * A[k * d + j];
            A[i * d + k] /= A[k * d + k];
        }
    }
    for (int64_t k = 0; k < d; k++) {
        for (int64_t j = 0; j < k; j++)
            b[k] -= A[k * d + j] * b[j];
        b[k] /= A[k * d + k];
    }
    for (int64_t k = d - 1; k >= 0; k--) {
        for (int64_t i = k + 1; i < d; i++)
            b[k] -= A[i * d + k] * b[i];
        b[k] /= A[k * d + k];
    }
}

/* ---- features ---- */

static void standardise(nas_ranker *out, sample *s, const double *x)
{
    for (int64_t f = 0; f < s->d; f++) {
        double mean = 0, square = 0;

        for (int64_t i = 0; i < s->n; i++)
            mean += x[i * s->d + f] / (double)s->n;
        for (int64_t i = 0; i < s->n; i++)
            square += (x[i * s->d + f] - mean) * (x[i * s->d + f] - mean) / (double)s->n;
        out->mean[f] = mean;
        out->scale[f] = square > 1e-24 * (1 + mean * mean) ? sqrt(square) : INFINITY;
        for (int64_t i = 0; i < s->n; i++)
            s->x[i * s->d + f] = (x[i * s->d + f] - mean) / out->scale[f];
    }
}

static double dot(const double *w, const double *x, int64_t d)
{
    double sum = 0;

    for (int64_t f = 0; f < d; f++)
        sum += w[f] * x[f];
    return sum;
}

/* ---- pairs ---- */

/* Which pairs count. */
typedef enum part {
    ALL,
    BESIDE, /* without a row of the fold */
    ONE,    /* with one or two rows of it */
    BOTH    /* with two: trees memorise rows that they learned from, and so half of a pair */
} part;

static bool takes(int64_t i, int64_t j, int fold, part which)
{
    int rows = (i % NAS_FOLDS == fold) + (j % NAS_FOLDS == fold);

    return which == ALL || (which == BESIDE ? rows == 0 : which == ONE ? rows > 0 : rows == 2);
}

/* Pairs that differ in their loss; a random subset if there are too many. */
static int64_t list_pairs(nas_pair *pairs, const sample *s, int fold, part which,
                          const bp_rng_key *key)
{
    int64_t count = 0, all = s->n * (s->n - 1) / 2, at = 0;

    for (int64_t i = 0; i < s->n; i++)
        for (int64_t j = 0; j < i; j++, at++) {
            if (!takes(i, j, fold, which) || s->loss[i] == s->loss[j] || count == PAIRS_MAX ||
                (all > PAIRS_MAX &&
                 bp_rng_uniform(key, (uint64_t)at) > (double)PAIRS_MAX / (double)all))
                continue;
            pairs[count++] = s->loss[i] < s->loss[j] ? (nas_pair){(int32_t)i, (int32_t)j}
                                                     : (nas_pair){(int32_t)j, (int32_t)i};
        }
    return count;
}

static double *row_of(const sample *s, int64_t i)
{
    return s->x + i * s->d;
}

/* Mean logistic loss of pairs and the penalty: gradient and Hessian at w. */
static void differentiate(const sample *s, const nas_pair *pairs, int64_t count, const double *w,
                          double *gradient, double *hessian)
{
    double z[NAS_FEATURES];

    memset(hessian, 0, (size_t)(s->d * s->d) * sizeof *hessian);
    for (int64_t f = 0; f < s->d; f++) {
        gradient[f] = PENALTY * w[f];
        hessian[f * s->d + f] = PENALTY;
    }
    for (int64_t k = 0; k < count; k++) {
        const double *a = row_of(s, pairs[k].better), *b = row_of(s, pairs[k].worse);

        for (int64_t f = 0; f < s->d; f++)
            z[f] = a[f] - b[f];
        double p = 1 / (1 + exp(-dot(w, z, s->d))), weight = p * (1 - p) / (double)count;
        for (int64_t f = 0; f < s->d; f++) {
            gradient[f] -= (1 - p) * z[f] / (double)count;
            for (int64_t h = 0; h <= f; h++)
                hessian[f * s->d + h] += weight * z[f] * z[h];
        }
    }
    for (int64_t f = 0; f < s->d; f++)
        for (int64_t h = 0; h < f; h++)
            hessian[h * s->d + f] = hessian[f * s->d + h];
}

/* Fits w[d] to the pairs; features that are not kept get 0. */
static void fit_linear(double *w, const sample *s, const nas_pair *pairs, int64_t count,
                       const bool *kept)
{
    double *hessian = bp_alloc("search", s->d * s->d, sizeof *hessian), step[NAS_FEATURES];

    memset(w, 0, (size_t)s->d * sizeof *w);
    for (int it = 0; it < STEPS && count > 0; it++) {
        double longest = 0;

        differentiate(s, pairs, count, w, step, hessian);
        for (int64_t f = 0; f < s->d; f++) {
            if (kept[f])
                continue;
            step[f] = 0;
            for (int64_t h = 0; h < s->d; h++)
                hessian[f * s->d + h] = hessian[h * s->d + f] = f == h;
        }
        solve(hessian, step, s->d);
        for (int64_t f = 0; f < s->d; f++)
            longest = fmax(longest, fabs(step[f]));
        double damped = longest > 4 ? 4 / longest : 1; /* far from the optimum */
        for (int64_t f = 0; f < s->d; f++)
            w[f] -= damped * step[f];
        if (longest < 1e-9)
            break;
    }
    bp_free(hessian);
}

static void fit(nas_ranker *out, const sample *s, const nas_pair *pairs, int64_t count)
{
    if (out->is_boosted)
        nas_boost(out->trees, s->x, s->n, s->d, out->kept, pairs, count);
    else
        fit_linear(out->weight, s, pairs, count, out->kept);
}

/* u of a standardised row. */
static double utility(const nas_ranker *ranker, const double *row)
{
    return ranker->is_boosted ? nas_boosted(ranker->trees, row)
                              : dot(ranker->weight, row, ranker->features);
}

/* Number of pairs in the right order; ties count half. permuted: the feature whose values are
 * permuted among rows by `key`, or -1. */
static double right_of(const sample *s, const nas_pair *pairs, int64_t count,
                       const nas_ranker *ranker, int64_t permuted, const bp_rng_key *key)
{
    double right = 0, row[NAS_FEATURES];

    for (int64_t k = 0; k < count; k++) {
        int64_t of[2] = {pairs[k].better, pairs[k].worse};
        double u[2];

        for (int e = 0; e < 2; e++) {
            memcpy(row, row_of(s, of[e]), (size_t)s->d * sizeof *row);
            if (permuted >= 0)
                row[permuted] = row_of(s, bp_rng_permute(key, of[e], s->n))[permuted];
            u[e] = utility(ranker, row);
        }
        right += u[0] > u[1] ? 1 : u[0] == u[1] ? 0.5 : 0;
    }
    return right;
}

/* Holds out each fold once: measures the share of its pairs in the right order, and the effect of
 * permutations. */
static double cross_validate(nas_ranker *out, const sample *s, nas_pair *pairs, uint64_t seed,
                             bool measures)
{
    double right = 0, lost[NAS_FEATURES] = {0};
    int64_t all = 0;

    for (int fold = 0; fold < NAS_FOLDS; fold++) {
        bp_rng_key key = bp_rng_key_of(seed, BP_RNG_SEARCH, 0, fold, 5);
        int64_t count = list_pairs(pairs, s, fold, BESIDE, &key);
        double own;

        fit(out, s, pairs, count);
        count = list_pairs(pairs, s, fold, out->is_boosted ? BOTH : ONE, &key);
        own = right_of(s, pairs, count, out, -1, NULL);
        right += own;
        all += count;
        for (int64_t f = 0; f < s->d && measures; f++) {
            bp_rng_key shuffle = bp_rng_key_of(seed, BP_RNG_SEARCH, 0, fold, 6 + f);

            lost[f] += own - right_of(s, pairs, count, out, f, &shuffle);
        }
    }
    for (int64_t f = 0; f < s->d && measures; f++)
        out->importance[f] = all > 0 ? lost[f] / (double)all : 0;
    return all > 0 ? right / (double)all : NAN;
}

/* Drops features whose permutation does no harm, unless those are all features. */
static void prune(nas_ranker *out)
{
    int64_t best = 0, kept = 0;

    for (int64_t f = 0; f < out->features; f++) {
        out->kept[f] = out->importance[f] > 0;
        kept += out->kept[f];
        best = out->importance[f] > out->importance[best] ? f : best;
    }
    if (kept == 0)
        for (int64_t f = 0; f < out->features; f++)
            out->kept[f] = true;
}

static sample open_sample(nas_ranker *out, const double *x, int64_t n, int64_t d)
{
    sample s = {.x = bp_alloc("search", n * d, sizeof *s.x), .n = n, .d = d};

    BP_ASSERT(d <= NAS_FEATURES);
    memset(out, 0, sizeof *out);
    out->features = d;
    for (int64_t f = 0; f < d; f++)
        out->kept[f] = true;
    standardise(out, &s, x);
    return s;
}

void nas_ranker_fit(nas_ranker *out, const nas_ranked_models *models, bool boosted, uint64_t seed)
{
    sample s = open_sample(out, models->x, models->n, models->d);
    nas_pair *pairs = bp_alloc("search", PAIRS_MAX, sizeof *pairs);
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_SEARCH, 0, NAS_FOLDS, 5);

    out->is_boosted = boosted;
    s.loss = models->loss;
    (void)cross_validate(out, &s, pairs, seed, true);
    prune(out);
    out->accuracy = cross_validate(out, &s, pairs, seed, false);
    out->pairs = list_pairs(pairs, &s, -1, ALL, &key);
    fit(out, &s, pairs, out->pairs);
    bp_free(pairs);
    bp_free(s.x);
}

double nas_ranker_utility(const nas_ranker *ranker, const double *x)
{
    double row[NAS_FEATURES];

    for (int64_t f = 0; f < ranker->features; f++)
        row[f] = (x[f] - ranker->mean[f]) / ranker->scale[f];
    return utility(ranker, row);
}

void nas_regression_fit(nas_ranker *out, double *intercept, const double *x, const double *y,
                        int64_t n, int64_t d)
{
    sample s = open_sample(out, x, n, d);
    double *A = bp_alloc("search", d * d, sizeof *A);

    *intercept = 0;
    for (int64_t i = 0; i < n; i++)
        *intercept += y[i] / (double)n;
    for (int64_t f = 0; f < d; f++) {
        A[f * d + f] = PENALTY * (double)n;
        for (int64_t i = 0; i < n; i++) {
            out->weight[f] += row_of(&s, i)[f] * (y[i] - *intercept);
            for (int64_t h = 0; h < d; h++)
                A[f * d + h] += row_of(&s, i)[f] * row_of(&s, i)[h];
        }
    }
    solve(A, out->weight, d);
    bp_free(A);
    bp_free(s.x);
}
