/* Where heads look: statistics of the weights of each head, and how attention passes inputs on
 * through the layers (rollout). Abnar and Zuidema 2020, "Quantifying Attention Flow in
 * Transformers"; Clark et al. 2019, "What Does BERT Look At?"; Olsson et al. 2022, "In-context
 * Learning and Induction Heads". */
#include "explain/method.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "nn/core/block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ENTROPY, DISTANCE, OWN, FIRST, SEPARATORS, PREVIOUS, INDUCTION, STATISTICS };

/* A probe that sums what each head of this rank does. */
typedef struct watcher {
    bp_probe probe;
    const bp_explain_settings *settings;
    const bp_explained *document;
    int64_t L, H;
    bool *repeats;   /* [T][T] the key comes after a token like the query's own */
    bool *separates; /* [T] */
    double *sums;    /* [STATISTICS][L][H] over queries */
    float *mean;     /* [L][T][T] of the heads, summed */
} watcher;

/* Row i of the weights of a head; a causal model's first query has no choice. */
static void add_row(watcher *self, const float *row, int64_t i, int64_t keys, double *sums,
                    int64_t stride)
{
    bool chooses = i > 0;

    for (int64_t j = 0; j < keys; j++) {
        double a = (double)row[j];

        if (self->repeats[i * keys + j])
            sums[INDUCTION * stride] += a;
        if (!chooses)
            continue;
        sums[ENTROPY * stride] -= a > 0 ? a * log(a) : 0;
        sums[DISTANCE * stride] += a * (double)llabs(i - j);
        sums[SEPARATORS * stride] += self->separates[j] ? a : 0;
    }
    if (!chooses)
        return;
    sums[OWN * stride] += (double)row[i];
    sums[FIRST * stride] += (double)row[0];
    sums[PREVIOUS * stride] += (double)row[i - 1];
}

static void watch(bp_probe *probe, const bp_probed *seen)
{
    watcher *self = (watcher *)probe;
    int64_t T = self->document->T, l = seen->block - self->settings->info->first_layer,
            stride = self->L * self->H;
    float *mean = self->mean + l * T * T;

    if (strcmp(seen->what, "attention") != 0 || l < 0 || l >= self->L)
        return;
    BP_ASSERT(seen->rows == T && seen->columns == T && seen->head < self->H);
    for (int64_t i = 0; i < T; i++)
        add_row(self, seen->x + i * T, i, T, self->sums + l * self->H + seen->head, stride);
    for (int64_t i = 0; i < T * T; i++)
        mean[i] += seen->x[i] / (float)self->H;
}

/* ---- the document's tokens ---- */

static void look_at_tokens(watcher *self, int64_t *repeating)
{
    const bp_explained *document = self->document;
    int64_t T = document->T;

    *repeating = 0;
    for (int64_t i = 0; i < T; i++) {
        bool any = false;

        self->separates[i] = bp_explain_is_special(self->settings, document->inputs[i]);
        for (int64_t j = 1; j <= i; j++) {
            bool repeats = document->inputs[j - 1] == document->inputs[i];

            self->repeats[i * T + j] = repeats;
            any = any || repeats;
        }
        *repeating += any;
    }
}

/* ---- rollout ---- */

/* to = (A + I) / 2 from, all [T][T] of lower triangles. */
static void roll(double *to, const float *A, const double *from, int64_t T)
{
    for (int64_t i = 0; i < T; i++) {
        double *row = to + i * T;

        for (int64_t k = 0; k <= i; k++)
            row[k] = from[i * T + k] / 2;
        for (int64_t j = 0; j <= i; j++)
            for (int64_t k = 0; k <= j; k++)
                row[k] += (double)A[i * T + j] / 2 * from[j * T + k];
    }
}

static void roll_out(float *out, const float *mean, int64_t L, int64_t T, double *work)
{
    double *from = work, *to = work + T * T;

    memset(work, 0, (size_t)(2 * T * T) * sizeof *work);
    for (int64_t i = 0; i < T; i++)
        from[i * T + i] = 1;
    for (int64_t l = 0; l < L; l++) {
        double *last = from;

        bp_heartbeat_progress();
        roll(to, mean + l * T * T, from, T);
        from = to;
        to = last;
    }
    for (int64_t i = 0; i < T * T; i++)
        out[i] = (float)from[i];
}

/* ---- a document ---- */

