/* Integrated gradients: the mean gradient on the straight way from a baseline's word vectors e' to
 * the input's own e, times e - e'. All inputs move together; the integral is by Gauss and
 * Legendre's rule. Sundararajan et al. 2017, "Axiomatic attribution for deep networks". */
#include "explain/method.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"

#include <math.h>
#include <string.h>

enum { ATTRIBUTION, LOGPROB, BASELINE, DELTA }; /* of the method's arrays */

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

/* ---- one target ---- */

typedef struct path {
    bp_model *lm;
    const bp_explain_settings *settings;
    const bp_explained *document;
    bp_explain_vectors vectors;
    bp_explain_batch batch;
    double *alpha, *weight; /* [steps] */
    double *sums;           /* [T][E] of weighted gradients */
} path;

/* Window w of a batch is at `alpha` of the way. */
static void set_window(path *self, int64_t w, int64_t place, double alpha)
{
    int64_t length = place + 1, floats = length * self->vectors.E;
    float *to = self->batch.vectors + w * floats;

    bp_explain_batch_set(&self->batch, self->document, w, place, length);
    self->batch.batch.vectors = self->batch.vectors;
    for (int64_t i = 0; i < floats; i++)
        to[i] = (float)((double)self->vectors.base[i] +
                        alpha * ((double)self->vectors.own[i] - (double)self->vectors.base[i]));
}

/* log p(target) at both ends. */
static bp_err score_ends(path *self, int64_t place, double ends[2])
{
    bp_err err = BP_OK;

    for (int end = 0; end < 2 && err == BP_OK; end++) { /* one document may fill a batch */
        set_window(self, 0, place, end);
        err = bp_model_score(self->lm, &self->batch.batch, self->batch.values);
        ends[end] = (double)self->batch.values[place];
    }
    return err;
}

static bp_err integrate(path *self, int64_t place)
{
    int64_t length = place + 1, floats = length * self->vectors.E, steps = self->settings->steps,
            most = bp_explain_batch_windows(&self->batch, length), count;
    bp_err err = BP_OK;

    memset(self->sums, 0, (size_t)floats * sizeof *self->sums);
    for (int64_t first = 0; first < steps && err == BP_OK; first += count) {
        count = steps - first < most ? steps - first : most;
        bp_heartbeat_progress();
        for (int64_t w = 0; w < count; w++)
            set_window(self, w, place, self->alpha[first + w]);
        err =
            self->lm->ops->differentiate(self->lm, &self->batch.batch, self->batch.gradients, NULL);
        for (int64_t w = 0; w < count && err == BP_OK; w++)
            for (int64_t i = 0; i < floats; i++)
                self->sums[i] +=
                    self->weight[first + w] * (double)self->batch.gradients[w * floats + i];
    }
    return err;
}

static bp_err explain_target(path *self, int64_t place, float *results)
{
    int64_t T = self->document->T, E = self->vectors.E;
    float *by_target = results + T * T;
    double ends[2] = {0}, all = 0;
    bp_err err = score_ends(self, place, ends);

    if (err == BP_OK)
        err = integrate(self, place);
    if (err != BP_OK)
        return err;
    for (int64_t t = 0; t <= place; t++) {
        double sum = 0;

        for (int64_t i = t * E; i < (t + 1) * E; i++)
            sum += ((double)self->vectors.own[i] - (double)self->vectors.base[i]) * self->sums[i];
        results[place * T + t] = (float)sum;
        all += sum;
    }
    by_target[place] = (float)ends[1];
    by_target[T + place] = (float)ends[0];
    by_target[2 * T + place] = (float)(all - (ends[1] - ends[0]));
    return BP_OK;
}

/* ---- a document ---- */

static bp_err open_path(path *self)
{
    const bp_explain_settings *settings = self->settings;
    int64_t steps = settings->steps, floats = self->document->T * settings->info->vector_width;
    bp_err err = bp_explain_batch_new(&self->batch, settings);

    self->alpha = bp_alloc("explain.path", steps, sizeof *self->alpha);
    self->weight = bp_alloc("explain.path", steps, sizeof *self->weight);
    self->sums = bp_try_alloc("explain.path", floats, sizeof *self->sums);
    gauss_legendre(steps, self->alpha, self->weight);
    if (err == BP_OK && !self->sums)
        err = bp_fail_memory("sums of gradients", floats, sizeof *self->sums);
    return err;
}

static bp_err run(bp_model *lm, const bp_explain_settings *settings, const bp_explained *document,
                  float *results)
{
    path self = {.lm = lm, .settings = settings, .document = document};
    bp_err err = bp_agree(settings->group, open_path(&self));

    if (err == BP_OK)
        err = bp_explain_vectors_of(&self.vectors, lm, settings, document);
    for (int64_t place = 0; place < document->T && err == BP_OK; place++)
        err = explain_target(&self, place, results);
    bp_free(self.sums);
    bp_free(self.weight);
    bp_free(self.alpha);
    bp_explain_batch_free(&self.batch);
    bp_explain_vectors_clear(&self.vectors);
    return err;
}

/* ---- the corpus ---- */

#define FLAGGED 0.01 /* of what the baseline changes */

static void add_to(json_t *figures, const char *name, double value)
{
    (void)json_object_set_new(figures, name,
                              json_real(json_real_value(json_object_get(figures, name)) + value));
}

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *results)
{
    int64_t T = document->T, flagged = 0;
    const float *by_target = results + T * T;
    double deltas = 0;

    (void)settings;

    for (int64_t k = 0; k < T; k++) {
        double delta = fabs((double)by_target[2 * T + k]),
               change = fabs((double)by_target[k] - (double)by_target[T + k]);

        deltas += delta;
        flagged += delta > FLAGGED * change;
    }
    add_to(figures, "deltas", deltas);
    add_to(figures, "flagged", (double)flagged);
    add_to(figures, "targets", (double)T);
}

static void finish(json_t *figures)
{
    double targets = json_real_value(json_object_get(figures, "targets")),
           deltas = json_real_value(json_object_get(figures, "deltas")),
           flagged = json_real_value(json_object_get(figures, "flagged"));

    (void)json_object_del(figures, "deltas");
    (void)json_object_set_new(figures, "targets", json_integer((json_int_t)targets));
    (void)json_object_set_new(figures, "flagged", json_integer((json_int_t)flagged));
    (void)json_object_set_new(figures, "mean_delta",
                              targets > 0 ? json_real(deltas / targets) : json_null());
}

const bp_explain_method bp_explain_integrated = {
    .name = "integrated",
    .help = "is integrated gradients from a baseline, which sum to what the baseline changes",
    .arrays = {{"integrated", BP_EXPLAIN_BY_INPUT},
               {"logprob", BP_EXPLAIN_BY_TARGET},
               {"logprob_baseline", BP_EXPLAIN_BY_TARGET},
               {"delta", BP_EXPLAIN_BY_TARGET}},
    .lacks = bp_explain_lacks_gradients,
    .run = run,
    .add = add,
    .finish = finish};
