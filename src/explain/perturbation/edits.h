/* The fewest replaced tokens that change a class, or the word that a model prefers, as a beam
 * search finds them: an upper bound. Collective over settings->group. */
#ifndef BP_EXPLAIN_EDITS_H
#define BP_EXPLAIN_EDITS_H

#include "explain/perturbation/variants.h"

#define EXPLAIN_EDITS 16 /* the most that can be asked for */

typedef struct explain_edit {
    int64_t count; /* of replacements; -1: none was found */
    int64_t place[EXPLAIN_EDITS];
    int32_t old[EXPLAIN_EDITS], token[EXPLAIN_EDITS];
    int32_t choice, other; /* what is preferred before and after */
    double before, after;  /* ln p(choice) */
    int64_t texts,
        changed; /* that were run; of the last number of replacements those that change */
} explain_edit;

/** Of target k: each state of the beam tries, at each place that it has not replaced, the
 * 5 tokens of the largest first-order falls of ln p(choice); all are run. Where one or
 * more change what is preferred, that of them with the lowest ln p(choice) is the result; else the
 * explain.beam lowest go on. Errors: those of explain_flips_find and explain_variants_end. */
bp_err explain_edit_find(explain_edit *out, bp_model *lm, const bp_explain_settings *settings,
                         const bp_explained *document, int64_t k);

#endif
