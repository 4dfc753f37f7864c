/* Statistics of the attention weights of each head, and how attention passes inputs on through the
 * layers (rollout). Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers"; Clark et
 * al. 2019, "What Does BERT Look At?"; Olsson et al. 2022, "In-context Learning and Induction
 * Heads". */
#include "explain/method.h"

#include "base/mem.h"
#include "nn/core/block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ENTROPY, FIRST, SEPARATORS, DISTANCE, OWN, PREVIOUS, INDUCTION, STATISTICS };
#define CROSS_STATISTICS (SEPARATORS + 1) /* of queries that are in another text */

/* Layers that attend from one text to one text. */
typedef struct gaze {
    const char *what; /* of bp_probed */
    int first_block;
    int64_t L, queries, keys;
    const int32_t *tokens; /* [keys] */
    bool causal, crosses;
    bool *repeats;   /* [queries][keys] the key comes after a token like the query's own */
    bool *separates; /* [keys] */
    double *sums;    /* [STATISTICS][L][H] over queries */
    float *mean; /* [L][queries][keys] of the heads, summed; NULL for attention to another text */
    int64_t repeating; /* queries that have such a key */
} gaze;

enum { OWN_TEXT, SOURCE, CROSS, GAZES = BP_EXPLAIN_ATTENTIONS }; /* bp_explain_attentions */

/* A probe that sums the weights of each head of this rank. */
typedef struct watcher {
    bp_probe probe;
    const bp_explain_settings *settings;
    const bp_explained *document;
    int64_t H;
    gaze gazes[GAZES]; /* all for an encoder-decoder, else the first */
    int count;
} watcher;

/* Row i of the weights of a head; a causal model's first query has no choice. */
static void add_row(const gaze *self, const float *row, int64_t i, double *sums, int64_t stride)
{
    int64_t seen = self->causal ? i + 1 : self->keys; /* weights of later positions are 0 */
    double entropy = 0, separators = 0, distance = 0, induction = 0;

    for (int64_t j = 0; j < seen; j++) {
        double a = (double)row[j];

        entropy -= a > 0 ? a * log(a) : 0;
        separators += self->separates[j] ? a : 0;
        distance += a * (double)llabs(i - j);
    }
    for (int64_t j = 0; j < seen && !self->crosses; j++)
        induction += self->repeats[i * self->keys + j] ? (double)row[j] : 0;
    sums[INDUCTION * stride] += induction;
    if (self->causal && i == 0)
        return;
    sums[ENTROPY * stride] += entropy;
    sums[SEPARATORS * stride] += separators;
    sums[DISTANCE * stride] += self->crosses ? 0 : distance;
    sums[FIRST * stride] += (double)row[0];
    if (self->crosses)
        return;
    sums[OWN * stride] += (double)row[i];
    sums[PREVIOUS * stride] += i > 0 ? (double)row[i - 1] : 0;
}

/* The mean over the heads, of the keys that a query sees. */
static void add_mean(gaze *self, const float *row, int64_t i, int64_t seen, int64_t heads)
{
    for (int64_t j = 0; j < seen && self->mean; j++)
        self->mean[i * self->keys + j] += row[j] / (float)heads;
}

static void watch(bp_probe *probe, const bp_probed *seen)
{
    watcher *self = (watcher *)probe;

    for (int g = 0; g < self->count; g++) {
        gaze *at = &self->gazes[g];
        int64_t l = seen->block - at->first_block, stride = at->L * self->H;

        if (strcmp(seen->what, at->what) != 0 || l < 0 || l >= at->L)
            continue;
        BP_ASSERT(seen->rows == at->queries && seen->columns == at->keys && seen->head < self->H);
        for (int64_t i = 0; i < at->queries; i++) {
            const float *row = seen->x + i * at->keys;

            add_row(at, row, i, at->sums + l * self->H + seen->head, stride);
            add_mean(at, row, l * at->queries + i, at->causal ? i + 1 : at->keys, self->H);
        }
    }
}

/* ---- the document's tokens ---- */

static void look_at_tokens(const watcher *self, gaze *at)
{
    for (int64_t j = 0; j < at->keys; j++)
        at->separates[j] = bp_explain_separates(self->settings, at->tokens[j]);
    for (int64_t i = 0; i < at->queries && !at->crosses; i++) {
        bool any = false;

        for (int64_t j = 1; j <= i; j++) {
            bool repeats = at->tokens[j - 1] == at->tokens[i];

            at->repeats[i * at->keys + j] = repeats;
            any = any || repeats;
        }
        at->repeating += any;
    }
}

/* ---- rollout ---- */

