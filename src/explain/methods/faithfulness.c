/* The faithfulness of attributions: how much the prediction loses without the inputs that a method
 * ranks first (comprehensiveness), and with only these (sufficiency), compared with a random order.
 * DeYoung et al. 2020, "ERASER: A benchmark to evaluate rationalized NLP models", section 4.2. */
#include "base/config/json.h"
#include "explain/perturbation/features.h"
#include "explain/perturbation/variants.h"

#include "base/mem.h"
#include "nn/core/layers.h"
#include "statistics/resample.h"

#include <math.h>
#include <string.h>

enum { COMPREHENSIVENESS, SUFFICIENCY, WHOLE, SIDES = WHOLE };

/* Shares of the inputs removed, or kept. */
static const double SHARES[BP_EXPLAIN_SHARES] = {0.01, 0.05, 0.1, 0.2, 0.5};
static const char *const SIDE[SIDES] = {"comprehensiveness", "sufficiency"};
#define RANDOM "random"

typedef struct curves {
    bp_model *model;
    const bp_explain_settings *settings;
    const bp_explained *document;
    float *const *to;
    explain_features features;
    int64_t *order; /* [T] ordinary inputs of a target, the most important first */
    double *score;  /* [T] */
    uint8_t *kept;  /* [T] */
    double *values; /* of the texts of a target */
} curves;

static int64_t rows_of(const bp_explain_settings *settings)
{
    return settings->ranks_count + 1;
}

/* ---- orders ---- */

/* The value of a matrix by place for input t and target k: its row for the place that the head
 * reads; for a head that reads the mean of all positions, the mean of their rows. */
static double look_of(const curves *self, const float *values, int64_t k, int64_t t)
{
    const bp_task_shape *task = &self->settings->info->task;
    int64_t T = self->document->T, first = self->document->positions[k], count = 1;
    double sum = 0;

    if (bp_task_has_head(task) && bp_task_kind_of(task)->over_positions)
        first = self->document->targets[k];
    if (bp_task_has_head(task) && task->pool == BP_POOL_LAST)
        first = T - 1;
    if (bp_task_has_head(task) && task->pool == BP_POOL_MEAN) {
        first = 0;
        count = T;
    }
    for (int64_t place = first; place < first + count; place++)
        sum += (double)values[place * T + t];
    return sum / (double)count;
}

/* The value of ranking `row` for input t and target k. */
static double score_of(const curves *self, int64_t row, int64_t k, int64_t t)
{
    const bp_explained *document = self->document;
    int64_t T = document->T;

    if (row == self->settings->ranks_count) { /* random, but the same on all meshes */
        bp_rng_key key =
            bp_rng_key_of(self->settings->seed, BP_RNG_PERTURB, 1, document->number, k);

        return bp_rng_uniform(&key, (uint64_t)t);
    }
    if (document->rankings[row].by_place)
        return look_of(self, document->rankings[row].values, k, t);
    return (double)document->rankings[row].values[k * T + t];
}

/* Inputs by descending score, the first of equal ones first; returns their number. */
static int64_t find_order(curves *self, int64_t row, int64_t k, int64_t length)
{
    int64_t count = 0;

    for (int64_t t = 0; t < length; t++) {
        int64_t at = count;

        if (self->features.of_place[t] < 0)
            continue;
        self->score[t] = score_of(self, row, k, t);
        for (; at > 0 && self->score[self->order[at - 1]] < self->score[t]; at--)
            self->order[at] = self->order[at - 1];
        self->order[at] = t;
        count++;
    }
    return count;
}

/* ---- texts ---- */

static int64_t inputs_of_share(int s, int64_t count)
{
    return (int64_t)ceil(SHARES[s] * (double)count);
}

/* Does a share remove as many inputs as the preceding one? Then they have the same text. */
static bool repeats(int s, int64_t count)
{
    return s > 0 && inputs_of_share(s, count) == inputs_of_share(s - 1, count);
}

static void add_texts(curves *self, explain_variants *variants, int64_t count, int64_t length)
{
    for (int side = 0; side < SIDES; side++)
        for (int s = 0; s < BP_EXPLAIN_SHARES; s++) {
            if (repeats(s, count))
                continue;
            for (int64_t t = 0; t < length; t++)
                self->kept[t] = self->features.of_place[t] < 0 || side == COMPREHENSIVENESS;
            for (int64_t j = 0; j < inputs_of_share(s, count); j++)
                self->kept[self->order[j]] = side == SUFFICIENCY;
            explain_variants_keep(variants, self->kept);
        }
}

