/* The words of a model's ids, as spelled in text files of models: ARPA files, word vectors. Local:
 * no MPI. */
#pragma once

#include "text/tokenizer/tokenizer.h"
#include "text/unicode/strmap.h"

#define BP_WORD_START   "<s>"
#define BP_WORD_END     "</s>"
#define BP_WORD_UNKNOWN "<unk>"

/** The words of all ids and of <s>, as ARPA files spell them: the end of a document is </s>, the
 * unknown word <unk>, a space inside a token \x20. words[V + 1]'s numbers are their places in the
 * map. tokenizer NULL: words are the ids in decimal digits.
 *
 * Owns: bp_strmap_clear(), after an error too. Errors: BP_ERR_FORMAT two ids with one spelling, a
 * vocabulary of another size; BP_ERR_SYSTEM. */
bp_err bp_words_of_ids(bp_strmap *words, const bp_tokenizer *tokenizer, int64_t vocab_size,
                       int64_t eod_id);
