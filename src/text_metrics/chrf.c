/* chrF2. */
#include "base/mem.h"
#include "text_metrics/words_priv.h"

#include <string.h>

enum { ORDERS = 6, EACH = 3, WIDTH = ORDERS * EACH }; /* hypothesis, reference, common */

#define BETA_SQUARED 4.0

/* Precision and recall are means over the orders that both sides have. */
static double chrf_of(const double *sums)
{
    double precision = 0, recall = 0;
    int orders = 0;

    for (int n = 0; n < ORDERS; n++) {
        const double *of = sums + n * EACH;

        if (of[0] == 0 || of[1] == 0)
            continue;
        precision += of[2] / of[0];
        recall += of[2] / of[1];
        orders++;
    }
    if (precision + recall == 0)
        return 0;
    precision /= orders;
    recall /= orders;
    return 100 * (1 + BETA_SQUARED) * precision * recall / (BETA_SQUARED * precision + recall);
}

static void figures(double *values, const int32_t *counts, const void *data)
{
    const bp_text_answers *answers = data;
    double sums[WIDTH] = {0};

    for (int64_t d = 0; d < answers->documents; d++)
        for (int k = 0; k < WIDTH; k++)
            sums[k] += (counts ? counts[d] : 1) * answers->counts[d * WIDTH + k];
    values[0] = chrf_of(sums);
}

const bp_metric bp_metric_chrf = {
    .kind = "chrf", .width = 1, .names = {"chrf2"}, .figures = figures};

/* A reference without n-grams of an order counts none of the hypothesis either. */
static void count_pair(double out[WIDTH], const bp_words *hypothesis, const bp_words *reference,
                       bp_grams grams[2])
{
    for (int n = 0; n < ORDERS; n++) {
        bp_grams_of(&grams[0], hypothesis, n + 1);
        bp_grams_of(&grams[1], reference, n + 1);
        out[n * EACH] = grams[1].count > 0 ? (double)grams[0].count : 0;
        out[n * EACH + 1] = (double)grams[1].count;
        out[n * EACH + 2] = (double)bp_grams_common(&grams[0], &grams[1], 1);
    }
}

bp_err bp_chrf_count(bp_text_answers *out, const bp_text_pairs *pairs)
{
    double *counts = bp_try_alloc("metrics.counts", pairs->documents * WIDTH, sizeof *counts);
    bp_words words[2] = {0};
    bp_grams grams[2] = {0};

    *out = (bp_text_answers){pairs->documents, WIDTH, counts};
    for (int64_t d = 0; d < pairs->documents && counts; d++) {
        double here[WIDTH], best = -1;

        bp_words_of_characters(&words[0], pairs->hypothesis[d]);
        for (int64_t r = 0; r < pairs->references; r++) {
            bp_words_of_characters(&words[1], pairs->reference[r][d]);
            count_pair(here, &words[0], &words[1], grams);
            if (chrf_of(here) > best) {
                best = chrf_of(here);
                memcpy(counts + d * WIDTH, here, sizeof here);
            }
        }
    }
    for (int k = 0; k < 2; k++) {
        bp_words_clear(&words[k]);
        bp_grams_clear(&grams[k]);
    }
    return counts ? BP_OK
                  : bp_fail_memory("counts of documents", pairs->documents * WIDTH, sizeof *counts);
}
