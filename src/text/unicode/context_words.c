/* Words of a context: squad.c finds them in files, answers.c in token ids. */
#include "text/unicode/context_words.h"
#include "text/unicode/unicode.h"

#include <string.h>

enum { WORD_SPACE, WORD_LETTERS, WORD_CHINESE, WORD_OTHER };

static int kind_at(const char *text, size_t bytes, size_t at, size_t *step)
{
    uint32_t c = 0;
    int class;

    *step = bp_utf8_decode((const uint8_t *)text + at, bytes - at, &c);
    if (*step == 0) {
        *step = 1;
        return WORD_OTHER;
    }
    class = bp_unicode_classes()[c] & BP_CLASS_MASK;
    return class == BP_CLASS_SPACE                                ? WORD_SPACE
           : (c >= 0x3400 && c <= 0x9FFF) || c >= 0x20000         ? WORD_CHINESE
           : class == BP_CLASS_LETTER || class == BP_CLASS_NUMBER ? WORD_LETTERS
                                                                  : WORD_OTHER;
}

size_t bp_context_skip_space(const char *text, size_t bytes, size_t at)
{
    for (size_t step; at < bytes && kind_at(text, bytes, at, &step) == WORD_SPACE;)
        at += step;
    return at;
}

size_t bp_context_word(const char *text, size_t bytes, size_t at)
{
    size_t step;
    int kind;

    at = bp_context_skip_space(text, bytes, at);
    if (at < bytes) {
        kind = kind_at(text, bytes, at, &step);
        do
            at += step;
        while (kind != WORD_CHINESE && at < bytes && kind_at(text, bytes, at, &step) == kind);
    }
    /* white space at the end is the last word's */
    return bp_context_skip_space(text, bytes, at) < bytes ? at : bytes;
}

const char *bp_context_trim(const char *text, size_t *bytes)
{
    size_t all = strlen(text), first = bp_context_skip_space(text, all, 0);

    *bytes = 0;
    for (size_t at = first, step; at < all; at += step)
        if (kind_at(text, all, at, &step) != WORD_SPACE)
            *bytes = at + step - first;
    return text + first;
}
