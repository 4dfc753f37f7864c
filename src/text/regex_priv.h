/* Regular expressions of tokenizer.json, by PCRE2.
 *
 * They are written for Oniguruma (its Ruby syntax), which Hugging Face's tokenizers runs. What the
 * two spell differently is rewritten: \s is White_Space, \h a hexadecimal digit, \w Alphabetic,
 * marks, decimal digits and connectors, \p{Script} the script itself and not its extensions; ^ and
 * $ match at every line.
 */
#ifndef BP_TEXT_REGEX_PRIV_H
#define BP_TEXT_REGEX_PRIV_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct bp_regex bp_regex;

/** Compile. Errors: BP_ERR_FORMAT not a pattern that PCRE2 knows (`name` is the file in the
 * message). */
bp_err bp_regex_new(bp_regex **out, const char *pattern, const char *name);
void bp_regex_free(bp_regex **regex);

/** Working memory of one thread, for any pattern. Never NULL. */
typedef struct bp_regex_work bp_regex_work;
bp_regex_work *bp_regex_work_new(void);
void bp_regex_work_free(bp_regex_work **work);

/** The first match at or after text[from]: text[*start, *end); *found is false where there is none.
 * `text` is valid UTF-8. Errors: BP_ERR_FORMAT PCRE2 gives up (its limits of depth and steps). */
bp_err bp_regex_find(const bp_regex *regex, bp_regex_work *work, const char *text, size_t bytes,
                     size_t from, bool *found, size_t *start, size_t *end);

#endif
