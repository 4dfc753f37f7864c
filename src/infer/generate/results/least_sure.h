/* The texts that the model is least sure of, for the page: by perplexity, and of an ensemble by the
 * mutual information of a token. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include <stdbool.h>

#define BP_LEAST_SURE 10 /* texts of a list */

/** Texts with the largest values, the largest first; {0} is empty. */
typedef struct bp_least_sure {
    json_t *rows; /* for generate.html; NULL while there are none */
    double values[BP_LEAST_SURE + 1];
} bp_least_sure;

/** The name of the place of the page that has the text of line `number`. New reference. */
json_t *bp_least_sure_anchor(int64_t number);
/** Take the text of line `number` (from 0) of outputs.jsonl (docs/formats.md), with `prompt` cut at
 * a length for a table, if it is among them. by_members: the value is its mutual information per
 * token, else its perplexity; a text without that value is left out, and so is one that its prompt
 * has twice. Of equal values the earlier one comes first. */
void bp_least_sure_note(bp_least_sure *list, const json_t *line, int64_t number, bool by_members);
void bp_least_sure_clear(bp_least_sure *list);
