/* LIME: a linear model of the prediction without some of the words. Ribeiro et al. 2016, "Why
 * should I trust you?". */
#include "explain/perturbation/sets.h"

#include "base/mem.h"

enum { FEATURE, WEIGHT, INTERCEPT, R2, LOCAL, PREDICTION, OF_SOURCE, SOURCE_WEIGHT };

static void fit_target(float *const *to, explain_sets *sets, const bp_explain_settings *settings,
                       const bp_explained *document, const explain_features *features, int64_t k)
{
    const double *values = explain_sets_of(sets, explain_variants_column(settings, document, k));
    explain_surrogate fit = {
        .weights = bp_alloc("explain.surrogate", sets->masks.features, sizeof(double))};

    explain_surrogate_fit(&fit, &sets->masks, values, settings->keys->most_words);
    explain_features_spread(to[WEIGHT] + k * document->T, to[SOURCE_WEIGHT] + k * document->S,
                            features, fit.weights, sets->length);
    to[INTERCEPT][k] = (float)fit.intercept;
    to[R2][k] = (float)fit.r2;
    to[LOCAL][k] = (float)fit.local;
    to[PREDICTION][k] = (float)values[0];
    bp_free(fit.weights);
}

/* Target k, or all. */
static bp_err run_target(float *const *to, bp_model *model, const bp_explain_settings *settings,
                         const bp_explained *document, const explain_features *features, int64_t k)
{
    bp_rng_key key = explain_sets_key(settings, document, k);
    explain_sets sets;
    bp_err err = bp_agree(settings->group, explain_sets_new(&sets, settings, document, features, k,
                                                            settings->keys->samples));

    if (err == BP_OK) {
        explain_surrogate_draw(&sets.masks, &key);
        err = explain_sets_run(&sets, model, settings, document, features, k);
    }
    for (int64_t end = explain_sets_next(settings, document, k); k < end && err == BP_OK; k++)
        fit_target(to, &sets, settings, document, features, k);
    explain_sets_clear(&sets);
    return err;
}

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    explain_features features;
    bp_err err = BP_OK;

    explain_features_of(&features, settings, document);
    explain_features_write(to[FEATURE], to[OF_SOURCE], &features, document->T);
    for (int64_t k = 0; k < document->K && err == BP_OK;
         k = explain_sets_next(settings, document, k))
        err = run_target(to, model, settings, document, &features, k);
    explain_features_clear(&features);
    return err;
}

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    (void)settings;
    for (int64_t k = 0; k < document->K; k++)
        bp_explain_add(figures, "r2", 1, at[R2] + k, 1);
}

const bp_explain_method bp_explain_surrogate = {
    .name = "surrogate",
    .title = "Surrogate model (LIME)",
    .help = "is LIME: a linear model of what the prediction becomes without some of the words",
    .arrays = {{"feature", BP_EXPLAIN_BY_PLACE},
               {"weight", BP_EXPLAIN_BY_INPUT},
               {"intercept", BP_EXPLAIN_BY_TARGET},
               {"r2", BP_EXPLAIN_BY_TARGET},
               {"local", BP_EXPLAIN_BY_TARGET},
               {"prediction", BP_EXPLAIN_BY_TARGET},
               {"source_feature", BP_EXPLAIN_BY_SOURCE_PLACE},
               {"source_weight", BP_EXPLAIN_BY_SOURCE}},
    .changes = true,
    .averages = true,
    .ranks = "weight",
    .run = run,
    .add = add,
    .finish = bp_explain_means};