/* Texts of a row, one after another from values[*at] on. */
static void take_row(curves *self, int64_t row, int64_t k, int64_t count, double whole,
                     const double *values, int64_t *at)
{
    int64_t rows = rows_of(self->settings);

    for (int side = 0; side < SIDES; side++)
        for (int s = 0; s < BP_EXPLAIN_SHARES; s++) {
            *at += !repeats(s, count);
            self->to[side][(k * rows + row) * BP_EXPLAIN_SHARES + s] =
                (float)(whole - values[*at - 1]);
        }
}

/* ---- targets ---- */

/* The value of a text. */
static double value_of(const curves *self, const double *row, int64_t k)
{
    return explain_variants_value(self->settings,
                                  row[explain_variants_column(self->settings, self->document, k)]);
}

static bp_err run_target(curves *self, int64_t k)
{
    int64_t length = bp_explain_length(self->settings, self->document, k), count = 0, at = 1;
    explain_variants variants;
    bp_err err;

    explain_variants_begin(&variants, self->model, self->settings, self->document, k, false);
    variants.out = self->values;
    explain_variants_replace(&variants, self->document->inputs);
    for (int64_t row = 0; row < rows_of(self->settings); row++) {
        count = find_order(self, row, k, length);
        if (count > 0)
            add_texts(self, &variants, count, length);
    }
    err = explain_variants_end(&variants);
    if (err != BP_OK || count == 0)
        return err;
    for (double *row = self->values, *to = row; row < variants.out; row += variants.outcomes)
        *to++ = value_of(self, row, k);
    self->to[WHOLE][k] = (float)self->values[0];
    for (int64_t row = 0; row < rows_of(self->settings); row++)
        take_row(self, row, k, count, self->values[0], self->values, &at);
    return err;
}

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    int64_t T = document->T, rows = rows_of(settings), texts = 1 + rows * SIDES * BP_EXPLAIN_SHARES;
    curves self = {.model = model,
                   .settings = settings,
                   .document = document,
                   .to = to,
                   .order = bp_alloc("explain.curves", T, sizeof(int64_t)),
                   .score = bp_alloc("explain.curves", T, sizeof(double)),
                   .kept = bp_alloc("explain.curves", T, sizeof(uint8_t)),
                   .values = bp_alloc("explain.curves",
                                      texts * explain_variants_outcomes(settings, document),
                                      sizeof(double))};
    bp_err err = BP_OK;

    for (int64_t i = 0; i < bp_explain_floats(&bp_explain_faithfulness, &form); i++)
        to[0][i] = NAN; /* not measured */
    explain_features_of(&self.features, settings, document);
    for (int64_t k = 0; k < document->K && err == BP_OK; k++)
        err = run_target(&self, k);
    explain_features_clear(&self.features);
    bp_free(self.values);
    bp_free(self.kept);
    bp_free(self.score);
    bp_free(self.order);
    return err;
}

/* ---- the corpus ---- */

static const char *name_of(const bp_explain_settings *settings, int64_t row)
{
    return row < settings->ranks_count ? settings->ranks[row] : RANDOM;
}

/* Per document: the number of targets, then their sums by row, side and share. */
static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    int64_t rows = rows_of(settings), each = rows * BP_EXPLAIN_SHARES;
    double *sums = bp_alloc("explain.curves", SIDES * each, sizeof *sums), count = 0;
    json_t *names = json_object_get(figures, "rows"), *line = json_array();

    for (int64_t k = 0; k < document->K; k++) {
        if (isnan(at[WHOLE][k]))
            continue;
        count++;
        for (int64_t i = 0; i < SIDES * each; i++)
            sums[i] += (double)at[i / each][k * each + i % each];
    }
    (void)json_array_append_new(line, json_real(count));
    for (int64_t i = 0; i < SIDES * each; i++)
        (void)json_array_append_new(line, json_real(sums[i]));
    if (!names) {
        (void)json_object_set_new(figures, "rows", names = json_array());
        (void)json_object_set_new(figures, "documents", json_array());
        for (int64_t row = 0; row < rows; row++)
            (void)json_array_append_new(names, json_string(name_of(settings, row)));
    }
    (void)json_array_append_new(json_object_get(figures, "documents"), line);
    bp_free(sums);
}

/* ---- the table ---- */

typedef struct table {
    int64_t documents, rows, width; /* width: a mean over shares and each share, by row and side */
    double *sums;                   /* [documents][1 + SIDES * rows * SHARES] */
} table;

