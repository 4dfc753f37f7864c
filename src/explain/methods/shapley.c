/* Shapley values: from all sets of words if these are few, else by a regression on sampled sets.
 * Lundberg and Lee 2017, "A unified approach to interpreting model predictions". */
#include "explain/perturbation/shapley.h"
#include "explain/perturbation/sets.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum {
    FEATURE,
    VALUE,
    ERROR,
    NONE,
    ALL,
    EXACT,
    REMOVED,
    SETS,
    FEWEST,
    OF_SOURCE,
    SOURCE_VALUE,
    SOURCE_ERROR
};

/* All sets of M features: bit f of a set's number says that it has feature f. */
static void list_all(explain_masks *masks)
{
    for (int64_t s = 0; s < masks->samples; s++)
        for (int64_t f = 0; f < masks->features; f++)
            masks->kept[s * masks->features + f] = (s >> f) & 1;
}

/* Are all sets evaluated? If the user asks for it, or if they are few and no more than would be
 * drawn. */
static bool takes_all(const bp_explain_settings *settings, int64_t M)
{
    bool asked = strcmp(settings->keys->shapley, "exact") == 0,
         few = strcmp(settings->keys->shapley, "auto") == 0 && M <= EXPLAIN_SHAPLEY_ALL &&
               ((int64_t)1 << M) <= settings->keys->samples;

    return asked || few;
}

/* ---- the smallest sets of features without which the class changes ---- */

static int64_t best_of(const double *values, int64_t count)
{
    int64_t best = 0;

    for (int64_t k = 1; k < count; k++)
        best = values[k] > values[best] ? k : best;
    return best;
}

static int64_t count_left_out(const explain_masks *masks, int64_t s)
{
    int64_t count = 0;

    for (int64_t f = 0; f < masks->features; f++)
        count += !masks->kept[s * masks->features + f];
    return count;
}

/* The one of several whose omitted features come first. */
static bool comes_first(const explain_masks *masks, int64_t s, int64_t than)
{
    return memcmp(masks->kept + s * masks->features, masks->kept + than * masks->features,
                  (size_t)masks->features) < 0;
}

static void find_fewest(float *const *to, const explain_sets *sets,
                        const explain_features *features)
{
    const explain_masks *masks = &sets->masks;
    int64_t K = sets->outcomes, all = masks->samples - 1, own = best_of(sets->values + all * K, K),
            fewest = masks->features + 1, count = 0, first = -1;

    for (int64_t s = 0; s < all; s++) {
        int64_t left_out = count_left_out(masks, s);

        if (left_out > fewest || best_of(sets->values + s * K, K) == own)
            continue;
        count = left_out < fewest ? 1 : count + 1;
        if (left_out < fewest || comes_first(masks, s, first))
            first = s;
        fewest = left_out;
    }
    to[SETS][0] = (float)count;
    if (first < 0)
        return;
    to[REMOVED][0] = (float)fewest;
    for (int64_t t = 0; t < sets->length; t++)
        to[FEWEST][t] = features->of_place[t] >= 0 &&
                        !masks->kept[first * masks->features + features->of_place[t]];
}

/* ---- a target, or all ---- */

typedef struct values {
    float *const *to;
    const bp_explain_settings *settings;
    const bp_explained *document;
    const explain_features *features;
} values;

static void take_target(const values *self, explain_sets *sets, int64_t k, bool all)
{
    int64_t M = sets->masks.features, T = self->document->T, S = self->document->S;
    const double *value =
        explain_sets_of(sets, explain_variants_column(self->settings, self->document, k));
    double *phi = bp_alloc("explain.shapley", 2 * M, sizeof *phi), *error = phi + M;

    if (all)
        explain_shapley_exact(phi, M, value);
    else
        explain_shapley_fit(phi, error, &sets->masks, value, NULL);
    explain_features_spread(self->to[VALUE] + k * T, self->to[SOURCE_VALUE] + k * S, self->features,
                            phi, sets->length);
    explain_features_spread(self->to[ERROR] + k * T, self->to[SOURCE_ERROR] + k * S, self->features,
                            error, sets->length);
    self->to[ALL][k] = (float)value[all ? sets->masks.samples - 1 : 0];
    self->to[NONE][k] = (float)value[all ? 0 : 1];
    bp_free(phi);
}

