/* The formulas of all smoothings. Called by ngram_estimate.c. */
#include "models/ngram/ngram_smoothing_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOTHING 1e-12 /* a mass below it is rounding */

static int64_t katz_k(const ngram_rule *rule, int order)
{
    return order == 1 ? 1 : rule->katz_k;
}

/* ---- discounts ---- */

static void fit_kneser_ney(ngram_rule *rule, int order, const int64_t n[NGRAM_COUNTS],
                           char *warning, size_t warning_bytes)
{
    static const double FALLBACK[] = {0, 0.5, 1, 1.5};
    double *discount = rule->discount[order], y;
    bool fits = n[1] > 0 && n[2] > 0 && n[3] > 0;

    y = fits ? (double)n[1] / (double)(n[1] + 2 * n[2]) : 0;
    discount[0] = 0;
    for (int j = 1; j <= 3 && fits; j++) {
        discount[j] = j - (j + 1) * y * (double)n[j + 1] / (double)n[j];
        fits = discount[j] >= 0 && discount[j] <= j;
    }
    if (fits)
        return;
    memcpy(discount, FALLBACK, sizeof FALLBACK);
    (void)snprintf(warning, warning_bytes,
                   "Kneser-Ney discounts of order %d can't be estimated from n1 = %" PRId64
                   ", n2 = %" PRId64 ", n3 = %" PRId64 ", n4 = %" PRId64
                   ": 0.5, 1 and 1.5 are taken; use a longer text or a smaller ngram.order",
                   order, n[1], n[2], n[3], n[4]);
}

/* Good-Turing's r* / r up to k; Katz subtracts a term so that counts above k keep their full value.
 */
static void fit_good_turing(ngram_rule *rule, int order, const int64_t n[NGRAM_COUNTS],
                            char *warning, size_t warning_bytes)
{
    int64_t k = katz_k(rule, order), first = 0;
    double *ratio = rule->ratio[order], common = 0;

    if (rule->smoothing == NGRAM_KATZ && n[1] > 0)
        common = (double)(k + 1) * (double)n[k + 1] / (double)n[1];
    for (int64_t r = 1; r <= k; r++) {
        double share =
            n[r] > 0 ? (double)(r + 1) * (double)n[r + 1] / ((double)r * (double)n[r]) : 0;

        ratio[r] = common < 1 ? (share - common) / (1 - common) : 0;
        if (ratio[r] > 0 && ratio[r] <= 1)
            continue;
        ratio[r] = 1;
        first = first == 0 ? r : first;
    }
    if (first > 0)
        (void)snprintf(
            warning, warning_bytes,
            "Good-Turing discounts of order %d can't be estimated, the first of counts of "
            "%" PRId64 ", from n1 = %" PRId64 ", n2 = %" PRId64 ", n3 = %" PRId64 ", n4 = %" PRId64
            ": such counts are not discounted; use a longer text or a smaller "
            "ngram.katz_k",
            order, first, n[1], n[2], n[3], n[4]);
}

void ngram_rule_fit(ngram_rule *rule, int order, const int64_t counts[NGRAM_COUNTS], char *warning,
                    size_t warning_bytes)
{
    warning[0] = '\0';
    if (rule->smoothing == NGRAM_KNESER_NEY)
        fit_kneser_ney(rule, order, counts, warning, warning_bytes);
    else if (rule->smoothing == NGRAM_GOOD_TURING || rule->smoothing == NGRAM_KATZ)
        fit_good_turing(rule, order, counts, warning, warning_bytes);
}

static double discount_of(const ngram_rule *rule, int order, int64_t count)
{
    return rule->discount[order][count < 3 ? count : 3];
}

static double ratio_of(const ngram_rule *rule, int order, int64_t count)
{
    return count <= katz_k(rule, order) ? rule->ratio[order][count] : 1;
}

/* ---- one history ---- */

static bool is_kept(const ngram_followers *f, int64_t k)
{
    return !f->dropped || !f->dropped[k];
}

static int64_t sum_of(const int64_t *count, int64_t words)
{
    int64_t sum = 0;

    for (int64_t k = 0; k < words; k++)
        sum += count[k];
    return sum;
}

/* The discounted mass, and that of dropped n-grams, goes to the shorter history, whose distribution
 * is added to that of the counts. */
