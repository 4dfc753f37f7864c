/* Integrated gradients: the mean gradient on the straight line from a baseline's word vectors e' to
 * the input's own e, times e - e'. All inputs move together; the integral is by Gauss and
 * Legendre's rule. Sundararajan et al. 2017, "Axiomatic attribution for deep networks". */
#include "explain/method.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { ATTRIBUTION, OF_SOURCE, LOGPROB, BASELINE, DELTA }; /* of the method's arrays */

/* ---- the rule ---- */

/* P_n(x), and its slope. */
static double legendre(int64_t n, double x, double *slope)
{
    double before = 1, at = x;

    for (int64_t k = 2; k <= n; k++) {
        double next = ((double)(2 * k - 1) * x * at - (double)(k - 1) * before) / (double)k;

        before = at;
        at = next;
    }
    *slope = (double)n * (x * at - before) / (x * x - 1);
    return at;
}

/* alpha[n], weight[n] of the n-point rule on [0, 1]; n = 1: the middle. */
static void gauss_legendre(int64_t n, double *alpha, double *weight)
{
    for (int64_t k = 0; k < n; k++) {
        double x = cos(M_PI * ((double)k + 0.75) / ((double)n + 0.5)), slope = 1, step = 1;

        for (int round = 0; n > 1 && round < 100 && fabs(step) > 1e-16; round++) {
            step = legendre(n, x, &slope) / slope;
            x -= step;
        }
        if (n > 1)
            (void)legendre(n, x, &slope);
        alpha[n - 1 - k] = n > 1 ? (1 + x) / 2 : 0.5;
        weight[n - 1 - k] = n > 1 ? 1 / ((1 - x * x) * slope * slope) : 1;
    }
}

/* ---- targets ---- */

typedef struct path {
    bp_model *model;
    const bp_explain_settings *settings;
    const bp_explained *document;
    bp_explain_vectors vectors;
    bp_explain_batch batch;
    double *alpha, *weight; /* [steps] */
    /* [capacity of the batch][E] of weighted gradients of targets [first, first + count): each has
     * `length` inputs, and the positions of the source */
    double *sums, *source_sums;
    int64_t first, count, length;
} path;

/* to[floats] are at the fraction `alpha` from `from` to `own`. */
static void go(float *to, const float *from, const float *own, double alpha, int64_t floats)
{
    for (int64_t i = 0; i < floats; i++)
        to[i] = (float)((double)from[i] + alpha * ((double)own[i] - (double)from[i]));
}

/* Window w of a batch is of target k, at the fraction `alpha`. */
static void set_window(path *self, int64_t w, int64_t k, int64_t length, double alpha)
{
    const bp_explain_vectors *vectors = &self->vectors;
    bp_explain_batch *batch = &self->batch;
    int64_t floats = length * vectors->E, source = self->document->S * vectors->E;

    bp_explain_batch_set(batch, self->document, w, k, length);
    bp_explain_hide(&self->vectors, self->document, k);
    go(batch->vectors + w * floats, vectors->base, vectors->own, alpha, floats);
    batch->batch.vectors = batch->vectors;
    if (source == 0)
        return;
    go(batch->source_vectors + w * source, vectors->source_base, vectors->source_own, alpha,
       source);
    batch->batch.source_vectors = batch->source_vectors;
}

/* log p(target) at both ends. */
static bp_err score_ends(path *self, int64_t k, double ends[2])
{
    bp_err err = BP_OK;

    for (int end = 0; end < 2 && err == BP_OK; end++) { /* one document may fill a batch */
        set_window(self, 0, k, bp_explain_length(self->settings, self->document, k), end);
        err = bp_model_score(self->model, &self->batch.batch, self->batch.values);
        ends[end] = (double)self->batch.values[self->document->positions[k]];
    }
    return err;
}

static void add_weighted(double *sums, const float *gradients, double weight, int64_t floats)
{
    for (int64_t i = 0; i < floats; i++)
        sums[i] += weight * (double)gradients[i];
}

