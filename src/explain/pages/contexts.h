/* Places of the corpus with what stands around them, and names of tokens, for the scripts of pages.
 * Local: no MPI. */
#ifndef BP_EXPLAIN_PAGES_CONTEXTS_H
#define BP_EXPLAIN_PAGES_CONTEXTS_H

#include "explain/pages/gather.h"

#define EXPLAIN_PAGE_BYTES    8000000 /* of a page, about */
#define EXPLAIN_CONTEXT_BYTES 250     /* of a place with its context, as a rule */

typedef struct explain_place {
    int32_t document, place; /* that are explained, from 0 */
} explain_place;

/** Sorts places by document and place, each once; returns how many are left. */
int64_t explain_places_sort(explain_place *places, int64_t count);
/** Where a place is among sorted ones; -1: nowhere. */
int64_t explain_places_find(const explain_place *places, int64_t count, explain_place place);
/** data.token, .before, .after and .place of sorted places; .document, which counts the ids of
 * .documents; .labels.NAME of these. Errors: those of reading, and of texts of tokens. */
bp_err explain_contexts_add(json_t *data, explainer *self, const explain_gathered *gathered,
                            const explain_place *places, int64_t count);
/** names["id"]: the text of a token, once. */
void explain_names_add(json_t *names, const explain_speller *speller, int64_t id);

#endif
