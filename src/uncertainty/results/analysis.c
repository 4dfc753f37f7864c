/* Figures of a method, on all documents and on each resample of them. */
#include "uncertainty/results/results.h"

#include "base/mem.h"
#include "statistics/detection.h"
#include "statistics/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const comparison_detection_names[] = {"auroc", "aupr", "fpr95"};

int64_t comparison_columns(int64_t shifts)
{
    return COMPARISON_DETECTED + shifts * COMPARISON_SCORES * COMPARISON_DETECTIONS;
}

int64_t comparison_column(int64_t shift, int score, int detection)
{
    return COMPARISON_DETECTED + (shift * COMPARISON_SCORES + score) * COMPARISON_DETECTIONS +
           detection;
}

comparison_value comparison_perplexity(const comparison_results *results,
                                       const comparison_result *result)
{
    const comparison_value *nll = &result->values[COMPARISON_FIGURE_NLL];

    if (results->task->is_value)
        return (comparison_value){NAN, NAN, NAN};
    return (comparison_value){exp(nll->value), exp(nll->low), exp(nll->high)};
}

static double root_of(double x)
{
    return x < 0 ? 0 : sqrt(x); /* NaN stays */
}

comparison_value comparison_rms(const comparison_result *result, int figure)
{
    const comparison_value *squared = &result->values[figure];

    return (comparison_value){root_of(squared->value), root_of(squared->low),
                              root_of(squared->high)};
}

/* The data of a method's figures, sorted once. */
typedef struct evidence {
    const comparison_scores *scores;
    bp_calibration_gaps gaps, tempered_gaps;
    int64_t shifts;
    bool one; /* distribution */
    const comparison_analysis_spec *spec;
    bp_token_order *by_confidence;             /* ascending, for bins of equal count */
    bp_token_order *orders[COMPARISON_ORDERS]; /* the most certain first */
    bp_detection **detections;                 /* [shifts][COMPARISON_SCORES] */
    int64_t **clusters; /* [1 + shifts][documents] local numbers, the domain's first */
    int64_t *draws;     /* [1 + shifts]: how many clusters */
} evidence;

static bool has_score(const evidence *self, int score)
{
    return self->scores->has[score] && !(self->one && score == COMPARISON_INFORMATION);
}

static void detect(double *values, const int32_t *const *counts, const evidence *self)
{
    const int32_t *domain = counts ? counts[0] : NULL;

    for (int64_t s = 0; s < self->shifts; s++)
        for (int c = 0; c < COMPARISON_SCORES; c++) {
            bp_detection_figures figures = {NAN, NAN, NAN};

            if (has_score(self, c))
                figures = bp_detection_of(self->detections[s * COMPARISON_SCORES + c], domain,
                                          counts ? counts[1 + s] : NULL);
            values[comparison_column(s, c, COMPARISON_AUROC)] = figures.auroc;
            values[comparison_column(s, c, COMPARISON_AUPR)] = figures.aupr;
            values[comparison_column(s, c, COMPARISON_FPR95)] = figures.fpr95;
        }
}

/* For regressions. An error of calibration has no resamples, as for classes. */
static void measure_values(double *values, const comparison_scores *scores, const int32_t *counts)
{
    double off = 0, all = 0;

    for (int64_t d = 0; d < scores->domain; d++)
        all += counts ? counts[d] : 1;
    for (int f = 0; f < COMPARISON_FIGURES; f++) {
        values[f] = scores->figures[f] ? 0 : NAN;
        for (int64_t d = 0; scores->figures[f] && d < scores->domain; d++)
            values[f] += (counts ? counts[d] : 1) * scores->figures[f][d] / all;
    }
    for (int b = 0; b < BP_CALIBRATION_BINS; b++)
        off += fabs(scores->covered[b] - (b + 0.5) / BP_CALIBRATION_BINS) / BP_CALIBRATION_BINS;
    values[COMPARISON_FIGURE_ECE] = counts ? NAN : off;
}

