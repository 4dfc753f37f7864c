/* A language model that also returns what whole distributions say: the probability that a word
 * begins next, which corrects the surprisal of words, and the entropy. */
#pragma once

#include "data/corpus.h"
#include "models/model.h"

/** `model`, whose statistics after the first are, at each scored place, with `boundaries` the
 * natural log of the probability that the next token begins a word or ends the document, and with
 * `entropy` the entropy of the next token in nats, by float64 sums over the whole vocabulary
 * (bp_model_info.boundaries and entropy). memory_bytes: for distributions.
 *
 * Local. Owns: takes `model` over, after an error too.
 * Errors:     BP_ERR_CONFIG an ensemble, a model without a softmax, or with `boundaries` a masked
 *             model; *out is NULL.
 * Source:     of boundaries: Pimentel and Meister 2024, "How to compute the probability of a word",
 *             theorem 2. */
bp_err bp_boundaries_new(bp_model **out, bp_model *model, const bp_mesh *mesh, bool boundaries,
                         bool entropy, int64_t memory_bytes);
/** With `boundaries`: set begins[vocab_size], the tokens that begin a word; copied. Call before the
 * first batch. Local. */
void bp_boundaries_use(bp_model *model, const uint8_t *begins);
/** Bytes of its distributions on a rank. */
int64_t bp_boundaries_bytes(int64_t vocab_size, int64_t windows, int64_t length,
                            int64_t memory_bytes);

/** begins[vocab_size] by the corpus's tokenizer: tokens that do not continue a word, special tokens
 * without a role (each is a word), the unknown token and the end-of-document token.
 *
 * Local. Owns: *begins is the caller's, bp_free().
 * Errors:     BP_ERR_CONFIG the corpus has no tokenizer, or one whose tokens end words; those of
 *             bp_tokenizer_parse; *begins is NULL. */
bp_err bp_boundaries_of(uint8_t **begins, const bp_corpus *corpus, int64_t vocab_size);