static bp_err allocate(watcher *self, double **work, float **scratch)
{
    int64_t T = self->document->T, matrices = self->L * T * T;

    self->repeats = bp_try_alloc("explain.attention", T * T, sizeof *self->repeats);
    self->separates = bp_alloc("explain.attention", T, sizeof *self->separates);
    self->sums = bp_alloc("explain.attention", STATISTICS * self->L * self->H, sizeof *self->sums);
    self->mean = bp_try_alloc("explain.attention", matrices, sizeof *self->mean);
    *work = bp_try_alloc("explain.attention", 2 * T * T, sizeof **work);
    *scratch = bp_try_alloc("explain.attention", matrices, sizeof **scratch);
    if (!self->repeats || !self->mean || !*work || !*scratch)
        return bp_fail_memory("weights of attention", 2 * matrices, sizeof *self->mean);
    return BP_OK;
}

static bp_err watch_pass(watcher *self, bp_model *lm, float *scratch)
{
    const bp_explained *document = self->document;
    bp_model_batch batch = {.windows = 1,
                            .length = document->T,
                            .inputs = document->inputs,
                            .targets = document->targets};
    float *values = bp_alloc("explain.attention", document->T, sizeof *values);
    bp_err err;

    lm->ops->set_probe(lm, &self->probe);
    err = bp_model_score(lm, &batch, values);
    lm->ops->set_probe(lm, NULL);
    bp_free(values);
    if (err != BP_OK)
        return err;
    bp_all_sum_double(self->sums, STATISTICS * self->L * self->H, self->settings->group);
    bp_all_sum(self->mean, self->L * document->T * document->T, scratch, self->settings->group);
    return BP_OK;
}

static bp_err run(bp_model *lm, const bp_explain_settings *settings, const bp_explained *document,
                  float *results)
{
    int64_t T = document->T, heads, repeating = 0;
    watcher self = {.probe = {.see = watch, .attention = true},
                    .settings = settings,
                    .document = document,
                    .L = settings->info->layers,
                    .H = settings->info->heads};
    double *work = NULL;
    float *scratch = NULL;
    bp_err err = bp_agree(settings->group, allocate(&self, &work, &scratch));

    heads = self.L * self.H;
    if (err == BP_OK) {
        look_at_tokens(&self, &repeating);
        err = watch_pass(&self, lm, scratch);
    }
    if (err == BP_OK) {
        roll_out(results, self.mean, self.L, T, work);
        for (int64_t k = 0; k < STATISTICS * heads; k++) {
            double queries = (double)(k / heads == INDUCTION ? repeating : T - 1);

            results[T * T + k] = queries > 0 ? (float)(self.sums[k] / queries) : NAN;
        }
        results[T * T + STATISTICS * heads] = (float)repeating;
    }
    bp_free(scratch);
    bp_free(work);
    bp_free(self.mean);
    bp_free(self.sums);
    bp_free(self.separates);
    bp_free(self.repeats);
    return err;
}

/* ---- the corpus ---- */

static const char *const NAMES[] = {"entropy",    "distance", "self",     "first",
                                    "separators", "previous", "induction"};

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *results)
{
    int64_t T = document->T, heads = settings->info->layers * settings->info->heads;
    const float *means = results + T * T;

    for (int s = 0; s < STATISTICS; s++)
        bp_explain_add(figures, NAMES[s], heads, means + s * heads,
                       s == INDUCTION ? (double)means[STATISTICS * heads] : (double)(T - 1));
}

static const char *lacks(const bp_model_info *info)
{
    return info->heads > 0 ? NULL : "it has no attention";
}

const bp_explain_method bp_explain_attention = {
    .name = "attention",
    .help = "is where heads look, and what attention passes on through all layers",
    .arrays = {{"rollout", BP_EXPLAIN_BY_INPUT},
               {"entropy", BP_EXPLAIN_BY_HEAD},
               {"distance", BP_EXPLAIN_BY_HEAD},
               {"self", BP_EXPLAIN_BY_HEAD},
               {"first", BP_EXPLAIN_BY_HEAD},
               {"separators", BP_EXPLAIN_BY_HEAD},
               {"previous", BP_EXPLAIN_BY_HEAD},
               {"induction", BP_EXPLAIN_BY_HEAD},
               {"induction_queries", BP_EXPLAIN_BY_DOCUMENT}},
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = bp_explain_means};