/* Among the most confident predictions: the share that is right, or the squared error of values. */
static void select_surest(double *values, const evidence *self, const bp_risk *risk)
{
    for (int k = 0; k < COMPARISON_COVERAGES; k++) {
        int point = k < self->spec->coverages->count ? self->spec->coverages->percent[k] - 1 : -1;

        values[COMPARISON_FIGURES + k] = point < 0 || (self->scores->real && self->one) ? NAN
                                         : self->scores->real ? risk->nll[point]
                                                              : 1 - risk->error[point];
    }
}

/* NaN without them. An ECE has no resamples: it is biased near 0, and no interval would cover it.
 */
static void measure_tempered(double *values, const evidence *self, const int32_t *counts)
{
    const comparison_scores *scores = self->scores;
    bp_calibration sums = {0};

    if (scores->tempered)
        sums = bp_calibration_of(scores->tempered, counts, scores->domain);
    values[COMPARISON_FIGURE_TEMPERED_NLL] = bp_calibration_nll(&sums);
    values[COMPARISON_FIGURE_TEMPERED_BRIER] = bp_calibration_brier(&sums);
    values[COMPARISON_FIGURE_TEMPERED_ECE] = counts ? NAN : bp_calibration_ece(&sums);
    values[COMPARISON_FIGURE_TEMPERED_SQUARED] =
        !scores->tempered ? NAN
        : counts          ? bp_calibration_squared_resampled(&self->tempered_gaps, &sums)
                          : bp_calibration_squared(&self->tempered_gaps);
}

/* counts: by group, in the domain first; NULL: each document once. */
static void measure(double *values, const int32_t *const *counts, const void *data)
{
    const evidence *self = data;
    const int32_t *domain = counts ? counts[0] : NULL;
    bp_calibration sums =
        bp_calibration_of(self->scores->calibration, domain, self->scores->domain);
    bp_risk risk;

    bp_risk_of(&risk, self->orders[COMPARISON_BY_CONFIDENCE], domain);
    select_surest(values, self, &risk);
    if (self->scores->real) {
        measure_values(values, self->scores, domain);
        values[COMPARISON_FIGURE_AURC] = self->one ? NAN : risk.area_nll;
        detect(values, counts, self);
        return;
    }
    values[COMPARISON_FIGURE_NLL] = bp_calibration_nll(&sums);
    values[COMPARISON_FIGURE_ACCURACY] = bp_calibration_accuracy(&sums);
    values[COMPARISON_FIGURE_BRIER] = bp_calibration_brier(&sums);
    /* no resamples of an error that is biased near 0: their interval would not cover it */
    values[COMPARISON_FIGURE_ECE] = counts ? NAN : bp_calibration_ece(&sums);
    values[COMPARISON_FIGURE_ECE_ADAPTIVE] =
        counts ? NAN : bp_calibration_ece_adaptive(self->by_confidence, domain);
    values[COMPARISON_FIGURE_SQUARED] = counts
                                            ? bp_calibration_squared_resampled(&self->gaps, &sums)
                                            : bp_calibration_squared(&self->gaps);
    values[COMPARISON_FIGURE_AURC] = risk.area_error;
    measure_tempered(values, self, domain);
    detect(values, counts, self);
}

/* ---- sorting ---- */

static bp_err sort_tokens(evidence *self)
{
    const comparison_scores *scores = self->scores;
    int64_t tokens = scores->doc_start[scores->domain];
    float *confidence = bp_try_alloc("comparison.scores", tokens, sizeof *confidence);
    bp_token_table table = {.tokens = tokens,
                            .documents = scores->domain,
                            .score = confidence,
                            .correct = scores->correct,
                            .nll = scores->nll,
                            .doc_start = scores->doc_start};
    if (!confidence)
        return bp_fail_memory("the figures of a method", tokens, sizeof *confidence);
    for (int64_t i = 0; i < tokens; i++)
        confidence[i] = -scores->uncertain[COMPARISON_BY_CONFIDENCE][i];
    bp_err err = bp_token_order_new(&self->by_confidence, &table);
    for (int o = 0; err == BP_OK && o < COMPARISON_ORDERS; o++) {
        table.score = scores->uncertain[o];
        err = bp_token_order_new(&self->orders[o], &table);
    }
    bp_free(confidence);
    return err;
}

