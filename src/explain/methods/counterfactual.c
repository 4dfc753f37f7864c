/* Other texts: what each replaced token would change, by its first order and truly, and the fewest
 * replacements that change what the model prefers. Ebrahimi et al. 2018, "HotFlip: White-box
 * adversarial examples for text classification". */
#include "explain/perturbation/edits.h"
#include "explain/perturbation/flips.h"

#include "base/mem.h"
#include "statistics/correlation.h"

#include <math.h>

enum {
    TARGET,
    LOG_P,
    FLIP_TOKEN,
    FLIP_FIRST_ORDER,
    FLIP_TRUE,
    CORRELATION,
    EDITS,
    EDIT_PLACE,
    EDIT_OLD,
    EDIT_NEW,
    PREFERRED,
    PREFERRED_LOG_P,
    PREFERRED_AFTER,
    NEW,
    TEXTS,
    CHANGED
};

typedef struct counterfactual {
    bp_model *lm;
    const bp_explain_settings *settings;
    const bp_explained *document;
    int64_t k; /* the target */
    float *to[BP_EXPLAIN_ARRAYS];
} counterfactual;

/* The target that is explained: of a text that goes on the last one, else the first; of several
 * classes the one that is preferred. */
static int64_t target_of(const bp_explain_settings *settings, const bp_explained *document,
                         const explain_edit *edit)
{
    int64_t k = 0;

    if (!explain_variants_at_once(settings, document))
        return document->K - 1;
    while (edit && bp_task_has_head(&settings->info->task) && k < document->K - 1 &&
           document->targets[k] != edit->choice)
        k++;
    return k;
}

/* ---- flips ---- */

static bool is_never(const void *context, int64_t place)
{
    (void)context;
    (void)place;
    return false;
}

/* ln p(target) of the document, then of each flip, in their order. */
static bp_err run_flips(const counterfactual *self, const explain_flips *flips, double *values)
{
    int64_t count = flips->places * flips->each, row = 0;
    int32_t *tokens = bp_alloc("explain.flips", self->document->T, sizeof *tokens);
    explain_variants variants;
    double *all;
    bp_err err;

    explain_variants_begin(&variants, self->lm, self->settings, self->document, self->k, true);
    all = variants.out = bp_alloc("explain.flips", (count + 1) * variants.outcomes, sizeof *all);
    explain_variants_replace(&variants, self->document->inputs);
    for (int64_t t = 0; t < self->document->T; t++)
        tokens[t] = self->document->inputs[t];
    for (int64_t i = 0; i < count && variants.err == BP_OK; i++) {
        if (flips->token[i] < 0)
            continue;
        tokens[i / flips->each] = flips->token[i];
        explain_variants_replace(&variants, tokens);
        tokens[i / flips->each] = self->document->inputs[i / flips->each];
    }
    err = explain_variants_end(&variants);
    values[0] = all[0];
    for (int64_t i = 0; i < count; i++)
        values[1 + i] = flips->token[i] < 0 ? (double)NAN : all[++row * variants.outcomes];
    bp_free(all);
    bp_free(tokens);
    return err;
}

static void put_flips(counterfactual *self, const explain_flips *flips, const double *values)
{
    int64_t count = flips->places * flips->each, pairs = 0,
            room = self->document->T * self->settings->keys->flips;
    double *x = bp_alloc("explain.flips", 2 * count, sizeof *x), *y = x + count;

    for (int64_t i = 0; i < room; i++) {
        bool there = i < count && flips->token[i] >= 0;

        self->to[FLIP_TOKEN][i] = there ? (float)flips->token[i] : -1;
        self->to[FLIP_FIRST_ORDER][i] = there ? (float)flips->change[i] : NAN;
        self->to[FLIP_TRUE][i] = there ? (float)(values[1 + i] - values[0]) : NAN;
        if (there) {
            x[pairs] = flips->change[i];
            y[pairs++] = values[1 + i] - values[0];
        }
    }
    self->to[LOG_P][0] = (float)values[0];
    self->to[CORRELATION][0] = (float)bp_pearson(x, y, pairs);
    bp_free(x);
}

