/* Which choice is best, and how often it is the right one. Called by choices_merge.c. */
#include "infer/score/candidates/candidates.h"

#include "base/config/json.h"
#include "base/mem.h"
#include "statistics/metric.h"

#include <math.h>

enum { SUMMED, PER_TOKEN, PER_BYTE, WAYS };

int64_t bp_candidates_best(const bp_candidates *candidates, const double *values, int64_t document)
{
    int64_t first = candidates->first[document], best = -1;

    for (int64_t k = 0; first + k < candidates->first[document + 1]; k++)
        if (!isnan(values[first + k]) && (best < 0 || values[first + k] > values[first + best]))
            best = k;
    return best;
}

/* For the documents with an answer: is it the best choice by each criterion? */
typedef struct answers {
    int64_t documents;
    bool *right;         /* [documents][WAYS] */
    int64_t *cluster;    /* [documents] */
    int64_t ties[WAYS];  /* documents whose answer is one of several best choices */
    double shared[WAYS]; /* right ones, a tie of n being 1 / n */
} answers;

/* Count a document whose best choice by a criterion is `best`. */
static void add_document(answers *all, const bp_candidates *candidates, const double *values,
                         int64_t d, int w)
{
    int64_t first = candidates->first[d], equal = 0,
            best = bp_candidates_best(candidates, values, d);
    bool right = best == candidates->answer[d];

    for (int64_t k = first; best >= 0 && k < candidates->first[d + 1]; k++)
        equal += values[k] == values[first + best]; /* NaN is not equal */
    if (equal > 1 && values[first + candidates->answer[d]] == values[first + best])
        all->ties[w]++;
    else
        equal = 1;
    all->right[all->documents * WAYS + w] = right;
    all->shared[w] += equal > 1 ? 1 / (double)equal : right;
}

static void shares(double *values, const int32_t *counts, const void *data)
{
    const answers *all = data;
    double documents = 0, right[WAYS] = {0};

    for (int64_t d = 0; d < all->documents; d++) {
        double times = counts ? counts[d] : 1;

        documents += times;
        for (int w = 0; w < WAYS; w++)
            right[w] += times * all->right[d * WAYS + w];
    }
    for (int w = 0; w < WAYS; w++)
        values[w] = documents > 0 ? right[w] / documents : NAN;
}

static const bp_metric ACCURACY = {
    .kind = "choices",
    .width = WAYS,
    .names = {"accuracy", "accuracy_per_token", "accuracy_per_byte"},
    .figures = shares,
    .share = {BP_SHARE_OF_DOCUMENTS, BP_SHARE_OF_DOCUMENTS, BP_SHARE_OF_DOCUMENTS}};

static json_t *figures(const answers *all, bool clustered, uint64_t seed)
{
    json_t *out = json_pack("{s:I}", "answered", (json_int_t)all->documents), *accuracies;
    bp_figure of[BP_METRIC_FIGURES];

    BP_CHECK(bp_metric_estimate_clusters(of, &ACCURACY, all, all->documents,
                                         clustered ? all->cluster : NULL, seed) == BP_OK);
    accuracies = bp_metric_json(&ACCURACY, of);
    for (int w = 0; w < WAYS; w++) {
        json_t *figure = json_object_get(accuracies, ACCURACY.names[w]);

        if (all->ties[w] > 0) {
            (void)json_object_set_new(figure, "ties", json_integer((json_int_t)all->ties[w]));
            (void)json_object_set_new(figure, "shared",
                                      json_real(all->shared[w] / (double)all->documents));
        }
    }
    (void)json_object_update(out, accuracies);
    json_decref(accuracies);
    return out;
}

json_t *bp_candidates_summary(const bp_candidates *candidates, const double *logprobs,
                              const int64_t *cluster, uint64_t seed)
{
    int64_t rows = candidates->first[candidates->documents];
    double *values[WAYS];
    answers all = {
        .right = bp_alloc("score.candidates", candidates->documents * WAYS, sizeof *all.right),
        .cluster = bp_alloc("score.candidates", candidates->documents, sizeof *all.cluster)};
    json_t *out;

    for (int w = 0; w < WAYS; w++) {
        values[w] = bp_alloc("score.candidates", rows, sizeof *values[w]);
        for (int64_t r = 0; r < rows; r++) {
            const bp_candidate_row *row = &candidates->rows[r];

            values[w][r] = logprobs[r] / (double)(w == SUMMED      ? 1
                                                  : w == PER_TOKEN ? row->scored
                                                                   : row->bytes);
            if (row->scored == 0)
                values[w][r] = NAN;
        }
    }
    for (int64_t d = 0; d < candidates->documents; d++) {
        if (candidates->answer[d] < 0 || bp_candidates_best(candidates, logprobs, d) < 0)
            continue;
        for (int w = 0; w < WAYS; w++)
            add_document(&all, candidates, values[w], d, w);
        all.cluster[all.documents++] = cluster ? cluster[d] : 0;
    }
    out = figures(&all, cluster != NULL, seed);
    for (int w = 0; w < WAYS; w++)
        bp_free(values[w]);
    bp_free(all.cluster);
    bp_free(all.right);
    return out;
}
