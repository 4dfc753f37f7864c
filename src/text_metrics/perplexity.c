/* Perplexity of texts under a model, of what each document adds up to. */
#include "text_metrics/text_metrics.h"

#include <math.h>

enum { PERPLEXITY, WORD_PERPLEXITY, BITS_PER_BYTE, FIGURES };

static void figures(double *values, const int32_t *counts, const void *data)
{
    const bp_text_answers *answers = data;
    double sums[BP_PERPLEXITY_WIDTH] = {0};
    bool whole;

    for (int64_t d = 0; d < answers->documents; d++) {
        double times = counts ? counts[d] : 1;

        for (int k = 0; times > 0 && k < BP_PERPLEXITY_WIDTH; k++)
            sums[k] += times * answers->counts[d * BP_PERPLEXITY_WIDTH + k];
    }
    whole = sums[BP_PERPLEXITY_UNSCORED] == 0;
    for (int k = 0; k < FIGURES; k++) {
        double by = k == PERPLEXITY        ? sums[BP_PERPLEXITY_TOKENS]
                    : k == WORD_PERPLEXITY ? sums[BP_PERPLEXITY_WORDS]
                                           : sums[BP_PERPLEXITY_BYTES] * log(2);
        double mean = by > 0 && (whole || k == PERPLEXITY) ? sums[BP_PERPLEXITY_NLL] / by : NAN;

        values[k] = k == BITS_PER_BYTE ? mean : exp(mean);
    }
}

const bp_metric bp_metric_perplexity = {.kind = "perplexity",
                                        .width = FIGURES,
                                        .names = {"perplexity", "word_perplexity", "bits_per_byte"},
                                        .figures = figures,
                                        .lower = {true, true, true}};
