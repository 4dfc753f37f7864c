/* Pairs of texts with small differences: does the model's prediction follow the difference? The
 * documents of a contrast set are a text, the first, and edited versions of it. Gardner et al.
 * 2020, "Evaluating Models' Local Decision Boundaries via Contrast Sets". */
#include "explain/perturbation/variants.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>

enum { SET, LABEL, PREFERRED, LABELLED, RIGHT, LOG_P };

#define SETS "documents_of_sets"

typedef enum prediction {
    OF_CLASS, /* of a text */
    OF_PARTS, /* tags of words, ends of answers: right or not */
    OF_VALUE
} prediction;

static prediction prediction_of(const bp_model_info *info)
{
    return explain_variants_classifies(info)        ? OF_CLASS
           : bp_task_kind_of(&info->task)->is_value ? OF_VALUE
                                                    : OF_PARTS;
}

/* ---- a document ---- */

/* ln p of each class of the text, or its value. */
static bp_err predict_text(bp_model *model, const bp_explain_settings *settings,
                           const bp_explained *document, double *out)
{
    explain_variants variants;

    explain_variants_begin(&variants, model, settings, document, 0, false);
    variants.out = out;
    explain_variants_replace(&variants, document->inputs);
    return explain_variants_end(&variants);
}

static int64_t best_of(const float *row, int64_t count)
{
    int64_t best = 0;

    for (int64_t v = 1; v < count; v++)
        best = row[v] > row[best] ? v : best;
    return best;
}

/* The targets with a known label, and those whose label is what the model prefers. */
static bp_err predict_parts(bp_model *model, const bp_explain_settings *settings,
                            const bp_explained *document, float *labelled, float *right)
{
    int32_t *targets = bp_alloc("explain.sets", document->T, sizeof *targets), source_length;
    bp_model_batch batch = bp_explain_whole(document, targets, &source_length);
    int64_t columns = bp_model_columns(settings->info, document->T),
            rows = bp_model_batch_rows(&batch), row = -1;
    float *log_p = bp_try_alloc("explain.sets", rows * columns, sizeof *log_p);
    bp_err err = bp_agree(
        settings->group,
        log_p ? BP_OK : bp_fail_memory("probabilities of tags", rows * columns, sizeof *log_p));

    if (err == BP_OK)
        err = bp_model_distribution(model, &batch, log_p, NULL);
    if (err == BP_OK)
        bp_explain_look(settings, log_p, rows * columns);
    for (int64_t k = 0; k < document->K && err == BP_OK; k++) {
        bool again =
            k > 0 && document->positions[k] == document->positions[k - 1]; /* another outcome */

        row += !again;
        if (again || document->labels[k] < 0)
            continue;
        ++*labelled;
        *right += best_of(log_p + row * columns, columns) == document->labels[k];
    }
    bp_free(log_p);
    bp_free(targets);
    return err;
}

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    prediction of = prediction_of(settings->info);
    double *log_p = bp_alloc("explain.sets", form.outcomes + 1, sizeof *log_p);
    int64_t best = 0;
    bp_err err;

    to[SET][0] = (float)document->set;
    to[LABEL][0] = to[PREFERRED][0] = NAN;
    to[LABELLED][0] = to[RIGHT][0] = 0;
    err = of == OF_PARTS ? predict_parts(model, settings, document, to[LABELLED], to[RIGHT])
                         : predict_text(model, settings, document, log_p);
    for (int64_t v = 0; of == OF_CLASS && v < form.outcomes && err == BP_OK; v++) {
        to[LOG_P][v] = (float)log_p[v];
        best = log_p[v] > log_p[best] ? v : best;
    }
    if (of == OF_CLASS) {
        to[LABEL][0] = (float)document->labels[0];
        to[PREFERRED][0] = (float)best;
        to[LABELLED][0] = document->labels[0] >= 0;
        to[RIGHT][0] = document->labels[0] == best;
    } else if (of == OF_VALUE) {
        to[LABEL][0] = (float)document->value;
        to[PREFERRED][0] = (float)log_p[0];
        bp_explain_look(settings, to[PREFERRED], 1);
        to[LABELLED][0] = !isnan(document->value);
    }
    bp_free(log_p);
    return err;
}

