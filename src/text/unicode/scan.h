/* GPT-2's pre-tokenizer, by hand. Its pattern, with \s as White_Space:
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * The twin by Oniguruma is in tests/text/pattern_twin.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/** Length of the piece that starts at text[0]; bytes > 0. An invalid byte is a piece, and ends the
 * text before it.
 *
 * Source: openai/gpt-2, src/encoder.py (the pattern).
 */
size_t bp_scan_piece(const uint8_t *classes, const uint8_t *text, size_t bytes);

/** The same by Llama 3's pattern, with numbers of at most `digits` characters (Qwen 2: 1):
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
 *     | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * Source: meta-llama/llama3, llama/tokenizer.py (pat_str).
 */
size_t bp_scan_llama(const uint8_t *classes, const uint8_t *text, size_t bytes, int digits);

/** Length of the valid UTF-8 that text starts with, or 1 where its first byte is invalid; bytes >
 * 0. */
size_t bp_scan_valid(const uint8_t *text, size_t bytes);

/** Length of the word (run of non-White_Space, invalid bytes too) at text[0], 0 at White_Space; and
 * of the White_Space run there. */
size_t bp_scan_word(const uint8_t *classes, const uint8_t *text, size_t bytes);
size_t bp_scan_space(const uint8_t *classes, const uint8_t *text, size_t bytes);