static void interpolate(const ngram_rule *rule, const ngram_followers *f, double *prob,
                        double *left)
{
    bool kneser_ney = rule->smoothing == NGRAM_KNESER_NEY;
    double total = (double)sum_of(f->count, f->words), off = 0;

    if (!kneser_ney) {
        total += (double)f->words;
        off = (double)f->words;
    }
    for (int64_t k = 0; k < f->words; k++) {
        double discount = kneser_ney ? discount_of(rule, f->order, f->count[k]) : 0;

        off += is_kept(f, k) ? discount : (double)f->count[k];
        prob[k] = ((double)f->count[k] - discount) / total;
    }
    *left = off / total;
    for (int64_t k = 0; k < f->words; k++)
        prob[k] += *left * f->shorter[k];
}

/* Kept counts times their ratios; returns the remaining mass. */
static double discounted(const ngram_rule *rule, const ngram_followers *f, double total,
                         double *prob)
{
    double sum = 0;

    for (int64_t k = 0; k < f->words; k++) {
        prob[k] = ratio_of(rule, f->order, f->count[k]) * (double)f->count[k] / total;
        sum += is_kept(f, k) ? prob[k] : 0;
    }
    return 1 - sum;
}

static void scale(double *prob, int64_t words, double factor)
{
    for (int64_t k = 0; k < words; k++)
        prob[k] *= factor;
}

/* Seen words keep their counts times their ratios; `rest`: the mass of unseen words in the
 * shorter history's distribution; without back-off, their number. 0: there are none. */
static void hand_over(const ngram_rule *rule, const ngram_followers *f, double rest, double *prob,
                      double *left)
{
    double total = (double)sum_of(f->count, f->words), mass = discounted(rule, f, total, prob);

    if (rest > NOTHING && mass < NOTHING)
        mass = discounted(rule, f, total + 1, prob);
    if (rest > NOTHING) {
        *left = mass / rest;
        return;
    }
    scale(prob, f->words, 1 / (1 - mass));
    *left = ngram_backs_off(rule->smoothing) ? 1 : 0;
}

static void add(const ngram_rule *rule, const ngram_followers *f, double *prob, double *left)
{
    double delta = rule->smoothing == NGRAM_ADDITIVE ? rule->delta : 0;
    double total = (double)sum_of(f->count, f->words) + delta * (double)rule->outcomes;

    for (int64_t k = 0; k < f->words; k++)
        prob[k] = ((double)f->count[k] + delta) / total;
    *left = delta / total;
}

void ngram_smooth(const ngram_rule *rule, const ngram_followers *f, double *prob, double *left)
{
    double rest = (double)(rule->outcomes - f->words);

    switch (rule->smoothing) {
    case NGRAM_KNESER_NEY:
    case NGRAM_WITTEN_BELL:
        interpolate(rule, f, prob, left);
        break;
    case NGRAM_KATZ:
        rest = 1;
        for (int64_t k = 0; k < f->words; k++)
            rest -= is_kept(f, k) ? f->shorter[k] : 0;
        hand_over(rule, f, rest, prob, left);
        break;
    case NGRAM_GOOD_TURING:
        hand_over(rule, f, rest, prob, left);
        break;
    default:
        add(rule, f, prob, left);
    }
}

/* ---- without a history ---- */

/* Kneser-Ney subtracts discounts and distributes them equally; others work as after a history whose
 * unseen words share the rest. Witten-Bell's unigrams are maximum likelihood, as in nltk. */
void ngram_smooth_words(const ngram_rule *rule, const int64_t *count, double *prob)
{
    int64_t V = rule->outcomes, seen = 0;
    double total = (double)sum_of(count, V), off = 0, delta = 0;

    if (rule->smoothing == NGRAM_ADDITIVE)
        delta = rule->delta;
    for (int64_t k = 0; k < V; k++) {
        seen += count[k] > 0;
        off += discount_of(rule, 1, count[k]);
        prob[k] = ((double)count[k] + delta) / (total + delta * (double)V);
    }
    if (rule->smoothing == NGRAM_KNESER_NEY) {
        for (int64_t k = 0; k < V; k++)
            prob[k] = ((double)count[k] - discount_of(rule, 1, count[k])) / total +
                      off / total / (double)V;
    } else if (rule->smoothing == NGRAM_KATZ || rule->smoothing == NGRAM_GOOD_TURING) {
        for (int pass = 0; pass < 2; pass++, total += 1) {
            double mass = 1;

            for (int64_t k = 0; k < V; k++)
                mass -= count[k] > 0
                            ? (prob[k] = ratio_of(rule, 1, count[k]) * (double)count[k] / total)
                            : 0;
            if (seen == V) {
                scale(prob, V, 1 / (1 - mass));
                return;
            }
            for (int64_t k = 0; k < V; k++)
                prob[k] = count[k] > 0 ? prob[k] : mass / (double)(V - seen);
            if (mass > NOTHING)
                return;
        }
    }
}
