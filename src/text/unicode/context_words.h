/* Words of a context, in which answers to questions begin and end. Local: no MPI. */
#pragma once

#include <stddef.h>

/** The end of the word at `at`, which is where the next word begins, or `bytes`. A word is a run of
 * letters and digits, a run of other characters, or one Chinese character, with the white space
 * before it; the last word has the white space after it too. */
size_t bp_context_word(const char *text, size_t bytes, size_t at);
/** The first byte at or after `at` that is not white space; `bytes` if there is none. */
size_t bp_context_skip_space(const char *text, size_t bytes, size_t at);

/** A text without the white space around it: where it begins, and its *bytes. */
const char *bp_context_trim(const char *text, size_t *bytes);
