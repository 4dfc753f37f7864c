/* Saliency and gradient times input: of the gradient g of log p(target) with respect to each
 * input's word vector e its length and its product with e; contrast, both of the gradient of log
 * p(target) - log p(foil). Simonyan et al. 2014, "Deep inside convolutional networks"; Shrikumar et
 * al. 2017, "Not just a black box"; Yin and Neubig 2022, "Interpreting Language Models with
 * Contrastive Explanations". */
#include "explain/method.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* The value made from one input's gradient; e: its vector. */
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

static void take_both(float *const *to, int64_t cell, const float *g, const float *e, int64_t E)
{
    take_saliency(to, cell, g, e, E);
    take_product(to + 2, cell, g, e, E);
}

/* The state of a document: windows (k, j) of target k and, with foils, of each of its foils, one
 * after another. With foils, a row of results is the difference between target and foil. */
typedef struct differentiation {
    bp_model *model;
    const bp_explain_settings *settings;
    const bp_explained *document;
    int64_t foils;
    bp_explain_vectors vectors;
    bp_explain_batch batch;
    float *kept, *source_kept; /* [T][E], [S][E] of the last target; NULL without foils */
    take_gradient take;
    float *const *inputs, *const *sources; /* the results' arrays */
} differentiation;

/* Windows [first, first + count), where w is of target (first + w) / (1 + foils). */
static bp_err run_batch(differentiation *self, int64_t first, int64_t count, int64_t length)
{
    const bp_explained *document = self->document;
    bp_explain_batch *batch = &self->batch;

    for (int64_t w = 0; w < count; w++) {
        int64_t k = (first + w) / (1 + self->foils), foil = (first + w) % (1 + self->foils);

        bp_explain_batch_set(batch, document, w, k, length);
        if (foil > 0)
            batch->targets[w * length + document->positions[k]] =
                document->foils[k * self->foils + foil - 1];
    }
    batch->batch.alike = document->hides < 0 ? 1 : 0;
    return self->model->ops->differentiate(self->model, &batch->batch, batch->gradients,
                                           batch->source_gradients);
}

/* g = kept - g */
static void contrast(float *g, const float *kept, int64_t floats)
{
    for (int64_t i = 0; i < floats; i++)
        g[i] = kept[i] - g[i];
}

/* Row `row` of the results has window w, of target k. */
static void take_row(differentiation *self, int64_t w, int64_t k, int64_t row)
{
    const bp_explained *document = self->document;
    const bp_explain_batch *batch = &self->batch;
    int64_t T = document->T, S = document->S, E = self->vectors.E,
            reads = bp_explain_length(self->settings, document, k);

    bp_explain_hide(&self->vectors, document, k);
    for (int64_t t = 0; t < reads; t++)
        self->take(self->inputs, row * T + t, batch->gradients + (w * batch->batch.length + t) * E,
                   self->vectors.own + t * E, E);
    for (int64_t s = 0; s < S; s++)
        self->take(self->sources, row * S + s, batch->source_gradients + (w * S + s) * E,
                   self->vectors.source_own + s * E, E);
}

/* Window w of the batch is number `number` of all. */
static void take_window(differentiation *self, int64_t w, int64_t number)
{
    const bp_explained *document = self->document;
    int64_t k = number / (1 + self->foils), foil = number % (1 + self->foils), E = self->vectors.E,
            floats = bp_explain_length(self->settings, document, k) * E, source = document->S * E;
    float *g = self->batch.gradients + w * self->batch.batch.length * E,
          *source_g = source > 0 ? self->batch.source_gradients + w * source : NULL;

    if (self->foils > 0 && foil == 0) {
        memcpy(self->kept, g, (size_t)floats * sizeof *g);
        if (source > 0)
            memcpy(self->source_kept, source_g, (size_t)source * sizeof *g);
        return;
    }
    if (self->foils > 0) {
        contrast(g, self->kept, floats);
        contrast(source_g, self->source_kept, source);
    }
    take_row(self, w, k, self->foils > 0 ? k * self->foils + foil - 1 : k);
}

static bp_err allocate(differentiation *self)
{
    int64_t E = self->settings->info->vector_width, T = self->document->T, S = self->document->S;
    bp_err err = bp_explain_batch_new(&self->batch, self->settings);

    if (self->foils == 0)
        return err;
    self->kept = bp_try_alloc("explain.contrast", T * E, sizeof *self->kept);
    self->source_kept = bp_try_alloc("explain.contrast", S * E, sizeof *self->source_kept);
    if (err == BP_OK && (!self->kept || !self->source_kept))
        err = bp_fail_memory("a gradient", (T + S) * E, sizeof *self->kept);
    return err;
}

