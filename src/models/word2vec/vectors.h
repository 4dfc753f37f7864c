/* The words and vectors of a checkpoint, for tools. Local. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "models/family.h"
#include "text/tokenizer/tokenizer.h"

typedef struct bp_word_vectors bp_word_vectors;

/** The words that have vectors: those seen in training, or all words of an imported file. The end
 * of a document, spelt </s>, is first, then the most frequent words. tokenizer NULL: words are
 * ids. The checkpoint is of MPI_COMM_SELF; family: bp_word2vec_family.
 *
 * Owns:   *out is the caller's, bp_word_vectors_free(); NULL after an error.
 * Errors: BP_ERR_CONFIG a model of another kind; BP_ERR_FORMAT two ids have one spelling, a
 *         tokenizer of another size, a value that is not finite; those of bp_checkpoint_load. */
bp_err bp_word_vectors_open(bp_word_vectors **out, const bp_model_family *family,
                            bp_checkpoint *checkpoint, const bp_tokenizer *tokenizer);
void bp_word_vectors_free(bp_word_vectors **vectors);

int64_t bp_word_vectors_count(const bp_word_vectors *vectors);
int64_t bp_word_vectors_width(const bp_word_vectors *vectors); /* C */
/** Word k, in this order, and its vector [C]. Borrowed. */
const char *bp_word_vectors_word(const bp_word_vectors *vectors, int64_t k);
const float *bp_word_vectors_at(const bp_word_vectors *vectors, int64_t k);
/** The place of a word; -1 if it has no vector. */
int64_t bp_word_vectors_find(const bp_word_vectors *vectors, const char *word);

/** Normalise vectors to length 1; a zero vector stays. */
void bp_word_vectors_normalise(bp_word_vectors *vectors);
/** products[count]: dot products of `with`[padded] and each word's vector; padded:
 * bp_word_vectors_padded, with zeros from C on. */
void bp_word_vectors_products(const bp_word_vectors *vectors, const float *with, float *products);
int64_t bp_word_vectors_padded(const bp_word_vectors *vectors);
