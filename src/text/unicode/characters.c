/* Characters of UTF-8 text. */
#include "text/unicode/characters.h"

#include "text/unicode/unicode.h"

#include <utf8proc.h>

size_t bp_character_at(const char *text, size_t bytes, uint32_t *code_point)
{
    size_t length = bp_utf8_decode((const uint8_t *)text, bytes, code_point);

    if (length > 0)
        return length;
    *code_point = BP_CODE_POINTS + (uint8_t)text[0];
    return 1;
}

void bp_character_add(bp_buffer *out, uint32_t code_point)
{
    uint8_t bytes[4] = {(uint8_t)(code_point - BP_CODE_POINTS)};

    bp_buffer_add(out, bytes, code_point < BP_CODE_POINTS ? bp_utf8_encode(bytes, code_point) : 1);
}

size_t bp_text_invalid_at(const char *text, size_t bytes)
{
    size_t at = 0, length;

    for (uint32_t c; at < bytes; at += length) {
        length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &c);
        if (length == 0)
            break;
    }
    return at;
}

bool bp_text_is_utf8(const char *text, size_t bytes)
{
    return bp_text_invalid_at(text, bytes) == bytes;
}

bool bp_character_is_space(uint32_t code_point)
{
    return code_point < BP_CODE_POINTS && (bp_unicode_classes()[code_point] & BP_CLASS_RUN) != 0;
}

bool bp_character_is_word(uint32_t code_point)
{
    int class = code_point < BP_CODE_POINTS ? bp_unicode_classes()[code_point] & BP_CLASS_MASK
                                            : BP_CLASS_OTHER;

    return class == BP_CLASS_LETTER || class == BP_CLASS_NUMBER || code_point == '_';
}

/* Unicode's Case_Ignorable. */
static bool is_ignorable(uint32_t c)
{
    static const uint16_t inside_words[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                            0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                            0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};

    for (size_t k = 0; k < sizeof inside_words / sizeof inside_words[0]; k++)
        if (c == inside_words[k])
            return true;
    switch (c < BP_CODE_POINTS ? utf8proc_category((utf8proc_int32_t)c) : UTF8PROC_CATEGORY_CN) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* Unicode's Cased, of those that are not ignored. */
static bool is_cased(uint32_t c)
{
    static const uint32_t others[][2] = {{0xAA, 0xAA},      {0xBA, 0xBA},       {0x2160, 0x217F},
                                         {0x24B6, 0x24E9},  {0x1F130, 0x1F149}, {0x1F150, 0x1F169},
                                         {0x1F170, 0x1F189}};

    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if (c >= others[k][0] && c <= others[k][1])
            return true;
    switch (c < BP_CODE_POINTS ? utf8proc_category((utf8proc_int32_t)c) : UTF8PROC_CATEGORY_CN) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
        return true;
    default:
        return false;
    }
}

/* Is the next character at or after `at` that is not ignored a cased one? */
static bool cased_follows(const char *text, size_t bytes, size_t at)
{
    for (size_t length; at < bytes; at += length) {
        uint32_t c;

        length = bp_character_at(text + at, bytes - at, &c);
        if (!is_ignorable(c))
            return is_cased(c);
    }
    return false;
}

void bp_text_lowercase_each(bp_buffer *out, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point = 0;
        size_t length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &code_point);

        if (code_point == 0x130) /* the one character with two in its place */
            bp_buffer_add(out, "i\xCC\x87", 3);
        else
            bp_character_add(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code_point));
        at += length;
    }
}

#define FINAL_SIGMA "\xCF\x82"

void bp_text_lowercase(bp_buffer *out, const char *text, size_t bytes)
{
    size_t done = 0;          /* bytes of text that are in `out` */
    bool after_cased = false; /* the last character that is not ignored is a cased one */

    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t c;

        length = bp_character_at(text + at, bytes - at, &c);
        if (c == 0x3A3 && after_cased && !cased_follows(text, bytes, at + length)) {
            bp_text_lowercase_each(out, text + done, at - done);
            bp_buffer_add(out, FINAL_SIGMA, sizeof FINAL_SIGMA - 1);
            done = at + length;
        }
        if (!is_ignorable(c))
            after_cased = is_cased(c);
    }
    bp_text_lowercase_each(out, text + done, bytes - done);
}

void bp_text_capitalize(bp_buffer *out, const char *text, size_t bytes)
{
    bp_buffer all = {0}, first = {0};
    uint32_t c;
    size_t length = bytes > 0 ? bp_character_at(text, bytes, &c) : 0;

    if (length == 0)
        return;
    bp_text_lowercase(&all, text, bytes); /* a final sigma looks back */
    bp_text_lowercase(&first, text, length);
    bp_character_add(out, (uint32_t)utf8proc_totitle((utf8proc_int32_t)c));
    bp_buffer_add(out, all.data + first.bytes, all.bytes - first.bytes);
    bp_buffer_clear(&all);
    bp_buffer_clear(&first);
}
