/* Cuts of long texts. bp_tokenizer_cut chooses the kind; documents.c cuts its pieces by it. */
#include "text/unicode/cut.h"
#include "text/unicode/unicode.h"

#include <stdint.h>

/* No piece and no word goes on from non-White_Space into White_Space. */
static size_t cut_before_space(const uint8_t *text, size_t bytes)
{
    size_t end = bytes;

    while (end > 0) {
        size_t space = bp_space_before(text, end);

        if (space == 0)
            end--;
        else if (end == space)
            return 0;
        else if (bp_space_before(text, end - space) == 0)
            return end - space;
        else
            end -= space;
    }
    return 0;
}

/* Llama 3's pattern goes on from symbols to newlines, but nothing goes on to a space. */
static size_t cut_before_blank(const uint8_t *text, size_t bytes)
{
    size_t end = cut_before_space(text, bytes);

    while (end > 0 && text[end] != ' ')
        end = cut_before_space(text, end);
    return end;
}

/* The code point that ends at text[end): its length, 0: no valid one does. */
static size_t decode_before(const uint8_t *text, size_t end, uint32_t *code_point)
{
    for (size_t length = 1; length <= 4 && length <= end; length++)
        if (bp_utf8_decode(text + end - length, length, code_point) == length)
            return length;
    return 0;
}

/* A piece of the pattern holds characters of one class, except for a space at its start and the
 * apostrophe of a contraction. */
static size_t cut_between_classes(const uint8_t *text, size_t bytes)
{
    const uint8_t *classes = bp_unicode_classes();
    size_t end = bytes;
    uint32_t right, left;

    while (end > 0) {
        size_t length = decode_before(text, end, &right);
        size_t at = end - length;

        if (length == 0) {
            end--;
            continue;
        }
        if (decode_before(text, at, &left) > 0) {
            unsigned before = classes[left] & BP_CLASS_MASK;

            if (before != BP_CLASS_SPACE && before != (classes[right] & BP_CLASS_MASK) &&
                left != '\'')
                return at;
        }
        end = at;
    }
    return 0;
}

/* A sequence that may yet become a character is left to the right-hand side. */
static size_t cut_between_characters(const uint8_t *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        uint8_t byte = text[bytes - back];
        uint32_t code_point;

        if (byte >= 0xC0) {
            size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;

            if (bp_utf8_decode(text + bytes - back, back, &code_point) == 0 && length > back)
                return bytes - back;
            return bytes;
        }
        if (byte < 0x80)
            return bytes;
    }
    return bytes;
}

size_t bp_text_cut(bp_cut cut, const char *text, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)text;

    switch (cut) {
    case BP_CUT_SPACE:
        return cut_before_space(at, bytes);
    case BP_CUT_PATTERN:
        return cut_between_classes(at, bytes);
    case BP_CUT_BLANK:
        return cut_before_blank(at, bytes);
    case BP_CUT_CHAR:
        return cut_between_characters(at, bytes);
    case BP_CUT_NEVER:
        break;
    }
    return 0;
}
