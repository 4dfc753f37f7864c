/* GPT-2's pattern as it is written, run by Oniguruma: the twin of src/text/unicode/scan.c. */
#pragma once

#include <oniguruma.h>
#include <stddef.h>
#include <string.h>

#define PATTERN_TWIN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef struct pattern_twin {
    OnigRegex code;
} pattern_twin;

/** NULL as code where the pattern is wrong. */
static inline pattern_twin pattern_twin_new(const char *pattern)
{
    OnigEncoding utf8 = ONIG_ENCODING_UTF8;
    OnigErrorInfo info;
    pattern_twin twin = {0};

    (void)onig_initialize(&utf8, 1);
    if (onig_new(&twin.code, (const OnigUChar *)pattern,
                 (const OnigUChar *)pattern + strlen(pattern), ONIG_OPTION_NONE, utf8,
                 ONIG_SYNTAX_DEFAULT, &info) != ONIG_NORMAL)
        twin.code = NULL;
    return twin;
}

static inline void pattern_twin_free(pattern_twin *twin)
{
    onig_free(twin->code);
}

/** Length of the match that starts at text[at]; 0: none starts there. `text` is valid UTF-8. */
static inline size_t pattern_twin_piece(const pattern_twin *twin, const char *text, size_t bytes,
                                        size_t at)
{
    const OnigUChar *p = (const OnigUChar *)text;
    int length = onig_match(twin->code, p, p + bytes, p + at, NULL, ONIG_OPTION_NONE);

    return length < 0 ? 0 : (size_t)length;
}