/* values[count] = the means of a group's documents. */
static double *gather(const double *means, const comparison_group *group)
{
    double *values = bp_alloc("comparison.scores", group->document_count, sizeof *values);

    for (int64_t k = 0; k < group->document_count; k++)
        values[k] = means[group->documents[k]];
    return values;
}

static bp_err sort_documents(evidence *self, const comparison_analysis_spec *spec)
{
    bp_err err = BP_OK;

    self->detections =
        bp_alloc("comparison.scores", self->shifts * COMPARISON_SCORES, sizeof *self->detections);
    for (int64_t s = 0; s < self->shifts; s++)
        for (int c = 0; err == BP_OK && c < COMPARISON_SCORES; c++) {
            const comparison_group *group = &spec->shifted->items[s];

            if (!has_score(self, c))
                continue;
            double *in_domain = gather(self->scores->means[c], spec->in_domain);
            double *shifted = gather(self->scores->means[c], group);

            err = bp_detection_new(&self->detections[s * COMPARISON_SCORES + c], in_domain,
                                   spec->in_domain->document_count, shifted, group->document_count);
            bp_free(shifted);
            bp_free(in_domain);
        }
    return err;
}

static void find_clusters(evidence *self, const comparison_analysis_spec *spec)
{
    self->clusters = bp_alloc("comparison.clusters", 1 + self->shifts, sizeof *self->clusters);
    self->draws = bp_alloc("comparison.clusters", 1 + self->shifts, sizeof *self->draws);
    for (int64_t g = 0; g <= self->shifts; g++) {
        const comparison_group *group = g == 0 ? spec->in_domain : &spec->shifted->items[g - 1];

        self->clusters[g] =
            bp_alloc("comparison.clusters", group->document_count, sizeof **self->clusters);
        self->draws[g] = comparison_clusters_of(self->clusters[g], spec->cluster, group);
    }
}

static bp_calibration_gaps gaps_of(const evidence *self, const bp_calibration *documents)
{
    bp_calibration *merged = comparison_clusters_merge(documents, self->clusters[0],
                                                       self->scores->domain, self->draws[0]);
    bp_calibration_gaps gaps = bp_calibration_gaps_of(merged, self->draws[0]);

    bp_free(merged);
    return gaps;
}

static void clear_evidence(evidence *self)
{
    for (int64_t g = 0; g <= self->shifts; g++)
        bp_free(self->clusters[g]);
    bp_free(self->clusters);
    bp_free(self->draws);
    bp_token_order_free(&self->by_confidence);
    for (int o = 0; o < COMPARISON_ORDERS; o++)
        bp_token_order_free(&self->orders[o]);
    for (int64_t k = 0; self->detections && k < self->shifts * COMPARISON_SCORES; k++)
        bp_detection_free(&self->detections[k]);
    bp_free(self->detections);
}

/* ---- resamples ---- */

/* The least number of documents of a column. A selective figure of documents with one prediction
 * each has only that share of them. */
static int64_t documents_of(const evidence *self, int64_t column, int64_t documents)
{
    const comparison_coverages *coverages = self->spec->coverages;
    int64_t k = column - COMPARISON_FIGURES;
    bool one_each = self->scores->doc_start[self->scores->domain] == self->draws[0];

    return k >= 0 && k < coverages->count && one_each ? documents * coverages->percent[k] / 100
                                                      : documents;
}

/* The number of documents of the smallest set from which a column's resamples are drawn or, if
 * these are too few, on which they depend. */
