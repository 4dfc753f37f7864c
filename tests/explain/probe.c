/* explain_probe KIND: what src/explain/perturbation makes of the numbers on standard input, a line
 * each, for test_perturbation.py. An array is its length and its values, with blanks between. */
#include "base/mem.h"
#include "explain/perturbation/shapley.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *next(int64_t *n)
{
    double *values;

    if (scanf("%" SCNd64, n) != 1)
        exit(1);
    values = bp_alloc("probe", *n, sizeof *values);
    for (int64_t i = 0; i < *n; i++)
        if (scanf("%lf", &values[i]) != 1)
            exit(1);
    return values;
}

static int64_t whole(void)
{
    int64_t n;
    double *values = next(&n);
    int64_t value = (int64_t)values[0];

    bp_free(values);
    return value;
}

static void put(const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        printf("%.17g\n", values[i]);
}

/* Features, then the sets. */
static explain_masks next_masks(void)
{
    explain_masks masks = {.features = whole()};
    int64_t n;
    double *cells = next(&n);

    masks.kept = bp_alloc("probe", n, 1);
    masks.samples = masks.features > 0 ? n / masks.features : 0;
    for (int64_t i = 0; i < n; i++)
        masks.kept[i] = cells[i] > 0;
    bp_free(cells);
    return masks;
}

static void fit_surrogate(void)
{
    explain_masks masks = next_masks();
    int64_t n, wanted;
    double *values = next(&n), *weights = bp_alloc("probe", masks.features, sizeof *weights);
    explain_surrogate fit = {.weights = weights};

    wanted = whole();
    explain_surrogate_fit(&fit, &masks, values, wanted);
    put(weights, masks.features);
    put((double[]){fit.intercept, fit.r2, fit.local}, 3);
    bp_free(weights);
    bp_free(values);
    bp_free(masks.kept);
}

static void fit_shapley(void)
{
    explain_masks masks = next_masks();
    int64_t n, M = masks.features, weighted;
    double *values = next(&n), *weights = next(&weighted),
           *phi = bp_alloc("probe", 2 * M, sizeof *phi);

    explain_shapley_fit(phi, phi + M, &masks, values, weighted > 0 ? weights : NULL);
    put(phi, 2 * M);
    bp_free(phi);
    bp_free(weights);
    bp_free(values);
    bp_free(masks.kept);
}

static void sum_shapley(void)
{
    int64_t n, M = whole();
    double *values = next(&n), *phi = bp_alloc("probe", M, sizeof *phi);

    explain_shapley_exact(phi, M, values);
    put(phi, M);
    bp_free(phi);
    bp_free(values);
}

static void draw(void (*from)(explain_masks *, const bp_rng_key *))
{
    explain_masks masks = {.features = whole()};

    masks.samples = whole();
    bp_rng_key key = bp_rng_key_of((uint64_t)whole(), BP_RNG_TEST, 0, 0, 0);
    int64_t cells = masks.samples * masks.features;

    masks.kept = bp_alloc("probe", cells, 1);
    from(&masks, &key);
    for (int64_t i = 0; i < cells; i++)
        printf("%d\n", masks.kept[i]);
    bp_free(masks.kept);
}

int main(int count, char **words)
{
    const char *kind = count == 2 ? words[1] : "";

    if (strcmp(kind, "surrogate") == 0)
        fit_surrogate();
    else if (strcmp(kind, "shapley") == 0)
        fit_shapley();
    else if (strcmp(kind, "exact") == 0)
        sum_shapley();
    else if (strcmp(kind, "draw_surrogate") == 0)
        draw(explain_surrogate_draw);
    else if (strcmp(kind, "draw_shapley") == 0)
        draw(explain_shapley_draw);
    else
        return 2;
    return 0;
}
