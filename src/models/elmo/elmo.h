/* ELMo: language models of both directions over spelled words (Peters et al. 2018). */
#pragma once

#include "models/elmo/elmo_sizes.h"

/** bp_model_family.constants: each word's characters, and after them those of the start of a text
 * [vocab_size + 1][BP_WORD_CHARACTERS]. A word is its start, its first 48 bytes, its end, and
 * padding; the end-of-document token has the end of a text as its only byte, and the unknown word
 * is spelled BP_ELMO_UNKNOWN (bilm-tf). */
bp_err bp_elmo_characters(float **out, int64_t *floats, const bp_model_shape *shape,
                          const bp_tokenizer *tokenizer);
