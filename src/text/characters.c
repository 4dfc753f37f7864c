/* Characters of UTF-8 text. */
#include "text/characters.h"

#include "text/normalizer_priv.h"
#include "text/unicode_priv.h"

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

bool bp_text_is_utf8(const char *text, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t c;

        length = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &c);
        if (length == 0)
            return false;
    }
    return true;
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

void bp_text_lowercase(bp_buffer *out, const char *text, size_t bytes)
{
    bp_norm_lowercase(text, bytes, out);
}
