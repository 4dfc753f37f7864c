/* ROUGE-1, ROUGE-2 and ROUGE-L. */
#include "base/mem.h"
#include "text_metrics/words_priv.h"

#include <string.h>

enum { KINDS = 3, EACH = 3, WIDTH = KINDS * EACH }; /* F, precision, recall */

const bp_metric bp_metric_rouge = {.kind = "rouge",
                                   .width = WIDTH,
                                   .names = {"rouge1", "rouge1_precision", "rouge1_recall",
                                             "rouge2", "rouge2_precision", "rouge2_recall",
                                             "rougeL", "rougeL_precision", "rougeL_recall"},
                                   .figures = bp_text_means};

/* The length of the longest common subsequence; row[b->count + 1] is scratch. */
static int64_t longest_common(const bp_words *a, const bp_words *b, int64_t *row)
{
    memset(row, 0, (size_t)(b->count + 1) * sizeof *row);
    for (int64_t i = 0; i < a->count; i++)
        for (int64_t j = 1, corner = 0; j <= b->count; j++) {
            int64_t above = row[j];

            if (a->list[i] == b->list[j - 1])
                row[j] = corner + 1;
            else if (row[j - 1] > row[j])
                row[j] = row[j - 1];
            corner = above;
        }
    return row[b->count];
}

static void set_scores(double out[EACH], int64_t common, int64_t hypothesis, int64_t reference)
{
    out[1] = hypothesis > 0 ? (double)common / (double)hypothesis : 0;
    out[2] = reference > 0 ? (double)common / (double)reference : 0;
    out[0] = common > 0 ? 2 * out[1] * out[2] / (out[1] + out[2]) : 0;
}

static void count_pair(double out[WIDTH], const bp_words words[2], bp_grams grams[2])
{
    int64_t *row = bp_alloc("metrics.rouge", words[1].count + 1, sizeof *row);

    for (int n = 0; n < 2; n++) {
        bp_grams_of(&grams[0], &words[0], n + 1);
        bp_grams_of(&grams[1], &words[1], n + 1);
        set_scores(out + n * EACH, bp_grams_common(&grams[0], &grams[1], 1), grams[0].count,
                   grams[1].count);
    }
    set_scores(out + 2 * EACH, longest_common(&words[0], &words[1], row), words[0].count,
               words[1].count);
    bp_free(row);
}

bp_err bp_rouge_count(bp_text_answers *out, const bp_text_pairs *pairs)
{
    double *counts = bp_try_alloc("metrics.counts", pairs->documents * WIDTH, sizeof *counts);
    bp_words words[2] = {0};
    bp_grams grams[2] = {0};

    *out = (bp_text_answers){pairs->documents, WIDTH, counts};
    for (int64_t d = 0; d < pairs->documents && counts; d++) {
        double here[WIDTH], *best = counts + d * WIDTH;

        bp_words_of_rouge(&words[0], pairs->hypothesis[d]);
        for (int64_t r = 0; r < pairs->references; r++) {
            bp_words_of_rouge(&words[1], pairs->reference[r][d]);
            count_pair(here, words, grams);
            for (int k = 0; k < WIDTH; k += EACH)
                if (r == 0 || here[k] > best[k])
                    memcpy(best + k, here + k, EACH * sizeof *best);
        }
    }
    for (int k = 0; k < 2; k++) {
        bp_words_clear(&words[k]);
        bp_grams_clear(&grams[k]);
    }
    return counts ? BP_OK
                  : bp_fail_memory("counts of documents", pairs->documents * WIDTH, sizeof *counts);
}