static int64_t *count_fewest(const evidence *self, const int64_t *documents, int64_t columns)
{
    int64_t *fewest = bp_alloc("comparison.values", columns, sizeof *fewest);

    for (int64_t c = 0; c < columns; c++) {
        int64_t shift =
            c < COMPARISON_DETECTED
                ? 0
                : 1 + (c - COMPARISON_DETECTED) / (COMPARISON_SCORES * COMPARISON_DETECTIONS);

        fewest[c] = documents[shift] < documents[0] ? documents[shift] : documents[0];
        if (documents_of(self, c, fewest[c]) < BP_FEW_DOCUMENTS)
            fewest[c] = documents_of(self, c, fewest[c]);
    }
    return fewest;
}

/* Deviations of the squared calibration error's resamples are widened already. */
static int64_t documents_for(int64_t column, int64_t fewest)
{
    return comparison_has_root((int)column) && fewest >= BP_FEW_DOCUMENTS ? BP_PLAIN_PERCENTILES
                                                                          : fewest;
}

/* For one prediction per draw Wilson's. For several, which are dependent, and for the most
 * certain ones, which may differ in another sample, only if all are right or all wrong. */
static bool is_share(int64_t column, double value, const evidence *self, int64_t documents)
{
    bool all = value <= 0 || value >= 1,
         selected = column >= COMPARISON_FIGURES && column < COMPARISON_DETECTED,
         one_each = self->scores->doc_start[self->scores->domain] == self->draws[0];

    return documents >= BP_FEW_DOCUMENTS && !(self->scores->real && selected) &&
           ((column == COMPARISON_FIGURE_ACCURACY && one_each) ||
            ((column == COMPARISON_FIGURE_ACCURACY || selected) && all));
}

/* The index of a column in COMPARISON_DETECTIONS; -1 for another figure. */
static int detection_of(int64_t column)
{
    return column < COMPARISON_DETECTED
               ? -1
               : (int)((column - COMPARISON_DETECTED) % COMPARISON_DETECTIONS);
}

static bp_err find_interval(bp_interval *interval, const comparison_result *out, int64_t c,
                            double value, int64_t columns, int64_t resamples)
{
    int64_t fewest = out->fewest[c];
    bool sure = value <= 0 || value >= 1; /* the same in all resamples */
    int detection = detection_of(c);

    if (detection == COMPARISON_FPR95 && fewest < BP_FEW_FOUND) {
        *interval = (bp_interval){NAN, NAN};
        return BP_OK;
    }
    if (detection == COMPARISON_AUPR || (detection >= 0 && sure))
        return bp_interval_of_logits(interval, value, out->resampled + c, resamples, columns,
                                     fewest);
    return bp_interval_of(interval, out->resampled + c, resamples, columns,
                          documents_for(c, fewest));
}

static bp_err find_values(comparison_result *out, const evidence *self,
                          const comparison_analysis_spec *spec)
{
    int64_t columns = comparison_columns(self->shifts), groups = 1 + self->shifts;
    double *points = bp_alloc("comparison.values", columns, sizeof *points);
    int64_t *documents = bp_alloc("comparison.values", groups, sizeof *documents);
    bp_bootstrap bootstrap = {.seed = spec->seed,
                              .resamples = spec->resamples,
                              .groups = groups,
                              .documents = documents,
                              .clusters =
                                  spec->cluster ? (const int64_t *const *)self->clusters : NULL,
                              .cluster_count = self->draws,
                              .width = columns};
    bp_err err;

    documents[0] = spec->in_domain->document_count;
    for (int64_t s = 0; s < self->shifts; s++)
        documents[1 + s] = spec->shifted->items[s].document_count;
    out->values = bp_alloc("comparison.values", columns, sizeof *out->values);
    out->resampled = bp_alloc("comparison.values", spec->resamples * columns, sizeof(double));
    err = bp_bootstrap_run(out->resampled, &bootstrap, measure, self);
    out->fewest = count_fewest(self, self->draws, columns);
    if (err == BP_OK)
        measure(points, NULL, self);
    for (int64_t c = 0; err == BP_OK && c < columns; c++) {
        bp_interval interval;

        err = find_interval(&interval, out, c, points[c], columns, spec->resamples);
        if (is_share(c, points[c], self, out->fewest[c]))
            interval = bp_wilson_interval(points[c], documents_of(self, c, out->fewest[c]));
        out->values[c] = (comparison_value){points[c], interval.low, interval.high};
    }
    bp_free(documents);
    bp_free(points);
    return err;
}

