/* Weights of corpora, and how their windows interleave: loader.c asks which corpus comes next. */
#include "mixture_priv.h"

#include "base/buffer.h"
#include "base/config/decimal.h"
#include "base/mem.h"
#include "data/corpus.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- corpus.weights ---- */

/* A number at *text, decimal and not negative; *text is moved past it and the comma, to NULL at
 * the end. */
static bool take_number(const char **text, double *out)
{
    size_t bytes = strcspn(*text, ","), first = strspn(*text, " "), end = bytes;

    while (end > first && (*text)[end - 1] == ' ')
        end--;
    if (end <= first || !bp_decimal(out, *text + first, end - first) || *out < 0)
        return false;
    *text = (*text)[bytes] == ',' ? *text + bytes + 1 : NULL;
    return true;
}

bp_err bp_corpus_weights(double **weights, int64_t *count, const char *list)
{
    int64_t most = 1, positive = 0;
    const char *at = list;
    double sum = 0;

    for (const char *p = list; *p != '\0'; p++)
        most += *p == ',';
    *count = 0;
    *weights = bp_alloc("data.weights", most, sizeof(**weights));
    for (; at && take_number(&at, &(*weights)[*count]); ++*count) {
        sum += (*weights)[*count];
        positive += (*weights)[*count] > 0;
    }
    if (!at && positive > 0 && positive <= BP_CORPUS_WEIGHTS_MAX && isfinite(sum))
        return BP_OK;
    bp_free(*weights);
    *weights = NULL;
    if (at)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.bad_weights",
                       "corpus.weights = %s has no number of 0 or more at place %" PRId64
                       ": at corpus.weights; give one for each file of corpus.train, parted by "
                       "commas",
                       list, *count + 1);
    if (positive > BP_CORPUS_WEIGHTS_MAX)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.too_many_weights",
                       "corpus.weights has %" PRId64 " numbers above 0, more than %d: at "
                       "corpus.weights; join corpora into fewer files",
                       positive, BP_CORPUS_WEIGHTS_MAX);
    return BP_FAIL(BP_ERR_CONFIG, "corpus.zero_weights",
                   "corpus.weights = %s: the %" PRId64 " numbers add up to %g: at corpus.weights; "
                   "give at least one above 0",
                   list, *count, sum);
}

char *bp_corpus_weights_text(const double *weights, int64_t count)
{
    bp_buffer text = {0};

    for (int64_t k = 0; k < count; k++) {
        char number[32];

        for (int digits = 1; digits <= 17; digits++) { /* the shortest that reads back the same */
            (void)snprintf(number, sizeof number, "%.*g", digits, weights[k]);
            if (strtod(number, NULL) == weights[k])
                break;
        }
        bp_buffer_printf(&text, "%s%s", k > 0 ? "," : "", number);
    }
    return bp_buffer_take(&text);
}

/* ---- the cycle ---- */

/* Entries of a cycle for each corpus. */
static void share_out(bp_mixture *mixture, const double *weights)
{
    double *remainder = bp_alloc("data.mixture", mixture->corpora, sizeof *remainder), sum = 0;
    int64_t given = 0, corpora = mixture->corpora;

    for (int64_t k = 0; k < corpora; k++)
        sum += weights[k];
    for (int64_t k = 0; k < corpora; k++) {
        double quota = weights[k] / sum * BP_MIXTURE_CYCLE;

        mixture->count[k] = weights[k] > 0 && quota < 1 ? 1 : (int64_t)quota;
        remainder[k] = weights[k] > 0 ? quota - (double)mixture->count[k] : -INFINITY;
        given += mixture->count[k];
    }
    for (; given < BP_MIXTURE_CYCLE; given++) { /* to the largest remainder */
        int64_t best = 0;

        for (int64_t k = 1; k < corpora; k++)
            if (remainder[k] > remainder[best])
                best = k;
        mixture->count[best]++;
        remainder[best] -= 1;
    }
    for (; given > BP_MIXTURE_CYCLE; given--) { /* tiny weights got more than their share */
        int64_t most = 0;

        for (int64_t k = 1; k < corpora; k++)
            if (mixture->count[k] > mixture->count[most])
                most = k;
        mixture->count[most]--;
    }
    bp_free(remainder);
}

/* A corpus's deficit after entry n, times the cycle: (n+1) count - cycle taken. The deficits of all
 * corpora sum to one cycle, so one is positive, and no corpus gets an entry too many: at the end of
 * the cycle each has its count. */
static void interleave(bp_mixture *mixture, int64_t *taken)
{
    for (int64_t n = 0; n < BP_MIXTURE_CYCLE; n++) {
        int64_t best = -1, lack = INT64_MIN;

        for (int64_t k = 0; k < mixture->corpora; k++) {
            int64_t lacks = (n + 1) * mixture->count[k] - BP_MIXTURE_CYCLE * taken[k];

            if (mixture->count[k] > 0 && lacks > lack) {
                best = k;
                lack = lacks;
            }
        }
        mixture->corpus[n] = (int32_t)best;
        mixture->number[n] = (int32_t)taken[best]++;
    }
}

void bp_mixture_init(bp_mixture *mixture, const double *weights, int64_t corpora)
{
    int64_t *taken = bp_alloc("data.mixture", corpora, sizeof *taken);

    *mixture = (bp_mixture){.corpora = corpora};
    mixture->count = bp_alloc("data.mixture", corpora, sizeof *mixture->count);
    mixture->corpus = bp_alloc("data.mixture", BP_MIXTURE_CYCLE, sizeof *mixture->corpus);
    mixture->number = bp_alloc("data.mixture", BP_MIXTURE_CYCLE, sizeof *mixture->number);
    share_out(mixture, weights);
    interleave(mixture, taken);
    bp_free(taken);
}

void bp_mixture_clear(bp_mixture *mixture)
{
    bp_free(mixture->number);
    bp_free(mixture->corpus);
    bp_free(mixture->count);
    *mixture = (bp_mixture){0};
}

void bp_mixture_find(const bp_mixture *mixture, int64_t entry, int64_t *corpus, int64_t *use)
{
    int64_t at = entry % BP_MIXTURE_CYCLE;

    *corpus = mixture->corpus[at];
    *use = entry / BP_MIXTURE_CYCLE * mixture->count[*corpus] + mixture->number[at];
}