/* to = (A + I) / 2 from, all [T][T], lower triangles for a causal model. */
static void roll(double *to, const float *A, const double *from, int64_t T, bool causal)
{
    for (int64_t i = 0; i < T; i++) {
        double *row = to + i * T;

        for (int64_t k = 0; k < T; k++)
            row[k] = from[i * T + k] / 2;
        for (int64_t j = 0; j < (causal ? i + 1 : T); j++)
            for (int64_t k = 0; k < (causal ? j + 1 : T); k++)
                row[k] += (double)A[i * T + j] / 2 * from[j * T + k];
    }
}

static bp_err roll_out(float *out, const gaze *at, const bp_explain_settings *settings,
                       double *work)
{
    int64_t T = at->queries;
    double *from = work, *to = work + T * T;
    bp_err err = BP_OK;

    memset(work, 0, (size_t)(2 * T * T) * sizeof *work);
    for (int64_t i = 0; i < T; i++)
        from[i * T + i] = 1;
    for (int64_t l = 0; l < at->L && err == BP_OK; l++) {
        double *last = from;

        err = bp_explain_step(settings);
        roll(to, at->mean + l * T * T, from, T, at->causal);
        from = to;
        to = last;
    }
    for (int64_t i = 0; i < T * T; i++)
        out[i] = (float)from[i];
    return err;
}

/* ---- a document ---- */

static void find_gazes(watcher *self, const bp_explain_form *form)
{
    const bp_model_info *info = self->settings->info;
    const bp_explained *document = self->document;
    bp_explain_attends kinds[GAZES];

    self->count = bp_explain_attentions(kinds, form);
    for (int g = 0; g < self->count; g++)
        self->gazes[g] =
            (gaze){.what = kinds[g].what,
                   .first_block = kinds[g].in_source ? info->first_source_layer : info->first_layer,
                   .L = kinds[g].layers,
                   .queries = kinds[g].queries,
                   .keys = kinds[g].keys,
                   .tokens = g == OWN_TEXT ? document->inputs : document->sources,
                   .causal = g == OWN_TEXT && bp_explain_is_causal(info),
                   .crosses = g == CROSS};
}

static int64_t cells_of(const gaze *at)
{
    return at->crosses ? 0 : at->queries * at->keys;
}

static bp_err allocate(watcher *self, double **work, float **scratch)
{
    int64_t most = 0, squares = 0;
    bool complete = true;

    for (int g = 0; g < self->count; g++) {
        gaze *at = &self->gazes[g];
        int64_t cells = cells_of(at);

        at->separates = bp_alloc("explain.attention", at->keys, sizeof *at->separates);
        at->sums = bp_alloc("explain.attention", STATISTICS * at->L * self->H, sizeof *at->sums);
        most = at->L * cells > most ? at->L * cells : most;
        squares = cells > squares ? cells : squares;
        if (at->crosses)
            continue;
        at->repeats = bp_try_alloc("explain.attention", cells, sizeof *at->repeats);
        at->mean = bp_try_alloc("explain.attention", at->L * cells, sizeof *at->mean);
        complete = complete && at->repeats && at->mean;
    }
    *work = bp_try_alloc("explain.attention", 2 * squares, sizeof **work);
    *scratch = bp_try_alloc("explain.attention", most, sizeof **scratch);
    return complete && *work && *scratch
               ? BP_OK
               : bp_fail_memory("weights of attention", 2 * most, sizeof(float));
}

static bp_err watch_pass(watcher *self, bp_model *model, float *scratch)
{
    int64_t T = self->document->T;
    int32_t *targets = bp_alloc("explain.attention", T, sizeof *targets), source_length;
    bp_model_batch batch = bp_explain_whole(self->document, targets, &source_length);
    float *values = bp_alloc("explain.attention", T, sizeof *values);
    bp_err err;

    model->ops->set_probe(model, &self->probe);
    err = bp_model_score(model, &batch, values);
    model->ops->set_probe(model, NULL);
    bp_free(values);
    bp_free(targets);
    for (int g = 0; g < self->count && err == BP_OK; g++) {
        gaze *at = &self->gazes[g];

        bp_all_sum_double(at->sums, STATISTICS * at->L * self->H, self->settings->group);
        if (at->mean)
            bp_all_sum(at->mean, at->L * cells_of(at), scratch, self->settings->group);
    }
    return err;
}

/* The number of queries over which statistic s of the text is the mean. */
static double queries_of(const gaze *at, int s)
{
    return (double)(s == INDUCTION                ? at->repeating
                    : s == PREVIOUS || at->causal ? at->queries - 1
                                                  : at->queries);
}

/* The results' arrays of a gaze: rollout, statistics, queries with a repeated key; for attention to
 * another text only its statistics. */
