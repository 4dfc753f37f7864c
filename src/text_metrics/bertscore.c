/* BERTScore: states of tokens, each matched with the nearest of the other text. */
#include "base/mem.h"
#include "text_metrics/text_metrics.h"

#include <math.h>
#include <string.h>

enum { PRECISION, RECALL, F1, WIDTH };
_Static_assert((int)WIDTH == BP_BERTSCORE_WIDTH, "what a document counts for");

const bp_metric bp_metric_bertscore = {.kind = "bertscore",
                                       .width = WIDTH,
                                       .names = {"precision", "recall", "f1"},
                                       .figures = bp_text_means};

/* lengths[count] of the states; one of zeros has no direction, and a cosine of 0 with all. */
static void find_lengths(double *lengths, const bp_text_states *text)
{
    for (int64_t i = 0; i < text->count; i++) {
        const float *x = text->states + i * text->columns;
        double sum = 0;

        for (int64_t c = 0; c < text->columns; c++)
            sum += (double)x[c] * (double)x[c];
        lengths[i] = sum > 0 ? sqrt(sum) : 1;
    }
}

/* The largest cosine of each token of either text with one of the other. */
static void match(double *of_hypothesis, double *of_reference, const bp_text_states *hypothesis,
                  const bp_text_states *reference)
{
    int64_t n = hypothesis->count, m = reference->count, C = hypothesis->columns;
    double *lengths = bp_alloc("metrics.bertscore", n + m, sizeof *lengths);

    find_lengths(lengths, hypothesis);
    find_lengths(lengths + n, reference);
    for (int64_t i = 0; i < n; i++)
        of_hypothesis[i] = -INFINITY;
    for (int64_t j = 0; j < m; j++)
        of_reference[j] = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            const float *x = hypothesis->states + i * C, *y = reference->states + j * C;
            double cosine = 0;

            for (int64_t c = 0; c < C; c++)
                cosine += (double)x[c] * (double)y[c];
            cosine /= lengths[i] * lengths[n + j];
            of_hypothesis[i] = fmax(of_hypothesis[i], cosine);
            of_reference[j] = fmax(of_reference[j], cosine);
        }
    bp_free(lengths);
}

static double mean_of(const double *values, const bp_text_states *text, const double *weights)
{
    double sum = 0, all = 0, plain = 0;

    for (int64_t i = 0; i < text->count; i++) {
        double weight = weights ? weights[text->tokens[i]] : 1;

        sum += weight * values[i];
        all += weight;
        plain += values[i];
    }
    return all > 0 ? sum / all : plain / (double)text->count;
}

void bp_bertscore_raise(double best[BP_BERTSCORE_WIDTH], const bp_text_states *hypothesis,
                        const bp_text_states *reference, const double *weights)
{
    int64_t n = hypothesis->count, m = reference->count;
    double *cosines = bp_alloc("metrics.bertscore", n + m, sizeof *cosines), here[WIDTH] = {0}, sum;

    if (n > 0 && m > 0) {
        match(cosines, cosines + n, hypothesis, reference);
        here[PRECISION] = mean_of(cosines, hypothesis, weights);
        here[RECALL] = mean_of(cosines + n, reference, weights);
        sum = here[PRECISION] + here[RECALL];
        here[F1] = sum != 0 ? 2 * here[PRECISION] * here[RECALL] / sum : 0;
    }
    if (isnan(best[F1]) || here[F1] > best[F1])
        memcpy(best, here, sizeof here);
    bp_free(cosines);
}

void bp_bertscore_weights(double *weights, int64_t vocabulary, const int32_t *tokens,
                          const int64_t *starts, int64_t texts)
{
    int64_t *last = bp_alloc("metrics.bertscore", vocabulary, sizeof *last); /* text + 1 */

    memset(weights, 0, (size_t)vocabulary * sizeof *weights);
    for (int64_t k = 0; k < texts; k++)
        for (int64_t i = starts[k]; i < starts[k + 1]; i++) {
            weights[tokens[i]] += last[tokens[i]] != k + 1;
            last[tokens[i]] = k + 1;
        }
    for (int64_t v = 0; v < vocabulary; v++)
        weights[v] = log((double)(texts + 1) / (weights[v] + 1));
    bp_free(last);
}
