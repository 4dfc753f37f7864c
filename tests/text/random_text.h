/* Random text: letters, digits, signs and spaces of all planes, so mixed that neighbours of every
 * kind meet. */
#pragma once

#include "base/rng.h"
#include "text/unicode/unicode.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct random_text {
    bp_rng_key key;
    uint64_t next;
} random_text;

static inline random_text random_text_of(uint64_t seed)
{
    return (random_text){bp_rng_key_of(seed, BP_RNG_TEST, 0, 0, 0), 0};
}

static inline uint32_t random_below(random_text *r, uint32_t n)
{
    return (uint32_t)bp_rng_below(&r->key, r->next++, n);
}

static inline uint32_t random_code_point(random_text *r)
{
    static const char ascii[] = "  \n\t'sdmtrevl.,!?-0123456789abcXYZ";
    static const uint32_t odd[] = {0xA0,   0x85,   0x180E, 0x200B, 0x3000, 0x2028, 0x2029,
                                   0x1680, 0xFEFF, 0x1C,   0x1D,   0x1E,   0x1F,   0x0B,
                                   0x0C,   0x0D,   0,      0x7F,   0x202F, 0x205F, 0x2003};
    uint32_t code_point;

    switch (random_below(r, 8)) {
    case 0:
    case 1:
    case 2:
        return (uint32_t)ascii[random_below(r, sizeof ascii - 1)];
    case 3:
        return odd[random_below(r, sizeof odd / sizeof *odd)];
    case 4:
        return 0x80 + random_below(r, 0x780);
    case 5:
        return 0x4E00 + random_below(r, 0x51FF);
    default:
        do
            code_point = random_below(r, random_below(r, 2) == 0 ? 0x20000 : BP_CODE_POINTS);
        while (code_point >= 0xD800 && code_point < 0xE000);
        return code_point;
    }
}

/** Fill text[bytes] and give the length used; `dirty`: with bytes that are invalid, alone and in
 * broken sequences. */
static inline size_t random_fill(random_text *r, char *text, size_t bytes, bool dirty)
{
    size_t used = 0;

    while (used + 4 <= bytes) {
        size_t length = bp_utf8_encode((uint8_t *)text + used, random_code_point(r));

        if (dirty && random_below(r, 8) == 0)
            text[used] = (char)random_below(r, 256);
        used += dirty && random_below(r, 16) == 0 && length > 1 ? length - 1 : length;
    }
    return used;
}
