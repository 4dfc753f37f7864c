/* score/index.html: the figures, the hardest documents, plots. Written by the coordinator at the
 * end. Called by page_texts.c, infer/score/score.c and infer/score/task/page.c. */
#include "infer/score/page/page_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/sort.h"
#include "infer/score/keys.h"
#include "job/report/report.h"
#include "statistics/inference.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BINS        40
#define LINES_MOST  7  /* corpora with their own histogram: one per colour */
#define VALUES_MOST 20 /* values of a label shown: those with the most documents */
#define TABLE_MOST  500
#define OUTLIERS    0.005 /* this share of all documents at both ends is in the outermost bins, */
#define MARGIN      0.02  /* unless a row reaches beyond; of the axis, so that no point is cut */
#define GROUP_LEAST 5 /* the fewest documents of a distribution: quartiles of fewer are random */

double score_page_perplexity(const bp_score_table *table, int64_t document)
{
    int64_t tokens = table->tokens[document];

    return tokens > 0 ? exp(bp_fixed_real(table->nll[document]) / (double)tokens) : NAN;
}

json_t *bp_score_page_text(const char *text, size_t bytes)
{
    bp_buffer out = {0};

    bp_text_escape(&out, text, bytes);
    json_t *value = json_stringn(out.data ? out.data : "", out.bytes);
    bp_buffer_clear(&out);
    return value;
}

json_t *score_page_title(const char *model)
{
    char *text = bp_sprintf("Scores of %s", bp_path_base(model));
    json_t *title = bp_score_page_text(text, strlen(text));

    bp_free(text);
    return title;
}

void bp_score_page_add_value(json_t *object, const char *key, const char *format, double value)
{
    char *text = isfinite(value) ? bp_sprintf(format, value) : NULL;

    (void)json_object_set_new(object, key, text ? bp_json_string(text) : json_null());
    bp_free(text);
}

void bp_score_page_add_figure(json_t *object, const char *key, double value, double error)
{
    char *text = bp_report_figure(value, error, false);

    (void)json_object_set_new(object, key, text ? bp_json_string(text) : json_null());
    bp_free(text);
}

/* ---- groups of documents and how their perplexities are distributed ---- */

/* Documents [first, end) of all, or those of them that have `value` in `codes`. */
typedef struct group {
    int64_t first, end;
    const int32_t *codes;
    int32_t value;
} group;

typedef struct distribution {
    double *values; /* [count], ascending */
    int64_t count;
} distribution;

/* values: space for one of each document. */
static distribution distribution_of(const bp_score_table *table, const group *which, double *values)
{
    distribution out = {.values = values};

    for (int64_t d = which->first; d < which->end; d++) {
        double value = score_page_perplexity(table, d);

        if (isfinite(value) && (!which->codes || which->codes[d] == which->value))
            values[out.count++] = value;
    }
    bp_sort_reals(values, out.count);
    return out;
}

static double quantile(const distribution *of, double share)
{
    return of->values[(int64_t)(share * (double)(of->count - 1) + 0.5)];
}

/* The data of the script score.gp. */
typedef struct drawing {
    const bp_score_table *table;
    double *scratch;       /* [documents] */
    double low, high;      /* of the axis: what all documents, and all rows take */
    double top;            /* of the shares' axis: autoscaling takes the first line's */
    json_t *lines, *names; /* of the histograms, and of the rows of quantiles */
    const json_t *summary; /* perplexities over all tokens, with their errors */
    bp_buffer bins, quantiles, means;
} drawing;

static void widen(drawing *self, double value)
{
    if (isfinite(value) && value > 0) {
        self->low = fmin(self->low, value);
        self->high = fmax(self->high, value);
    }
}

/* A row `name`: row,5 %,25 %,50 %,75 %,95 %; and of its figures row,perplexity,twice its error */
static void add_quantiles(drawing *self, json_t *name, const group *which, const json_t *figures)
{
    static const double SHARES[] = {0.05, 0.25, 0.5, 0.75, 0.95};
    distribution of = distribution_of(self->table, which, self->scratch);

    if (of.count < GROUP_LEAST) {
        json_decref(name);
        return;
    }
    (void)json_array_append_new(self->names, name);
    bp_buffer_printf(&self->quantiles, "%zu", json_array_size(self->names));
    for (int k = 0; k < 5; k++) {
        bp_buffer_printf(&self->quantiles, ",%.6g", quantile(&of, SHARES[k]));
        widen(self, quantile(&of, SHARES[k]));
    }
    widen(self, bp_json_number(figures, "perplexity"));
    bp_buffer_printf(&self->quantiles, "\n");
    bp_buffer_printf(&self->means, "%zu,%.6g,%.6g\n", json_array_size(self->names),
                     bp_json_number(figures, "perplexity"), 2 * scorer_error_of(figures));
}

