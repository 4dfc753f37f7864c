/* Sets of features, and the values of a document with them. Called by methods/surrogate.c and
 * methods/shapley.c. */
#include "explain/perturbation/sets.h"

#include "base/mem.h"

bp_err explain_sets_new(explain_sets *out, const bp_explain_settings *settings,
                        const bp_explained *document, const explain_features *features, int64_t k,
                        int64_t samples)
{
    int64_t length = bp_explain_length(settings, document, k),
            M = explain_features_before(features, length),
            outcomes = explain_variants_outcomes(settings, document);

    *out = (explain_sets){
        .masks = {samples, M, bp_try_alloc("explain.sets", samples * M, sizeof(uint8_t))},
        .outcomes = outcomes,
        .length = length,
        .values = bp_try_alloc("explain.sets", samples * outcomes, sizeof(double)),
        .of_one = bp_try_alloc("explain.sets", samples, sizeof(double))};
    return out->masks.kept && out->values && out->of_one
               ? BP_OK
               : bp_fail_memory("sets of features", samples * (M + outcomes), sizeof(double));
}

void explain_sets_clear(explain_sets *sets)
{
    bp_free(sets->masks.kept);
    bp_free(sets->values);
    bp_free(sets->of_one);
}

bp_rng_key explain_sets_key(const bp_explain_settings *settings, const bp_explained *document,
                            int64_t k)
{
    return bp_rng_key_of(settings->seed, BP_RNG_PERTURB, 0, document->number, k);
}

bp_err explain_sets_run(explain_sets *sets, bp_model *model, const bp_explain_settings *settings,
                        const bp_explained *document, const explain_features *features, int64_t k)
{
    explain_variants variants;
    uint8_t *kept = bp_alloc("explain.sets", sets->length + document->S, sizeof *kept);
    bp_err err;

    explain_variants_begin(&variants, model, settings, document, k, false);
    variants.out = sets->values;
    for (int64_t s = 0; s < sets->masks.samples && variants.err == BP_OK; s++) {
        explain_features_keep(kept, features, sets->masks.kept + s * sets->masks.features,
                              sets->length);
        explain_variants_keep(&variants, kept);
    }
    err = explain_variants_end(&variants);
    for (int64_t i = 0; err == BP_OK && i < sets->masks.samples * sets->outcomes; i++)
        sets->values[i] = explain_variants_value(settings, sets->values[i]);
    bp_free(kept);
    return err;
}

const double *explain_sets_of(explain_sets *sets, int64_t outcome)
{
    for (int64_t s = 0; s < sets->masks.samples; s++)
        sets->of_one[s] = sets->values[s * sets->outcomes + outcome];
    return sets->of_one;
}
