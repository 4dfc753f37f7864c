/* The attention weights of an example: for each head, the largest of each query. Called by
 * document.c. */
#include "explain/examples/examples.h"

#include "base/mem.h"
#include "nn/core/block.h"

#include <string.h>

#define MOST_WEIGHTS ((int64_t)1 << 20) /* of a document, if that leaves each query LEAST_KEPT */
#define LEAST_KEPT   4

int explain_weights_in(explain_weights out[BP_EXPLAIN_ATTENTIONS], const float *floats,
                       const bp_explain_form *form)
{
    bp_explain_attends kinds[BP_EXPLAIN_ATTENTIONS];
    int64_t first = 0;
    int count = bp_explain_attentions(kinds, form);

    for (int k = 0; k < BP_EXPLAIN_ATTENTIONS; k++) {
        int64_t rows = kinds[k].layers * form->heads * kinds[k].queries,
                kept = rows > 0 ? MOST_WEIGHTS / count / rows : 0;

        kept = kept < LEAST_KEPT ? LEAST_KEPT : kept;
        kept = kept < kinds[k].keys ? kept : kinds[k].keys;
        out[k] =
            (explain_weights){.of = kinds[k], .kept = kept, .values = rows * kept, .first = first};
        if (floats) {
            out[k].keys = floats + first;
            out[k].weights = out[k].keys + out[k].values;
        }
        first += 2 * out[k].values;
    }
    return count;
}

/* Before the flow. */
static int64_t floats_of_weights(const bp_explain_form *form)
{
    explain_weights kinds[BP_EXPLAIN_ATTENTIONS];
    int last = BP_EXPLAIN_ATTENTIONS - 1;

    (void)explain_weights_in(kinds, NULL, form);
    return kinds[last].first + 2 * kinds[last].values;
}

int64_t explain_weights_floats(const bp_explain_form *form)
{
    return floats_of_weights(form) + (form->T <= EXPLAIN_FLOW_POSITIONS ? form->T * form->T : 0);
}

const float *explain_flow_in(const float *floats, const bp_explain_form *form)
{
    return form->T <= EXPLAIN_FLOW_POSITIONS ? floats + floats_of_weights(form) : NULL;
}

/* ---- the pass ---- */

/* A probe that stores the weights of each head of this rank. */
typedef struct keeper {
    bp_probe probe;
    const bp_explain_settings *settings;
    int64_t heads;
    explain_weights kinds[BP_EXPLAIN_ATTENTIONS];
    int count;
    float *floats; /* of explain_weights_of */
    float *mean;   /* [layers][T][T] of the text to itself; NULL if not requested */
    bool *taken;   /* [most keys] */
} keeper;

/* The largest of a row of `count`, the first of equal ones. */
static void keep_row(bool *taken, const float *row, int64_t count, int64_t kept, float *keys,
                     float *weights)
{
    memset(taken, 0, (size_t)count * sizeof *taken);
    for (int64_t n = 0; n < kept; n++) {
        int64_t best = -1;

        for (int64_t j = 0; j < count; j++)
            if (!taken[j] && row[j] > 0 && (best < 0 || row[j] > row[best]))
                best = j;
        keys[n] = (float)best;
        if (best < 0)
            continue;
        taken[best] = true;
        weights[n] = row[best];
    }
}

static void keep_kind(keeper *self, const explain_weights *kind, int64_t l, const bp_probed *seen)
{
    int64_t queries = kind->of.queries, keys = kind->of.keys;

    BP_ASSERT(seen->rows == queries && seen->columns == keys && seen->head < self->heads);
    for (int64_t i = 0; i < queries; i++) {
        float *to = self->floats + kind->first +
                    ((l * self->heads + seen->head) * queries + i) * kind->kept;

        keep_row(self->taken, seen->x + i * keys, keys, kind->kept, to, to + kind->values);
    }
    for (int64_t c = 0; kind == self->kinds && self->mean && c < queries * keys; c++)
        self->mean[l * queries * keys + c] += seen->x[c] / (float)self->heads;
}

static void keep(bp_probe *probe, const bp_probed *seen)
{
    keeper *self = (keeper *)probe;
    const bp_model_info *info = self->settings->info;

    for (int k = 0; k < self->count; k++) {
        const bp_explain_attends *of = &self->kinds[k].of;
        int64_t l = seen->block - (of->in_source ? info->first_source_layer : info->first_layer);

        if (strcmp(seen->what, of->what) == 0 && l >= 0 && l < of->layers)
            keep_kind(self, &self->kinds[k], l, seen);
    }
}

static bp_err pass(keeper *self, bp_model *model, const bp_explained *document)
{
    int32_t *targets = bp_alloc("explain.weights", document->T, sizeof *targets), source_length;
    bp_model_batch batch = bp_explain_whole(document, targets, &source_length);
    float *values = bp_alloc("explain.weights", document->T, sizeof *values);
    bp_err err;

    model->ops->set_probe(model, &self->probe);
    err = bp_model_score(model, &batch, values);
    model->ops->set_probe(model, NULL);
    bp_free(values);
    bp_free(targets);
    return err;
}

bp_err explain_weights_of(float *floats, bp_model *model, const bp_explain_settings *settings,
                          const bp_explained *document)
{
    const bp_explain_form form = bp_explain_form_of(settings->info, document);
    int64_t T = form.T, values = floats_of_weights(&form),
            cells = T <= EXPLAIN_FLOW_POSITIONS ? form.layers * T * T : 0,
            most = values > cells ? values : cells;
    keeper self = {.probe = {.see = keep, .attention = true},
                   .settings = settings,
                   .heads = form.heads,
                   .floats = floats,
                   .mean = cells > 0 ? bp_alloc("explain.weights", cells, sizeof(float)) : NULL,
                   .taken = bp_alloc("explain.weights", T > form.S ? T : form.S, sizeof(bool))};
    float *scratch = bp_try_alloc("explain.weights", most, sizeof *scratch);
    bp_err err =
        bp_agree(settings->group,
                 scratch ? BP_OK : bp_fail_memory("weights of attention", most, sizeof *scratch));

    self.count = explain_weights_in(self.kinds, NULL, &form);
    memset(floats, 0, (size_t)explain_weights_floats(&form) * sizeof *floats);
    if (err == BP_OK)
        err = pass(&self, model, document);
    if (err == BP_OK) {
        bp_all_sum(floats, values, scratch, settings->group);
        bp_all_sum(self.mean, cells, scratch, settings->group);
    }
    if (err == BP_OK && cells > 0)
        err = bp_agree(settings->group, explain_flow(floats + values, self.mean, form.layers, T));
    bp_free(scratch);
    bp_free(self.taken);
    bp_free(self.mean);
    return err;
}