/* ---- the corpus ---- */

static double number(const json_t *document, const char *name)
{
    return json_number_value(json_object_get(document, name));
}

/* The list of a set so far. */
static json_t *list_of(json_t *figures, int64_t set)
{
    json_t *sets = json_object_get(figures, SETS), *list;
    char *name = bp_sprintf("%" PRId64, set);

    if (!sets)
        (void)json_object_set_new(figures, SETS, sets = json_object());
    list = json_object_get(sets, name);
    if (!list)
        (void)json_object_set_new(sets, name, list = json_array());
    bp_free(name);
    return list;
}

/* Windows of a document follow one another, and count as one: it is right if all are. */
static bool add_window(json_t *list, int64_t document, const float *labelled, const float *right)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);

    if (!last || number(last, "document") != (double)document)
        return false;
    (void)json_object_set_new(last, "labelled",
                              json_real(number(last, "labelled") + (double)*labelled));
    (void)json_object_set_new(last, "right", json_real(number(last, "right") + (double)*right));
    return true;
}

/* figures.SETS[set] has the documents so far. */
static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    json_t *list, *log_p;

    (void)json_object_set_new(figures, "predicts", json_integer(prediction_of(settings->info)));
    (void)json_object_set_new(
        figures, "whole",
        json_boolean(
            bp_task_kind_of(&settings->info->task)->over_positions)); /* or nothing is right */
    if (document->K == 0 || at[SET][0] < 0)
        return;
    list = list_of(figures, document->set);
    if (add_window(list, document->of, at[LABELLED], at[RIGHT]))
        return;
    log_p = json_array();
    for (int64_t v = 0; v < form.outcomes; v++)
        (void)json_array_append_new(log_p, bp_json_real((double)at[LOG_P][v]));
    (void)json_array_append_new(
        list, json_pack("{sI so so sf sf so}", "document", (json_int_t)document->of, "label",
                        bp_json_real((double)at[LABEL][0]), "preferred",
                        bp_json_real((double)at[PREFERRED][0]), "labelled", (double)at[LABELLED][0],
                        "right", (double)at[RIGHT][0], "logprob", log_p));
}

static void add_mean(json_t *figures, const char *name, double sum, double weight)
{
    float mean = weight > 0 ? (float)(sum / weight) : 0;

    bp_explain_add(figures, name, 1, &mean, weight);
}

/* For the first document of a set, and for the others. `whole`: all of a document is right, or
 * none.
 */
static void add_accuracies(json_t *figures, const json_t *list, bool whole)
{
    double sums[2][2] = {{0}}; /* first, others: right, labelled */
    bool all = true, known = true;
    const json_t *document;
    size_t k;

    json_array_foreach(list, k, document)
    {
        double right = number(document, "right"), labelled = number(document, "labelled");
        bool complete = right == labelled;

        sums[k > 0][0] += whole ? labelled > 0 && complete : right;
        sums[k > 0][1] += whole ? labelled > 0 : labelled;
        all = all && complete;
        known = known && labelled > 0;
    }
    add_mean(figures, "accuracy_first", sums[0][0], sums[0][1]);
    add_mean(figures, "accuracy_others", sums[1][0], sums[1][1]);
    add_mean(figures, "consistency", all, known);
}

static double log_p_of(const json_t *document, size_t outcome)
{
    return json_number_value(json_array_get(json_object_get(document, "logprob"), outcome));
}

