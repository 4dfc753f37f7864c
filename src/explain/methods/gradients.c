/* Saliency and gradient times input: of the gradient g of log p(target) with respect to each
 * input's word vector e its length and its product with e. Simonyan et al. 2014, "Deep inside
 * convolutional networks"; Shrikumar et al. 2017, "Not just a black box". */
#include "explain/method.h"

#include "base/mem.h"

#include <math.h>

/* What is made of one input's gradient; e: its vector. */
typedef void (*take_gradient)(float *const *to, int64_t cell, const float *g, const float *e,
                              int64_t E);

static void take_saliency(float *const *to, int64_t cell, const float *g, const float *e, int64_t E)
{
    double l1 = 0, square = 0;

    (void)e;
    for (int64_t c = 0; c < E; c++) {
        l1 += fabs((double)g[c]);
        square += (double)g[c] * (double)g[c];
    }
    to[0][cell] = (float)l1;
    to[1][cell] = (float)sqrt(square);
}

static void take_product(float *const *to, int64_t cell, const float *g, const float *e, int64_t E)
{
    double sum = 0;

    for (int64_t c = 0; c < E; c++)
        sum += (double)g[c] * (double)e[c];
    to[0][cell] = (float)sum;
}

/* A document at work. */
typedef struct differentiation {
    bp_model *lm;
    const bp_explain_settings *settings;
    const bp_explained *document;
    bp_explain_vectors vectors;
    bp_explain_batch batch;
    take_gradient take;
    float *const *inputs, *const *sources; /* the results' arrays */
} differentiation;

/* Targets [first, first + count), a window each. */
static bp_err run_batch(differentiation *self, int64_t first, int64_t count, int64_t length)
{
    bp_explain_batch *batch = &self->batch;

    for (int64_t w = 0; w < count; w++)
        bp_explain_batch_set(batch, self->document, w, first + w, length);
    return self->lm->ops->differentiate(self->lm, &batch->batch, batch->gradients,
                                        batch->source_gradients);
}

/* What window w has of target k. */
static void take_window(const differentiation *self, int64_t w, int64_t k)
{
    const bp_explained *document = self->document;
    const bp_explain_batch *batch = &self->batch;
    int64_t T = document->T, S = document->S, E = self->vectors.E,
            reads = bp_explain_length(self->settings, document, k);

    for (int64_t t = 0; t < reads; t++)
        self->take(self->inputs, k * T + t, batch->gradients + (w * batch->batch.length + t) * E,
                   self->vectors.own + t * E, E);
    for (int64_t s = 0; s < S; s++)
        self->take(self->sources, k * S + s, batch->source_gradients + (w * S + s) * E,
                   self->vectors.source_own + s * E, E);
}

/* How many targets from `first` on go into a batch, and the inputs of its windows: no target needs
 * what comes after it. */
static int64_t fill_batch(const differentiation *self, int64_t first, int64_t *length)
{
    const bp_explained *document = self->document;
    int64_t count = 1;

    *length = bp_explain_length(self->settings, document, first);
    for (; first + count < document->K; count++) {
        int64_t longer = bp_explain_length(self->settings, document, first + count);

        longer = longer > *length ? longer : *length;
        if (count + 1 > bp_explain_batch_windows(&self->batch, document, longer))
            break;
        *length = longer;
    }
    return count;
}

static bp_err run(bp_model *lm, const bp_explain_settings *settings, const bp_explained *document,
                  take_gradient take, float *const *inputs, float *const *sources)
{
    differentiation self = {.lm = lm,
                            .settings = settings,
                            .document = document,
                            .take = take,
                            .inputs = inputs,
                            .sources = sources};
    bp_err err = bp_explain_vectors_of(&self.vectors, lm, settings, document);

    if (err == BP_OK)
        err = bp_agree(settings->group, bp_explain_batch_new(&self.batch, settings));
    for (int64_t first = 0, count; first < document->K && err == BP_OK; first += count) {
        int64_t length;

        count = fill_batch(&self, first, &length);
        err = bp_explain_step(settings);
        if (err == BP_OK)
            err = run_batch(&self, first, count, length);
        for (int64_t w = 0; w < count && err == BP_OK; w++)
            take_window(&self, w, first + w);
    }
    bp_explain_batch_free(&self.batch);
    bp_explain_vectors_clear(&self.vectors);
    return err;
}

static bp_err run_saliency(bp_model *lm, const bp_explain_settings *settings,
                           const bp_explained *document, float *results)
{
    const bp_explain_form form = bp_explain_form_of(settings->info, document);
    float *at[BP_EXPLAIN_ARRAYS];

    bp_explain_lay_out_to(at, &bp_explain_saliency, &form, results);
    return run(lm, settings, document, take_saliency, at, at + 2);
}

static bp_err run_product(bp_model *lm, const bp_explain_settings *settings,
                          const bp_explained *document, float *results)
{
    const bp_explain_form form = bp_explain_form_of(settings->info, document);
    float *at[BP_EXPLAIN_ARRAYS];

    bp_explain_lay_out_to(at, &bp_explain_gradient, &form, results);
    return run(lm, settings, document, take_product, at, at + 1);
}

const bp_explain_method bp_explain_saliency = {
    .name = "saliency",
    .help = "is how long the gradient of log p(target) by each input's word vector is",
    .arrays = {{"saliency_l1", BP_EXPLAIN_BY_INPUT},
               {"saliency_l2", BP_EXPLAIN_BY_INPUT},
               {"source_saliency_l1", BP_EXPLAIN_BY_SOURCE},
               {"source_saliency_l2", BP_EXPLAIN_BY_SOURCE}},
    .lacks = bp_explain_lacks_gradients,
    .run = run_saliency};

const bp_explain_method bp_explain_gradient = {
    .name = "gradient",
    .help = "is that gradient times the word vector, with its sign",
    .arrays = {{"gradient_x_input", BP_EXPLAIN_BY_INPUT},
               {"source_gradient_x_input", BP_EXPLAIN_BY_SOURCE}},
    .lacks = bp_explain_lacks_gradients,
    .run = run_product};
