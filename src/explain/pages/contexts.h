/* Positions of the corpus with their contexts, and names of tokens, for the scripts of pages.
 * Local: no MPI. */
#pragma once

#include "explain/pages/gather.h"

#define EXPLAIN_PAGE_BYTES    8000000 /* of a page, approximately */
#define EXPLAIN_CONTEXT_BYTES 250     /* of a place with its context, typically */

typedef struct explain_place {
    int32_t document, place; /* an explained document, and a place in it; from 0 */
} explain_place;

/** Sorts positions by document and place, without duplicates; returns how many are left. */
int64_t explain_positions_sort(explain_place *positions, int64_t count);
/** Index of a place among sorted ones; -1 if it is not among them. */
int64_t explain_positions_find(const explain_place *positions, int64_t count, explain_place place);
/** Adds data.token, .before, .after and .place of sorted positions; .document, indices into
 * .documents, the ids; and .labels.NAME of these. Errors: those of reading, and of texts of
 * tokens. */
bp_err explain_contexts_add(json_t *data, explainer *self, const explain_gathered *gathered,
                            const explain_place *positions, int64_t count);
/** Sets names["id"] to the text of a token, once. */
void explain_names_add(json_t *names, const explain_speller *speller, int64_t id);
