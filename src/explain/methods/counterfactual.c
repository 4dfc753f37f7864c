/* Changed texts: the effect of each replaced token, to first order and actual, and the fewest
 * replacements that change the model's preferred outcome. Ebrahimi et al. 2018, "HotFlip: White-box
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
    CHANGED,
    PLACE,
    SOURCE_FLIP_TOKEN,
    SOURCE_FLIP_FIRST_ORDER,
    SOURCE_FLIP_TRUE
};

typedef struct counterfactual {
    bp_model *model;
    const bp_explain_settings *settings;
    const bp_explained *document;
    int64_t k;         /* the target */
    explain_text text; /* the text replaced for it */
    float *const *to;
} counterfactual;

/* The target that is explained: for tags, answers and words of a translation the one that the model
 * is least sure of; for a text that is continued, the last one; else the first. */
static bp_err find_target(counterfactual *self)
{
    const bp_task_shape *task = &self->settings->info->task;
    const bp_task_kind *kind = bp_task_kind_of(task);

    if (self->document->S > 0 ||
        (bp_task_has_head(task) && (kind->at_words || kind->over_positions)))
        return explain_edit_target(&self->k, self->model, self->settings, self->document);
    self->k = explain_variants_at_once(self->settings, self->document) ? 0 : self->document->K - 1;
    return BP_OK;
}

/* The preferred one of several classes. */
static void find_class(counterfactual *self, const explain_edit *edit)
{
    const bp_explained *document = self->document;

    while (explain_variants_classifies(self->settings->info) && self->k < document->K - 1 &&
           document->targets[self->k] != edit->choice)
        self->k++;
}

/* ---- flips ---- */

static bool stays(const void *context, int64_t place)
{
    const counterfactual *self = context;

    return explain_edit_keeps(self->settings, self->document, self->k, place);
}

/* ln p(target) of the document, then of each flip, in their order. */
static bp_err run_flips(const counterfactual *self, const explain_flips *flips, double *values)
{
    const explain_text whole = {
        self->text.of_source ? self->document->sources : self->document->inputs,
        self->text.of_source ? self->document->S : self->document->T, self->text.of_source};
    int64_t count = flips->positions * flips->each, row = 0;
    int32_t *tokens = bp_alloc("explain.flips", whole.count, sizeof *tokens);
    explain_variants variants;
    double *all;
    bp_err err;

    explain_variants_begin(&variants, self->model, self->settings, self->document, self->k, true);
    all = variants.out = bp_alloc("explain.flips", (count + 1) * variants.outcomes, sizeof *all);
    explain_variants_replace(&variants, whole.tokens);
    for (int64_t t = 0; t < whole.count; t++)
        tokens[t] = whole.tokens[t];
    for (int64_t i = 0; i < count && variants.err == BP_OK; i++) {
        if (flips->token[i] < 0)
            continue;
        tokens[i / flips->each] = flips->token[i];
        explain_variants_replace(&variants, tokens);
        tokens[i / flips->each] = whole.tokens[i / flips->each];
    }
    err = explain_variants_end(&variants);
    values[0] = all[0];
    for (int64_t i = 0; i < count; i++)
        values[1 + i] = flips->token[i] < 0 ? (double)NAN : all[++row * variants.outcomes];
    bp_free(all);
    bp_free(tokens);
    return err;
}

/* For one side of a document; `flips` NULL: nothing is replaced there. */
static void put_side(float *const *to, const explain_flips *flips, const double *values,
                     int64_t room)
{
    int64_t count = flips ? flips->positions * flips->each : 0;

    for (int64_t i = 0; i < room; i++) {
        bool there = i < count && flips->token[i] >= 0;

        to[0][i] = there ? (float)flips->token[i] : -1;
        to[1][i] = there ? (float)flips->change[i] : NAN;
        to[2][i] = there ? (float)(values[1 + i] - values[0]) : NAN;
    }
}

static void put_flips(counterfactual *self, const explain_flips *flips, const double *values)
{
    int64_t count = flips->positions * flips->each, pairs = 0, each = self->settings->keys->flips;
    double *x = bp_alloc("explain.flips", 2 * count, sizeof *x), *y = x + count;
    bool of_source = self->text.of_source;

    put_side(self->to + FLIP_TOKEN, of_source ? NULL : flips, values, self->document->T * each);
    put_side(self->to + SOURCE_FLIP_TOKEN, of_source ? flips : NULL, values,
             self->document->S * each);
    for (int64_t i = 0; i < count; i++)
        if (flips->token[i] >= 0) {
            x[pairs] = flips->change[i];
            y[pairs++] = values[1 + i] - values[0];
        }
    self->to[LOG_P][0] = (float)values[0];
    self->to[CORRELATION][0] = (float)bp_pearson(x, y, pairs);
    bp_free(x);
}

static bp_err find_flips(counterfactual *self)
{
    int64_t T = bp_explain_length(self->settings, self->document, self->k);
    bool of_source = self->text.of_source;
    bp_explain_batch batch = {0};
    explain_flips flips;
    double *values;
    bp_err err = bp_agree(self->settings->group, bp_explain_batch_new(&batch, self->settings));

    explain_flips_init(&flips, self->text.count, self->settings->keys->flips);
    values = bp_alloc("explain.flips", 1 + flips.positions * flips.each, sizeof *values);
    if (err == BP_OK) {
        bp_explain_batch_set(&batch, self->document, 0, self->k, T);
        err = self->model->ops->differentiate(self->model, &batch.batch, batch.gradients,
                                              batch.source_gradients);
    }
    if (err == BP_OK)
        err = explain_flips_find(&flips, self->model, self->settings, &self->text,
                                 of_source ? batch.source_gradients : batch.gradients, stays, self);
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

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    counterfactual self = {.model = model, .settings = settings, .document = document, .to = to};
    explain_edit edit;
    bp_err err;

    err = find_target(&self);
    if (err == BP_OK)
        err = explain_edit_find(&edit, model, settings, document, self.k);
    if (err != BP_OK)
        return err;
    put_edit(&self, &edit);
    find_class(&self, &edit);
    self.text = explain_text_of(settings, document, self.k);
    self.to[TARGET][0] = (float)document->targets[self.k];
    self.to[PLACE][0] = (float)document->positions[self.k];
    return find_flips(&self);
}

/* ---- the corpus ---- */

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    float changes;

    (void)settings, (void)document;
    changes = !isnan(at[EDITS][0]);
    bp_explain_add(figures, "changed", 1, &changes, 1);
    bp_explain_add(figures, "edits", 1, at[EDITS], changes > 0 ? 1 : 0);
    bp_explain_add(figures, "correlation", 1, at[CORRELATION], isnan(at[CORRELATION][0]) ? 0 : 1);
}

static const char *lacks(const bp_model_info *info)
{
    return info->log_probabilities ? "it gives no whole distributions"
                                   : bp_explain_lacks_gradients(info);
}

const bp_explain_method bp_explain_counterfactual = {
    .name = "counterfactual",
    .title = "Replaced tokens",
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
               {"texts_changed", BP_EXPLAIN_BY_DOCUMENT},
               {"explained_place", BP_EXPLAIN_BY_DOCUMENT},
               {"source_flip_token", BP_EXPLAIN_SOURCE_FLIPS},
               {"source_flip_first_order", BP_EXPLAIN_SOURCE_FLIPS},
               {"source_flip_true", BP_EXPLAIN_SOURCE_FLIPS}},
    .missing = {"correlation", "edits", "preferred_after"},
    .changes = true,
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = bp_explain_means};