/* For classes: the first document of a set against each other one. */
static void add_changes(json_t *figures, const json_t *list)
{
    const json_t *first = json_array_get(list, 0);
    size_t pairs = json_array_size(list) - 1, preferred = (size_t)number(first, "preferred");
    double changed = 0, as_labels = 0, labelled = 0, fall = 0;
    double label = number(first, "label");

    for (size_t k = 1; k <= pairs; k++) {
        const json_t *other = json_array_get(list, k);
        double own = number(other, "label");
        bool moves = (size_t)number(other, "preferred") != preferred;

        changed += moves;
        labelled += own >= 0 && label >= 0;
        as_labels += own >= 0 && label >= 0 && moves == (own != label);
        fall += log_p_of(first, preferred) - log_p_of(other, preferred);
    }
    add_mean(figures, "changed", changed, (double)pairs);
    add_mean(figures, "changed_as_labels", as_labels, labelled);
    add_mean(figures, "fall", fall, (double)pairs);
}

/* For values: errors, and the differences between the first document and each other one. */
static void add_differences(json_t *figures, const json_t *list)
{
    const json_t *first = json_array_get(list, 0), *document;
    double errors[2] = {0}, known[2] = {0}, moved = 0, pairs = 0, missed = 0, directed = 0,
           followed = 0;
    size_t k;

    json_array_foreach(list, k, document)
    {
        double change = number(document, "preferred") - number(first, "preferred"),
               wanted = number(document, "label") - number(first, "label");
        bool has = number(document, "labelled") > 0;

        known[k > 0] += has;
        errors[k > 0] += has ? fabs(number(document, "preferred") - number(document, "label")) : 0;
        moved += k > 0 ? fabs(change) : 0;
        if (k == 0 || !has || number(first, "labelled") == 0)
            continue;
        pairs++;
        missed += fabs(change - wanted);
        directed += wanted != 0;
        followed += wanted != 0 && (change > 0) == (wanted > 0) && change != 0;
    }
    add_mean(figures, "error_first", errors[0], known[0]);
    add_mean(figures, "error_others", errors[1], known[1]);
    add_mean(figures, "difference", moved, (double)(json_array_size(list) - 1));
    add_mean(figures, "error_of_difference", missed, pairs);
    add_mean(figures, "direction", followed, directed);
}

static void finish(json_t *figures)
{
    json_t *sets = json_incref(json_object_get(figures, SETS)), *list;
    int64_t count = 0, pairs = 0,
            predicts = json_integer_value(json_object_get(figures, "predicts"));
    bool whole = json_is_true(json_object_get(figures, "whole"));
    const char *name;

    (void)json_object_clear(figures);
    json_object_foreach(sets, name, list)
    {
        if (json_array_size(list) < 2)
            continue;
        count++;
        pairs += (int64_t)json_array_size(list) - 1;
        if (predicts == OF_VALUE)
            add_differences(figures, list);
        else
            add_accuracies(figures, list, whole);
        if (predicts == OF_CLASS)
            add_changes(figures, list);
        bp_explain_end_document(figures);
    }
    json_decref(sets);
    bp_explain_means(figures);
    (void)json_object_set_new(figures, "sets", json_integer((json_int_t)count));
    (void)json_object_set_new(figures, "pairs", json_integer((json_int_t)pairs));
}

static const char *lacks(const bp_model_info *info)
{
    return bp_task_has_head(&info->task) ? NULL : "its predictions have no labels to be right by";
}

const bp_explain_method bp_explain_contrast_sets = {
    .name = "contrast_sets",
    .title = "Contrast sets",
    .help = "is whether predictions follow what a text and edited versions of it differ in",
    .arrays = {{"set", BP_EXPLAIN_BY_DOCUMENT},
               {"label", BP_EXPLAIN_BY_DOCUMENT},
               {"preferred", BP_EXPLAIN_BY_DOCUMENT},
               {"labelled", BP_EXPLAIN_BY_DOCUMENT},
               {"right", BP_EXPLAIN_BY_DOCUMENT},
               {"outcome_logprob", BP_EXPLAIN_BY_OUTCOME}},
    .missing = {"label", "preferred"},
    .changes = true,
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = finish};