static bp_err find_flips(counterfactual *self)
{
    int64_t T = bp_explain_length(self->settings, self->document, self->k);
    bp_explain_batch batch = {0};
    explain_flips flips;
    double *values;
    bp_err err = bp_agree(self->settings->group, bp_explain_batch_new(&batch, self->settings));

    explain_flips_init(&flips, T, self->settings->keys->flips);
    values = bp_alloc("explain.flips", 1 + T * flips.each, sizeof *values);
    if (err == BP_OK) {
        bp_explain_batch_set(&batch, self->document, 0, self->k, T);
        err = self->lm->ops->differentiate(self->lm, &batch.batch, batch.gradients, NULL);
    }
    if (err == BP_OK)
        err = explain_flips_find(&flips, self->lm, self->settings, self->document->inputs,
                                 batch.gradients, is_never, NULL);
    if (err == BP_OK)
        err = run_flips(self, &flips, values);
    if (err == BP_OK)
        put_flips(self, &flips, values);
    bp_free(values);
    explain_flips_clear(&flips);
    bp_explain_batch_free(&batch);
    return err;
}

/* ---- edits ---- */

static void put_edit(counterfactual *self, const explain_edit *edit)
{
    bool found = edit->count >= 0;

    self->to[EDITS][0] = found ? (float)edit->count : NAN;
    self->to[PREFERRED][0] = (float)edit->choice;
    self->to[PREFERRED_LOG_P][0] = (float)edit->before;
    self->to[NEW][0] = found ? (float)edit->other : -1;
    self->to[PREFERRED_AFTER][0] = found ? (float)edit->after : NAN;
    self->to[TEXTS][0] = (float)edit->texts;
    self->to[CHANGED][0] = (float)edit->changed;
    for (int64_t e = 0; e < self->settings->keys->edits; e++) {
        bool there = e < edit->count;

        self->to[EDIT_PLACE][e] = there ? (float)edit->place[e] : -1;
        self->to[EDIT_OLD][e] = there ? (float)edit->old[e] : -1;
        self->to[EDIT_NEW][e] = there ? (float)edit->token[e] : -1;
    }
}

static bp_err run(bp_model *lm, const bp_explain_settings *settings, const bp_explained *document,
                  float *results)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    counterfactual self = {.lm = lm, .settings = settings, .document = document};
    explain_edit edit;
    bp_err err;

    bp_explain_lay_out_to(self.to, &bp_explain_counterfactual, &form, results);
    err = explain_edit_find(&edit, lm, settings, document, target_of(settings, document, NULL));
    if (err != BP_OK)
        return err;
    put_edit(&self, &edit);
    self.k = target_of(settings, document, &edit);
    self.to[TARGET][0] = (float)document->targets[self.k];
    return find_flips(&self);
}

/* ---- the corpus ---- */

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *results)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    const float *at[BP_EXPLAIN_ARRAYS];
    float changes;

    bp_explain_lay_out(at, &bp_explain_counterfactual, &form, results);
    changes = !isnan(at[EDITS][0]);
    bp_explain_add(figures, "changed", 1, &changes, 1);
    bp_explain_add(figures, "edits", 1, at[EDITS], changes > 0 ? 1 : 0);
    bp_explain_add(figures, "correlation", 1, at[CORRELATION], isnan(at[CORRELATION][0]) ? 0 : 1);
}

static const char *lacks(const bp_model_info *info)
{
    const char *texts = explain_variants_lacks(info);

    return texts                     ? texts
           : info->log_probabilities ? "it gives no whole distributions"
                                     : bp_explain_lacks_gradients(info);
}

const bp_explain_method bp_explain_counterfactual = {
    .name = "counterfactual",
    .backward = true,
    .help = "is what replaced tokens would change, and the fewest that change the prediction",
    .arrays = {{"explained", BP_EXPLAIN_BY_DOCUMENT},
               {"logprob", BP_EXPLAIN_BY_DOCUMENT},
               {"flip_token", BP_EXPLAIN_FLIPS},
               {"flip_first_order", BP_EXPLAIN_FLIPS},
               {"flip_true", BP_EXPLAIN_FLIPS},
               {"correlation", BP_EXPLAIN_BY_DOCUMENT},
               {"edits", BP_EXPLAIN_BY_DOCUMENT},
               {"edit_place", BP_EXPLAIN_EDITS},
               {"edit_old", BP_EXPLAIN_EDITS},
               {"edit_new", BP_EXPLAIN_EDITS},
               {"preferred", BP_EXPLAIN_BY_DOCUMENT},
               {"preferred_logprob", BP_EXPLAIN_BY_DOCUMENT},
               {"preferred_after", BP_EXPLAIN_BY_DOCUMENT},
               {"new", BP_EXPLAIN_BY_DOCUMENT},
               {"texts", BP_EXPLAIN_BY_DOCUMENT},
               {"texts_changed", BP_EXPLAIN_BY_DOCUMENT}},
    .changes = true,
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = bp_explain_means};
