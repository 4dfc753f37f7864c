/* SQuAD's JSON: articles of paragraphs, each a context with questions and their answers. */
#pragma once

#include "text/documents/text_source.h"

#include "text/documents/record_priv.h"

typedef struct bp_squad { /* {0}: nothing is open */
    json_t *root;
    size_t article, paragraph, question; /* the next one */
} bp_squad;

/** Errors:    BP_ERR_FORMAT no JSON in UTF-8, or no list "data". */
bp_err bp_squad_open(bp_squad *squad, const char *text, size_t bytes);
void bp_squad_close(bp_squad *squad);

/** The next question and its context, one after the other in record->joined: starts[1] and answer;
 * the context and the answers in the form that is kept, each ended by a zero byte, in record->tags.
 * *found is false after the last, and true after an error inside a question: the next one may be
 * requested. Errors: BP_ERR_FORMAT a member is missing or of another type; a question or context
 * without a character, or with U+0000; an answer at the wrong place. */
bp_err bp_squad_next(bp_squad *squad, bp_text_record *record, bool *found);
