/* GPT-2's pattern as it is written, run by PCRE2: the twin of src/text/scan.c. */
#ifndef BP_TESTS_TEXT_PATTERN_TWIN_H
#define BP_TESTS_TEXT_PATTERN_TWIN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stddef.h>

/* PCRE2's \s takes U+180E and Python's takes U+001C; White_Space is what Rust's and so tiktoken's
 * is. */
#define PATTERN_TWIN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+|"              \
    "\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+"

typedef struct pattern_twin {
    pcre2_code *code;
    pcre2_match_data *match;
} pattern_twin;

/** NULL as code where this PCRE2 does not know White_Space (before 10.40). */
static inline pattern_twin pattern_twin_new(const char *pattern)
{
    int error;
    PCRE2_SIZE where;
    pattern_twin twin = {0};

    twin.code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                              &error, &where, NULL);
    if (twin.code != NULL) {
        (void)pcre2_jit_compile(twin.code, PCRE2_JIT_COMPLETE); /* without it, it is slower */
        twin.match = pcre2_match_data_create_from_pattern(twin.code, NULL);
    }
    return twin;
}

static inline void pattern_twin_free(pattern_twin *twin)
{
    pcre2_match_data_free(twin->match);
    pcre2_code_free(twin->code);
}

/** Length of the match that starts at text[at]; 0: none starts there. `text` is valid UTF-8. */
static inline size_t pattern_twin_piece(const pattern_twin *twin, const char *text, size_t bytes,
                                        size_t at)
{
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(twin->match);

    if (pcre2_match(twin->code, (PCRE2_SPTR)text, bytes, at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK,
                    twin->match, NULL) < 0)
        return 0;
    return span[1] - span[0];
}

#endif