/* Bins of equal width in the logarithm: line,middle,share */
static void add_histogram(drawing *self, json_t *name, const group *which)
{
    distribution of = distribution_of(self->table, which, self->scratch);
    double low = log(self->low), width = (log(self->high) - low) / BINS;
    int64_t counts[BINS] = {0};

    if (of.count < GROUP_LEAST || !(width > 0)) {
        json_decref(name);
        return;
    }
    (void)json_array_append_new(self->lines, name);
    for (int64_t k = 0; k < of.count; k++) {
        double bin = floor((log(of.values[k]) - low) / width);

        counts[bin < 0 ? 0 : bin > BINS - 1 ? BINS - 1 : (int)bin]++;
    }
    for (int b = 0; b < BINS; b++) {
        double share = (double)counts[b] / (double)of.count;

        bp_buffer_printf(&self->bins, "%zu,%.6g,%.6g\n", json_array_size(self->lines),
                         exp(low + (b + 0.5) * width), share);
        self->top = fmax(self->top, 1.05 * share);
    }
}

static char *name_of_file(const bp_score_plan *plan, int64_t f)
{
    return bp_score_corpus_name(bp_corpus_file_path(bp_corpus_file_at(plan->corpus, f)));
}

static group group_of_file(const bp_score_plan *plan, int64_t f)
{
    return (group){.first = plan->first_document[f], .end = plan->first_document[f + 1]};
}

/* The rows of corpora. */
static void add_corpora(drawing *self)
{
    const bp_score_plan *plan = self->table->plan;
    group all = {.end = plan->documents};
    distribution of = distribution_of(self->table, &all, self->scratch);

    if (of.count < GROUP_LEAST)
        return;
    self->low = quantile(&of, OUTLIERS);
    self->high = quantile(&of, 1 - OUTLIERS);
    if (plan->files > 1)
        add_quantiles(self, json_string("all documents"), &all, self->summary);
    for (int64_t f = 0; f < plan->files; f++) {
        group one = group_of_file(plan, f);
        char *name = name_of_file(plan, f);

        add_quantiles(self, bp_score_page_text(name, strlen(name)), &one,
                      plan->files > 1
                          ? json_object_get(json_object_get(self->summary, "corpora"), name)
                          : self->summary);
        bp_free(name);
    }
}

/* All rows are there, and so the axis is known. */
static void add_histograms(drawing *self)
{
    const bp_score_plan *plan = self->table->plan;
    group all = {.end = plan->documents};
    double margin = MARGIN * (log(self->high) - log(self->low));

    if (!(margin >= 0)) /* too few documents */
        return;
    self->low *= exp(-margin);
    self->high *= exp(margin);
    if (plan->files > LINES_MOST)
        add_histogram(self, json_string("all documents"), &all);
    for (int64_t f = 0; f < plan->files && plan->files <= LINES_MOST; f++) {
        group one = group_of_file(plan, f);
        char *name = name_of_file(plan, f);

        add_histogram(self, bp_score_page_text(name, strlen(name)), &one);
        bp_free(name);
    }
}

static void add_label(drawing *self, const bp_score_column *column)
{
    int64_t documents = self->table->plan->documents, values = column->value_count,
            equals = VALUES_MOST;
    double *counts = bp_alloc("score.page", values, sizeof *counts);
    double *sorted = bp_alloc("score.page", values, sizeof *sorted), least = 0;
    const json_t *figures = json_object_get(json_object_get(self->summary, "labels"), column->name);

    for (int64_t d = 0; d < documents; d++)
        if (column->codes[d] >= 0)
            counts[column->codes[d]]++;
    memcpy(sorted, counts, (size_t)values * sizeof *sorted);
    bp_sort_reals(sorted, values);
    if (values > VALUES_MOST && sorted[values - VALUES_MOST] >= least)
        least = sorted[values - VALUES_MOST];
    for (int64_t v = 0; v < values; v++)
        equals -= counts[v] > least;
    for (int64_t v = 0; v < values; v++) {
        group one = {.end = documents, .codes = column->codes, .value = (int32_t)v};

        if (counts[v] < least || (counts[v] == least && equals-- <= 0))
            continue;
        char *name = bp_sprintf("%s: %s", column->name, column->values[v]);
        add_quantiles(self, bp_score_page_text(name, strlen(name)), &one,
                      json_object_get(figures, column->values[v]));
        bp_free(name);
    }
    bp_free(sorted);
    bp_free(counts);
}