/* A batch has the first target at all steps, then the second, which reads the same... */
static bp_err run_steps(path *self, int64_t step, int64_t steps)
{
    bp_explain_batch *batch = &self->batch;
    bp_err err = bp_explain_step(self->settings);

    for (int64_t w = 0; w < self->count * steps && err == BP_OK; w++)
        set_window(self, w, self->first + w / steps, self->length, self->alpha[step + w % steps]);
    batch->batch.alike = self->count > 1 ? steps : 0;
    if (err == BP_OK)
        err = self->model->ops->differentiate(self->model, &batch->batch, batch->gradients,
                                              batch->source_gradients);
    return err;
}

static bp_err integrate(path *self)
{
    bp_explain_batch *batch = &self->batch;
    int64_t floats = self->length * self->vectors.E, source = self->document->S * self->vectors.E,
            steps = self->settings->steps, count,
            most = bp_explain_batch_windows(batch, self->document, self->length) / self->count;
    bp_err err = BP_OK;

    memset(self->sums, 0, (size_t)(self->count * floats) * sizeof *self->sums);
    memset(self->source_sums, 0, (size_t)(self->count * source) * sizeof *self->source_sums);
    for (int64_t step = 0; step < steps && err == BP_OK; step += count) {
        count = steps - step < most ? steps - step : most;
        err = run_steps(self, step, count);
        for (int64_t w = 0; w < self->count * count && err == BP_OK; w++) {
            double weight = self->weight[step + w % count];
            int64_t k = w / count;

            add_weighted(self->sums + k * floats, batch->gradients + w * floats, weight, floats);
            if (source > 0)
                add_weighted(self->source_sums + k * source, batch->source_gradients + w * source,
                             weight, source);
        }
    }
    return err;
}

/* Attributions of `count` inputs, or positions of the source; their sum. */
static double attribute(float *to, const float *own, const float *base, const double *sums,
                        int64_t count, int64_t E)
{
    double all = 0;

    for (int64_t t = 0; t < count; t++) {
        double sum = 0;

        for (int64_t i = t * E; i < (t + 1) * E; i++)
            sum += ((double)own[i] - (double)base[i]) * sums[i];
        to[t] = (float)sum;
        all += sum;
    }
    return all;
}

static bp_err put_target(path *self, int64_t k, float *const *to)
{
    const bp_explained *document = self->document;
    const bp_explain_vectors *vectors = &self->vectors;
    int64_t T = document->T, S = document->S, E = vectors->E;
    double ends[2] = {0}, all;
    bp_err err = score_ends(self, k, ends);

    if (err != BP_OK)
        return err;
    all = attribute(to[ATTRIBUTION] + k * T, vectors->own, vectors->base,
                    self->sums + (k - self->first) * self->length * E,
                    bp_explain_length(self->settings, document, k), E);
    if (S > 0)
        all += attribute(to[OF_SOURCE] + k * S, vectors->source_own, vectors->source_base,
                         self->source_sums + (k - self->first) * S * E, S, E);
    to[LOGPROB][k] = (float)ends[1];
    to[BASELINE][k] = (float)ends[0];
    to[DELTA][k] = (float)(all - (ends[1] - ends[0]));
    return BP_OK;
}

/* Targets [first, first + count). Targets masked in turn do not read the same inputs: one at a
 * time. */
static bp_err explain_targets(path *self, int64_t first, float *const *to)
{
    const bp_explained *document = self->document;
    bp_err err;

    self->first = first;
    if (document->hides < 0) {
        self->count = bp_explain_batch_fill(&self->batch, self->settings, document,
                                            (bp_explain_run){first, 1, true}, &self->length);
    } else {
        self->count = 1;
        self->length = bp_explain_length(self->settings, document, first);
    }
    err = integrate(self);
    for (int64_t k = first; k < first + self->count && err == BP_OK; k++)
        err = put_target(self, k, to);
    return err;
}

