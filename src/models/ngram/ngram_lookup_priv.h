/* Probabilities of a mapped model: word after word, each with its whole history.
 *
 * Local: no MPI. */
#ifndef BP_MODELS_NGRAM_NGRAM_LOOKUP_PRIV_H
#define BP_MODELS_NGRAM_NGRAM_LOOKUP_PRIV_H

#include "models/ngram/ngram_file_priv.h"

/** The longest history that the model knows: n-gram `at` of an order below the highest. {0}: none.
 */
typedef struct ngram_state {
    uint32_t at;
    uint16_t order;   /* 0: no word is known */
    uint16_t history; /* words that were read, at most the model's order - 1 */
} ngram_state;

/** log10 of a smaller probability than any model gives: it is 0. */
#define NGRAM_IS_ZERO(log10_prob) ((log10_prob) < -90)

/** Behind <s>. */
ngram_state ngram_start(const ngram_file *file);
/** log10 of the probability of `word` behind the state, which moves on; `matched` (NULL: not asked)
 * is the order of the n-gram that was found. */
double ngram_step(const ngram_file *file, ngram_state *state, uint32_t word, int *matched);
/** log_prob[V]: natural logarithms of all words' probabilities. */
void ngram_distribution(const ngram_file *file, ngram_state state, float *log_prob);

#endif
