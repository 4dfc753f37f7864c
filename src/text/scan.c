/* GPT-2's pre-tokenizer pattern as a hand-written scanner: text to words. */
#include "text/scan_priv.h"
#include "text/text_source.h"
#include "text/unicode_priv.h"

/* Class and length of the character at p; length 0 where there is none. */
static inline unsigned class_at(const uint8_t *classes, const uint8_t *p, const uint8_t *end,
                                size_t *length)
{
    uint32_t code_point;

    if (p < end && *p < 0x80) {
        *length = 1;
        return classes[*p] & BP_CLASS_MASK;
    }
    *length = bp_utf8_decode(p, (size_t)(end - p), &code_point);
    return *length == 0 ? BP_CLASS_END : classes[code_point] & BP_CLASS_MASK;
}

/* The end of the run of `class` that starts at p. */
static inline const uint8_t *run_end(const uint8_t *classes, const uint8_t *p, const uint8_t *end,
                                     unsigned class)
{
    size_t length;

    while (class_at(classes, p, end, &length) == class)
        p += length;
    return p;
}

/* Length of 's 't 're 've 'm 'll 'd at text[0], 0: none of them. */
static size_t contraction(const uint8_t *text, size_t bytes)
{
    if (bytes < 2)
        return 0;
    switch (text[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return bytes > 2 && text[2] == 'e' ? 3 : 0;
    case 'l':
        return bytes > 2 && text[2] == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

/* A White_Space run gives its last character away to the piece that follows, if there is one. */
static size_t space_piece(const uint8_t *classes, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *p = text;
    const uint8_t *last = text;
    size_t length;
    unsigned class;

    while ((class = class_at(classes, p, end, &length)) == BP_CLASS_SPACE) {
        last = p;
        p += length;
    }
    return (size_t)((class == BP_CLASS_END || last == text ? p : last) - text);
}

size_t bp_scan_piece(const uint8_t *classes, const uint8_t *text, size_t bytes)
{
    const uint8_t *end = text + bytes;
    size_t length, next_length;
    unsigned class = class_at(classes, text, end, &length);

    if (class == BP_CLASS_END)
        return 1;
    if (class == BP_CLASS_SPACE) {
        unsigned next = *text == ' ' ? class_at(classes, text + 1, end, &next_length) : class;

        if (next == BP_CLASS_SPACE || next == BP_CLASS_END)
            return space_piece(classes, text, end);
        return (size_t)(run_end(classes, text + 1 + next_length, end, next) - text);
    }
    if (*text == '\'') {
        size_t short_form = contraction(text, bytes);

        if (short_form > 0)
            return short_form;
    }
    return (size_t)(run_end(classes, text + length, end, class) - text);
}

/* ---- Llama 3's ---- */

static bool is_newline(uint8_t byte)
{
    return byte == '\r' || byte == '\n';
}

/* Length of the contraction at text[0] in either case, 0: none. The long s is an s. */
static size_t any_contraction(const uint8_t *text, size_t bytes)
{
    uint8_t lower[3] = {'\''};

    if (bytes > 2 && text[1] == 0xC5 && text[2] == 0xBF)
        return 3;
    for (size_t k = 1; k < 3 && k < bytes; k++)
        lower[k] = text[k] >= 'A' && text[k] <= 'Z' ? (uint8_t)(text[k] + 'a' - 'A') : text[k];
    return contraction(lower, bytes < 3 ? bytes : 3);
}

static size_t number(const uint8_t *classes, const uint8_t *text, const uint8_t *end, int digits)
{
    const uint8_t *p = text;
    size_t length;

    for (int k = 0; k < digits && class_at(classes, p, end, &length) == BP_CLASS_NUMBER; k++)
        p += length;
    return (size_t)(p - text);
}

/* Characters that are no letter, number or White_Space, and the newlines behind them. */
static size_t symbols(const uint8_t *classes, const uint8_t *text, size_t before,
                      const uint8_t *end)
{
    const uint8_t *p = run_end(classes, text + before, end, BP_CLASS_OTHER);

    while (p < end && is_newline(*p))
        p++;
    return (size_t)(p - text);
}

/* A White_Space run: to its last newline, where there is one. */
static size_t newline_piece(const uint8_t *classes, const uint8_t *text, const uint8_t *end)
{
    const uint8_t *run = run_end(classes, text, end, BP_CLASS_SPACE), *p = run;

    while (p > text && !is_newline(p[-1]))
        p--;
    return p > text ? (size_t)(p - text) : space_piece(classes, text, end);
}

size_t bp_scan_llama(const uint8_t *classes, const uint8_t *text, size_t bytes, int digits)
{
    const uint8_t *end = text + bytes;
    size_t length, next_length, short_form;
    unsigned class = class_at(classes, text, end, &length), next;

    if (class == BP_CLASS_END)
        return 1;
    if (class == BP_CLASS_LETTER)
        return (size_t)(run_end(classes, text + length, end, class) - text);
    if (class == BP_CLASS_NUMBER)
        return number(classes, text, end, digits);
    if (*text == '\'' && (short_form = any_contraction(text, bytes)) > 0)
        return short_form;
    next = class_at(classes, text + length, end, &next_length);
    if (next == BP_CLASS_LETTER && !is_newline(*text))
        return (size_t)(run_end(classes, text + length + next_length, end, next) - text);
    if (class == BP_CLASS_OTHER)
        return symbols(classes, text, 0, end);
    if (*text == ' ' && next == BP_CLASS_OTHER)
        return symbols(classes, text, 1, end);
    return newline_piece(classes, text, end);
}

size_t bp_scan_valid(const uint8_t *text, size_t bytes)
{
    size_t at = 0, length;
    uint32_t code_point;

    while (at < bytes && (length = bp_utf8_decode(text + at, bytes - at, &code_point)) > 0)
        at += length;
    return at == 0 ? 1 : at;
}

size_t bp_scan_word(const uint8_t *classes, const uint8_t *text, size_t bytes)
{
    const uint8_t *end = text + bytes;
    const uint8_t *p = text;
    size_t length;

    while (p < end && class_at(classes, p, end, &length) != BP_CLASS_SPACE)
        p += length == 0 ? 1 : length;
    return (size_t)(p - text);
}

size_t bp_scan_space(const uint8_t *classes, const uint8_t *text, size_t bytes)
{
    return (size_t)(run_end(classes, text, text + bytes, BP_CLASS_SPACE) - text);
}

/* ---- cuts ---- */

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

/* A piece of the pattern holds characters of one class, but for a space at its start and the
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
