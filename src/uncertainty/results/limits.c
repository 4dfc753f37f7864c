/* Intervals of the plots of reliability, and of risk and coverage. Called by analysis.c. */
#include "uncertainty/results/results.h"

#include "base/mem.h"
#include "statistics/resample.h"

#include <math.h>
#include <string.h>

enum { POINTS = COMPARISON_ORDERS * BP_RISK_POINTS, WIDTH = BP_CALIBRATION_BINS + POINTS };

typedef struct curve_data {
    const comparison_scores *scores;
    bp_token_order *const *orders; /* [COMPARISON_ORDERS] */
} curve_data;

/* values[WIDTH]: of bars, then of each order. */
static void measure(double *values, const int32_t *const *counts, const void *data)
{
    const curve_data *self = data;
    bp_calibration sums =
        bp_calibration_of(self->scores->calibration, counts[0], self->scores->domain);

    for (int b = 0; b < BP_CALIBRATION_BINS; b++)
        *values++ = bp_calibration_bar(&sums, b).accuracy;
    for (int o = 0; o < COMPARISON_ORDERS; o++) {
        bp_risk risk;

        bp_risk_of(&risk, self->orders[o], counts[0]);
        memcpy(values, risk.error, sizeof risk.error);
        values += BP_RISK_POINTS;
    }
}

/* resampled: value r is [r * WIDTH], of so many units as resamples are drawn from. NULL: units are
 * independent. A share that is the same in all resamples has Wilson's interval too. */
static bp_err find(bp_interval *out, double share, int64_t units, const double *resampled,
                   int64_t resamples)
{
    bool sure = share <= 0 || share >= 1;

    *out =
        units > 0 && isfinite(share) ? bp_wilson_interval(share, units) : (bp_interval){NAN, NAN};
    if (!resampled || !isfinite(share) || (sure && units >= BP_FEW_DOCUMENTS))
        return BP_OK;
    return bp_interval_of(out, resampled, resamples, WIDTH, units);
}

static bp_err find_all(comparison_result *out, const double *resampled, int64_t resamples,
                       const bp_calibration *merged, int64_t clusters)
{
    bp_err err = BP_OK;

    for (int b = 0; err == BP_OK && b < BP_CALIBRATION_BINS; b++) {
        int64_t units = merged ? 0 : out->bars[b].tokens;

        for (int64_t c = 0; merged && c < clusters; c++)
            units += merged[c].tokens[b] > 0;
        err = find(&out->bar_limits[b], out->bars[b].accuracy, units,
                   resampled ? resampled + b : NULL, resamples);
    }
    for (int k = 0; err == BP_OK && k < POINTS; k++) {
        int o = k / BP_RISK_POINTS, p = k % BP_RISK_POINTS;
        int64_t units = merged ? clusters : out->tokens * (p + 1) / BP_RISK_POINTS;

        err = find(&out->risk_limits[o][p], out->risk[o].error[p], units,
                   resampled ? resampled + BP_CALIBRATION_BINS + k : NULL, resamples);
    }
    return err;
}

static void fill_none(bp_interval *limits, int count)
{
    for (int k = 0; k < count; k++)
        limits[k] = (bp_interval){NAN, NAN};
}

bp_err comparison_find_limits(comparison_result *out, const comparison_scores *scores,
                              const comparison_analysis_spec *spec, bp_token_order *const *orders,
                              const int64_t *local, int64_t clusters)
{
    const curve_data data = {scores, orders};
    bp_bootstrap bootstrap = {.seed = spec->seed,
                              .resamples = spec->resamples,
                              .groups = 1,
                              .documents = &scores->domain,
                              .clusters = &local,
                              .cluster_count = &clusters,
                              .width = WIDTH};
    bp_calibration *merged = NULL;
    double *resampled = NULL;
    bp_err err = BP_OK;

    if (spec->limits && spec->cluster) {
        merged = comparison_clusters_merge(scores->calibration, local, scores->domain, clusters);
        resampled = bp_alloc("comparison.curves", spec->resamples * WIDTH, sizeof *resampled);
        err = bp_bootstrap_run(resampled, &bootstrap, measure, &data);
    }
    if (err == BP_OK && spec->limits)
        err = find_all(out, resampled, spec->resamples, merged, clusters);
    if (!spec->limits)
        fill_none(out->bar_limits, BP_CALIBRATION_BINS);
    if (!spec->limits || scores->real) /* a squared error is no share */
        for (int o = 0; o < COMPARISON_ORDERS; o++)
            fill_none(out->risk_limits[o], BP_RISK_POINTS);
    bp_free(resampled);
    bp_free(merged);
    return err;
}
