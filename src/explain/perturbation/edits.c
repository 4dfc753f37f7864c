/* A beam search over replaced tokens. Called by methods/counterfactual.c. */
#include "explain/perturbation/edits.h"

#include "base/mem.h"
#include "explain/perturbation/features.h"
#include "explain/perturbation/flips.h"

#include <math.h>
#include <string.h>

#define TOKENS 5 /* tokens that a state tries at a place */

typedef struct state {
    int64_t count;
    int64_t place[EXPLAIN_EDITS];
    int32_t token[EXPLAIN_EDITS];
    int32_t choice; /* the preferred outcome */
    double log_p; /* of the initially preferred outcome; for a regression its value, times `sign` */
} state;

typedef struct beam {
    bp_model *model;
    const bp_explain_settings *settings;
    const bp_explained *document;
    bp_explained copy; /* whose inputs are `tokens` */
    int64_t k;         /* the target */
    explain_text text; /* the text replaced for it */
    int32_t *tokens;   /* [T], or [S], of a state */
    int32_t *targets;  /* [K] of the copy */
    double sign;       /* a regression's value falls (1) or rises (-1); else 1 */
    state *states;     /* [explain.beam] */
    int64_t states_count;
    state *tried; /* [capacity] */
    int64_t count, capacity;
    explain_flips flips;
    bp_explain_batch batch;
    explain_edit *out;
} beam;

/* ---- texts ---- */

static bool is_value(const bp_explain_settings *settings)
{
    const bp_task_shape *task = &settings->info->task;

    return bp_task_has_head(task) && bp_task_kind_of(task)->is_value;
}

static void write_tokens(beam *self, const state *of)
{
    bool of_source = self->text.of_source;

    memcpy(self->tokens, of_source ? self->document->sources : self->document->inputs,
           (size_t)(of_source ? self->document->S : self->document->T) * sizeof(int32_t));
    for (int64_t e = 0; e < of->count; e++)
        self->tokens[of->place[e]] = of->token[e];
}

bool explain_edit_keeps(const bp_explain_settings *settings, const bp_explained *document,
                        int64_t k, int64_t place)
{
    const bp_task_kind *kind = bp_task_kind_of(&settings->info->task);

    if (!bp_task_has_head(&settings->info->task))
        return false;
    for (int64_t end = 0; end < document->K && kind->over_positions; end++)
        if (document->targets[end] == place)
            return true;
    return kind->at_words && place >= document->positions[k] &&
           place < explain_features_end(settings, document, document->positions[k]);
}

/* A state that is expanded. */
typedef struct expanded {
    const beam *of;
    const state *state;
} expanded;

static bool stays(const void *context, int64_t place)
{
    const expanded *self = context;

    for (int64_t e = 0; e < self->state->count; e++)
        if (self->state->place[e] == place)
            return true;
    return explain_edit_keeps(self->of->settings, self->of->document, self->of->k, place);
}

/* Do two states make the same text? */
static bool are_same(const state *a, const state *b)
{
    int64_t same = 0;

    for (int64_t i = 0; i < a->count; i++)
        for (int64_t j = 0; j < b->count; j++)
            same += a->place[i] == b->place[j] && a->token[i] == b->token[j];
    return a->count == b->count && same == a->count;
}

static void add_tried(beam *self, const state *from, int64_t place, int32_t token)
{
    state *to;

    self->tried = bp_grow("explain.edits", self->tried, &self->capacity, self->count + 1,
                          sizeof *self->tried);
    to = &self->tried[self->count];
    *to = *from;
    to->place[to->count] = place;
    to->token[to->count++] = token;
    for (int64_t j = 0; j < self->count && from != &self->states[0]; j++)
        if (are_same(to, &self->tried[j]))
            return; /* another state made the same text */
    self->count++;
}

/* ---- a level of the search ---- */

/* The preferred outcome of each text tried, and the probability of the first choice. */
static bp_err run_tried(beam *self, state *tried, int64_t count)
{
    explain_variants variants;
    int64_t each, at = 0;
    double *values;
    bp_err err;

    explain_variants_begin(&variants, self->model, self->settings, &self->copy, self->k, true);
    each = variants.outcomes;
    values = variants.out = bp_alloc("explain.edits", count * each, sizeof *values);
    for (; at < count && variants.err == BP_OK; at++) {
        write_tokens(self, &tried[at]);
        explain_variants_replace(&variants, self->tokens);
    }
    err = explain_variants_end(&variants);
    for (at = 0; at < count && err == BP_OK; at++) {
        const double *row = values + at * each;

        tried[at].log_p = self->sign * row[0];
        tried[at].choice = is_value(self->settings) ? self->sign * (self->out->before - row[0]) >=
                                                          self->settings->keys->change
                                                    : (int32_t)row[1];
    }
    bp_free(values);
    return err;
}

static bp_err expand(beam *self, const state *from)
{
    const expanded who = {self, from};
    bp_explained changed = self->copy;
    explain_text text = self->text;
    float *gradients = text.of_source ? self->batch.source_gradients : self->batch.gradients;
    bp_err err;

    write_tokens(self, from);
    text.tokens = self->tokens;
    changed.inputs = text.of_source ? changed.inputs : self->tokens;
    changed.sources = text.of_source ? self->tokens : changed.sources;
    bp_explain_batch_set(&self->batch, &changed, 0, self->k,
                         bp_explain_length(self->settings, &changed, self->k));
    err = self->model->ops->differentiate(self->model, &self->batch.batch, self->batch.gradients,
                                          self->batch.source_gradients);
    for (int64_t i = 0; self->sign < 0 && i < text.count * self->settings->info->vector_width; i++)
        gradients[i] = -gradients[i];
    if (err == BP_OK)
        err = explain_flips_find(&self->flips, self->model, self->settings, &text, gradients, stays,
                                 &who);
    for (int64_t t = 0; t < text.count && err == BP_OK; t++)
        for (int64_t j = 0; j < self->flips.each; j++)
            if (self->flips.token[t * self->flips.each + j] >= 0)
                add_tried(self, from, t, self->flips.token[t * self->flips.each + j]);
    return err;
}

