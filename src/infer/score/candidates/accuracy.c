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
    bool *right; /* [documents][WAYS] */
} answers;

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
        (void)json_object_set_new(out, NAMES[w],
                                  json_pack("{s:o, s:o, s:o}", "value", bp_json_real(share), "low",
                                            bp_json_real(interval.low), "high",
                                            bp_json_real(interval.high)));
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
            all.right[all.documents * WAYS + w] =
                bp_candidates_best(candidates, values[w], d) == candidates->answer[d];
        all.documents++;
    }
    out = figures(&all);
    for (int w = 0; w < WAYS; w++)
        bp_free(values[w]);
    bp_free(all.right);
    return out;
}
