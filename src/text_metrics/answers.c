/* Answers to questions, as SQuAD compares them. */
#include "statistics/task_metrics.h"
#include "text_metrics/words_priv.h"

#include <string.h>

static void compare(double *exact, double *f1, bp_words words[2], bp_grams grams[2])
{
    *exact = words[0].count == words[1].count &&
             (words[0].count == 0 || memcmp(words[0].list, words[1].list,
                                            (size_t)words[0].count * sizeof *words[0].list) == 0);
    bp_grams_of(&grams[0], &words[0], 1);
    bp_grams_of(&grams[1], &words[1], 1);
    *f1 = bp_answer_f1(bp_grams_common(&grams[0], &grams[1], 1), words[0].count, words[1].count);
}

void bp_spans_count(double *exact, double *f1, const bp_text_pairs *pairs)
{
    bp_words words[2] = {0};
    bp_grams grams[2] = {0};

    for (int64_t d = 0; d < pairs->documents; d++) {
        exact[d] = f1[d] = 0;
        bool has_words = false;

        for (int64_t r = 0; r < pairs->references && !has_words; r++) {
            bp_words_of_answer(&words[1], pairs->reference[r][d]);
            has_words = words[1].count > 0;
        }
        bp_words_of_answer(&words[0], pairs->hypothesis[d]);
        for (int64_t r = 0; r < pairs->references; r++) {
            double right, shared;

            bp_words_of_answer(&words[1], pairs->reference[r][d]);
            if (has_words && words[1].count == 0) /* as SQuAD's script of version 2.0 */
                continue;
            compare(&right, &shared, words, grams);
            exact[d] = right > exact[d] ? right : exact[d];
            f1[d] = shared > f1[d] ? shared : f1[d];
        }
    }
    for (int k = 0; k < 2; k++) {
        bp_words_clear(&words[k]);
        bp_grams_clear(&grams[k]);
    }
}
