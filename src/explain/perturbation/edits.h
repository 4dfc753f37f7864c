/* The fewest replaced tokens that change what a model prefers (a class, a tag, the place where an
 * answer begins or ends, a word), or move the value of a regression by explain.change, as a beam
 * search finds them: an upper bound. For an encoder-decoder, tokens of the source are replaced.
 * Collective over settings->group. */
#pragma once

#include "explain/perturbation/variants.h"

#define EXPLAIN_EDITS 16 /* maximum that can be requested */

typedef struct explain_edit {
    int64_t count; /* number of replacements; -1 if none was found */
    int64_t place[EXPLAIN_EDITS];
    int32_t old[EXPLAIN_EDITS], token[EXPLAIN_EDITS];
    int32_t choice, other; /* the preferred outcome before and after; for a regression 0, and -1 if
                              its value fell, 1 if it rose */
    double before, after;  /* ln p(choice); the value */
    int64_t texts,
        changed; /* texts run; those with the last number of replacements that change the outcome */
} explain_edit;

/** For target k: each state of the beam tries, at each place not yet replaced, the 5 tokens with
 * the largest first-order decrease of ln p(choice). All are run. If any change the preferred
 * outcome, the result is the one with the lowest ln p(choice); else the explain.beam lowest
 * continue. A regression's value is searched both ways; fewer replacements, or the larger change,
 * win. Errors: those of explain_flips_find and explain_variants_end. */
bp_err explain_edit_find(explain_edit *out, bp_model *model, const bp_explain_settings *settings,
                         const bp_explained *document, int64_t k);

/** Must a token stay because target k refers to it: the word of the tag, or the place where an
 * answer begins or ends? Local. */
bool explain_edit_keeps(const bp_explain_settings *settings, const bp_explained *document,
                        int64_t k, int64_t place);
/** The target to explain if one pass predicts several (positions of a text, or words of a
 * translation): the one that the model is least sure of. Errors: BP_ERR_SYSTEM memory: the same on
 * all ranks. */
bp_err explain_edit_target(int64_t *k, bp_model *model, const bp_explain_settings *settings,
                           const bp_explained *document);
