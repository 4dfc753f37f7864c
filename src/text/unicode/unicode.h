/* Code points and their classes, of Unicode 16.0 (unicode_table.c). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define BP_CODE_POINTS 0x110000u

/* Classes of GPT-2's pattern exclude each other; BP_CLASS_RUN comes on top of them. */
enum {
    BP_CLASS_OTHER = 0,
    BP_CLASS_LETTER = 1, /* \p{L} */
    BP_CLASS_NUMBER = 2, /* \p{N} */
    BP_CLASS_SPACE = 3,  /* \p{White_Space} */
    BP_CLASS_END = 4,    /* no character: the text ends, or a byte is invalid */
    BP_CLASS_MASK = 7,
    BP_CLASS_RUN = 8 /* \s of Python's re: White_Space and U+001C to U+001F */
};

typedef struct bp_code_range {
    uint32_t first, last;
} bp_code_range;
extern const bp_code_range bp_letter_ranges[], bp_number_ranges[];
extern const int bp_letter_ranges_count, bp_number_ranges_count;

/** Class of each code point. Filled on first use, by any thread. */
const uint8_t *bp_unicode_classes(void);

/** Length of the code point at p and its value; 0: p[0] is invalid (or there are 0 bytes).
 *
 * Strict: no overlong form, no surrogate, nothing beyond U+10FFFF.
 */
static inline size_t bp_utf8_decode(const uint8_t *p, size_t capacity, uint32_t *code_point)
{
    if (capacity == 0)
        return 0;
    if (p[0] < 0x80) {
        *code_point = p[0];
        return 1;
    }
    if (p[0] < 0xC2 || capacity < 2 || (p[1] & 0xC0) != 0x80)
        return 0;
    if (p[0] < 0xE0) {
        *code_point = (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (capacity < 3 || (p[2] & 0xC0) != 0x80)
        return 0;
    if (p[0] < 0xF0) {
        *code_point = (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        return *code_point < 0x800 || (*code_point >> 11) == 0x1B ? 0 : 3;
    }
    if (p[0] > 0xF4 || capacity < 4 || (p[3] & 0xC0) != 0x80)
        return 0;
    *code_point = (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
                  (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
    return *code_point < 0x10000 || *code_point >= BP_CODE_POINTS ? 0 : 4;
}

/** UTF-8 of a code point, to out[4]; its length. */
size_t bp_utf8_encode(uint8_t *out, uint32_t code_point);

/** Length of the White_Space character that ends at text[end), 0 where the one before `end` is not
 * one. */
size_t bp_space_before(const uint8_t *text, size_t end);
