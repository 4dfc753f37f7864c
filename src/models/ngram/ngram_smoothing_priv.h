/* Smoothing: from counts to probabilities, one history at a time. Pure functions of doubles.
 *
 * Sources: Chen and Goodman 1998 (modified interpolated Kneser-Ney; KenLM's edges: invalid
 * discounts become 0.5, 1, 1.5), Katz 1987, Witten and Bell 1991, Good 1953; SRILM's
 * ngram-discount manual page (a history whose counts leave no mass gets 1 added to its
 * denominator).
 *
 * Local: no MPI. */
#pragma once

#include "models/ngram/ngram_key_priv.h"

#include <stdbool.h>
#include <stddef.h>

/** In the order of the words of the key ngram.smoothing. */
typedef enum ngram_smoothing {
    NGRAM_KNESER_NEY,
    NGRAM_MLE,
    NGRAM_ADDITIVE,
    NGRAM_GOOD_TURING,
    NGRAM_KATZ,
    NGRAM_WITTEN_BELL,
    NGRAM_ARPA /* made by another program, in an unknown way */
} ngram_smoothing;

#define NGRAM_KATZ_MOST 31 /* ngram.katz_k */
#define NGRAM_COUNTS    (NGRAM_KATZ_MOST + 2)

/** What a model's probabilities are made with. */
typedef struct ngram_rule {
    ngram_smoothing smoothing;
    double delta;
    int64_t katz_k;   /* 1 for order 1 */
    int64_t outcomes; /* V: words that may follow any history */
    /* of each order, from 1: the discount of counts 1, 2, and 3 or more (Kneser-Ney), */
    double discount[NGRAM_ORDER_MOST + 1][4];
    /* and the remaining fraction of a count of r (Good-Turing, Katz) */
    double ratio[NGRAM_ORDER_MOST + 1][NGRAM_COUNTS];
} ngram_rule;

/** Does an unseen word take its probability from the shorter history? Else all unseen words share
 * the rest equally. */
static inline bool ngram_backs_off(ngram_smoothing smoothing)
{
    return smoothing == NGRAM_KNESER_NEY || smoothing == NGRAM_KATZ ||
           smoothing == NGRAM_WITTEN_BELL || smoothing == NGRAM_ARPA;
}

/** Fit discounts of `order` to its counts of counts: counts[r] n-grams were seen r times, r from 1
 * to NGRAM_COUNTS - 1. `warning` names what could not be fitted ("" if all was). Kneser-Ney's
 * counts are the adjusted ones. */
void ngram_rule_fit(ngram_rule *rule, int order, const int64_t counts[NGRAM_COUNTS], char *warning,
                    size_t warning_bytes);

/** The words that follow one history, some of them not kept in the model (ngram.prune). */
typedef struct ngram_followers {
    int order;             /* of the n-grams */
    int64_t words;         /* W */
    const int64_t *count;  /* [W], above 0 */
    const bool *dropped;   /* [W]; NULL: keep all */
    const double *shorter; /* [W] probability given the shorter history; NULL without one */
} ngram_followers;

/** prob[W] of the kept words, given the whole history; *left is the factor of the shorter history's
 * probability for all others, or, without back-off, the probability of each of them. */
void ngram_smooth(const ngram_rule *rule, const ngram_followers *followers, double *prob,
                  double *left);

/** The probabilities prob[V] without any history; count[V] may be 0. */
void ngram_smooth_words(const ngram_rule *rule, const int64_t *count, double *prob);
