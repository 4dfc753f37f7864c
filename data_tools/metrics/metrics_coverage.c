/* Documents in the order of a model's certainty, and the figures of the first ones. */
#include "metrics_coverage.h"

#include "base/mem.h"

#include <stdlib.h>

#define POINTS 20 /* of a curve */

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

static json_t *curve(const bp_metric *metric, const void *answers, const double *certainty,
                     int64_t documents)
{
    sure *order = bp_alloc("tool.metrics", documents, sizeof *order);
    int32_t *counts = bp_alloc("tool.metrics", documents, sizeof *counts);
    json_t *out = json_object(), *coverage = json_array();
    int64_t at = 0;

    for (int64_t d = 0; d < documents; d++)
        order[d] = (sure){certainty[d], d};
    qsort(order, (size_t)documents, sizeof *order, by_certainty);
    (void)json_object_set_new(out, "coverage", coverage);
    for (int64_t f = 0; f < metric->width; f++)
        (void)json_object_set_new(out, metric->names[f], json_array());
    for (int64_t k = 1; k <= POINTS; k++) {
        int64_t end = (documents * k + POINTS - 1) / POINTS;
        double values[BP_METRIC_FIGURES];

        for (; at < end; at++)
            counts[order[at].document] = 1;
        metric->figures(values, counts, answers);
        (void)json_array_append_new(coverage, json_real((double)end / (double)documents));
        for (int64_t f = 0; f < metric->width; f++)
            (void)json_array_append_new(json_object_get(out, metric->names[f]),
                                        bp_json_real(values[f]));
    }
    bp_free(counts);
    bp_free(order);
    return out;
}

json_t *metrics_coverage(const bp_metric *metric, const void *answers, const answer_file *file)
{
    static const char *const ORDERS[ANSWER_ORDERS] = {"logprob", "mutual_information"};
    json_t *out = NULL;

    for (int k = 0; k < ANSWER_ORDERS; k++) {
        if (!file->certainty[k])
            continue;
        out = out ? out : json_object();
        (void)json_object_set_new(out, ORDERS[k],
                                  curve(metric, answers, file->certainty[k], file->count));
    }
    return out;
}