/* ---- plots ---- */

/* Put the element, or the reason why there is none, into the page. */
static bp_err add_plot(json_t *page, drawing *self)
{
    char *bins = bp_buffer_take(&self->bins), *quantiles = bp_buffer_take(&self->quantiles);
    char *means = bp_buffer_take(&self->means);
    json_t *variables =
        json_pack("{s:f, s:f, s:f, s:O, s:O, s:s, s:s, s:s}", "top", self->top, "low", self->low,
                  "high", self->high, "lines", self->lines, "names", self->names, "$bins", bins,
                  "$quantiles", quantiles, "$means", means);
    bp_err err = bp_report_plot(page, "score", variables, "perplexities");

    json_decref(variables);
    bp_free(means);
    bp_free(quantiles);
    bp_free(bins);
    return err;
}

static bp_err add_distribution(json_t *page, const bp_score_table *table, const json_t *summary)
{
    drawing self = {.table = table,
                    .summary = summary,
                    .scratch = bp_alloc("score.page", table->plan->documents, sizeof(double)),
                    .lines = json_array(),
                    .names = json_array()};
    bp_err err = BP_OK;

    add_corpora(&self);
    for (int64_t c = 0; c < table->column_count; c++)
        add_label(&self, &table->columns[c]);
    add_histograms(&self);
    if (json_array_size(self.lines) > 0)
        err = add_plot(page, &self);
    bp_buffer_clear(&self.bins);
    bp_buffer_clear(&self.quantiles);
    bp_buffer_clear(&self.means);
    json_decref(self.lines);
    json_decref(self.names);
    bp_free(self.scratch);
    return err;
}

bp_err score_page_add_reliability(json_t *page, const bp_calibration *sums, bool independent)
{
    bp_buffer bins = {0};
    json_t *variables;
    bp_err err;

    for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
        bp_reliability bar = bp_calibration_bar(sums, b);

        if (bar.tokens > 0)
            bp_buffer_printf(&bins, "%.6g,%.6g,%lld,%.6g\n", bar.confidence, bar.accuracy,
                             (long long)bar.tokens, (bar.low + bar.high) / 2);
    }
    bp_score_page_add_value(page, "ece", "%.3f", bp_calibration_ece(sums));
    variables = json_pack("{s:s, s:i}", "$bins", bins.data ? bins.data : "", "independent",
                          (int)independent);
    err = bp_report_plot(page, "task", variables, "reliability");
    json_decref(variables);
    bp_buffer_clear(&bins);
    return err;
}

/* ---- the table of figures ---- */

enum { FIGURES = 4 };

/* A row. decimals: of each column, those of its first figure; -1: none yet. */
static void add_figures(json_t *rows, int *decimals, const char *kind, const char *name,
                        const json_t *figures)
{
    static const char *const REALS[FIGURES][2] = {{"perplexity", "perplexity"},
                                                  {"stderr", "perplexity_stderr_documents"},
                                                  {"bits", "bits_per_byte"},
                                                  {"information", "mutual_information"}};
    const char *error_of_all =
        json_object_get(figures, "clusters") ? "perplexity_stderr_clusters" : REALS[1][1];
    char *title = bp_sprintf("%s%s%s", kind, kind[0] ? ": " : "", name);
    json_t *row = json_pack("{s:o, s:O?, s:O?}", "name", bp_score_page_text(title, strlen(title)),
                            "documents", json_object_get(figures, "documents"), "tokens",
                            json_object_get(figures, "tokens"));

    for (int k = 0; k < FIGURES; k++) {
        double value = k == 1 ? scorer_error_of(figures) : bp_json_number(figures, REALS[k][1]),
               error = k < 2 ? bp_json_number(figures, error_of_all) : NAN;
        char *figure = bp_report_figure(value, error, false), *digits;

        (void)json_object_set_new(row, REALS[k][0], json_null());
        if (!figure)
            continue;
        if (decimals[k] < 0)
            decimals[k] =
                (int)strlen(figure + strcspn(figure, ".")) - (strchr(figure, '.') != NULL);
        digits = bp_sprintf("%.*f", decimals[k], value);
        bp_free(figure);
        figure = bp_report_thousands(digits);
        (void)json_object_set_new(row, REALS[k][0], bp_json_string(figure));
        bp_free(figure);
        bp_free(digits);
    }
    if (json_array_size(rows) < TABLE_MOST)
        (void)json_array_append(rows, row);
    json_decref(row);
    bp_free(title);
}