/* The text with the lowest ln p among those tried, or among those that change the choice; -1 if
 * there is none. */
static int64_t find_lowest(const beam *self, bool changed)
{
    int64_t best = -1;

    for (int64_t i = 0; i < self->count; i++)
        if ((!changed || self->tried[i].choice != self->out->choice) &&
            !isnan(self->tried[i].log_p) &&
            (best < 0 || self->tried[i].log_p < self->tried[best].log_p))
            best = i;
    return best;
}

static void finish(beam *self, const state *found)
{
    self->out->count = found->count;
    self->out->after = self->sign * found->log_p;
    self->out->other = is_value(self->settings) ? (self->sign > 0 ? -1 : 1) : found->choice;
    for (int64_t e = 0; e < found->count; e++) {
        self->out->place[e] = found->place[e];
        self->out->old[e] = self->text.tokens[found->place[e]];
        self->out->token[e] = found->token[e];
    }
    for (int64_t i = 0; i < self->count; i++)
        self->out->changed += self->tried[i].choice != self->out->choice;
}

static void go_on(beam *self)
{
    self->states_count = 0;
    for (int64_t b = 0, best; b < self->settings->keys->beam; b++) {
        best = find_lowest(self, false);
        if (best < 0)
            break;
        self->states[self->states_count++] = self->tried[best];
        self->tried[best].log_p = NAN;
    }
}

static bp_err search(beam *self)
{
    bp_err err = BP_OK;

    self->states_count = 1;
    for (int64_t level = 0; level < self->settings->keys->edits && err == BP_OK; level++) {
        int64_t found;

        self->count = 0;
        for (int64_t s = 0; s < self->states_count && err == BP_OK; s++)
            err = expand(self, &self->states[s]);
        if (err == BP_OK)
            err = run_tried(self, self->tried, self->count);
        if (err != BP_OK)
            break;
        self->out->texts += self->count;
        found = find_lowest(self, true);
        if (found >= 0) {
            finish(self, &self->tried[found]);
            break;
        }
        go_on(self);
    }
    return err;
}

/* The first choice becomes the target of gradients. */
static bp_err find_choice(beam *self)
{
    state whole = {0};
    bp_err err;

    self->out->choice = 0;
    err = run_tried(self, &whole, 1);
    if (is_value(self->settings)) {
        self->out->before = self->sign * whole.log_p;
        return err;
    }
    self->out->choice = whole.choice;
    self->targets[self->k] = whole.choice;
    if (err == BP_OK)
        err = run_tried(self, &whole, 1); /* now of ln p(choice) */
    self->out->before = whole.log_p;
    return err;
}

/* One direction, for a regression. */
static bp_err find(explain_edit *out, bp_model *model, const bp_explain_settings *settings,
                   const bp_explained *document, int64_t k, double sign)
{
    explain_text text = explain_text_of(settings, document, k);
    int64_t most = document->T > document->S ? document->T : document->S;
    beam self = {.model = model,
                 .settings = settings,
                 .document = document,
                 .copy = *document,
                 .k = k,
                 .text = text,
                 .sign = sign,
                 .tokens = bp_alloc("explain.edits", most, sizeof(int32_t)),
                 .targets = bp_alloc("explain.edits", document->K, sizeof(int32_t)),
                 .states = bp_alloc("explain.edits", settings->keys->beam, sizeof(state)),
                 .out = out};
    bp_err err = bp_agree(settings->group, bp_explain_batch_new(&self.batch, settings));

    *out = (explain_edit){.count = -1, .choice = -1};
    memcpy(self.targets, document->targets, (size_t)document->K * sizeof *self.targets);
    self.copy.targets = self.targets;
    explain_flips_init(&self.flips, text.count, TOKENS);
    if (err == BP_OK)
        err = find_choice(&self);
    if (err == BP_OK)
        err = search(&self);
    explain_flips_clear(&self.flips);
    bp_explain_batch_free(&self.batch);
    bp_free(self.tried);
    bp_free(self.states);
    bp_free(self.targets);
    bp_free(self.tokens);
    return err;
}

/* Is it a smaller edit? */
static bool is_smaller(const explain_edit *edit, const explain_edit *than)
{
    if (edit->count < 0 || than->count < 0)
        return edit->count >= 0;
    return edit->count < than->count ||
           (edit->count == than->count &&
            fabs(edit->after - edit->before) > fabs(than->after - than->before));
}

bp_err explain_edit_find(explain_edit *out, bp_model *model, const bp_explain_settings *settings,
                         const bp_explained *document, int64_t k)
{
    bp_err err = find(out, model, settings, document, k, 1);
    explain_edit rise;

    if (err != BP_OK || !is_value(settings))
        return err;
    err = find(&rise, model, settings, document, k, -1);
    if (err != BP_OK)
        return err;
    rise.texts = out->texts += rise.texts;
    if (is_smaller(&rise, out))
        *out = rise;
    return BP_OK;
}
