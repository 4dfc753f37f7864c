/* The fewest replaced tokens that change what a model prefers (a class, a tag, the place where an
 * answer begins or ends, a word), or move the value of a regression by explain.change, as a beam
 * search finds them: an upper bound. Of an encoder-decoder tokens of the source are replaced.
 * Collective over settings->group. */
#ifndef BP_EXPLAIN_EDITS_H
#define BP_EXPLAIN_EDITS_H

#include "explain/perturbation/variants.h"

#define EXPLAIN_EDITS 16 /* the most that can be asked for */

typedef struct explain_edit {
    int64_t count; /* of replacements; -1: none was found */
    int64_t place[EXPLAIN_EDITS];
    int32_t old[EXPLAIN_EDITS], token[EXPLAIN_EDITS];
    int32_t choice, other; /* what is preferred before and after; of a regression 0, and -1 where
                              its value fell, 1 where it rose */
    double before, after;  /* ln p(choice); the value */
    int64_t texts,
        changed; /* that were run; of the last number of replacements those that change */
} explain_edit;

/** Of target k: each state of the beam tries, at each place that it has not replaced, the
 * 5 tokens of the largest first-order falls of ln p(choice); all are run. Where one or
 * more change what is preferred, that of them with the lowest ln p(choice) is the result; else the
 * explain.beam lowest go on. A regression's value is searched both ways; fewer replacements, or the
 * larger change, win. Errors: those of explain_flips_find and explain_variants_end. */
bp_err explain_edit_find(explain_edit *out, bp_model *lm, const bp_explain_settings *settings,
                         const bp_explained *document, int64_t k);

/** Does a token stay because target k is about it: of the word whose tag it is, or where an answer
 * begins or ends? Local. */
bool explain_edit_keeps(const bp_explain_settings *settings, const bp_explained *document,
                        int64_t k, int64_t place);
/** Which target is explained where one pass predicts several at places of a text, or words of a
 * translation: the one that the model is least sure of. Errors: BP_ERR_SYSTEM memory: the same on
 * all ranks. */
bp_err explain_edit_target(int64_t *k, bp_model *lm, const bp_explain_settings *settings,
                           const bp_explained *document);

#endif
