/* BLEU. */
#include "base/mem.h"
#include "text_metrics/words_priv.h"

#include <math.h>
#include <string.h>

enum {
    ORDERS = 4,
    HYPOTHESIS = 0,
    REFERENCE,
    COMMON,
    TOTAL = COMMON + ORDERS,
    SENTENCE = TOTAL + ORDERS,
    WIDTH
};

void bp_text_answers_clear(bp_text_answers *answers)
{
    bp_free(answers->counts);
    *answers = (bp_text_answers){0};
}

void bp_text_means(double *values, const int32_t *counts, const void *data)
{
    const bp_text_answers *answers = data;
    double n = 0;

    memset(values, 0, (size_t)answers->width * sizeof *values);
    for (int64_t d = 0; d < answers->documents; d++) {
        double times = counts ? counts[d] : 1;

        n += times;
        for (int64_t k = 0; k < answers->width; k++)
            values[k] += times * answers->counts[d * answers->width + k];
    }
    for (int64_t k = 0; k < answers->width; k++)
        values[k] = n > 0 ? values[k] / n : NAN;
}

/* precisions[ORDERS] in percent, brevity penalty, and BLEU of sums; `effective`: of the orders
 * that there are. */
static double bleu_of(double *precisions, double *penalty, const double *sums, bool effective)
{
    double sum = 0, matches = 0, smooth = 1;
    int orders = ORDERS;

    *penalty = sums[HYPOTHESIS] >= sums[REFERENCE] ? 1
               : sums[HYPOTHESIS] > 0              ? exp(1 - sums[REFERENCE] / sums[HYPOTHESIS])
                                                   : 0;
    for (int n = 0; n < ORDERS; n++) {
        precisions[n] = 0;
        matches += sums[COMMON + n];
    }
    if (matches == 0)
        return 0;
    for (int n = 0; n < ORDERS && sums[TOTAL + n] > 0; n++) {
        if (effective)
            orders = n + 1;
        smooth *= sums[COMMON + n] == 0 ? 2 : 1;
        precisions[n] = sums[COMMON + n] == 0 ? 100 / (smooth * sums[TOTAL + n])
                                              : 100 * sums[COMMON + n] / sums[TOTAL + n];
    }
    for (int n = 0; n < orders; n++)
        sum += precisions[n] > 0 ? log(precisions[n]) : -INFINITY;
    return *penalty * exp(sum / orders);
}

static void figures(double *values, const int32_t *counts, const void *data)
{
    const bp_text_answers *answers = data;
    double sums[WIDTH] = {0}, n = 0;

    for (int64_t d = 0; d < answers->documents; d++) {
        double times = counts ? counts[d] : 1;

        n += times;
        for (int k = 0; k < WIDTH; k++)
            sums[k] += times * answers->counts[d * WIDTH + k];
    }
    values[0] = bleu_of(values + 3, &values[2], sums, false);
    values[1] = n > 0 ? sums[SENTENCE] / n : NAN;
}

const bp_metric bp_metric_bleu = {.kind = "bleu",
                                  .width = 3 + ORDERS,
                                  .names = {"bleu", "sentence_bleu", "brevity_penalty",
                                            "precision_1", "precision_2", "precision_3",
                                            "precision_4"},
                                  .figures = figures};

/* The reference whose length is closest, of two the shorter one. */
static int64_t closest(const bp_words *references, int64_t count, int64_t length)
{
    int64_t best = references[0].count;

    for (int64_t r = 1; r < count; r++) {
        int64_t here = references[r].count, gap = llabs(here - length),
                least = llabs(best - length);

        if (gap < least || (gap == least && here < best))
            best = here;
    }
    return best;
}

static void count_document(double *out, const bp_words *hypothesis, const bp_words *references,
                           int64_t count, bp_grams *grams)
{
    double precisions[ORDERS], penalty;

    out[HYPOTHESIS] = (double)hypothesis->count;
    out[REFERENCE] = (double)closest(references, count, hypothesis->count);
    for (int n = 0; n < ORDERS; n++) {
        for (int64_t r = 0; r < count; r++)
            bp_grams_of(&grams[1 + r], &references[r], n + 1);
        bp_grams_of(&grams[0], hypothesis, n + 1);
        out[COMMON + n] = (double)bp_grams_common(&grams[0], grams + 1, count);
        out[TOTAL + n] = (double)grams[0].count;
    }
    out[SENTENCE] = bleu_of(precisions, &penalty, out, true);
}

bp_err bp_bleu_count(bp_text_answers *out, const bp_text_pairs *pairs, bp_bleu_words how)
{
    int64_t refs = pairs->references;
    bp_words hypothesis = {0}, *references = bp_alloc("metrics.words", refs, sizeof *references);
    bp_grams *grams = bp_alloc("metrics.grams", refs + 1, sizeof *grams);
    double *counts = bp_try_alloc("metrics.counts", pairs->documents * WIDTH, sizeof *counts);

    *out = (bp_text_answers){pairs->documents, WIDTH, counts};
    for (int64_t d = 0; d < pairs->documents && counts; d++) {
        bp_words_of_bleu(&hypothesis, pairs->hypothesis[d], how);
        for (int64_t r = 0; r < refs; r++)
            bp_words_of_bleu(&references[r], pairs->reference[r][d], how);
        count_document(counts + d * WIDTH, &hypothesis, references, refs, grams);
    }
    for (int64_t r = 0; r <= refs; r++) {
        bp_grams_clear(&grams[r]);
        if (r < refs)
            bp_words_clear(&references[r]);
    }
    bp_words_clear(&hypothesis);
    bp_free(references);
    bp_free(grams);
    return counts ? BP_OK
                  : bp_fail_memory("counts of documents", pairs->documents * WIDTH, sizeof *counts);
}
