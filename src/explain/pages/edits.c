/* Results of `counterfactual` on the page of an example: the replaced tokens that change the
 * prediction, and single ones that move it most. Called by example.c. */
#include "explain/pages/example.h"

#include "base/config/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 8 /* single replaced tokens */

/* An array of the method's results by its name. */
static const float *find(const explain_shown *shown, const float *results, const char *name)
{
    const float *at[BP_EXPLAIN_ARRAYS];

    bp_explain_lay_out(at, &bp_explain_counterfactual, shown->form, results);
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && bp_explain_counterfactual.arrays[k].name; k++)
        if (strcmp(bp_explain_counterfactual.arrays[k].name, name) == 0)
            return at[k];
    return NULL;
}

/* What is predicted: a token, a class or tag; of others its number, null of a regression. */
static json_t *outcome_json(const explain_shown *shown, const explain_speller *speller, float value)
{
    const bp_task_shape *task = &shown->settings->info->task;

    if (value < 0 || (bp_task_has_head(task) && task->outcomes < 2))
        return json_null();
    if (shown->outcomes)
        return bp_json_string(shown->outcomes[(int64_t)value]);
    return bp_task_has_head(task) ? json_sprintf("%lld", (long long)value)
                                  : explain_token_json(speller, (int64_t)value);
}

/* [place, what stands there, what replaces it]. */
static json_t *replaced_json(const explain_speller *speller, float place, float old, float new)
{
    return json_pack("[I, o, o]", (json_int_t)place, explain_token_json(speller, (int64_t)old),
                     explain_token_json(speller, (int64_t) new));
}

/* ---- single tokens ---- */

typedef struct flip {
    double change;
    int64_t at;
} flip;

static int by_size(const void *a, const void *b)
{
    const flip *x = a, *y = b;
    double one = fabs(x->change), other = fabs(y->change);

    return one < other || one > other ? (one > other ? -1 : 1) : (x->at > y->at) - (x->at < y->at);
}

/* Those that change the prediction most: [place, old, new, first-order change, change]. */
static json_t *flips_json(const explain_shown *shown, const explain_speller *speller,
                          const float *results)
{
    const bp_explained *document = shown->document;
    bool of_source = document->S > 0;
    const int32_t *texts = of_source ? document->sources : document->inputs;
    int64_t each = shown->form->flips, count = (of_source ? document->S : document->T) * each,
            found = 0;
    const float *token = find(shown, results, of_source ? "source_flip_token" : "flip_token"),
                *first = find(shown, results,
                              of_source ? "source_flip_first_order" : "flip_first_order"),
                *real = find(shown, results, of_source ? "source_flip_true" : "flip_true");
    flip *all = bp_alloc("explain.page", count, sizeof *all);
    json_t *list = json_array();

    for (int64_t i = 0; i < count; i++)
        if (token[i] >= 0 && isfinite(real[i]))
            all[found++] = (flip){(double)real[i], i};
    qsort(all, (size_t)found, sizeof *all, by_size);
    for (int64_t k = 0; k < found && k < SHOWN; k++) {
        int64_t i = all[k].at;
        json_t *row = replaced_json(speller, (float)(i / each), (float)texts[i / each], token[i]);

        (void)json_array_append_new(row, bp_json_real((double)first[i]));
        (void)json_array_append_new(row, bp_json_real((double)real[i]));
        (void)json_array_append_new(list, row);
    }
    bp_free(all);
    return list;
}

/* ---- all ---- */

json_t *explain_edits_json(const explain_shown *shown, const explain_speller *speller,
                           const float *results)
{
    const float *count = find(shown, results, "edits"), *place = find(shown, results, "edit_place"),
                *old = find(shown, results, "edit_old"), *new = find(shown, results, "edit_new");
    json_t *list = isfinite(*count) ? json_array() : json_null();

    for (int64_t e = 0; isfinite(*count) && e < (int64_t)*count; e++)
        (void)json_array_append_new(list, replaced_json(speller, place[e], old[e], new[e]));
    return json_pack("{sb so so so so so so sI so}", "source", shown->document->S > 0, "explained",
                     outcome_json(shown, speller, *find(shown, results, "explained")), "preferred",
                     outcome_json(shown, speller, *find(shown, results, "preferred")), "before",
                     bp_json_real((double)*find(shown, results, "preferred_logprob")), "new",
                     outcome_json(shown, speller, *find(shown, results, "new")), "after",
                     bp_json_real((double)*find(shown, results, "preferred_after")), "list", list,
                     "most", (json_int_t)shown->form->edits, "flips",
                     flips_json(shown, speller, results));
}
