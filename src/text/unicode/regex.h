/* Regular expressions of tokenizer.json, by Oniguruma: the library that Hugging Face's tokenizers
 * runs, with the syntax and the options that it takes.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct bp_regex bp_regex;

/** Compile. Errors: BP_ERR_FORMAT not a pattern that Oniguruma knows (`name` is the file in the
 * message). */
bp_err bp_regex_new(bp_regex **out, const char *pattern, const char *name);
void bp_regex_free(bp_regex **regex);

/** Working memory of one thread, for any pattern. Never NULL. */
typedef struct bp_regex_work bp_regex_work;
bp_regex_work *bp_regex_work_new(void);
void bp_regex_work_free(bp_regex_work **work);
/** A text of `bytes` begins: its time is counted from here. */
void bp_regex_work_begin(bp_regex_work *work, size_t bytes);

/** Matches in one text, from the left. An empty match right after another match is not one.
 *
 * Source: rust-onig, onig/src/find.rs (FindMatches).
 */
typedef struct bp_regex_matches {
    const bp_regex *regex;
    bp_regex_work *work;
    const char *text; /* valid UTF-8 */
    size_t bytes, from, last_end;
    bool has_last;
    size_t start, end; /* the match: text[start, end) */
} bp_regex_matches;
bp_regex_matches bp_regex_matches_of(const bp_regex *regex, bp_regex_work *work, const char *text,
                                     size_t bytes);

/** The next one, to start and end; *found is false where there is none.
 *
 * Errors: BP_ERR_FORMAT the pattern takes too long or the text is beyond 2 GiB. The limits are
 * 10,000,000 steps back at one place, as many plus 100 a byte in one search, 10,000,000 places to
 * go back to at a time, and 10 seconds of CPU and 10 a MiB in one text (bp_regex_work_begin).
 */
bp_err bp_regex_next(bp_regex_matches *matches, bool *found);
