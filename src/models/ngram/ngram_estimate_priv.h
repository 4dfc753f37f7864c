/* From runs of counts to probabilities: n-grams in suffix order, then in context order.
 *
 * A rank owns a range of n-grams in each order. In suffix order (the last word first) n-grams with
 * the same end are adjacent: one pass counts all shorter n-grams and their left neighbours. In
 * context order (the first word first) the words that follow a history are adjacent: probabilities
 * are computed there, and the model's file has that order. For each order of n-gram, records go
 * from one owner to the other and back. */
#pragma once

#include "models/counting.h"
#include "models/ngram/ngram_runs_priv.h"
#include "models/ngram/ngram_smoothing_priv.h"

#define NGRAM_ORDERS (NGRAM_ORDER_MOST + 2) /* places for orders 1 to 7, and one after */

/** The settings of the keys ngram.*, and the vocabulary. */
typedef struct ngram_spec {
    int order, bits;
    int64_t vocab_size; /* V; the id of <s> is V */
    int64_t eod_id;
    ngram_rule rule;
    int64_t prune[NGRAM_ORDERS]; /* of each order: n-grams with at most this count are left out */
    double entropy;              /* ngram.prune_entropy; 0: keep all */
    int64_t memory_bytes;
} ngram_spec;

/** For an n-gram: its counts; then, in the same memory, the reply to its owner in context order. */
typedef union ngram_tally {
    struct {
        int64_t seen;    /* how often */
        int64_t left;    /* distinct words before it, <s> among them */
        int64_t shorter; /* the place of its suffix in the order below; for order 2, the word */
    } is;
    struct {
        int64_t count; /* negative: it is not kept */
        double prob;   /* of its last word given one word less; in the reply its own */
        int64_t place; /* of its suffix; in the reply its own */
    } reply;
} ngram_tally;

/** N-grams of one order in suffix order. */
typedef struct ngram_suffixes {
    int64_t count, capacity;
    ngram_key *key; /* the last word is the highest */
    ngram_tally *tally;
} ngram_suffixes;

/** All orders of one rank's range. */
typedef struct ngram_counts {
    ngram_suffixes of[NGRAM_ORDERS]; /* from order 2 on */
    int64_t *word_seen, *word_left;  /* [V + 1], of all ranks together */
    int64_t expected;                /* n-grams of an order on this rank, at most, about */
} ngram_counts;

/** Merge the runs' n-grams of this rank's range, whose bounds are found from the runs.
 *
 * Collective: over counting->comm; runs are the same on all ranks, but only the root needs their
 *             lists of blocks, which are freed.
 * Owns:       *out is the caller's, ngram_counts_clear(), after an error too.
 * Errors:     those of ngram_cursor_next; BP_ERR_SYSTEM memory: the same on all ranks. */
bp_err ngram_merge(ngram_counts *out, const bp_counting *counting, const ngram_spec *spec,
                   ngram_run *runs, int64_t count);
void ngram_counts_clear(ngram_counts *counts);
void ngram_suffixes_clear(ngram_suffixes *list);

/** N-grams of one order in context order, of this rank's range. */
typedef struct ngram_level {
    int64_t count, first; /* `first`: the place of the first one among those of all ranks */
    ngram_key *key;       /* the first word is the highest; NULL: words, from `first` on */
    double *prob;         /* of its last word given the others */
    double *left;         /* ngram_smooth, where it is a history */
    double *shorter; /* the probability of its last word given one word less; NULL without pruning
                        by entropy */
    int64_t *begin;  /* [count + 1] its followers in the order above */
    int64_t *link;   /* the place of its suffix in the order below, among those of all ranks */
} ngram_level;

typedef struct ngram_levels {
    int64_t total[NGRAM_ORDERS]; /* over all ranks; order 1: V + 1 */
    ngram_level of[NGRAM_ORDERS];
} ngram_levels;

/** Compute the probabilities of all n-grams; fits the rule, and uses up `counts`.
 *
 * Collective: over counting->comm.
 * Owns:       *out is the caller's, ngram_levels_clear(), after an error too.
 * Errors:     BP_ERR_SYSTEM memory; BP_ERR_CONFIG more n-grams of an order than a file holds: the
 *             same on all ranks. */
bp_err ngram_estimate(ngram_levels *out, const bp_counting *counting, ngram_spec *spec,
                      ngram_counts *counts);
void ngram_levels_clear(ngram_levels *levels);

/** The count of an n-gram for the smoothing: with Kneser-Ney, shorter n-grams count their distinct
 * left neighbours, unless they begin with <s>. `starts`: it begins with <s>. */
static inline int64_t ngram_count_of(const ngram_spec *spec, int order, bool starts, int64_t seen,
                                     int64_t left)
{
    return spec->rule.smoothing == NGRAM_KNESER_NEY && order < spec->order && !starts ? left : seen;
}