static bp_err run_target(const values *self, bp_model *model, int64_t k)
{
    const bp_explain_settings *settings = self->settings;
    int64_t M =
        explain_features_before(self->features, bp_explain_length(settings, self->document, k));
    bool all = takes_all(settings, M);
    bp_rng_key key = explain_sets_key(settings, self->document, k);
    explain_sets sets;
    bp_err err = bp_agree(settings->group,
                          explain_sets_new(&sets, settings, self->document, self->features, k,
                                           all ? (int64_t)1 << M : settings->keys->samples));

    if (err == BP_OK && all)
        list_all(&sets.masks);
    else if (err == BP_OK)
        explain_shapley_draw(&sets.masks, &key);
    if (err == BP_OK)
        err = explain_sets_run(&sets, model, settings, self->document, self->features, k);
    for (int64_t end = explain_sets_next(settings, self->document, k); k < end && err == BP_OK; k++)
        take_target(self, &sets, k, all);
    if (err == BP_OK && !all)
        self->to[EXACT][0] = 0;
    if (err == BP_OK && all && explain_variants_classifies(settings->info))
        find_fewest(self->to, &sets, self->features);
    explain_sets_clear(&sets);
    return err;
}

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    explain_features features;
    values self = {to, settings, document, &features};
    bp_err err = BP_OK;

    explain_features_of(&features, settings, document);
    explain_features_write(to[FEATURE], to[OF_SOURCE], &features, document->T);
    to[EXACT][0] = 1;
    to[REMOVED][0] = to[SETS][0] = NAN;
    for (int64_t k = 0; k < document->K && err == BP_OK;
         k = explain_sets_next(settings, document, k))
        err = run_target(&self, model, k);
    explain_features_clear(&features);
    return err;
}

/* ---- the corpus ---- */

/* The largest magnitude; NaN if one is NaN. */
static float largest_of(const float *row, int64_t count)
{
    float most = 0;

    for (int64_t i = 0; i < count && !isnan(most); i++)
        most = isnan(row[i]) ? NAN : fmaxf(most, fabsf(row[i]));
    return most;
}

/* Means over targets of the largest value and of the largest error; targets whose samples do not
 * determine them. */
static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    (void)settings;
    for (int64_t k = 0; k < document->K; k++) {
        int64_t T = document->T, S = document->S;
        float value =
                  fmaxf(largest_of(at[VALUE] + k * T, T), largest_of(at[SOURCE_VALUE] + k * S, S)),
              own = largest_of(at[ERROR] + k * T, T),
              other = largest_of(at[SOURCE_ERROR] + k * S, S), error, loose;

        error = isnan(own) || isnan(other) ? NAN : fmaxf(own, other);
        loose = isnan(error);
        bp_explain_add(figures, "largest_value", 1, &value, 1);
        bp_explain_add(figures, "largest_error", 1, &error, isnan(error) ? 0 : 1);
        bp_explain_add(figures, "undetermined", 1, &loose, 1);
    }
}

const bp_explain_method bp_explain_shapley = {
    .name = "shapley",
    .title = "Shapley values",
    .help = "is Shapley values of words, which sum to the prediction less that without any word",
    .arrays = {{"feature", BP_EXPLAIN_BY_PLACE},
               {"value", BP_EXPLAIN_BY_INPUT},
               {"error", BP_EXPLAIN_BY_INPUT},
               {"none", BP_EXPLAIN_BY_TARGET},
               {"all", BP_EXPLAIN_BY_TARGET},
               {"exact", BP_EXPLAIN_BY_DOCUMENT},
               {"fewest_removed", BP_EXPLAIN_BY_DOCUMENT},
               {"fewest_sets", BP_EXPLAIN_BY_DOCUMENT},
               {"fewest", BP_EXPLAIN_BY_PLACE},
               {"source_feature", BP_EXPLAIN_BY_SOURCE_PLACE},
               {"source_value", BP_EXPLAIN_BY_SOURCE},
               {"source_error", BP_EXPLAIN_BY_SOURCE}},
    .missing = {"error", "source_error", "fewest_removed", "fewest_sets"},
    .changes = true,
    .averages = true,
    .ranks = "value",
    .run = run,
    .add = add,
    .finish = bp_explain_means};
