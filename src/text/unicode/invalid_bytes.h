/* Invalid bytes of a text, hidden as characters while the text is normalized and cut: each becomes
 * one of 128 characters of a block that is not assigned. Such a character is not a letter, number,
 * White_Space or punctuation, and no form, case or map changes it.
 */
#pragma once

#include "base/buffer.h"
#include "base/err.h"
#include "text/unicode/unicode.h"

#include <stdbool.h>

/* Planes 4 to 13, which have no characters. */
#define BP_HIDDEN_FIRST  0x40000u
#define BP_HIDDEN_BLOCKS (10 * 512)

/** Blocks that some text has: {0}. */
typedef struct bp_hidden_blocks {
    bool used[BP_HIDDEN_BLOCKS];
} bp_hidden_blocks;
void bp_hidden_mark(bp_hidden_blocks *blocks, const char *text, size_t bytes);

bool bp_is_valid(const char *text, size_t bytes); /* UTF-8 */
/** Hide the invalid bytes of a text, to the end of `out`, in a block that neither the text nor
 * `names` (NULL: no names) has: *base. Errors: BP_ERR_FORMAT all blocks are used. */
bp_err bp_hidden_hide(uint32_t *base, bp_buffer *out, const char *text, size_t bytes,
                      const bp_hidden_blocks *names);

/** Is p[0] on one of the characters of base? base 0: never. */
static inline bool bp_is_hidden(uint32_t base, const uint8_t *p, size_t bytes)
{
    uint32_t c = 0;

    return base != 0 && bytes >= 4 && *p >= 0xF1 && bp_utf8_decode(p, bytes, &c) == 4 &&
           c - base < 0x80;
}

/** Bytes at p before the first of them. */
size_t bp_hidden_before(uint32_t base, const uint8_t *p, size_t bytes);
/** The byte that the character at p stands for. */
static inline uint8_t bp_hidden_byte(const uint8_t *p)
{
    return (uint8_t)(0x80 | (p[2] & 1) << 6 | (p[3] & 0x3F));
}
