/* Bins of confidence, and figures of their sums: what a score page and a comparison print. */
#include "statistics/calibration.h"

#include "statistics/inference.h"

#include <math.h>

#define BINS BP_CALIBRATION_BINS

int bp_calibration_bin(float confidence)
{
    int bin = (int)ceil((double)confidence * BINS) - 1;

    return bin < 0 ? 0 : bin < BINS ? bin : BINS - 1;
}

void bp_calibration_add(bp_calibration *sums, float confidence, bool correct, double nll,
                        double brier)
{
    if (isnan(confidence))
        return;
    int bin = bp_calibration_bin(confidence);

    sums->tokens[bin]++;
    sums->correct[bin] += correct;
    sums->confidence[bin] += (double)confidence;
    sums->nll += nll;
    sums->brier += brier;
}

/* `times` times the tokens of `more`: a resample is the merge of its documents. */
static void merge(bp_calibration *into, const bp_calibration *more, int64_t times)
{
    for (int b = 0; b < BINS; b++) {
        into->tokens[b] += times * more->tokens[b];
        into->correct[b] += times * more->correct[b];
        into->confidence[b] += (double)times * more->confidence[b];
    }
    into->nll += (double)times * more->nll;
    into->brier += (double)times * more->brier;
}

bp_calibration bp_calibration_of(const bp_calibration *documents, const int32_t *counts, int64_t n)
{
    bp_calibration sums = {0};

    for (int64_t d = 0; d < n; d++)
        if (!counts || counts[d] > 0)
            merge(&sums, &documents[d], counts ? counts[d] : 1);
    return sums;
}

int64_t bp_calibration_tokens(const bp_calibration *sums)
{
    int64_t tokens = 0;

    for (int b = 0; b < BINS; b++)
        tokens += sums->tokens[b];
    return tokens;
}

double bp_calibration_accuracy(const bp_calibration *sums)
{
    int64_t correct = 0;

    for (int b = 0; b < BINS; b++)
        correct += sums->correct[b];
    return (double)correct / (double)bp_calibration_tokens(sums);
}

double bp_calibration_nll(const bp_calibration *sums)
{
    return sums->nll / (double)bp_calibration_tokens(sums);
}

double bp_calibration_brier(const bp_calibration *sums)
{
    return sums->brier / (double)bp_calibration_tokens(sums);
}

/* n_b / N |acc_b - conf_b| = |correct_b - sum of confidence_b| / N */
double bp_calibration_ece(const bp_calibration *sums)
{
    double gap = 0;

    for (int b = 0; b < BINS; b++)
        gap += fabs((double)sums->correct[b] - sums->confidence[b]);
    return gap / (double)bp_calibration_tokens(sums);
}

/* ---- the squared error ---- */

/* The variance of r_b over documents; a bin with a single document has no estimate, and counts
 * 0. */
static double gap_variance(const bp_calibration *documents, int64_t n, int b, double tokens,
                           double ratio)
{
    double squares = 0, present = 0;

    for (int64_t d = 0; d < n; d++) {
        const bp_calibration *one = &documents[d];
        double rest = (double)one->correct[b] - one->confidence[b] - ratio * (double)one->tokens[b];

        squares += rest * rest;
        present += one->tokens[b] > 0;
    }
    return present > 1 ? squares / (tokens * tokens) * present / (present - 1) : ratio * ratio;
}

static double gap_of(const bp_calibration *sums, int b, double total)
{
    double tokens = (double)sums->tokens[b];

    return tokens > 0 ? ((double)sums->correct[b] - sums->confidence[b]) / sqrt(tokens * total) : 0;
}

bp_calibration_gaps bp_calibration_gaps_of(const bp_calibration *documents, int64_t n)
{
    bp_calibration sums = bp_calibration_of(documents, NULL, n);
    double total = (double)bp_calibration_tokens(&sums), count = (double)n;
    bp_calibration_gaps gaps = {.widen = 1};

    if (n > 1)
        gaps.widen = bp_student_quantile(count - 1) / 1.959963984540054 * sqrt(count / (count - 1));
    for (int b = 0; b < BINS; b++) {
        double tokens = (double)sums.tokens[b];

        gaps.gap[b] = gap_of(&sums, b, total);
        if (tokens > 0)
            gaps.noise += tokens / total *
                          gap_variance(documents, n, b, tokens,
                                       ((double)sums.correct[b] - sums.confidence[b]) / tokens);
    }
    if (!(total > 0))
        gaps.noise = NAN;
    return gaps;
}

double bp_calibration_squared(const bp_calibration_gaps *gaps)
{
    double squares = 0;

    for (int b = 0; b < BINS; b++)
        squares += gaps->gap[b] * gaps->gap[b];
    return squares - gaps->noise;
}

double bp_calibration_squared_resampled(const bp_calibration_gaps *gaps,
                                        const bp_calibration *resample)
{
    double total = (double)bp_calibration_tokens(resample), squares = 0;

    for (int b = 0; b < BINS; b++) {
        double gap = gaps->gap[b] + gaps->widen * (gap_of(resample, b, total) - gaps->gap[b]);

        squares += gap * gap;
    }
    return squares - 2 * gaps->noise;
}

bp_reliability bp_calibration_bar(const bp_calibration *sums, int bin)
{
    double n = (double)sums->tokens[bin];

    return (bp_reliability){.low = (double)bin / BINS,
                            .high = (double)(bin + 1) / BINS,
                            .tokens = sums->tokens[bin],
                            .confidence = sums->confidence[bin] / n,
                            .accuracy = (double)sums->correct[bin] / n};
}

/* ---- bins of equal count ---- */

/* The position of the pass over the tokens. */
typedef struct bin_walk {
    int64_t ends[BINS]; /* bin k ends at place floor((k + 1) total / BINS) */
    int64_t place;
    int bin;
    double gap, sum; /* |correct - confidence| of closed bins, and the difference of the open one */
} bin_walk;

static void start_walk(bin_walk *walk, int64_t total)
{
    *walk = (bin_walk){0};
    for (int k = 0; k < BINS; k++)
        walk->ends[k] = (int64_t)((__int128)(k + 1) * total / BINS);
}

/* Adds a group of `count` tokens of one confidence: if a bin ends within it, each side gets its
 * share of the correct ones. */
static void walk_group(bin_walk *walk, int64_t count, int64_t correct, double confidence)
{
    double difference = (double)correct - (double)count * confidence;
    int64_t left = count;

    if (walk->ends[walk->bin] - walk->place > count) { /* as nearly all do */
        walk->sum += difference;
        walk->place += count;
        return;
    }
    while (left > 0) {
        int64_t part = walk->ends[walk->bin] - walk->place;

        part = part < left ? part : left;
        walk->sum += difference * ((double)part / (double)count);
        walk->place += part;
        left -= part;
        while (walk->bin < BINS && walk->place == walk->ends[walk->bin]) {
            walk->gap += fabs(walk->sum);
            walk->sum = 0;
            walk->bin++;
        }
    }
}

double bp_calibration_ece_adaptive(const bp_token_order *order, const int32_t *counts)
{
    int64_t total = bp_token_order_total(order, counts), i = 0;
    bin_walk walk;

    start_walk(&walk, total);
    while (i < order->tokens) {
        float confidence = order->score[i];
        int64_t count = 0, correct = 0;

        for (; i < order->tokens && order->score[i] == confidence; i++) {
            int64_t weight = bp_token_order_weight(order, counts, i);

            count += weight;
            correct += weight * (order->owner[i] & 1);
        }
        if (count > 0)
            walk_group(&walk, count, correct, (double)confidence);
    }
    return walk.gap / (double)total;
}
