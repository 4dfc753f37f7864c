/* Pairs of texts with small differences: does the model's prediction follow the difference? The
 * documents of a contrast set are a text, the first, and edited versions of it. Gardner et al.
 * 2020, "Evaluating Models' Local Decision Boundaries via Contrast Sets". */
#include "explain/perturbation/variants.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { SET, LABEL, PREFERRED, LOG_P };

#define SETS "documents_of_sets"

static bp_err run(bp_model *lm, const bp_explain_settings *settings, const bp_explained *document,
                  float *results)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    double *log_p = bp_alloc("explain.sets", form.outcomes, sizeof *log_p);
    float *to[BP_EXPLAIN_ARRAYS];
    explain_variants variants;
    int64_t best = 0;
    bp_err err;

    bp_explain_lay_out_to(to, &bp_explain_contrast_sets, &form, results);
    explain_variants_begin(&variants, lm, settings, document, 0, false);
    variants.out = log_p;
    explain_variants_replace(&variants, document->inputs);
    err = explain_variants_end(&variants);
    for (int64_t v = 0; v < form.outcomes && err == BP_OK; v++) {
        to[LOG_P][v] = (float)log_p[v];
        best = log_p[v] > log_p[best] ? v : best;
    }
    to[SET][0] = (float)document->set;
    to[LABEL][0] = (float)document->label;
    to[PREFERRED][0] = (float)best;
    bp_free(log_p);
    return err;
}

/* ---- the corpus ---- */

/* figures.SETS[set] has the documents so far: [label, preferred, [ln p...]]. */
static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *results)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    const float *at[BP_EXPLAIN_ARRAYS];
    json_t *sets = json_object_get(figures, SETS), *list, *log_p = json_array();
    char *name;

    if (document->K == 0) {
        json_decref(log_p);
        return;
    }
    bp_explain_lay_out(at, &bp_explain_contrast_sets, &form, results);
    for (int64_t v = 0; v < form.outcomes; v++)
        (void)json_array_append_new(log_p, json_real((double)at[LOG_P][v]));
    if (!sets)
        (void)json_object_set_new(figures, SETS, sets = json_object());
    name = bp_sprintf("%" PRId64, (int64_t)at[SET][0]);
    list = json_object_get(sets, name);
    if (!list)
        (void)json_object_set_new(sets, name, list = json_array());
    if (at[SET][0] >= 0)
        (void)json_array_append_new(
            list, json_pack("[iio]", (int)at[LABEL][0], (int)at[PREFERRED][0], log_p));
    else
        json_decref(log_p);
    bp_free(name);
}

static int64_t number(const json_t *document, size_t k)
{
    return json_integer_value(json_array_get(document, k));
}

static void add_mean(json_t *figures, const char *name, double sum, double weight)
{
    float mean = weight > 0 ? (float)(sum / weight) : 0;

    bp_explain_add(figures, name, 1, &mean, weight);
}

/* The first document of a set against each other one. */
static void add_pairs(json_t *figures, const json_t *list)
{
    const json_t *first = json_array_get(list, 0);
    size_t pairs = json_array_size(list) - 1;
    double right = 0, known = 0, changed = 0, as_labels = 0, labelled = 0, fall = 0;
    int64_t label = number(first, 0), preferred = number(first, 1);

    for (size_t k = 1; k <= pairs; k++) {
        const json_t *other = json_array_get(list, k);
        int64_t own = number(other, 0), now = number(other, 1);
        bool moves = now != preferred;

        changed += moves;
        known += own >= 0;
        right += own >= 0 && now == own;
        labelled += own >= 0 && label >= 0;
        as_labels += own >= 0 && label >= 0 && moves == (own != label);
        fall += json_real_value(json_array_get(json_array_get(first, 2), (size_t)preferred)) -
                json_real_value(json_array_get(json_array_get(other, 2), (size_t)preferred));
    }
    add_mean(figures, "accuracy_first", preferred == label, label >= 0);
    add_mean(figures, "accuracy_others", right, known);
    add_mean(figures, "consistency", preferred == label && right == (double)pairs,
             label >= 0 && known == (double)pairs);
    add_mean(figures, "changed", changed, (double)pairs);
    add_mean(figures, "changed_as_labels", as_labels, labelled);
    add_mean(figures, "fall", fall, (double)pairs);
    bp_explain_end_document(figures);
}

static void finish(json_t *figures)
{
    json_t *sets = json_incref(json_object_get(figures, SETS)), *list;
    int64_t count = 0, pairs = 0;
    const char *name;

    (void)json_object_clear(figures);
    json_object_foreach(sets, name, list)
    {
        if (json_array_size(list) < 2)
            continue;
        count++;
        pairs += (int64_t)json_array_size(list) - 1;
        add_pairs(figures, list);
    }
    json_decref(sets);
    bp_explain_means(figures);
    (void)json_object_set_new(figures, "sets", json_integer((json_int_t)count));
    (void)json_object_set_new(figures, "pairs", json_integer((json_int_t)pairs));
}

static const char *lacks(const bp_model_info *info)
{
    return explain_variants_classifies(info) ? NULL : "its predictions are not classes of texts";
}

const bp_explain_method bp_explain_contrast_sets = {
    .name = "contrast_sets",
    .help = "is whether predictions follow what a text and edited versions of it differ in",
    .arrays = {{"set", BP_EXPLAIN_BY_DOCUMENT},
               {"label", BP_EXPLAIN_BY_DOCUMENT},
               {"preferred", BP_EXPLAIN_BY_DOCUMENT},
               {"outcome_logprob", BP_EXPLAIN_BY_OUTCOME}},
    .changes = true,
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = finish};
