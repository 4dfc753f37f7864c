/* GPT-2's pre-tokenizer pattern as a hand-written scanner: text to words. */
#include "text/unicode/scan.h"
#include "text/unicode/unicode.h"

#include <stdbool.h>

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

/* Characters that are not a letter, number or White_Space, and the newlines after them. */
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
