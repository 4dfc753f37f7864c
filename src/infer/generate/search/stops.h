/* Stop texts: searched for in what the new tokens decode to. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bp_stops {
    const bp_tokenizer *tokenizer; /* borrowed; NULL if not set yet */
    char **texts;                  /* [count] */
    size_t *bytes;                 /* [count] */
    int64_t count;
} bp_stops;

/** Read a list: texts with commas between them, in which \n, \t, \r, \\ and \, are newline, tab,
 * carriage return, backslash and comma, and \xNN is the byte NN. Clear it after an error too.
 *
 * Errors: BP_ERR_CONFIG another backslash, or a text that is empty. */
bp_err bp_stops_read(bp_stops *stops, const char *list);
void bp_stops_clear(bp_stops *stops);

/** Set the tokenizer that decodes. Its tokens must be able to spell each text: encoding and
 * decoding must return the same text, without an unknown token.
 *
 * Errors: BP_ERR_CONFIG a text that can't be encoded; BP_ERR_SYSTEM. */
bp_err bp_stops_use(bp_stops *stops, const bp_tokenizer *tokenizer);

/** Offset of the first stop text in a text; -1 if it contains none. */
int64_t bp_stops_find(const bp_stops *stops, const char *text, size_t bytes);

/** Do the decoded tokens contain one? Ids beyond the tokenizer's vocabulary have no text. */
bool bp_stops_hit(const bp_stops *stops, const int32_t *tokens, int64_t count);
