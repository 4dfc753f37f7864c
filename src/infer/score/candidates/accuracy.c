/* Which choice is best, and how often it is the right one. Called by choices_merge.c. */
#include "infer/score/candidates/candidates.h"

#include "base/config/json.h"
#include "base/mem.h"
#include "statistics/inference.h"

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

static json_t *figures(const answers *all)
{
    static const char *const NAMES[] = {"accuracy", "accuracy_per_token", "accuracy_per_byte"};
    json_t *out = json_pack("{s:I}", "answered", (json_int_t)all->documents);

    for (int w = 0; w < WAYS; w++) {
        bp_interval interval = {NAN, NAN};
        double right = 0, share;

        for (int64_t d = 0; d < all->documents; d++)
            right += all->right[d * WAYS + w];
        share = all->documents > 0 ? right / (double)all->documents : NAN;
        if (all->documents >= BP_FEW_DOCUMENTS)
            interval = bp_wilson_interval(share, all->documents);
        json_t *figure = json_pack("{s:o, s:o, s:o}", "value", bp_json_real(share), "low",
                                   bp_json_real(interval.low), "high", bp_json_real(interval.high));

        if (all->ties[w] > 0) {
            (void)json_object_set_new(figure, "ties", json_integer((json_int_t)all->ties[w]));
            (void)json_object_set_new(figure, "shared",
                                      json_real(all->shared[w] / (double)all->documents));
        }
        (void)json_object_set_new(out, NAMES[w], figure);
    }
    return out;
}

json_t *bp_candidates_summary(const bp_candidates *candidates, const double *logprobs)
{
    int64_t rows = candidates->first[candidates->documents];
    double *values[WAYS];
    answers all = {
        .right = bp_alloc("score.candidates", candidates->documents * WAYS, sizeof *all.right)};
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
        all.documents++;
    }
    out = figures(&all);
    for (int w = 0; w < WAYS; w++)
        bp_free(values[w]);
    bp_free(all.right);
    return out;
}
