/* Words as contaminated texts are looked for: without case, punctuation and white space.
 * Local: no MPI. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>

/** The next word at or after *at, which moves after it; false if there is none. A word is a run of
 * characters that are not white space, in lower case, without punctuation, symbols and control
 * characters; an empty result is not a word. A Chinese character (U+3400 to U+9FFF, U+20000 and
 * up) is a word of its own. Invalid bytes stay.
 *
 * Source: Brown et al. 2020, Language Models are Few-Shot Learners, appendix C ("ignoring all
 * punctuation, whitespace, and casing"); "don't" is "dont". */
bool bp_plain_word(const char *text, size_t bytes, size_t *at, bp_buffer *word);
