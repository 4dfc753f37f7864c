/* First-order changes of ln p(target) for all tokens at each place. Called by
 * methods/counterfactual.c. */
#include "explain/perturbation/flips.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

explain_text explain_text_of(const bp_explain_settings *settings, const bp_explained *document,
                             int64_t k)
{
    return document->S > 0
               ? (explain_text){document->sources, document->S, true}
               : (explain_text){document->inputs, bp_explain_length(settings, document, k), false};
}

void explain_flips_init(explain_flips *out, int64_t positions, int64_t each)
{
    *out = (explain_flips){positions, each,
                           bp_alloc("explain.flips", positions * each, sizeof(int32_t)),
                           bp_alloc("explain.flips", positions * each, sizeof(double))};
}

void explain_flips_clear(explain_flips *flips)
{
    bp_free(flips->token);
    bp_free(flips->change);
}

/* Inserts a token, whose id is larger than all before it, among those of its place. */
static void insert(explain_flips *flips, int64_t place, int32_t token, double change)
{
    int32_t *tokens = flips->token + place * flips->each;
    double *changes = flips->change + place * flips->each;
    int64_t at = flips->each;

    while (at > 0 && (tokens[at - 1] < 0 || change < changes[at - 1]))
        at--;
    if (at == flips->each)
        return;
    memmove(tokens + at + 1, tokens + at, (size_t)(flips->each - at - 1) * sizeof *tokens);
    memmove(changes + at + 1, changes + at, (size_t)(flips->each - at - 1) * sizeof *changes);
    tokens[at] = token;
    changes[at] = change;
}

static double product(const float *a, const float *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

typedef struct search {
    explain_flips *out;
    const bp_explain_settings *settings;
    const explain_text *text;
    const float *gradients;
    const bool *kept; /* [positions] */
    double *own;      /* [positions] e'g of the current token */
} search;

/* All positions can take any of these tokens. */
static void take_rows(const search *self, const int32_t *ids, int64_t count, const float *rows)
{
    int64_t E = self->settings->info->vector_width;

#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < self->out->positions; t++)
        for (int64_t r = 0; r < count && !self->kept[t]; r++)
            if (ids[r] != self->text->tokens[t] && !bp_explain_is_special(self->settings, ids[r]) &&
                ids[r] != self->settings->roles[BP_ROLE_UNKNOWN])
                insert(self->out, t, ids[r],
                       product(rows + r * E, self->gradients + t * E, E) - self->own[t]);
}

static void find_own(const search *self, bp_model *model, float *rows, float *scratch)
{
    int64_t E = self->settings->info->vector_width;

    for (int64_t first = 0, count; first < self->out->positions; first += count) {
        count = self->out->positions - first < EXPLAIN_FLIP_ROWS ? self->out->positions - first
                                                                 : EXPLAIN_FLIP_ROWS;
        model->ops->look_up(model, self->text->of_source, self->text->tokens + first, count, rows,
                            scratch);
        for (int64_t r = 0; r < count; r++)
            self->own[first + r] = product(rows + r * E, self->gradients + (first + r) * E, E);
    }
}

bp_err explain_flips_find(explain_flips *out, bp_model *model, const bp_explain_settings *settings,
                          const explain_text *text, const float *gradients, explain_is_kept is_kept,
                          const void *context)
{
    int64_t E = settings->info->vector_width, words = settings->info->words;
    bool *kept = bp_alloc("explain.flips", out->positions, sizeof *kept);
    int32_t *ids = bp_alloc("explain.flips", EXPLAIN_FLIP_ROWS, sizeof *ids);
    double *own = bp_alloc("explain.flips", out->positions, sizeof *own);
    float *rows = bp_try_alloc("explain.flips", 2 * EXPLAIN_FLIP_ROWS * E, sizeof *rows);
    search self = {out, settings, text, gradients, kept, own};
    bp_err err = bp_agree(
        settings->group,
        rows ? BP_OK : bp_fail_memory("word vectors", 2 * EXPLAIN_FLIP_ROWS * E, sizeof *rows));

    for (int64_t t = 0; t < out->positions; t++)
        kept[t] = bp_explain_is_special(settings, text->tokens[t]) || is_kept(context, t);
    for (int64_t i = 0; i < out->positions * out->each; i++) {
        out->token[i] = -1;
        out->change[i] = NAN;
    }
    if (err == BP_OK)
        find_own(&self, model, rows, rows + EXPLAIN_FLIP_ROWS * E);
    for (int64_t first = 0, count; first < words && err == BP_OK; first += count) {
        count = words - first < EXPLAIN_FLIP_ROWS ? words - first : EXPLAIN_FLIP_ROWS;
        for (int64_t r = 0; r < count; r++)
            ids[r] = (int32_t)(first + r);
        model->ops->look_up(model, text->of_source, ids, count, rows, rows + EXPLAIN_FLIP_ROWS * E);
        take_rows(&self, ids, count, rows);
        err = bp_explain_step(settings);
    }
    bp_free(rows);
    bp_free(own);
    bp_free(ids);
    bp_free(kept);
    return err;
}