/* ---- a document ---- */

static bp_err open_path(path *self)
{
    const bp_explain_settings *settings = self->settings;
    int64_t steps = settings->steps, E = settings->info->vector_width, floats, source;
    bp_err err = bp_explain_batch_new(&self->batch, settings);

    floats = self->batch.capacity * E;
    source = self->document->S > 0 ? floats : 0;
    self->alpha = bp_alloc("explain.path", steps, sizeof *self->alpha);
    self->weight = bp_alloc("explain.path", steps, sizeof *self->weight);
    self->sums = bp_try_alloc("explain.path", floats, sizeof *self->sums);
    self->source_sums = bp_try_alloc("explain.path", source, sizeof *self->source_sums);
    gauss_legendre(steps, self->alpha, self->weight);
    if (err == BP_OK && (!self->sums || !self->source_sums))
        err = bp_fail_memory("sums of gradients", floats + source, sizeof *self->sums);
    return err;
}

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    path self = {.model = model, .settings = settings, .document = document};
    bp_err err = bp_agree(settings->group, open_path(&self));

    if (err == BP_OK)
        err = bp_explain_vectors_of(&self.vectors, model, settings, document);
    for (int64_t k = 0; k < document->K && err == BP_OK; k += self.count)
        err = explain_targets(&self, k, to);
    bp_free(self.source_sums);
    bp_free(self.sums);
    bp_free(self.weight);
    bp_free(self.alpha);
    bp_explain_batch_free(&self.batch);
    bp_explain_vectors_clear(&self.vectors);
    return err;
}

/* ---- the corpus ---- */

#define MEAN    "mean_delta"
#define FLAGGED 0.01 /* share of what the baseline changes */

static void add_to(json_t *figures, const char *name, double value)
{
    (void)json_object_set_new(figures, name,
                              json_real(json_real_value(json_object_get(figures, name)) + value));
}

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    int64_t flagged = 0;
    float mean = 0;

    (void)settings;
    for (int64_t k = 0; k < document->K; k++) {
        double delta = fabs((double)at[DELTA][k]),
               change = fabs((double)at[LOGPROB][k] - (double)at[BASELINE][k]);

        mean += (float)(delta / (double)document->K);
        flagged += delta > FLAGGED * change;
    }
    bp_explain_add(figures, MEAN, 1, &mean, (double)document->K);
    add_to(figures, "flagged", (double)flagged);
    add_to(figures, "targets", (double)document->K);
}

/* A list of one becomes its element; null if there is no list. */
static void take_one(json_t *figures, const char *name)
{
    json_t *one = json_array_get(json_object_get(figures, name), 0);

    (void)json_object_set_new(figures, name, one ? json_incref(one) : json_null());
}

static void finish(json_t *figures)
{
    double targets = json_real_value(json_object_get(figures, "targets")),
           flagged = json_real_value(json_object_get(figures, "flagged"));

    bp_explain_means(figures);
    take_one(figures, MEAN);
    take_one(json_object_get(figures, "intervals"), MEAN);
    (void)json_object_set_new(figures, "targets", json_integer((json_int_t)targets));
    (void)json_object_set_new(figures, "flagged", json_integer((json_int_t)flagged));
}

const bp_explain_method bp_explain_integrated = {
    .name = "integrated",
    .title = "Integrated gradients",
    .backward = true,
    .help = "is integrated gradients from a baseline, which sum to what the baseline changes",
    .averages = true,
    .arrays = {{"integrated", BP_EXPLAIN_BY_INPUT},
               {"source_integrated", BP_EXPLAIN_BY_SOURCE},
               {"logprob", BP_EXPLAIN_BY_TARGET},
               {"logprob_baseline", BP_EXPLAIN_BY_TARGET},
               {"delta", BP_EXPLAIN_BY_TARGET}},
    .ranks = "integrated",
    .lacks = bp_explain_lacks_gradients,
    .run = run,
    .add = add,
    .finish = finish};
