/* Words without case and punctuation. */
#include "text/unicode/plain_words.h"

#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

#include <utf8proc.h>

/* For each ASCII character: 0 it is left out, 1 it is white space, else what it becomes. */
static uint8_t ascii_of(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return (uint8_t)(c + 32);
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
        return c;
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31) ? 1 : 0;
}

static bool is_left_out(uint32_t c)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);

    return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_SO) ||
           category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF;
}

static bool is_chinese(uint32_t c)
{
    return (c >= 0x3400 && c <= 0x9FFF) || (c >= 0x20000 && c < BP_CODE_POINTS);
}

bool bp_plain_word(const char *text, size_t bytes, size_t *at, bp_buffer *word)
{
    word->bytes = 0;
    while (*at < bytes) {
        uint8_t plain[64];
        size_t count = 0, step;
        uint32_t c;

        while (*at < bytes && count < sizeof plain && (uint8_t)text[*at] < 0x80) {
            uint8_t became = ascii_of((uint8_t)text[*at]);

            if (became == 1)
                break;
            ++*at;
            plain[count] = became;
            count += became != 0;
        }
        bp_buffer_add(word, plain, count);
        if (*at == bytes || count == sizeof plain)
            continue;
        step = bp_character_at(text + *at, bytes - *at, &c);
        if (bp_character_is_space(c)) {
            *at += step;
            if (word->bytes > 0)
                return true;
        } else if (is_chinese(c)) {
            if (word->bytes > 0)
                return true;
            *at += step;
            bp_character_add(word, c);
            return true;
        } else if (c >= 0x80) {
            *at += step;
            if (c >= BP_CODE_POINTS)
                bp_character_add(word, c);
            else if (!is_left_out(c))
                bp_character_add(word, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
        }
    }
    return word->bytes > 0;
}
