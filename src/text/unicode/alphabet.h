/* The alphabet that GPT-2's vocabulary spells bytes in: 33-126, 161-172 and 174-255 stand for
 * themselves, the others, in order, for U+0100, U+0101... Source: openai/gpt-2, src/encoder.py
 * (bytes_to_unicode). */
#pragma once

#include <stddef.h>
#include <stdint.h>

/** The character of a byte. */
uint32_t bp_byte_letter(uint8_t byte);
/** The bytes that `name` spells, to out[bytes]; their number, or -1: not all of its characters are
 * letters. */
int64_t bp_bytes_of_name(uint8_t *out, const char *name, size_t bytes);
/** The name of bytes, to out[2 * bytes]; its length. */
size_t bp_name_of_bytes(char *out, const uint8_t *text, size_t bytes);
/** Byte `k` in the order of their letters: the order of GPT-2's first 256 tokens. */
uint8_t bp_byte_of_rank(int k);
