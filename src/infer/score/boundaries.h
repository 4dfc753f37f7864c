/* A language model that also gives the probability that a word begins next: what the surprisal
 * of words is corrected by. */
#ifndef BP_INFER_SCORE_BOUNDARIES_H
#define BP_INFER_SCORE_BOUNDARIES_H

#include "data/corpus.h"
#include "models/model.h"

/** `model`, whose second statistic is the natural log of the probability, at each scored place,
 * that the next token begins a word or ends the document (bp_model_info.boundaries).
 * memory_bytes: for distributions.
 *
 * Local. Owns: takes `model` over, after an error too.
 * Errors:     BP_ERR_CONFIG an ensemble, a model of masks, or of no softmax; *out is NULL.
 * Source:     Pimentel and Meister 2024, "How to compute the probability of a word", theorem 2. */
bp_err bp_boundaries_new(bp_model **out, bp_model *model, const bp_mesh *mesh,
                         int64_t memory_bytes);
/** begins[vocab_size]: which tokens these are; copied. Before the first batch. Local. */
void bp_boundaries_use(bp_model *lm, const uint8_t *begins);
/** What its distributions take on a rank. */
int64_t bp_boundaries_bytes(int64_t vocab_size, int64_t windows, int64_t length,
                            int64_t memory_bytes);

/** begins[vocab_size] by the tokenizer that the corpus keeps: tokens that do not continue the text
 * without a blank, special ones without a role among them (they are words of their own), the
 * unknown token and the end-of-document token.
 *
 * Local. Owns: *begins is the caller's, bp_free().
 * Errors:     BP_ERR_CONFIG it keeps none, or one whose tokens end words; those of
 * bp_tokenizer_parse; *begins is NULL. */
bp_err bp_boundaries_of(uint8_t **begins, const bp_corpus *corpus, int64_t vocab_size);

#endif