/* `self` has document, foils, take and arrays. */
static bp_err run(differentiation *self)
{
    const bp_explain_settings *settings = self->settings;
    int64_t windows = self->document->K * (1 + self->foils);
    bp_err err = bp_explain_vectors_of(&self->vectors, self->model, settings, self->document);

    if (err == BP_OK)
        err = bp_agree(settings->group, allocate(self));
    for (int64_t first = 0, count; first < windows && err == BP_OK; first += count) {
        int64_t length;

        count = bp_explain_batch_fill(&self->batch, settings, self->document,
                                      (bp_explain_run){first, 1 + self->foils, false}, &length);
        err = bp_explain_step(settings);
        if (err == BP_OK)
            err = run_batch(self, first, count, length);
        for (int64_t w = 0; w < count && err == BP_OK; w++)
            take_window(self, w, first + w);
    }
    bp_free(self->source_kept);
    bp_free(self->kept);
    bp_explain_batch_free(&self->batch);
    bp_explain_vectors_clear(&self->vectors);
    return err;
}

static bp_err run_contrasted(differentiation *self, float *const *to)
{
    const bp_explain_form form = bp_explain_form_of(self->settings->info, self->document);

    self->foils = form.foils;
    for (int64_t i = 0; i < form.K * self->foils; i++)
        to[0][i] = (float)self->document->foils[i];
    return run(self);
}

static bp_err run_saliency(bp_model *model, const bp_explain_settings *settings,
                           const bp_explained *document, float *const *to)
{
    differentiation self = {.model = model,
                            .settings = settings,
                            .document = document,
                            .take = take_saliency,
                            .inputs = to,
                            .sources = to + 2};

    return run(&self);
}

static bp_err run_product(bp_model *model, const bp_explain_settings *settings,
                          const bp_explained *document, float *const *to)
{
    differentiation self = {.model = model,
                            .settings = settings,
                            .document = document,
                            .take = take_product,
                            .inputs = to,
                            .sources = to + 1};

    return run(&self);
}

static bp_err run_contrast(bp_model *model, const bp_explain_settings *settings,
                           const bp_explained *document, float *const *to)
{
    differentiation self = {.model = model,
                            .settings = settings,
                            .document = document,
                            .take = take_both,
                            .inputs = to + 1,
                            .sources = to + 4};

    return run_contrasted(&self, to);
}

static const char *lacks_contrast(const bp_model_info *info)
{
    return bp_task_kind_of(&info->task)->is_value
               ? "it gives a value, and no outcome that another one could stand against"
               : bp_explain_lacks_gradients(info);
}

const bp_explain_method bp_explain_saliency = {
    .name = "saliency",
    .title = "Saliency",
    .backward = true,
    .help = "is the size of the gradient of log p(target) by each input's word vector",
    .averages = true,
    .arrays = {{"saliency_l1", BP_EXPLAIN_BY_INPUT},
               {"saliency_l2", BP_EXPLAIN_BY_INPUT},
               {"source_saliency_l1", BP_EXPLAIN_BY_SOURCE},
               {"source_saliency_l2", BP_EXPLAIN_BY_SOURCE}},
    .ranks = "saliency_l2",
    .lacks = bp_explain_lacks_gradients,
    .run = run_saliency};

const bp_explain_method bp_explain_gradient = {
    .name = "gradient",
    .title = "Gradient times input",
    .backward = true,
    .help = "is the gradient of log p(target) by each input's word vector, times that vector, with "
            "its sign",
    .averages = true,
    .arrays = {{"gradient_x_input", BP_EXPLAIN_BY_INPUT},
               {"source_gradient_x_input", BP_EXPLAIN_BY_SOURCE}},
    .ranks = "gradient_x_input",
    .lacks = bp_explain_lacks_gradients,
    .run = run_product};

const bp_explain_method bp_explain_contrast = {
    .name = "contrast",
    .title = "Contrast with another outcome",
    .backward = true,
    .help = "is the gradient of log p(target) less log p(foil), another outcome: its size, and "
            "times the input",
    .averages = true,
    .arrays = {{"foil", BP_EXPLAIN_BY_FOIL},
               {"contrast_l1", BP_EXPLAIN_BY_FOIL_INPUT},
               {"contrast_l2", BP_EXPLAIN_BY_FOIL_INPUT},
               {"contrast_x_input", BP_EXPLAIN_BY_FOIL_INPUT},
               {"source_contrast_l1", BP_EXPLAIN_BY_FOIL_SOURCE},
               {"source_contrast_l2", BP_EXPLAIN_BY_FOIL_SOURCE},
               {"source_contrast_x_input", BP_EXPLAIN_BY_FOIL_SOURCE}},
    .lacks = lacks_contrast,
    .run = run_contrast};
