/* The logit lens: the model's prediction if it stopped after each layer: its head, with its final
 * norm recomputed, reads the layer's output. nostalgebraist 2020, "interpreting GPT: the logit
 * lens". */
#include "explain/method.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

#define PLACES 8 /* whose logits are read together */

enum { RANK, RANK_BEST, LOGPROB, LOGPROB_BEST, ENTROPY, KL, KL_CLIPPED, LAYER_ARRAYS };

typedef struct lens {
    bp_model *model;
    const bp_explain_settings *settings;
    const bp_explained *document;
    int64_t L1, C, V; /* layers and the embedding, width, outcomes */
    float *states;    /* [L1][T][C] after the norm, on the last pipeline stage */
    float *rows;      /* [PLACES][C] of the current targets */
    float *part;      /* [PLACES][outcomes on this rank] */
    float *logits;    /* [PLACES][V] of a layer */
    float *last;      /* [PLACES][V] of the last one */
    float *scratch;   /* [PLACES][V] */
    float *by_layer[LAYER_ARRAYS], *top, *settles; /* in the results */
} lens;

/* logits[count][V] of targets from `first` on after layer l, on all ranks. */
static void find_logits(lens *self, int64_t l, int64_t first, int64_t count)
{
    const bp_model_info *info = self->settings->info;
    int64_t T = self->document->T;
    const int32_t *positions = self->document->positions + first;

    memset(self->logits, 0, (size_t)(count * self->V) * sizeof *self->logits);
    if (self->settings->last) {
        for (int64_t r = 0; r < count; r++)
            memcpy(self->rows + r * self->C, self->states + (l * T + positions[r]) * self->C,
                   (size_t)self->C * sizeof *self->rows);
        self->model->ops->logits(self->model, 0, self->rows, count, self->part);
        for (int64_t r = 0; r < count; r++)
            memcpy(self->logits + r * self->V + info->vocab_first,
                   self->part + r * info->vocab_count,
                   (size_t)info->vocab_count * sizeof *self->logits);
    }
    bp_all_sum(self->logits, count * self->V, self->scratch, self->settings->group);
}

/* ---- one row ---- */

static double log_sum(const float *logits, int64_t V)
{
    double most = -INFINITY, sum = 0;

    for (int64_t v = 0; v < V; v++)
        most = fmax(most, (double)logits[v]);
    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v] - most);
    return most + log(sum);
}

static int64_t count_as_high(const float *logits, int64_t V, int64_t own)
{
    int64_t count = 0;

    for (int64_t v = 0; v < V; v++)
        count += logits[v] >= logits[own];
    return count;
}

/* Ids by descending logit, the smaller of equal ones first; -1 if there are fewer outcomes. */
static void find_top(float *top, const float *logits, int64_t V)
{
    int64_t found[BP_EXPLAIN_TOP];

    for (int64_t k = 0; k < BP_EXPLAIN_TOP; k++) {
        found[k] = -1;
        for (int64_t v = 0; v < V; v++) {
            bool taken = false;

            for (int64_t j = 0; j < k; j++)
                taken = taken || found[j] == v;
            if (!taken && (found[k] < 0 || logits[v] > logits[found[k]]))
                found[k] = v;
        }
        top[k] = (float)found[k];
    }
}

/* Row `r` of the current ones, of target `place`, after layer l. */
static void take_row(lens *self, int64_t l, int64_t place, int64_t r)
{
    int64_t V = self->V, at = place * self->L1 + l;
    const float *logits = self->logits + r * V, *last = self->last + r * V;
    double sum = log_sum(logits, V), last_sum = log_sum(last, V), entropy = 0, kl = 0, clipped = 0,
           least = 1 / (10 * (double)V);
    float best;

    find_top(self->top + at * BP_EXPLAIN_TOP, logits, V);
    if (l == self->L1 - 1)
        self->settles[place] = (float)l;
    best = self->top[(place * self->L1 + self->L1 - 1) * BP_EXPLAIN_TOP];
    for (int64_t v = 0; v < V; v++) {
        double q = (double)logits[v] - sum, p = (double)last[v] - last_sum, P = fmax(exp(p), least),
               Q = fmax(exp(q), least);

        entropy -= exp(q) > 0 ? exp(q) * q : 0;
        kl += exp(p) > 0 ? exp(p) * (p - q) : 0;
        clipped += P * log(P / Q);
    }
    const int64_t own[] = {self->document->targets[place], (int64_t)best};
    for (int k = 0; k < 2; k++) {
        self->by_layer[RANK + k][at] = (float)count_as_high(logits, V, own[k]);
        self->by_layer[LOGPROB + k][at] = (float)((double)logits[own[k]] - sum);
    }
    self->by_layer[ENTROPY][at] = (float)entropy;
    self->by_layer[KL][at] = (float)kl;
    self->by_layer[KL_CLIPPED][at] = (float)clipped;
    if ((double)self->settles[place] == (double)(l + 1) && self->top[at * BP_EXPLAIN_TOP] == best)
        self->settles[place] = (float)l;
}

