/* Saliency and gradient times input: of the gradient g of log p(target) with respect to each
 * input's word vector e its length and its product with e. Simonyan et al. 2014, "Deep inside
 * convolutional networks"; Shrikumar et al. 2017, "Not just a black box". */
#include "explain/method.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"

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

/* Targets [first, first + count), a window each. */
static bp_err run_batch(bp_model *lm, bp_explain_batch *batch, const bp_explained *document,
                        int64_t first, int64_t count)
{
    int64_t length = first + count; /* no target needs what comes after it */

    bp_heartbeat_progress();
    for (int64_t w = 0; w < count; w++)
        bp_explain_batch_set(batch, document, w, first + w, length);
    return lm->ops->differentiate(lm, &batch->batch, batch->gradients, NULL);
}

static bp_err run(bp_model *lm, const bp_explain_settings *settings, const bp_explained *document,
                  float *results, take_gradient take)
{
    int64_t T = document->T, E = settings->info->vector_width, count;
    float *to[] = {results, results + T * T};
    bp_explain_vectors vectors = {0};
    bp_explain_batch batch = {0};
    bp_err err = bp_explain_vectors_of(&vectors, lm, settings, document);

    if (err == BP_OK)
        err = bp_agree(settings->group, bp_explain_batch_new(&batch, settings));
    for (int64_t first = 0; first < T && err == BP_OK; first += count) {
        for (count = 1; first + count < T && (count + 1) * (first + count + 1) <= settings->batch;)
            count++;
        err = run_batch(lm, &batch, document, first, count);
        for (int64_t w = 0; w < count && err == BP_OK; w++)
            for (int64_t t = 0; t <= first + w; t++)
                take(to, (first + w) * T + t, batch.gradients + (w * batch.batch.length + t) * E,
                     vectors.own + t * E, E);
    }
    bp_explain_batch_free(&batch);
    bp_explain_vectors_clear(&vectors);
    return err;
}

static bp_err run_saliency(bp_model *lm, const bp_explain_settings *settings,
                           const bp_explained *document, float *results)
{
    return run(lm, settings, document, results, take_saliency);
}

static bp_err run_product(bp_model *lm, const bp_explain_settings *settings,
                          const bp_explained *document, float *results)
{
    return run(lm, settings, document, results, take_product);
}

const bp_explain_method bp_explain_saliency = {
    .name = "saliency",
    .help = "is how long the gradient of log p(target) by each input's word vector is",
    .arrays = {{"saliency_l1", BP_EXPLAIN_BY_INPUT}, {"saliency_l2", BP_EXPLAIN_BY_INPUT}},
    .lacks = bp_explain_lacks_gradients,
    .run = run_saliency};

const bp_explain_method bp_explain_gradient = {
    .name = "gradient",
    .help = "is that gradient times the word vector, with its sign",
    .arrays = {{"gradient_x_input", BP_EXPLAIN_BY_INPUT}},
    .lacks = bp_explain_lacks_gradients,
    .run = run_product};
