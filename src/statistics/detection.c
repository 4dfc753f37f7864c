/* ROC and precision-recall figures in one pass from the highest score. */
#include "statistics/detection.h"

#include "base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct scored_document {
    double score;
    int64_t document;
    bool shifted;
} scored_document;

struct bp_detection {
    int64_t count;
    scored_document *documents; /* [count], descending */
};

static int compare_documents(const void *a, const void *b)
{
    const scored_document *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->shifted != y->shifted)
        return x->shifted ? -1 : 1;
    return (x->document > y->document) - (x->document < y->document);
}

static void put(bp_detection *detection, const double *scores, int64_t count, bool shifted)
{
    for (int64_t d = 0; d < count; d++)
        if (!isnan(scores[d]))
            detection->documents[detection->count++] = (scored_document){scores[d], d, shifted};
}

bp_err bp_detection_new(bp_detection **out, const double *in_domain, int64_t in_domain_count,
                        const double *shifted, int64_t shifted_count)
{
    int64_t count = in_domain_count + shifted_count;
    bp_detection *detection = bp_try_alloc("statistics.detection", 1, sizeof *detection);

    if (detection)
        detection->documents =
            bp_try_alloc("statistics.detection", count, sizeof *detection->documents);
    if (!detection || !detection->documents) {
        bp_detection_free(&detection);
        *out = NULL;
        return bp_fail_memory("scores of documents", count, sizeof *detection->documents);
    }
    put(detection, in_domain, in_domain_count, false);
    put(detection, shifted, shifted_count, true);
    qsort(detection->documents, (size_t)detection->count, sizeof *detection->documents,
          compare_documents);
    *out = detection;
    return BP_OK;
}

void bp_detection_free(bp_detection **detection)
{
    if (!*detection)
        return;
    bp_free((*detection)->documents);
    bp_free(*detection);
    *detection = NULL;
}

/* Documents with a score above the current group's, and the totals. */
typedef struct roc_walk {
    int64_t positives, negatives, passed_positives, passed_negatives;
    double area, precision; /* areas not yet divided */
    double fpr95;           /* NaN: not reached */
} roc_walk;

static int64_t weight_of(const scored_document *one, const int32_t *in_domain,
                         const int32_t *shifted)
{
    const int32_t *counts = one->shifted ? shifted : in_domain;

    return counts ? counts[one->document] : 1;
}

/* Documents of one score: no threshold separates them. */
static void walk_group(roc_walk *walk, int64_t positives, int64_t negatives)
{
    int64_t below = walk->negatives - walk->passed_negatives - negatives;

    walk->area += (double)positives * ((double)below + 0.5 * (double)negatives);
    walk->passed_positives += positives;
    walk->passed_negatives += negatives;
    if (positives > 0)
        walk->precision += (double)positives * (double)walk->passed_positives /
                           (double)(walk->passed_positives + walk->passed_negatives);
    if (isnan(walk->fpr95) && 20 * walk->passed_positives >= 19 * walk->positives)
        walk->fpr95 = (double)walk->passed_negatives / (double)walk->negatives;
}

bp_detection_figures bp_detection_of(const bp_detection *detection, const int32_t *in_domain_counts,
                                     const int32_t *shifted_counts)
{
    const scored_document *all = detection->documents;
    roc_walk walk = {.fpr95 = NAN};
    int64_t i = 0;

    for (int64_t k = 0; k < detection->count; k++) {
        int64_t weight = weight_of(&all[k], in_domain_counts, shifted_counts);

        *(all[k].shifted ? &walk.positives : &walk.negatives) += weight;
    }
    if (walk.positives == 0 || walk.negatives == 0)
        return (bp_detection_figures){NAN, NAN, NAN};
    while (i < detection->count) {
        int64_t k = i, positives = 0, negatives = 0;

        for (; i < detection->count && all[i].score == all[k].score; i++)
            *(all[i].shifted ? &positives : &negatives) +=
                weight_of(&all[i], in_domain_counts, shifted_counts);
        walk_group(&walk, positives, negatives);
    }
    return (bp_detection_figures){.auroc =
                                      walk.area / ((double)walk.positives * (double)walk.negatives),
                                  .aupr = walk.precision / (double)walk.positives,
                                  .fpr95 = walk.fpr95};
}
