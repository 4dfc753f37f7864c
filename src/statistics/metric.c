/* Metrics over resamples of documents: values, intervals, differences, p-values. */
#include "statistics/metric.h"

#include "base/mem.h"
#include "statistics/clusters.h"
#include "statistics/inference.h"

#include <math.h>

typedef struct systems {
    const bp_metric *metric;
    const void *answers[2]; /* second NULL: one system */
} systems;

/* The figures of the first system, then those of the second. */
static void statistic(double *values, const int32_t *const *counts, const void *data)
{
    const systems *s = data;

    for (int k = 0; k < 2 && s->answers[k]; k++)
        s->metric->figures(values + k * s->metric->width, counts[0], s->answers[k]);
}

/* What is drawn: documents, or clusters of them. */
typedef struct drawn {
    int64_t documents;
    const int64_t *local; /* [documents] numbers of clusters from 0; NULL: documents are drawn */
    int64_t count;
} drawn;

/* Not for shares of documents of one system, which have Wilson's interval. */
static bool needs_resamples(const systems *s, const drawn *from)
{
    bool needs = s->answers[1] || from->local;

    for (int64_t k = 0; k < s->metric->width; k++)
        needs = needs || s->metric->share[k] != BP_SHARE_OF_DOCUMENTS;
    return needs;
}

/* values[BP_RESAMPLES][width of all systems]; NULL without spread. */
static bp_err resample(double **values, const systems *s, const drawn *from, uint64_t seed)
{
    int64_t width = (s->answers[1] ? 2 : 1) * s->metric->width;
    bp_bootstrap spec = {.seed = seed,
                         .resamples = BP_RESAMPLES,
                         .groups = 1,
                         .documents = &from->documents,
                         .clusters = from->local ? &from->local : NULL,
                         .cluster_count = &from->count,
                         .width = width};
    bp_err err;

    *values = NULL;
    if (from->count < 2 || !needs_resamples(s, from))
        return BP_OK;
    *values = bp_alloc("statistics.metric", BP_RESAMPLES * width, sizeof **values);
    err = bp_bootstrap_run(*values, &spec, statistic, s);
    if (err != BP_OK) {
        bp_free(*values);
        *values = NULL;
    }
    return err;
}

static bool has_interval(const bp_metric *metric, int64_t k, int64_t documents)
{
    return documents >= (metric->fewest[k] > 0 ? metric->fewest[k] : BP_FEW_DOCUMENTS);
}

/* Figure k of a metric. values: resamples, NULL without spread. Documents are parts of clusters. */
static bp_err set_figure(bp_figure *figure, double value, const bp_metric *metric, int64_t k,
                         const double *values, int64_t stride, const drawn *from)
{
    bp_share share = metric->share[k];

    *figure = (bp_figure){value, {NAN, NAN}};
    if (!has_interval(metric, k, from->count))
        return BP_OK;
    if ((share == BP_SHARE_OF_DOCUMENTS && !from->local) ||
        (share != BP_SHARE_OF_NOTHING && (value <= 0 || value >= 1))) {
        figure->interval = bp_wilson_interval(value, from->count);
        return BP_OK;
    }
    return values ? bp_interval_of(&figure->interval, values, BP_RESAMPLES, stride, from->count)
                  : BP_OK;
}

bp_err bp_metric_estimate_clusters(bp_figure *figures, const bp_metric *metric, const void *answers,
                                   int64_t documents, const int64_t *cluster, uint64_t seed)
{
    systems s = {metric, {answers, NULL}};
    int64_t *local = cluster ? bp_alloc("statistics.metric", documents, sizeof *local) : NULL;
    const drawn from = {documents, local, bp_clusters_of(local, cluster, NULL, documents)};
    double whole[BP_METRIC_FIGURES], *values;
    bp_err err = resample(&values, &s, &from, seed);

    metric->figures(whole, NULL, answers);
    for (int64_t k = 0; k < metric->width && err == BP_OK; k++)
        err = set_figure(&figures[k], whole[k], metric, k, values ? values + k : NULL,
                         metric->width, &from);
    bp_free(values);
    bp_free(local);
    return err;
}

bp_err bp_metric_estimate(bp_figure *figures, const bp_metric *metric, const void *answers,
                          int64_t documents, uint64_t seed)
{
    return bp_metric_estimate_clusters(figures, metric, answers, documents, NULL, seed);
}

static json_t *figure_json(const bp_figure *figure)
{
    return json_pack("{so so so}", "value", bp_json_real(figure->value), "low",
                     bp_json_real(figure->interval.low), "high",
                     bp_json_real(figure->interval.high));
}

json_t *bp_metric_json(const bp_metric *metric, const bp_figure *figures)
{
    json_t *all = json_object();

    for (int64_t k = 0; k < metric->width; k++)
        (void)json_object_set_new(all, metric->names[k], figure_json(&figures[k]));
    return all;
}

/* ---- two systems ---- */

static void set_p_value(bp_figure_pair *pair, const double *one, const double *other,
                        int64_t stride, bool lower)
{
    double mean = 0, wins = 0, beyond = 0, n = 0;

    for (int64_t r = 0; r < BP_RESAMPLES; r++) {
        double difference = one[r * stride] - other[r * stride];

        if (isnan(difference))
            continue;
        n++;
        mean += difference;
        wins += difference == 0 ? 0.5 : (difference < 0) == lower;
    }
    mean /= n;
    for (int64_t r = 0; r < BP_RESAMPLES; r++) {
        double difference = one[r * stride] - other[r * stride];

        beyond += fabs(difference - mean) >= fabs(pair->difference.value); /* NaN: no */
    }
    pair->wins = wins / n;
    pair->p_value = isnan(pair->difference.value) || n == 0 ? NAN : (beyond + 1) / (n + 1);
}

static bp_err set_pair(bp_figure_pair *pair, double one, double other, const double *values,
                       const bp_metric *metric, int64_t k, const drawn *from)
{
    const double *others = values ? values + metric->width : NULL;
    int64_t stride = 2 * metric->width;
    bp_err err = set_figure(&pair->one, one, metric, k, values, stride, from);

    if (err == BP_OK)
        err = set_figure(&pair->other, other, metric, k, others, stride, from);
    pair->difference = (bp_figure){one - other, {NAN, NAN}};
    pair->wins = pair->p_value = NAN;
    if (err == BP_OK && values && has_interval(metric, k, from->count)) {
        set_p_value(pair, values, others, stride, metric->lower[k]);
        err = bp_interval_of_difference(&pair->difference.interval, values, others, BP_RESAMPLES,
                                        stride, from->count);
    }
    return err;
}

bp_err bp_metric_compare(bp_figure_pair *pairs, const bp_metric *metric, const void *one,
                         const void *other, int64_t documents, uint64_t seed)
{
    systems s = {metric, {one, other}};
    const drawn from = {documents, NULL, documents};
    double whole[2][BP_METRIC_FIGURES], *values;
    bp_err err = resample(&values, &s, &from, seed);

    metric->figures(whole[0], NULL, one);
    metric->figures(whole[1], NULL, other);
    for (int64_t k = 0; k < metric->width && err == BP_OK; k++)
        err = set_pair(&pairs[k], whole[0][k], whole[1][k], values ? values + k : NULL, metric, k,
                       &from);
    bp_free(values);
    return err;
}
