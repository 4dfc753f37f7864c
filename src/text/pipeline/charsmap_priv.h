/* SentencePiece's compiled normalization: a double-array trie of texts to replace, and their
 * replacements. */
#pragma once

#include "base/buffer.h"
#include "base/err.h"
#include "text/unicode/trie.h"

#include <stddef.h>

typedef struct bp_charsmap bp_charsmap;

/** Read the base64 text of "precompiled_charsmap": a 32-bit number of bytes, the trie (units of
 * Darts-clone), texts that end with a zero byte. Every unit that text can reach is checked.
 *
 * Errors: BP_ERR_FORMAT not base64; the trie is longer than the map, reaches beyond it, or names a
 * missing text. Source: google/sentencepiece, src/normalizer.cc; s-yata/darts-clone.
 */
bp_err bp_charsmap_new(bp_charsmap **out, const char *base64, const char *name);
void bp_charsmap_free(bp_charsmap **map);

/** Append the normalized text. A grapheme of less than six bytes is replaced as a whole by the text
 * of its shortest match; else each character separately. `text` is valid UTF-8. Source:
 * huggingface/tokenizers, normalizers/precompiled.rs. */
void bp_charsmap_apply(const bp_charsmap *map, const char *text, size_t bytes, bp_buffer *out);

/** The same by SentencePiece's rules: from the left, the longest match at a place is replaced,
 * wherever it ends; texts in `keep` stay unchanged. Source: google/sentencepiece,
 * src/normalizer.cc. */
void bp_charsmap_apply_longest(const bp_charsmap *map, const bp_trie *keep, const char *text,
                               size_t bytes, bp_buffer *out);
