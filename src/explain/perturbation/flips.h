/* HotFlip: for each place, the tokens with the largest first-order changes of ln p(target).
 * Collective over settings->group. Source: Ebrahimi et al. 2018, "HotFlip: White-box adversarial
 * examples for text classification". */
#pragma once

#include "explain/method.h"

#define EXPLAIN_FLIP_ROWS 1024 /* word vectors looked up together */

/** Replacements of each place: by their change of ln p(target), the largest decrease first, the
 * smaller id of equal ones; -1: no more, or a place that is not changed. */
typedef struct explain_flips {
    int64_t positions, each;
    int32_t *token; /* [positions][each] */
    double *change; /* [positions][each]: (E_v - e)'g */
} explain_flips;

/** A text whose tokens are replaced: the inputs of a document, or its source. Borrowed. */
typedef struct explain_text {
    const int32_t *tokens;
    int64_t count;
    bool of_source;
} explain_text;
/** The text replaced for target k: the source if there is one, else the inputs that the target
 * depends on. Local. */
explain_text explain_text_of(const bp_explain_settings *settings, const bp_explained *document,
                             int64_t k);

/** Is this input of a document, or of a text made from it, never replaced? */
typedef bool (*explain_is_kept)(const void *context, int64_t place);

void explain_flips_init(explain_flips *out, int64_t positions, int64_t each);
void explain_flips_clear(explain_flips *flips);
/** Replacements by ordinary tokens. Shapes: text->tokens[positions];
 * gradients[positions][vector_width]. Errors: BP_ERR_SYSTEM memory; BP_ERR_STOPPED: the same on all
 * ranks. */
bp_err explain_flips_find(explain_flips *out, bp_model *model, const bp_explain_settings *settings,
                          const explain_text *text, const float *gradients, explain_is_kept is_kept,
                          const void *context);
