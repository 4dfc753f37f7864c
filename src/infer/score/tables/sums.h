/* Sums that do not depend on order, and figures computed from them. Local: no MPI. */
#pragma once

#include "base/config/json.h"

#include <stdbool.h>
#include <stdint.h>

/** A multiple of 2^-40. Adding is exact, so the order of a sum does not matter; the step is below
 * the rounding of a float32 log-probability unless that is smaller than 2^-16. */
typedef __int128 bp_fixed;
bp_fixed bp_fixed_of(double value);
double bp_fixed_real(bp_fixed value);

/** The sums of a document, or of a set of documents. */
typedef struct bp_score_sums {
    int64_t documents;
    int64_t tokens;                          /* scored */
    int64_t unscored;                        /* text tokens that were not */
    bp_fixed nll;                            /* sum of -logprob */
    bp_fixed square;                         /* sum of logprob^2 */
    int64_t bytes, words, words_split;       /* of the original text */
    bool no_bytes, no_words, no_words_split; /* unknown for one of the corpora */
    int64_t oov;              /* number of tokens that are words out of the vocabulary, */
    int64_t zeros, oov_zeros; /* have probability 0 (not in nll and square), and both */
    bp_fixed oov_nll;
    bool has_oov, has_zeros; /* the tokenizer may have such words; the model such probabilities */
} bp_score_sums;
void bp_score_sums_add(bp_score_sums *into, const bp_score_sums *more);

/** The figures of a set, as docs/formats.md lists them; null if one is not defined.
 *
 * Source:     perplexity_stderr as llama.cpp prints it: var = E[x^2] - E[x]^2, sqrt(var / (n-1))
 *             times the perplexity (tokens taken as independent). Returns: a new reference. */
json_t *bp_score_figures(const bp_score_sums *sums, double stderr_documents);
