/* Probabilities of a mapped model: word after word, each with its whole history.
 *
 * Local: no MPI. */
#pragma once

#include "models/ngram/ngram_file_priv.h"

/** The longest history that the model knows: n-gram `at` of an order below the highest. {0} if
 * there is none. */
typedef struct ngram_state {
    uint32_t at;
    uint16_t order;   /* 0 if no word is known */
    uint16_t history; /* words that were read, at most the model's order - 1 */
} ngram_state;

#define NGRAM_NOWHERE UINT32_MAX

/* A word among those at [begin, end), which ascend. The loops have no unpredictable branch. */
static inline uint32_t ngram_find_narrow(const uint16_t *words, uint32_t begin, uint32_t end,
                                         uint32_t word)
{
    const uint16_t *at = words + begin;
    uint32_t count = end - begin;

    while (count > 1) {
        uint32_t half = count / 2;

        at += at[half] <= word ? half : 0;
        count -= half;
    }
    return count == 1 && *at == word ? (uint32_t)(at - words) : NGRAM_NOWHERE;
}

static inline uint32_t ngram_find_wide(const uint32_t *words, uint32_t begin, uint32_t end,
                                       uint32_t word)
{
    const uint32_t *at = words + begin;
    uint32_t count = end - begin;

    while (count > 1) {
        uint32_t half = count / 2;

        at += at[half] <= word ? half : 0;
        count -= half;
    }
    return count == 1 && *at == word ? (uint32_t)(at - words) : NGRAM_NOWHERE;
}

/* The place of the n-gram of `order` that is `word` after `node`. */
static inline uint32_t ngram_find(const ngram_file *file, int order, const ngram_node *node,
                                  uint32_t word)
{
    return file->word_bytes == 2
               ? ngram_find_narrow(file->words[order], node[0].begin, node[1].begin, word)
               : ngram_find_wide(file->words[order], node[0].begin, node[1].begin, word);
}

/** A log10 below that of any model: probability 0. */
#define NGRAM_IS_ZERO(log10_prob) ((log10_prob) < -90)

/** After <s>. */
ngram_state ngram_start(const ngram_file *file);
/** log10 of the probability of `word` after the state, which advances; `matched` (NULL if not
 * needed) is the order of the n-gram found. */
double ngram_step(const ngram_file *file, ngram_state *state, uint32_t word, int *matched);
/** A lookup in progress (ngram_lookup.c). */
typedef struct ngram_lookup {
    ngram_state state; /* that it began with */
    uint32_t word;
    uint32_t at;       /* the history being tried, */
    int order;         /* and its words */
    uint32_t found;    /* after it */
    double sum, fixed; /* the sum of back-off weights; the probability without back-off */
} ngram_lookup;

#define NGRAM_WALKS 16 /* sequences whose memory accesses overlap */

/** Inputs, and the probabilities of their targets, in the order of their places. */
typedef struct ngram_sequence {
    const int32_t *inputs;  /* [length] */
    const int32_t *targets; /* [length]; -1: no target */
    float *values;          /* [length] natural logarithms; NaN without a target */
    int64_t length;         /* 1 or more */
    int64_t first;          /* earlier inputs are read only for their state, and have no values */
    int32_t eod;            /* an input that begins anew, after <s> */
    ngram_state state;      /* before the first input; after ngram_walk, that after the last one */
} ngram_sequence;

/** Walk `count` sequences, some of them side by side: while one waits for memory the others
 * proceed. Values are those of ngram_step. */
void ngram_walk(const ngram_file *file, ngram_sequence *sequences, int64_t count);

/** log_prob[V]: natural logarithms of all words' probabilities. */
void ngram_distribution(const ngram_file *file, ngram_state state, float *log_prob);