static json_t *figures_of(const json_t *summary)
{
    int decimals[FIGURES] = {-1, -1, -1, -1};
    json_t *rows = json_array(), *figures, *values;
    const char *name, *value;

    add_figures(rows, decimals, "", "all documents", summary);
    if (json_object_size(json_object_get(summary, "corpora")) > 1)
        json_object_foreach(json_object_get(summary, "corpora"), name, figures)
            add_figures(rows, decimals, "", name, figures);
    json_object_foreach(json_object_get(summary, "labels"), name, values)
        json_object_foreach(values, value, figures)
            add_figures(rows, decimals, name, value, figures);
    return rows;
}

/* ---- choices ---- */

/* The figures of score.candidates, for documents with an answer; null if not requested. */
static json_t *choices_of(const json_t *candidates)
{
    static const char *const WAYS[][2] = {{"accuracy", "by log-probability"},
                                          {"accuracy_per_token", "over tokens"},
                                          {"accuracy_per_byte", "over bytes"}};
    json_t *rows = json_array();

    for (size_t k = 0; candidates && k < sizeof WAYS / sizeof WAYS[0]; k++) {
        const json_t *figure = json_object_get(candidates, WAYS[k][0]);
        double low = bp_json_number(figure, "low"), high = bp_json_number(figure, "high");
        json_t *row = json_pack("{s:s}", "name", WAYS[k][1]);

        bp_score_page_add_figure(row, "value", bp_json_number(figure, "value"), (high - low) / 2);
        bp_score_page_add_figure(row, "low", low, (high - low) / 2);
        bp_score_page_add_figure(row, "high", high, (high - low) / 2);
        if (json_object_get(figure, "ties"))
            (void)json_object_set(row, "ties", json_object_get(figure, "ties"));
        bp_score_page_add_value(row, "shared", "%.3f", bp_json_number(figure, "shared"));
        (void)json_array_append_new(rows, row);
    }
    if (candidates)
        return json_pack("{s:O, s:O, s:O, s:o}", "documents",
                         json_object_get(candidates, "documents"), "answered",
                         json_object_get(candidates, "answered"), "choices",
                         json_object_get(candidates, "choices"), "rows", rows);
    json_decref(rows);
    return json_null();
}

/* ---- all ---- */

static json_t *known_of(const json_t *known)
{
    return known ? json_pack("{s:O, s:O, s:o}", "documents", json_object_get(known, "documents"),
                             "of", json_object_get(known, "of"), "percent",
                             json_sprintf("%.3g", 100 * bp_json_number(known, "share")))
                 : json_null();
}

void score_page_write(const scorer *self, const bp_score_table *table)
{
    const json_t *convention = json_object_get(self->summary, "convention");
    const char *model = bp_score_keys_of(self->config)->model;
    int64_t order = self->info.order;
    json_t *context =
        order > 0 && self->rule.context >= order - 1
            ? json_sprintf("%lld tokens (order %lld)", (long long)order - 1, (long long)order)
        : self->rule.context == BP_MODEL_UNLIMITED ? json_string("unlimited")
                                                   : json_integer((json_int_t)self->rule.context);
    json_t *page =
        json_pack("{s:o, s:o, s:O?, s:o, s:O?, s:I, s:b, s:I, s:i}", "model",
                  bp_score_page_text(model, strlen(model)), "figures", figures_of(self->summary),
                  "convention", json_object_get(convention, "name"), "context", context, "step",
                  json_object_get(json_object_get(self->summary, "model"), "step"), "members",
                  (json_int_t)self->statistics.members, "ensemble", self->statistics.members > 0,
                  "documents", (json_int_t)self->plan.scored, "values_most", VALUES_MOST);
    json_t *states =
        bp_score_keys_of(self->config)->states
            ? json_pack("{s:I, s:I, s:b}", "layers", (json_int_t)self->info.states.layers,
                        "columns", (json_int_t)self->info.states.columns, "keys",
                        (int)self->info.states.keys)
            : json_null();
    char *spelling = scorer_spelling(self->summary);
    bp_err err = add_distribution(page, table, self->summary);

    (void)json_object_set_new(page, "title", score_page_title(model));
    (void)json_object_set_new(page, "candidates",
                              choices_of(json_object_get(self->summary, "candidates")));
    (void)json_object_set_new(page, "states", states);
    (void)json_object_set_new(page, "cluster", scorer_page_cluster(self));
    (void)json_object_set_new(page, "known",
                              known_of(json_object_get(self->summary, "training_text")));
    if (spelling)
        (void)json_object_set_new(page, "spelling", json_string(spelling));
    bp_free(spelling);

    if (err == BP_OK)
        err = score_page_add_texts(page, self, table);
    bp_work_write_page(self->job, "score", page, err);
}