/* ---- a document ---- */

static bp_err allocate(lens *self)
{
    const bp_model_info *info = self->settings->info;
    int64_t states = self->L1 * self->document->T * self->C, floats = PLACES * self->V;

    self->states = bp_try_alloc("explain.lens", states, sizeof *self->states);
    self->rows = bp_alloc("explain.lens", PLACES * self->C, sizeof *self->rows);
    self->part = bp_try_alloc("explain.lens", PLACES * info->vocab_count, sizeof *self->part);
    self->logits = bp_try_alloc("explain.lens", 3 * floats, sizeof *self->logits);
    if (!self->states || !self->part || !self->logits)
        return bp_fail_memory("states of all layers", states, sizeof *self->states);
    self->last = self->logits + floats;
    self->scratch = self->last + floats;
    return BP_OK;
}

static void lay_out(lens *self, float *results)
{
    int64_t values = self->document->K * self->L1;

    for (int k = 0; k < LAYER_ARRAYS; k++)
        self->by_layer[k] = results + k * values;
    self->top = results + LAYER_ARRAYS * values;
    self->settles = self->top + BP_EXPLAIN_TOP * values;
}

/* States of the document, with target k hidden if it is masked. */
static bp_err find_states(lens *self, int64_t k)
{
    const bp_explained *document = self->document;
    int64_t T = document->T;
    int32_t *targets = bp_alloc("explain.lens", 2 * T, sizeof *targets), *inputs = targets + T,
            source_length;
    bp_model_batch batch = bp_explain_whole(document, targets, &source_length);
    bp_err err;

    memcpy(inputs, document->inputs, (size_t)T * sizeof *inputs);
    if (document->hides >= 0)
        inputs[document->positions[k]] = (int32_t)document->hides;
    batch.inputs = inputs;
    err = self->model->ops->layers(self->model, &batch, self->states);
    bp_free(targets);
    return err;
}

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    int64_t K = document->K, count, together = document->hides >= 0 ? 1 : PLACES;
    lens self = {.model = model,
                 .settings = settings,
                 .document = document,
                 .L1 = settings->info->layers + 1,
                 .C = settings->info->width,
                 .V = settings->info->vocab_size};
    bp_err err = bp_agree(settings->group, allocate(&self));

    lay_out(&self, to[0]);
    for (int64_t first = 0; first < K && err == BP_OK; first += count) {
        count = K - first < together ? K - first : together;
        if (first == 0 || document->hides >= 0)
            err = find_states(&self, first);
        for (int64_t l = self.L1 - 1; l >= 0 && err == BP_OK; l--) {
            err = bp_explain_step(settings);
            if (err == BP_OK)
                find_logits(&self, l, first, count);
            if (l == self.L1 - 1)
                memcpy(self.last, self.logits, (size_t)(count * self.V) * sizeof *self.last);
            for (int64_t r = 0; r < count && err == BP_OK; r++)
                take_row(&self, l, first + r, r);
        }
    }
    bp_free(self.logits);
    bp_free(self.part);
    bp_free(self.rows);
    bp_free(self.states);
    return err;
}

/* ---- the corpus ---- */

static const char *const MEANS[] = {
    [LOGPROB] = "logprob", [ENTROPY] = "entropy", [KL] = "kl", [LAYER_ARRAYS] = NULL};

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    int64_t K = document->K, L1 = settings->info->layers + 1;

    for (int a = 0; a < LAYER_ARRAYS; a++)
        for (int64_t k = 0; k < K && MEANS[a]; k++)
            bp_explain_add(figures, MEANS[a], L1, at[0] + (a * K + k) * L1, 1);
}

static const char *lacks(const bp_model_info *info)
{
    return info->layers == 0               ? "it has no layers"
           : bp_task_has_head(&info->task) ? "it has the head of a task in place of words"
           : info->layer_width == 0        ? "its layers leave states of different widths"
                                           : NULL;
}

const bp_explain_method bp_explain_lens = {.name = "lens",
                                           .title = "Logit lens",
                                           .help = "is what the head predicts after each layer",
                                           .arrays = {{"rank", BP_EXPLAIN_BY_LAYER},
                                                      {"rank_best", BP_EXPLAIN_BY_LAYER},
                                                      {"logprob", BP_EXPLAIN_BY_LAYER},
                                                      {"logprob_best", BP_EXPLAIN_BY_LAYER},
                                                      {"entropy", BP_EXPLAIN_BY_LAYER},
                                                      {"kl", BP_EXPLAIN_BY_LAYER},
                                                      {"kl_clipped", BP_EXPLAIN_BY_LAYER},
                                                      {"top5", BP_EXPLAIN_TOPS},
                                                      {"settles", BP_EXPLAIN_BY_TARGET}},
                                           .lacks = lacks,
                                           .run = run,
                                           .add = add,
                                           .finish = bp_explain_means};
