/* A beam search over replaced tokens. Called by methods/counterfactual.c. */
#include "explain/perturbation/edits.h"

#include "base/mem.h"
#include "explain/perturbation/flips.h"

#include <math.h>
#include <string.h>

#define TOKENS 5 /* that a state tries at a place */

typedef struct state {
    int64_t count;
    int64_t place[EXPLAIN_EDITS];
    int32_t token[EXPLAIN_EDITS];
    int32_t choice; /* what is preferred */
    double log_p;   /* of what was preferred at first */
} state;

typedef struct beam {
    bp_model *lm;
    const bp_explain_settings *settings;
    const bp_explained *document;
    bp_explained copy; /* whose inputs are `tokens` */
    int64_t k, T;      /* the target, and the inputs that it depends on */
    int32_t *tokens;   /* [document->T] of a state */
    int32_t *targets;  /* [K] of the copy */
    state *states;     /* [explain.beam] */
    int64_t states_count;
    state *tried; /* [capacity] */
    int64_t count, capacity;
    explain_flips flips;
    bp_explain_batch batch;
    explain_edit *out;
} beam;

/* ---- texts ---- */

static void write_tokens(beam *self, const state *of)
{
    memcpy(self->tokens, self->document->inputs, (size_t)self->document->T * sizeof(int32_t));
    for (int64_t e = 0; e < of->count; e++)
        self->tokens[of->place[e]] = of->token[e];
}

static bool is_replaced(const void *context, int64_t place)
{
    const state *of = context;

    for (int64_t e = 0; e < of->count; e++)
        if (of->place[e] == place)
            return true;
    return false;
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
            return; /* another state has come to it */
    self->count++;
}

/* ---- a level of the search ---- */

/* What each text that was tried prefers, and how probable the first choice is. */
static bp_err run_tried(beam *self, state *tried, int64_t count)
{
    explain_variants variants;
    int64_t each, at = 0;
    double *values;
    bp_err err;

    explain_variants_begin(&variants, self->lm, self->settings, &self->copy, self->k, true);
    each = variants.outcomes;
    values = variants.out = bp_alloc("explain.edits", count * each, sizeof *values);
    for (; at < count && variants.err == BP_OK; at++) {
        write_tokens(self, &tried[at]);
        explain_variants_replace(&variants, self->tokens);
    }
    err = explain_variants_end(&variants);
    for (at = 0; at < count && err == BP_OK; at++) {
        const double *row = values + at * each;

        tried[at].log_p = row[0];
        tried[at].choice = (int32_t)row[1];
    }
    bp_free(values);
    return err;
}

static bp_err expand(beam *self, const state *from)
{
    bp_explained changed = self->copy;
    bp_err err;

    write_tokens(self, from);
    changed.inputs = self->tokens;
    bp_explain_batch_set(&self->batch, &changed, 0, self->k, self->T);
    err = self->lm->ops->differentiate(self->lm, &self->batch.batch, self->batch.gradients, NULL);
    if (err == BP_OK)
        err = explain_flips_find(&self->flips, self->lm, self->settings, self->tokens,
                                 self->batch.gradients, is_replaced, from);
    for (int64_t t = 0; t < self->T && err == BP_OK; t++)
        for (int64_t j = 0; j < self->flips.each; j++)
            if (self->flips.token[t * self->flips.each + j] >= 0)
                add_tried(self, from, t, self->flips.token[t * self->flips.each + j]);
    return err;
}

/* The text of the lowest ln p among those that were tried, or among those that change the choice;
 * -1: there is none. */
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
    self->out->after = found->log_p;
    self->out->other = found->choice;
    for (int64_t e = 0; e < found->count; e++) {
        self->out->place[e] = found->place[e];
        self->out->old[e] = self->document->inputs[found->place[e]];
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
    self->out->choice = whole.choice;
    self->targets[self->k] = whole.choice;
    if (err == BP_OK)
        err = run_tried(self, &whole, 1); /* now of ln p(choice) */
    self->out->before = whole.log_p;
    return err;
}

bp_err explain_edit_find(explain_edit *out, bp_model *lm, const bp_explain_settings *settings,
                         const bp_explained *document, int64_t k)
{
    beam self = {.lm = lm,
                 .settings = settings,
                 .document = document,
                 .copy = *document,
                 .k = k,
                 .T = bp_explain_length(settings, document, k),
                 .tokens = bp_alloc("explain.edits", document->T, sizeof(int32_t)),
                 .targets = bp_alloc("explain.edits", document->K, sizeof(int32_t)),
                 .states = bp_alloc("explain.edits", settings->keys->beam, sizeof(state)),
                 .out = out};
    bp_err err = bp_agree(settings->group, bp_explain_batch_new(&self.batch, settings));

    *out = (explain_edit){.count = -1, .choice = -1};
    memcpy(self.targets, document->targets, (size_t)document->K * sizeof *self.targets);
    self.copy.targets = self.targets;
    explain_flips_init(&self.flips, self.T, TOKENS);
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