bp_err comparison_difference(comparison_value *values, const comparison_result *one,
                             const comparison_result *other, int64_t columns, int64_t resamples)
{
    bp_err err = BP_OK;

    for (int64_t c = 0; err == BP_OK && c < columns; c++) {
        bp_interval interval;

        err = bp_interval_of_difference(&interval, one->resampled + c, other->resampled + c,
                                        resamples, columns, documents_for(c, one->fewest[c]));
        values[c] = (comparison_value){one->values[c].value - other->values[c].value, interval.low,
                                       interval.high};
    }
    return err;
}

/* ---- curves ---- */

typedef struct scored {
    double score;
    bool shifted;
} scored;

static int compare_scored(const void *a, const void *b)
{
    const scored *x = a, *y = b;

    return (x->score < y->score) - (x->score > y->score);
}

/* Points of distinct thresholds, but none nearer than 1/500 to the one before: a plot shows no
 * more. */
static void make_curve(comparison_curve *curve, const double *means,
                       const comparison_group *in_domain, const comparison_group *shifted)
{
    const double step = 1.0 / 500;
    int64_t n = in_domain->document_count, m = shifted->document_count, taken[2] = {0, 0};
    scored *all = bp_alloc("comparison.curves", n + m, sizeof *all);
    comparison_point last = {0, 0};

    for (int64_t k = 0; k < n + m; k++)
        all[k] = k < n ? (scored){means[in_domain->documents[k]], false}
                       : (scored){means[shifted->documents[k - n]], true};
    qsort(all, (size_t)(n + m), sizeof *all, compare_scored);
    curve->points = bp_alloc("comparison.curves", 1100, sizeof *curve->points);
    curve->points[curve->count++] = last;
    for (int64_t k = 0; k < n + m; k++) {
        taken[all[k].shifted]++;
        if (k + 1 < n + m && all[k + 1].score == all[k].score)
            continue;
        comparison_point here = {(double)taken[0] / (double)n, (double)taken[1] / (double)m};
        if (k + 1 < n + m && here.fpr - last.fpr < step && here.tpr - last.tpr < step)
            continue;
        curve->points[curve->count++] = last = here;
    }
    bp_free(all);
}

static void make_histogram(comparison_histogram *out, const double *means,
                           const comparison_analysis_spec *spec)
{
    int64_t groups = 1 + spec->shifted->count;
    double width = 0;

    out->counts =
        bp_alloc("comparison.curves", groups * COMPARISON_HISTOGRAM_BINS, sizeof(int64_t));
    out->bottom = out->top = means[spec->in_domain->documents[0]];
    for (int counts = 0; counts < 2; counts++, width = out->top - out->bottom)
        for (int64_t g = 0; g < groups; g++) {
            const comparison_group *group = g == 0 ? spec->in_domain : &spec->shifted->items[g - 1];

            for (int64_t k = 0; k < group->document_count; k++) {
                double value = means[group->documents[k]], above = value - out->bottom;
                int64_t bin = width > 0 ? (int64_t)(above / width * COMPARISON_HISTOGRAM_BINS) : 0;

                bin = bin < COMPARISON_HISTOGRAM_BINS ? bin : COMPARISON_HISTOGRAM_BINS - 1;
                if (counts)
                    out->counts[g * COMPARISON_HISTOGRAM_BINS + bin]++;
                out->bottom = fmin(out->bottom, value);
                out->top = fmax(out->top, value);
            }
        }
}

