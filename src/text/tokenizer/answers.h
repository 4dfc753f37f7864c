/* Answers to questions: the words of a context that tokens come from. Local: no MPI. */
#pragma once

#include "text/tokenizer/tokenizer.h"

/** The words that tokens [first, end) of a context come from, whose words are encoded one by one:
 * bytes [*begin, *begin + *bytes) of it, without white space before them. Errors: those of
 * bp_encode_piece. */
bp_err bp_context_words_of(bp_encoder *encoder, const char *context, int64_t first, int64_t end,
                           size_t *begin, size_t *bytes);
