/* The attention weights of an example: for each head, the largest of each query. Called by
 * document.c. */
#include "explain/examples/examples.h"

#include "base/mem.h"
#include "nn/core/block.h"

#include <string.h>

#define MOST_WEIGHTS                                                                               \
    ((int64_t)1 << 20) /* of a document, if that leaves each query at least ...                    \
                        */
#define LEAST_KEPT 4

int64_t explain_weights_kept(const bp_explain_form *form)
{
    int64_t rows = form->layers * form->heads * form->T, kept = rows > 0 ? MOST_WEIGHTS / rows : 0;

    kept = kept < LEAST_KEPT ? LEAST_KEPT : kept;
    return kept < form->T ? kept : form->T;
}

int64_t explain_weights_floats(const bp_explain_form *form)
{
    int64_t values = form->layers * form->heads * form->T * explain_weights_kept(form);

    return 2 * values + (form->T <= EXPLAIN_FLOW_PLACES ? form->T * form->T : 0);
}

explain_weights explain_weights_in(const float *floats, const bp_explain_form *form)
{
    int64_t kept = explain_weights_kept(form), values = form->layers * form->heads * form->T * kept;

    return (explain_weights){.T = form->T,
                             .layers = form->layers,
                             .heads = form->heads,
                             .kept = kept,
                             .keys = floats,
                             .weights = floats + values,
                             .flow = form->T <= EXPLAIN_FLOW_PLACES ? floats + 2 * values : NULL};
}

/* ---- the pass ---- */

/* A probe that stores the weights of each head of this rank. */
typedef struct keeper {
    bp_probe probe;
    const bp_explain_settings *settings;
    int64_t T, layers, heads, kept;
    float *keys, *weights; /* explain_weights */
    float *mean;           /* [layers][T][T]; NULL if not requested */
    bool *taken;           /* [T] */
} keeper;

/* The largest of a row, the first of equal ones. */
static void keep_row(keeper *self, const float *row, float *keys, float *weights)
{
    memset(self->taken, 0, (size_t)self->T * sizeof *self->taken);
    for (int64_t n = 0; n < self->kept; n++) {
        int64_t best = -1;

        for (int64_t j = 0; j < self->T; j++)
            if (!self->taken[j] && row[j] > 0 && (best < 0 || row[j] > row[best]))
                best = j;
        keys[n] = (float)best;
        if (best < 0)
            continue;
        self->taken[best] = true;
        weights[n] = row[best];
    }
}

static void keep(bp_probe *probe, const bp_probed *seen)
{
    keeper *self = (keeper *)probe;
    int64_t T = self->T, l = seen->block - self->settings->info->first_layer;

    if (strcmp(seen->what, "attention") != 0 || l < 0 || l >= self->layers)
        return;
    BP_ASSERT(seen->rows == T && seen->columns == T && seen->head < self->heads);
    for (int64_t i = 0; i < T; i++) {
        int64_t at = ((l * self->heads + seen->head) * T + i) * self->kept;

        keep_row(self, seen->x + i * T, self->keys + at, self->weights + at);
    }
    for (int64_t c = 0; self->mean && c < T * T; c++)
        self->mean[l * T * T + c] += seen->x[c] / (float)self->heads;
}

static bp_err pass(keeper *self, bp_model *lm, const bp_explained *document)
{
    int32_t *targets = bp_alloc("explain.weights", self->T, sizeof *targets), source_length;
    bp_model_batch batch = bp_explain_whole(document, targets, &source_length);
    float *values = bp_alloc("explain.weights", self->T, sizeof *values);
    bp_err err;

    lm->ops->set_probe(lm, &self->probe);
    err = bp_model_score(lm, &batch, values);
    lm->ops->set_probe(lm, NULL);
    bp_free(values);
    bp_free(targets);
    return err;
}

bp_err explain_weights_of(float *floats, bp_model *lm, const bp_explain_settings *settings,
                          const bp_explained *document)
{
    const bp_explain_form form = bp_explain_form_of(settings->info, document);
    int64_t T = form.T, values = form.layers * form.heads * T * explain_weights_kept(&form),
            cells = T <= EXPLAIN_FLOW_PLACES ? form.layers * T * T : 0,
            most = 2 * values > cells ? 2 * values : cells;
    keeper self = {.probe = {.see = keep, .attention = true},
                   .settings = settings,
                   .T = T,
                   .layers = form.layers,
                   .heads = form.heads,
                   .kept = explain_weights_kept(&form),
                   .keys = floats,
                   .weights = floats + values,
                   .mean = cells > 0 ? bp_alloc("explain.weights", cells, sizeof(float)) : NULL,
                   .taken = bp_alloc("explain.weights", T, sizeof(bool))};
    float *scratch = bp_try_alloc("explain.weights", most, sizeof *scratch);
    bp_err err =
        bp_agree(settings->group,
                 scratch ? BP_OK : bp_fail_memory("weights of attention", most, sizeof *scratch));

    memset(floats, 0, (size_t)explain_weights_floats(&form) * sizeof *floats);
    if (err == BP_OK)
        err = pass(&self, lm, document);
    if (err == BP_OK) {
        bp_all_sum(floats, 2 * values, scratch, settings->group);
        bp_all_sum(self.mean, cells, scratch, settings->group);
    }
    if (err == BP_OK && cells > 0)
        err =
            bp_agree(settings->group, explain_flow(floats + 2 * values, self.mean, form.layers, T));
    bp_free(scratch);
    bp_free(self.taken);
    bp_free(self.mean);
    return err;
}
