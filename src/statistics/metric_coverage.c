/* Documents in the order of a model's certainty, and the figures of the first ones. */
#include "statistics/metric_coverage.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define POINTS         20    /* of a curve */
#define INTERVALS_MOST 20000 /* documents of a curve with intervals: seconds */

typedef struct sure {
    double certainty;
    int64_t document;
} sure;

/* The surest first; of those alike the first in the file. */
static int by_certainty(const void *a, const void *b)
{
    const sure *x = a, *y = b;

    return x->certainty != y->certainty ? (x->certainty < y->certainty ? 1 : -1)
                                        : (x->document > y->document) - (x->document < y->document);
}

/* What the bootstrap reads: documents in their order. */
typedef struct ordered {
    const bp_metric *metric;
    const void *answers;
    const sure *order;
    int64_t documents;
} ordered;

/* bp_statistic. values[POINTS][width]: the figures of the first twentieth, of two, and so on. A
 * document that is drawn several times is as many documents of one certainty. */
static void figures_of(double *values, const int32_t *const *counts, const void *data)
{
    const ordered *all = data;
    int32_t *taken = bp_alloc("statistics.coverage", all->documents, sizeof *taken);
    int64_t at = 0, sum = 0;

    for (int64_t k = 1; k <= POINTS; k++) {
        int64_t end = (all->documents * k + POINTS - 1) / POINTS;

        while (sum < end) {
            int64_t d = all->order[at].document;
            int64_t rest = counts[0][d] - taken[d];

            if (rest > end - sum)
                rest = end - sum;
            taken[d] += (int32_t)rest;
            sum += rest;
            at += taken[d] == counts[0][d];
        }
        all->metric->figures(values + (k - 1) * all->metric->width, taken, all->answers);
    }
    bp_free(taken);
}

/* NAME_low and NAME_high of each figure. */
static bp_err put_intervals(json_t *out, const ordered *all, uint64_t seed)
{
    int64_t width = POINTS * all->metric->width;
    const bp_bootstrap spec = {.seed = seed,
                               .resamples = BP_RESAMPLES,
                               .groups = 1,
                               .documents = &all->documents,
                               .width = width};
    double *values = bp_alloc("statistics.coverage", BP_RESAMPLES * width, sizeof *values);
    bp_err err = bp_bootstrap_run(values, &spec, figures_of, all);

    for (int64_t f = 0; f < all->metric->width && err == BP_OK; f++) {
        char *names[] = {bp_sprintf("%s_low", all->metric->names[f]),
                         bp_sprintf("%s_high", all->metric->names[f])};
        json_t *low = json_array(), *high = json_array();

        for (int64_t k = 1; k <= POINTS && err == BP_OK; k++) {
            int64_t end = (all->documents * k + POINTS - 1) / POINTS;
            bp_interval interval = {NAN, NAN};

            err = bp_interval_of(&interval, values + (k - 1) * all->metric->width + f, BP_RESAMPLES,
                                 width, end);
            (void)json_array_append_new(low, bp_json_real(interval.low));
            (void)json_array_append_new(high, bp_json_real(interval.high));
        }
        (void)json_object_set_new(out, names[0], low);
        (void)json_object_set_new(out, names[1], high);
        bp_free(names[0]);
        bp_free(names[1]);
    }
    bp_free(values);
    return err;
}

static bp_err curve(json_t **to, const bp_metric *metric, const void *answers,
                    const double *certainty, int64_t documents, uint64_t seed)
{
    sure *order = bp_alloc("statistics.coverage", documents, sizeof *order);
    int32_t *counts = bp_alloc("statistics.coverage", documents, sizeof *counts);
    const ordered all = {metric, answers, order, documents};
    const int32_t *const once = counts;
    double values[POINTS * BP_METRIC_FIGURES];
    json_t *out = *to = json_object(), *coverage = json_array();
    bp_err err = BP_OK;

    for (int64_t d = 0; d < documents; d++) {
        order[d] = (sure){certainty[d], d};
        counts[d] = 1;
    }
    qsort(order, (size_t)documents, sizeof *order, by_certainty);
    (void)json_object_set_new(out, "coverage", coverage);
    for (int64_t f = 0; f < metric->width; f++)
        (void)json_object_set_new(out, metric->names[f], json_array());
    figures_of(values, &once, &all);
    for (int64_t k = 1; k <= POINTS; k++) {
        (void)json_array_append_new(
            coverage,
            json_real((double)((documents * k + POINTS - 1) / POINTS) / (double)documents));
        for (int64_t f = 0; f < metric->width; f++)
            (void)json_array_append_new(json_object_get(out, metric->names[f]),
                                        bp_json_real(values[(k - 1) * metric->width + f]));
    }
    if (documents >= BP_FEW_DOCUMENTS && documents <= INTERVALS_MOST)
        err = put_intervals(out, &all, seed);
    bp_free(counts);
    bp_free(order);
    return err;
}

bp_err bp_metric_coverage(json_t **out, const bp_metric *metric, const void *answers,
                          const double *const certainty[BP_CERTAINTIES], int64_t documents,
                          uint64_t seed)
{
    static const char *const ORDERS[BP_CERTAINTIES] = {"logprob", "mutual_information"};
    bp_err err = BP_OK;

    *out = NULL;
    for (int k = 0; k < BP_CERTAINTIES && err == BP_OK; k++) {
        json_t *one = NULL;

        if (!certainty[k])
            continue;
        *out = *out ? *out : json_object();
        err = curve(&one, metric, answers, certainty[k], documents, seed);
        (void)json_object_set_new(*out, ORDERS[k], one);
    }
    return err;
}
