/* ELMo: language models of both directions over words that are spelled (Peters et al. 2018). */
#ifndef BP_MODELS_ELMO_ELMO_H
#define BP_MODELS_ELMO_ELMO_H

#include "models/elmo/elmo_sizes.h"

extern const bp_model_family bp_elmo_family;

/** bp_model_family.constants: each word's characters, and after them those of the begin of a text
 * [vocab_size + 1][BP_WORD_CHARACTERS]. A word is its begin, its bytes, the first 48 of them, its
 * end, and padding; the end-of-document token has the end of a text for its one byte, and the
 * unknown word is spelled BP_ELMO_UNKNOWN (bilm-tf). */
bp_err bp_elmo_characters(float **out, int64_t *floats, const bp_model_shape *shape,
                          const bp_tokenizer *tokenizer);

#endif
