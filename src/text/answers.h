/* Words of a context, in which answers to questions begin and end. Local: no MPI. */
#ifndef BP_TEXT_ANSWERS_H
#define BP_TEXT_ANSWERS_H

#include "text/tokenizer.h"

/** Where the word behind the one at `at` begins, `bytes` at the end. A word is a run of letters and
 * digits, a run of other characters, or one Chinese character, with the white space before it. */
size_t bp_context_word(const char *text, size_t bytes, size_t at);

/** The words that tokens [first, end) of a context come from, whose words are encoded one by one:
 * bytes [*begin, *begin + *bytes) of it, without white space before them. Errors: those of
 * bp_encode_piece. */
bp_err bp_context_words_of(bp_encoder *encoder, const char *context, int64_t first, int64_t end,
                           size_t *begin, size_t *bytes);

#endif