double comparison_histogram_edge(const comparison_histogram *histogram, double b)
{
    return histogram->bottom + (histogram->top - histogram->bottom) * b / COMPARISON_HISTOGRAM_BINS;
}

/* ---- all of it ---- */

bp_err comparison_analyse(comparison_result *out, const comparison_scores *scores,
                          const comparison_analysis_spec *spec)
{
    evidence self = {
        .scores = scores, .shifts = spec->shifted->count, .one = spec->one, .spec = spec};
    bp_calibration sums = bp_calibration_of(scores->calibration, NULL, scores->domain);
    bp_err err;

    *out = (comparison_result){.documents = scores->domain, .tokens = bp_calibration_tokens(&sums)};
    for (int c = 0; c < COMPARISON_SCORES; c++)
        out->has[c] = has_score(&self, c);
    find_clusters(&self, spec);
    self.gaps = gaps_of(&self, scores->calibration);
    if (scores->tempered)
        self.tempered_gaps = gaps_of(&self, scores->tempered);
    err = sort_tokens(&self);
    if (err == BP_OK)
        err = sort_documents(&self, spec);
    if (err == BP_OK)
        err = find_values(out, &self, spec);
    comparison_find_means(out, scores, spec, self.clusters, self.draws);
    for (int b = 0; b < BP_CALIBRATION_BINS; b++)
        out->bars[b] = bp_calibration_bar(&sums, b);
    for (int b = 0; scores->real && b < BP_CALIBRATION_BINS; b++)
        out->bars[b] = (bp_reliability){.low = b / (double)BP_CALIBRATION_BINS,
                                        .high = (b + 1) / (double)BP_CALIBRATION_BINS,
                                        .tokens = scores->domain,
                                        .confidence = (b + 0.5) / BP_CALIBRATION_BINS,
                                        .accuracy = scores->covered[b]};
    for (int o = 0; err == BP_OK && o < COMPARISON_ORDERS; o++)
        bp_risk_of(&out->risk[o], self.orders[o], NULL);
    for (int o = 0; err == BP_OK && scores->real && o < COMPARISON_ORDERS; o++) {
        out->risk[o].area_error = out->risk[o].area_nll; /* of the squared error */
        memcpy(out->risk[o].error, out->risk[o].nll, sizeof out->risk[o].error);
    }
    if (err == BP_OK && spec->one) {
        bp_risk *none = &out->risk[COMPARISON_BY_INFORMATION];

        none->area_error = none->area_nll = NAN;
        for (int p = 0; p < BP_RISK_POINTS; p++)
            none->error[p] = none->nll[p] = NAN;
    }
    if (err == BP_OK)
        err =
            comparison_find_limits(out, scores, spec, self.orders, self.clusters[0], self.draws[0]);
    out->curves =
        bp_alloc("comparison.curves", self.shifts * COMPARISON_SCORES, sizeof *out->curves);
    for (int64_t s = 0; err == BP_OK && s < self.shifts; s++)
        for (int c = 0; c < COMPARISON_SCORES; c++)
            if (out->has[c])
                make_curve(&out->curves[s * COMPARISON_SCORES + c], scores->means[c],
                           spec->in_domain, &spec->shifted->items[s]);
    if (err == BP_OK)
        make_histogram(&out->histogram, scores->means[COMPARISON_INFORMATION], spec);
    clear_evidence(&self);
    return err;
}

void comparison_result_clear(comparison_result *result, int64_t shifts)
{
    for (int64_t k = 0; result->curves && k < shifts * COMPARISON_SCORES; k++)
        bp_free(result->curves[k].points);
    bp_free(result->curves);
    bp_free(result->histogram.counts);
    bp_free(result->values);
    bp_free(result->means);
    bp_free(result->resampled);
    bp_free(result->fewest);
    *result = (comparison_result){0};
}