/* values[SIDES][rows][1 + SHARES] of documents, each counted counts[d] times. */
static void find_means(double *values, const int32_t *const *counts, const void *data)
{
    const table *self = data;
    int64_t each = 1 + SIDES * self->rows * BP_EXPLAIN_SHARES;
    double targets = 0;

    memset(values, 0, (size_t)self->width * sizeof *values);
    for (int64_t d = 0; d < self->documents; d++) {
        const double *line = self->sums + d * each, times = counts ? counts[0][d] : 1;

        targets += times * line[0];
        for (int64_t i = 0; i < each - 1; i++) {
            int64_t to = i / BP_EXPLAIN_SHARES * (1 + BP_EXPLAIN_SHARES);

            values[to] += times * line[1 + i] / BP_EXPLAIN_SHARES;
            values[to + 1 + i % BP_EXPLAIN_SHARES] += times * line[1 + i];
        }
    }
    for (int64_t i = 0; i < self->width; i++)
        values[i] = targets > 0 ? values[i] / targets : (double)NAN;
}

/* [low, high] of value `at` */
static json_t *interval_at(const double *resamples, const table *self, int64_t at)
{
    bp_interval interval = {NAN, NAN};

    if (resamples)
        (void)bp_interval_of(&interval, resamples + at, BP_RESAMPLES, self->width, self->documents);
    return json_pack("[oo]", bp_json_real(interval.low), bp_json_real(interval.high));
}

/* {"mean": ..., "interval": [low, high], "by_share": [...], "share_intervals": [[low, high]...]} */
static json_t *describe(const double *means, const double *resamples, const table *self, int64_t at)
{
    json_t *shares = json_array(), *intervals = json_array();

    for (int s = 0; s < BP_EXPLAIN_SHARES; s++) {
        (void)json_array_append_new(shares, bp_json_real(means[at + 1 + s]));
        (void)json_array_append_new(intervals, interval_at(resamples, self, at + 1 + s));
    }
    return json_pack("{so so so so}", "mean", bp_json_real(means[at]), "interval",
                     interval_at(resamples, self, at), "by_share", shares, "share_intervals",
                     intervals);
}

static void read_table(table *out, const json_t *figures)
{
    const json_t *lines = json_object_get(figures, "documents");
    size_t d, i;
    const json_t *line, *value;
    double *to;

    out->documents = (int64_t)json_array_size(lines);
    out->rows = (int64_t)json_array_size(json_object_get(figures, "rows"));
    out->width = SIDES * out->rows * (1 + BP_EXPLAIN_SHARES);
    to = out->sums = bp_alloc(
        "explain.curves", out->documents * (1 + SIDES * out->rows * BP_EXPLAIN_SHARES), sizeof *to);
    json_array_foreach(lines, d, line)
    {
        json_array_foreach(line, i, value)
        {
            *to++ = json_real_value(value);
        }
    }
}

static void finish(json_t *figures)
{
    table self = {0};
    json_t *names = json_object_get(figures, "rows"), *shares = json_array();
    double *means, *resamples;
    bp_err err = BP_ERR_SYSTEM;

    read_table(&self, figures);
    means = bp_alloc("explain.curves", self.width, sizeof *means);
    resamples = bp_try_alloc("explain.curves", BP_RESAMPLES * self.width, sizeof *resamples);
    find_means(means, NULL, &self);
    const bp_bootstrap spec = {
        .resamples = BP_RESAMPLES, .groups = 1, .documents = &self.documents, .width = self.width};
    if (resamples && self.documents > 0)
        err = bp_bootstrap_run(resamples, &spec, find_means, &self);
    for (int64_t row = 0; row < self.rows; row++) {
        json_t *of = json_object();

        for (int side = 0; side < SIDES; side++)
            (void)json_object_set_new(of, SIDE[side],
                                      describe(means, err == BP_OK ? resamples : NULL, &self,
                                               (side * self.rows + row) * (1 + BP_EXPLAIN_SHARES)));
        (void)json_object_set_new(figures, json_string_value(json_array_get(names, (size_t)row)),
                                  of);
    }
    for (int s = 0; s < BP_EXPLAIN_SHARES; s++)
        (void)json_array_append_new(shares, json_real(SHARES[s]));
    (void)json_object_set_new(figures, "shares", shares);
    (void)json_object_del(figures, "documents");
    bp_free(resamples);
    bp_free(means);
    bp_free(self.sums);
}

/* Inputs of the source and of the target would need one common order. */
static const char *lacks(const bp_model_info *info)
{
    return info->reads_source && !explain_variants_classifies(info)
               ? "its predictions have two texts"
               : NULL;
}

const bp_explain_method bp_explain_faithfulness = {
    .name = "faithfulness",
    .title = "Faithfulness of the methods",
    .help = "is what the prediction loses without the inputs that the other methods put first, and "
            "with these alone",
    .arrays = {{"comprehensiveness", BP_EXPLAIN_CURVES},
               {"sufficiency", BP_EXPLAIN_CURVES},
               {"whole", BP_EXPLAIN_BY_TARGET}},
    .missing = {"whole"},
    .changes = true,
    .averages = true,
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = finish};
