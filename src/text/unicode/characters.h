/* Characters of UTF-8 text, for code that cuts text differently from tokenizers. Local: no MPI. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Length of the character at text[0] and its code point; an invalid byte is a character of its
 * own, whose code point is beyond Unicode. bytes > 0. */
size_t bp_character_at(const char *text, size_t bytes, uint32_t *code_point);

/** Append a character of bp_character_at. */
void bp_character_add(bp_buffer *out, uint32_t code_point);

/** The place of its first invalid byte; `bytes` if it has none. */
size_t bp_text_invalid_at(const char *text, size_t bytes);
/** Is the text valid UTF-8? */
bool bp_text_is_utf8(const char *text, size_t bytes);

/** Is it white space for Python's str.split? */
bool bp_character_is_space(uint32_t code_point);
/** Is it a letter, a number or "_"? */
bool bp_character_is_word(uint32_t code_point);

/** Append valid UTF-8 in lower case, as Python's str.lower(): a capital sigma at the end of a word
 * is the final one. */
void bp_text_lowercase(bp_buffer *out, const char *text, size_t bytes);
/** The same with the first character in title case, as Python's str.capitalize(), but that one of
 * the 48 characters whose title case is several stays as it is. */
void bp_text_capitalize(bp_buffer *out, const char *text, size_t bytes);
/** Append valid UTF-8 with each character in lower case, as Rust's char::to_lowercase: no final
 * sigma. */
void bp_text_lowercase_each(bp_buffer *out, const char *text, size_t bytes);