static bp_err put(const watcher *self, const gaze *at, float *const *to, double *work)
{
    int64_t heads = at->L * self->H;
    int statistics = at->crosses ? CROSS_STATISTICS : STATISTICS;
    bp_err err = at->crosses ? BP_OK : roll_out(*to++, at, self->settings, work);

    for (int s = 0; s < statistics; s++)
        for (int64_t k = 0; k < heads; k++)
            to[s][k] =
                queries_of(at, s) > 0 ? (float)(at->sums[s * heads + k] / queries_of(at, s)) : NAN;
    if (!at->crosses)
        to[STATISTICS][0] = (float)at->repeating;
    return err;
}

/* The positions of the arrays of each gaze. */
static const int FIRST_ARRAY[GAZES] = {0, STATISTICS + 2, 2 * (STATISTICS + 2)};

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    const bp_explain_form form = bp_explain_form_of(settings->info, document);
    watcher self = {.probe = {.see = watch, .attention = true},
                    .settings = settings,
                    .document = document,
                    .H = settings->info->heads};
    float *scratch = NULL;
    double *work = NULL;
    bp_err err;

    find_gazes(&self, &form);
    err = bp_agree(settings->group, allocate(&self, &work, &scratch));
    for (int g = 0; g < self.count && err == BP_OK; g++)
        look_at_tokens(&self, &self.gazes[g]);
    if (err == BP_OK)
        err = watch_pass(&self, model, scratch);
    for (int g = 0; g < self.count && err == BP_OK; g++)
        err = put(&self, &self.gazes[g], to + FIRST_ARRAY[g], work);
    bp_free(scratch);
    bp_free(work);
    for (int g = 0; g < self.count; g++) {
        bp_free(self.gazes[g].mean);
        bp_free(self.gazes[g].sums);
        bp_free(self.gazes[g].separates);
        bp_free(self.gazes[g].repeats);
    }
    return err;
}

/* ---- the corpus ---- */

/* A document's means are weighted by its number of queries. */
static void add_gaze(json_t *figures, const bp_explain_array *arrays, const float *const *at,
                     const gaze *of, int64_t heads)
{
    int first = of->crosses ? 0 : 1, statistics = of->crosses ? CROSS_STATISTICS : STATISTICS;

    for (int s = 0; s < statistics; s++)
        bp_explain_add(figures, arrays[first + s].name, of->L * heads, at[first + s],
                       queries_of(of, s));
}

static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    const bp_explain_form form = bp_explain_form_of(settings->info, document);
    watcher self = {.settings = settings, .document = document};

    find_gazes(&self, &form);
    for (int g = 0; g < self.count; g++) {
        gaze *of = &self.gazes[g];

        if (!of->crosses)
            of->repeating = (int64_t)*at[FIRST_ARRAY[g] + 1 + STATISTICS];
        add_gaze(figures, bp_explain_attention.arrays + FIRST_ARRAY[g], at + FIRST_ARRAY[g], of,
                 settings->info->heads);
    }
}

static const char *lacks(const bp_model_info *info)
{
    return info->heads == 0 ? "it has no attention"
           : info->source_layers > 0 && !info->reads_source
               ? "it reads its text twice, by encoder and decoder"
               : NULL;
}

#define OF_A_TEXT(prefix, PLACES, HEAD, DOCUMENT)                                                  \
    {prefix "rollout", PLACES}, {prefix "entropy", HEAD}, {prefix "first", HEAD},                  \
        {prefix "separators", HEAD}, {prefix "distance", HEAD}, {prefix "self", HEAD},             \
        {prefix "previous", HEAD}, {prefix "induction", HEAD},                                     \
    {                                                                                              \
        prefix "induction_queries", DOCUMENT                                                       \
    }

const bp_explain_method bp_explain_attention = {
    .name = "attention",
    .title = "Attention",
    .help = "is where heads look, and what attention passes on through all layers",
    .arrays = {OF_A_TEXT("", BP_EXPLAIN_BY_POSITIONS, BP_EXPLAIN_BY_HEAD, BP_EXPLAIN_BY_DOCUMENT),
               OF_A_TEXT("encoder_", BP_EXPLAIN_BY_SOURCE_POSITIONS, BP_EXPLAIN_BY_SOURCE_HEAD,
                         BP_EXPLAIN_BY_PAIR),
               {"cross_entropy", BP_EXPLAIN_BY_CROSS_HEAD},
               {"cross_first", BP_EXPLAIN_BY_CROSS_HEAD},
               {"cross_separators", BP_EXPLAIN_BY_CROSS_HEAD}},
    .ranks = "rollout",
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = bp_explain_means};
